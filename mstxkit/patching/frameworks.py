"""The frameworks that can be patched, found by listing `patches/`; nothing of a framework is imported to know them."""

from __future__ import annotations

import difflib
import importlib
import pkgutil

from .. import patches
from ..errors import PatchError
from .declare import Patch

EXTRA_SUFFIX = "+extra"


def known() -> list[str]:
    """Import roots of all frameworks that have a patch file, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(patches.__path__) if not module.name.startswith("_"))


def load(name: str) -> Patch:
    """The patch of one framework.

    Raises:
        PatchError: there is none of that name; the message names the nearest.
    """
    if name not in known():
        raise PatchError(f"no framework {name!r} to patch{_nearest(name)}; known: {', '.join(known())}")
    patch: Patch = importlib.import_module(f"{patches.__name__}.{name}").PATCH
    return patch


def chosen(names: tuple[str, ...]) -> list[tuple[Patch, bool]]:
    """The patches of these names, `+extra` for the tier that is off by default; no name: every one that is on by
    default.

    Raises:
        PatchError: a name is unknown.
    """
    if not names:
        return [(patch, False) for patch in map(load, known()) if patch.default]
    return [(load(name[: -len(EXTRA_SUFFIX)]), True) if has_extra(name) else (load(name), False) for name in names]


def has_extra(name: str) -> bool:
    """Does this name ask for the extra tier?"""
    return name.endswith(EXTRA_SUFFIX)


def _nearest(name: str) -> str:
    plain = name[: -len(EXTRA_SUFFIX)] if has_extra(name) else name
    near = difflib.get_close_matches(plain.lower().replace("-", "_"), known(), n=2, cutoff=0.5)
    return f"; did you mean {' or '.join(near)}?" if near else ""
