"""Which frameworks can be patched, which are patched in this process, and what became of their targets.

Those that can be are found by listing `patches/`: nothing of a framework is imported to know them.
All of it is idempotent: a framework asked for twice, by two threads, or while it is being imported, is patched once.
"""

from __future__ import annotations

import difflib
import importlib
from collections import Counter
from functools import partial
from typing import Any, Callable, Sequence

from .. import faults, patches
from ..errors import PatchError
from ..host import listing
from . import reach, versions
from .active import Active, lock
from .declare import Patch
from .placed import calls_by_site
from .presence import Presence
from .report import PatchReport, Reason, TargetState

EXTRA_SUFFIX = "+extra"
_actives: list[Active] = []


def list_frameworks() -> list[str]:
    """Import roots of all frameworks that have a patch file, sorted."""
    return listing.modules_in(patches.__path__)


def load_patch(name: str) -> Patch:
    """The patch of one framework. Raises PatchError where there is none of that name, and names the nearest."""
    root = name.partition(".")[0]
    named = {patch.framework: patch for patch in (_of_file(root) if root in list_frameworks() else ())}
    if name not in named:
        near = difflib.get_close_matches(root_of(name).lower().replace("-", "_"), list_frameworks(), n=2, cutoff=0.5)
        advice = f"; did you mean {' or '.join(near)}?" if near else ""
        raise PatchError(f"no framework {name!r} to patch{advice}; known: {', '.join(list_frameworks())}")
    return named[name]


def _of_file(name: str) -> list[Patch]:
    """A framework's patch, and what of it is on by default where that is not."""
    try:
        module = importlib.import_module(f"{patches.__name__}.{name}")
    except (OSError, MemoryError) as exc:
        faults.note_fault(f"loading the patch of {name}", exc)
        return []
    return [module.PATCH, *getattr(module, "ALWAYS", ())]


def choose_patches(wanted: tuple[str, ...]) -> list[tuple[Patch, bool]]:
    """The patches of these names, `+extra` for the tier that is off by default; no name: every one that is on by
    default. Raises PatchError where a name is unknown.
    """
    if not wanted:
        return [(patch, False) for name in list_frameworks() for patch in _of_file(name) if patch.default]
    return [(load_patch(root_of(name)), name.endswith(EXTRA_SUFFIX)) for name in wanted]


def root_of(name: str) -> str:
    """The framework of a name, with or without `+extra`."""
    return name.removesuffix(EXTRA_SUFFIX)


def install_patches(chosen_patches: Sequence[tuple[Patch, bool]]) -> None:
    """Patch these frameworks, each with whether its extra tier is wanted: now as far as they are imported, the rest
    when it is. Never raises for their sake.
    """
    with lock:
        for patch, has_extra in chosen_patches:
            active = next((active for active in _actives if active.patch == patch), None)
            if active is None:
                active = Active(patch, has_extra)
                _actives.append(active)  # a handler of a signal may remove it from here on
                _guard_act(patch, active.watch)
                _guard_act(patch, partial(versions.warn_of_version, patch, active.version))
            elif has_extra and not active.has_extra:
                active.has_extra = True
                _guard_act(patch, active.look_again)
            else:
                look_at_targets(mends=True)


def remove_patches(frameworks: Sequence[str] = ()) -> None:
    """Put back what `install_patches` has replaced in these frameworks; in all, without a name. Never raises."""
    with lock:
        for active in reversed(_actives[:]):
            if active in _actives and (not frameworks or active.patch.framework in frameworks):
                _actives[:] = [other for other in _actives if other is not active]
                _guard_act(active.patch, partial(active.remove, _actives))
        for active in _actives:
            if any(placed.state is not None and placed.state.reason == Reason.HAS_RANGE for placed in active.placed):
                _guard_act(active.patch, active.look_again)  # it may have it now


def _guard_act(patch: Patch, act: Callable[[], object]) -> None:
    try:
        act()
    except Exception as exc:
        faults.note_fault(f"patching or unpatching {patch.framework}", exc)


def report_targets() -> PatchReport:
    """Every target of every framework that is on, with its state in this process, by what its places hold now."""
    with lock:
        look_at_targets()
        notes = [note for active in _actives for note in active.patch.notes]
        return PatchReport(tuple(list_states()), tuple(notes))


def look_at_targets(mends: bool = False) -> None:
    """See whether what was applied is in its place, and was called. `mends`: see `Active.look`.

    Cost: some 10 µs for each target that is applied.
    """
    with lock:
        counted = calls_by_site()
        sites = Counter(site for active in _actives for placed in active.placed for site in placed.sites())
        counted.update({site: None for site, count in sites.items() if count > 1})
        for active in _actives:
            _guard_act(active.patch, partial(active.look, counted, mends))


def list_states(presence: Presence | None = None) -> list[TargetState]:
    """The targets of `report_targets`, without a look at their places. Who asks often keeps the `presence`: what it has
    looked for is not looked for again.
    """
    with lock:
        presence = presence or Presence()
        return [state for active in _actives for state in active.report(presence)]


def patch_travelled(cls: type) -> None:
    """Patch a class that arrived by value, and the ones it is derived from. Never raises."""
    for base in cls.__mro__:
        for active in [] if reach.is_imported(base) else list(_actives):
            _guard_act(active.patch, partial(active.travelled, base))


def patched_copy(function: Any) -> Any:
    """A function that arrived by value, with the range of the target that names it; else itself. Never raises."""
    for active in list(_actives):
        try:
            function = active.patched_copy(function)
        except Exception as exc:
            faults.note_fault("patching a function that arrived by value", exc)
    return function


def list_roles() -> dict[str, str | None]:
    """Ray actor class name to process role, of all frameworks that are on; None where the first stage tells it."""
    return {name: role for active in _actives for name, role in active.patch.roles.items()}


def frameworks_on() -> list[str]:
    """Names of the frameworks that are on."""
    return [active.patch.framework for active in _actives]
