"""The frameworks that can be patched, found by listing `patches/`; nothing of a framework is imported to know them."""

from __future__ import annotations

import difflib
import importlib
import pkgutil

from .. import patches
from ..errors import PatchError
from .declare import Patch

EXTRA_SUFFIX = "+extra"


def names() -> list[str]:
    """Import roots of all frameworks that have a patch file, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(patches.__path__) if not module.name.startswith("_"))


def load(name: str) -> Patch:
    """The patch of one framework.

    Raises:
        PatchError: there is none of that name; the message names the nearest.
    """
    if name not in names():
        plain = name[: -len(EXTRA_SUFFIX)] if has_extra(name) else name
        near = difflib.get_close_matches(plain.lower().replace("-", "_"), names(), n=2, cutoff=0.5)
        advice = f"; did you mean {' or '.join(near)}?" if near else ""
        raise PatchError(f"no framework {name!r} to patch{advice}; known: {', '.join(names())}")
    patch: Patch = importlib.import_module(f"{patches.__name__}.{name}").PATCH
    return patch


def chosen(wanted: tuple[str, ...]) -> list[tuple[Patch, bool]]:
    """The patches of these names, `+extra` for the tier that is off by default; no name: every one that is on by
    default.

    Raises:
        PatchError: a name is unknown.
    """
    if not wanted:
        return [(patch, False) for patch in map(load, names()) if patch.default]
    return [(load(name[: -len(EXTRA_SUFFIX)]), True) if has_extra(name) else (load(name), False) for name in wanted]


def has_extra(name: str) -> bool:
    """Does this name ask for the extra tier?"""
    return name.endswith(EXTRA_SUFFIX)
