"""Which frameworks are patched in this process, and what became of their targets.

All of it is idempotent: a framework asked for twice, by two threads, or while it is being imported, is patched once.
"""

from __future__ import annotations

import sys
from typing import Any, Sequence

from .. import faults
from . import reach
from .active import Active, lock
from .declare import Patch
from .report import PatchReport, TargetState

_actives: list[Active] = []


def install(patches: Sequence[tuple[Patch, bool]]) -> None:
    """Patch these frameworks: now as far as they are imported, the rest when it is. Never raises for their sake.

    Args:
        patches: Each with whether its extra tier is wanted.
    """
    with lock:
        for patch, has_extra in patches:
            active = next((active for active in _actives if active.patch == patch), None)
            if active is None:
                _actives.append(Active(patch, has_extra))
                _actives[-1].watch()
            elif has_extra and not active.has_extra:
                active.has_extra = True
                for module in filter(None, map(sys.modules.get, active.modules())):
                    active.arrived(module)
                active.reach_copies()


def remove(frameworks: Sequence[str] = ()) -> None:
    """Put back what `install` has replaced in these frameworks; in all, without a name. Never raises."""
    with lock:
        for active in reversed(_actives[:]):
            if not frameworks or active.patch.framework in frameworks:
                _actives.remove(active)
                try:
                    active.remove()
                except Exception as exc:
                    faults.note(f"unpatching {active.patch.framework}", exc)


def report(is_thorough: bool = True) -> PatchReport:
    """Every target of every framework that is on, with its state in this process.

    Args:
        is_thorough: Also look for who else holds a function that was replaced: a walk over all objects, tens of
            milliseconds for each function that somebody holds.
    """
    with lock:
        presence = reach.Presence()
        states = [state for active in _actives for state in active.report(presence, is_thorough)]
        notes = [note for active in _actives for note in active.patch.notes]
    return PatchReport(tuple(states), tuple(notes))


def states() -> list[TargetState]:
    """The targets of `report`, without a look at what is installed or held elsewhere: what has not come is waiting."""
    with lock:
        return [state for active in _actives for state in active.report()]


def patch_travelled(cls: type) -> None:
    """Patch a class that arrived by value, and the ones it is derived from. Never raises."""
    for base in cls.__mro__:
        for active in [] if reach.is_imported(base) else list(_actives):
            try:
                active.travelled(base)
            except Exception as exc:
                faults.note("patching a class that arrived by value", exc)


def patched_copy(function: Any) -> Any:
    """A function that arrived by value, with the range of the target that names it; else itself. Never raises."""
    for active in list(_actives):
        try:
            function = active.patched_copy(function)
        except Exception as exc:
            faults.note("patching a function that arrived by value", exc)
    return function


def roles() -> dict[str, str | None]:
    """Ray actor class name to process role, of all frameworks that are on; None where the first stage tells it."""
    return {name: role for active in _actives for name, role in active.patch.roles.items()}


def frameworks_on() -> list[tuple[str, bool]]:
    """Names of the frameworks that are on, and whether with their extra tier."""
    return [(active.patch.framework, active.has_extra) for active in _actives]
