"""Which frameworks are patched in this process: hooks on their modules, every target's state, and the way back.

All of it is idempotent: a framework asked for twice, by two threads, or while it is being imported, is patched once.
"""

from __future__ import annotations

import sys
from _thread import RLock
from functools import partial
from types import FunctionType, ModuleType
from typing import Any, Callable, Sequence

from .. import faults, imports, signatures
from . import apply, propagate, reach
from .apply import Change, Made
from .declare import EXTRA, RANGE, VALUE, Patch, Target
from .presence import Presence
from .reach import Place, Unreached
from .report import APPLIED, FAILED, SKIPPED, WAITING, PatchReport, Reason, TargetState
from .seams import OpenSeam

_lock = RLock()


class Active:
    """One patch that is on, and what became of it.

    Args:
        patch: What is declared.
        has_extra: Is its extra tier on?
    """

    def __init__(self, patch: Patch, has_extra: bool) -> None:
        self.patch, self.has_extra = patch, has_extra
        self.has_late_steps = any(target.step_after is not None for target in patch.targets)
        # By id of the target: a path may be declared twice, for different versions.
        self.states: dict[int, TargetState] = {}
        self.changes: dict[int, list[Change]] = {}
        # What was copied by name before it was patched is found by its id here.
        self.copied: dict[int, tuple[int, Change]] = {}
        self.seam = None if patch.seam is None else OpenSeam(patch.seam)
        self.undos: list[Any] = []
        self.is_installing = True

    def modules(self) -> list[str]:
        """Full names of the modules that it patches; the seam's first, which must be open before others import it."""
        names = [target.module for target in self.patch.targets]
        return list(dict.fromkeys(names if self.patch.seam is None else [self.patch.seam.module, *names]))

    def watch(self) -> None:
        """Patch what is imported, and the rest when it is."""
        for name in self.modules():
            self.undos.append(imports.when_imported(name, partial(self.arrived)))
        self.is_installing = False
        self.reach_copies(propagate.loaded_modules())

    def arrived(self, module: ModuleType) -> None:
        """A module of the framework is there: patch the targets in it."""
        with _lock:
            if self.seam is not None and module.__name__ == self.seam.seam.module:
                self.seam.open(module)
            copied = len(self.copied)
            for target in self.patch.targets:
                if target.module == module.__name__:
                    self.states[id(target)] = self.patched(target)
            if not self.is_installing:
                # Only functions of a module are copied by name, and finding the copies takes milliseconds.
                if self.seam is not None or len(self.copied) > copied:
                    self.reach_copies(propagate.near(module))
                _tell_change()

    def patched(self, target: Target) -> TargetState:
        """Patch one target, all of it or nothing; its state."""
        state = self._refused(target)
        if state is not None or self.changes.get(id(target)):
            return state or self.states[id(target)]
        try:
            return self._replace(target, reach.found(target))
        except Unreached as exc:
            return self.state(target, FAILED if exc.reason in _FAILURES else SKIPPED, exc.reason, exc.detail)
        except Exception as exc:
            return self.state(target, FAILED, Reason.FAILED, f"{type(exc).__name__}: {exc}")

    def _refused(self, target: Target) -> TargetState | None:
        if target.tier == EXTRA and not self.has_extra:
            return self.state(target, SKIPPED, Reason.DISABLED_TIER, f"on with {self.patch.framework}+extra")
        if target.unless is not None and reach.exists(target.unless):
            return self.state(target, SKIPPED, Reason.SUPERSEDED, target.unless)
        return None

    def _replace(self, target: Target, places: Sequence[Place]) -> TargetState:
        done: list[Change] = []
        try:
            for place in places:
                for change in self._changes(target, place):
                    change.make()
                    done.append(change)
        except BaseException:
            for change in reversed(done):
                change.undo()
            raise
        self.changes[id(target)] = done
        problems = [problem for change in self._main_changes(target) for problem in apply.problems_of(change.after)]
        return self.state(target, APPLIED, detail="; ".join(problems))

    def _changes(self, target: Target, place: Place) -> list[Change]:
        """What has to be replaced for one place: the function, and in its class and derived ones every copy of it."""
        made = self._made(place.raw)
        inner = [] if made is not None else apply.beneath(place.raw, self._made)
        below = inner[-1].stored() if inner else None
        new = apply.replacement(target, place, made, self.has_late_steps, below)
        if new is place.raw:  # a delegation layer without a range of its own
            return inner
        change = Change(place.holder, place.attribute, _before(place.raw, made), new, place.is_own)
        if isinstance(place.holder, type):
            return [*inner, change, *self._in_classes(place, change)]
        if isinstance(place.raw, FunctionType) and target.kind != VALUE:
            self.copied[id(place.raw)] = (id(target), change)
        return [*inner, change]

    def _made(self, raw: Any) -> Made | None:
        """Is this a range of the framework's own, or what came through its seam instead of one?"""
        through_seam = self.seam.made(raw) if self.seam is not None else None
        return through_seam or apply.made_by_seam(raw, self.patch.seam)

    def _in_classes(self, place: Place, change: Change) -> list[Change]:
        copies = propagate.in_classes(place.holder, place.raw, change.after)
        own = (place.holder, place.attribute)
        return [copy._replace(before=change.before) for copy in copies if (copy.holder, copy.attribute) != own]

    def reach_copies(self, modules: Sequence[ModuleType]) -> None:
        """Replace what `from x import y` has copied before its target was patched."""
        replaced = {key: (change.before, change.after) for key, (_, change) in self.copied.items()}
        owners = {id(change.after): target for target, change in self.copied.values()}
        for copy in propagate.in_modules(replaced, modules) if replaced else ():
            copy.make()
            self.changes[owners[id(copy.after)]].append(copy)

    def travelled(self, cls: type) -> None:
        """Patch a class that Ray has brought by value: no module holds it."""
        with _lock:
            for target in self.patch.targets:
                parents, _, _ = target.qualname.rpartition(".")
                if target.module == cls.__module__ and parents == cls.__qualname__ and not self._refused(target):
                    self.states[id(target)] = self._patched_in(cls, target)
                    _tell_change()

    def patched_copy(self, function: Any) -> Any:
        """What to run instead of a function that Ray has brought by value: what a module holds of it stays as it is."""
        for target in self.patch.targets:
            named = (target.module, target.qualname) == (function.__module__, function.__qualname__)
            if named and target.kind == RANGE and not self._refused(target):
                patched = self._copied(target, function)
                self.states.setdefault(id(target), self.state(target, APPLIED, detail="it arrived by value"))
                _tell_change()
                return patched
        return function

    def _copied(self, target: Target, function: Any) -> Any:
        if apply.has_range(function):  # given to it where it was made
            apply.limit(target, function)
            return function
        place = Place(None, target.qualname, function, True, target.qualname)
        return apply.replacement(target, place, apply.made_by_seam(function, self.patch.seam), self.has_late_steps)

    def _patched_in(self, cls: type, target: Target) -> TargetState:
        try:
            places = reach.held_by_class(cls, target)
            if all(apply.has_range(place.raw) for place in places):  # given to it where it was made
                for place in places:
                    apply.limit(target, place.raw)
                return self.state(target, APPLIED, detail="it arrived with its range")
            return self._replace(target, places)
        except Unreached as exc:
            return self.state(target, FAILED if exc.reason in _FAILURES else SKIPPED, exc.reason, exc.detail)
        except Exception as exc:
            return self.state(target, FAILED, Reason.FAILED, f"{type(exc).__name__}: {exc}")

    def state(self, target: Target, state: str, reason: str = "", detail: str = "") -> TargetState:
        """The state of a target of this patch."""
        name = target.name or target.qualname
        return TargetState(self.patch.framework, target.path, state, reason, detail, target.tier, name, target.stage)

    def known(self) -> list[TargetState]:
        """Every target in the order declared; what has not been patched yet is waiting."""
        return [
            self.states.get(id(one)) or self._refused(one) or self.state(one, WAITING, Reason.NOT_IMPORTED)
            for one in self.patch.targets
        ]

    def report(self, presence: Presence, is_thorough: bool) -> list[TargetState]:
        """As `known`, with what cannot come; thorough: and with who else holds what was replaced."""
        return [self._looked_up(*one, presence, is_thorough) for one in zip(self.patch.targets, self.known())]

    def _looked_up(self, target: Target, state: TargetState, presence: Presence, is_thorough: bool) -> TargetState:
        if state.state == WAITING:
            return self.state(target, *presence.of_module(target.module))
        if is_thorough and state.state == APPLIED and not state.detail:
            return state._replace(detail=self._elsewhere(target))
        return state

    def _elsewhere(self, target: Target) -> str:
        """Copies of a function that could not be reached: they are calls without a range."""
        counted: dict[str, int] = {}
        for change in self._main_changes(target):
            function = change.before
            if isinstance(function, FunctionType) and sys.getrefcount(function) > _EXPECTED_REFERENCES:
                counted = propagate.unreached(function, self._holders(target))
        if not counted:
            return ""
        held = ", ".join(f"{count} {kind}" for kind, count in sorted(counted.items()))
        return f"also held, without a range, by: {held}"

    def _holders(self, target: Target) -> list[Any]:
        """Our own references to a function that was replaced."""
        wrapper = getattr(self._main_changes(target)[0].after, "__func__", None) or self._main_changes(target)[0].after
        return [*self.changes[id(target)], vars(wrapper), getattr(wrapper, "__globals__", None)]

    def _main_changes(self, target: Target) -> list[Change]:
        """The first change of what the target names itself; not of what was beneath it."""
        named = [c for c in self.changes.get(id(target), ()) if c.attribute not in ("cell_contents", "__wrapped__")]
        return named[:1]

    def remove(self) -> None:
        """Put everything back, and reach what was copied in the meantime."""
        for undo in self.undos:
            undo()
        values = {id(target) for target in self.patch.targets if target.kind == VALUE}
        own = [change for target, changes in self.changes.items() if target not in values for change in changes]
        if self.seam is not None:
            own += self.seam.changes()
        _undo([change for target in values for change in self.changes.get(target, ())])
        _undo(own)
        _put_back_copies(own)
        _silence(own)
        if self.seam is not None:
            self.seam.silence()
        for table in (self.states, self.changes, self.copied):
            table.clear()


# Ours (wrapper's globals, its __wrapped__, the change), the code that asks, and what every function may have.
_EXPECTED_REFERENCES = 5
_FAILURES = (Reason.FAILED, Reason.NOT_PATCHABLE, Reason.OUT_OF_REACH)
_actives: list[Active] = []


def _before(raw: Any, made: Made | None) -> Any:
    """What is put back: without us there would be the framework's own range."""
    return raw if made is None else made.upstream


# Called when states have changed.
on_change: Callable[[], None] | None = None


def _tell_change() -> None:
    if on_change is not None:
        on_change()


def _where(change: Change) -> str:
    name = getattr(change.holder, "__qualname__", getattr(change.holder, "__name__", type(change.holder).__name__))
    return f"{name}.{change.attribute}"


def _undo(changes: Sequence[Change]) -> None:
    for change in reversed(changes):
        if not change.undo():
            faults.warn_once("unpatch", f"{_where(change)} was replaced by somebody else since, and is left so")


def _silence(changes: Sequence[Change]) -> None:
    """Copies out of reach hold our wrappers for good: they are calls without a range from now on."""
    for wrapper in {id(change.after): change.after for change in changes}.values():
        function = getattr(wrapper, "__func__", getattr(wrapper, "fget", wrapper))
        held = signatures.held_by(function)
        if held is not None:
            signatures.silence(function, held["function"])


def _put_back_copies(changes: Sequence[Change]) -> None:
    """Names and class attributes that were bound to a wrapper after it was put in its place."""
    wrappers = {id(c.after): (c.after, c.before) for c in changes if isinstance(c.after, FunctionType)}
    for back in propagate.in_modules(wrappers, propagate.loaded_modules()):
        back.make()
    for change in changes:
        if isinstance(change.holder, type):
            for back in propagate.in_classes(change.holder, change.after, change.before):
                back.make()


def install(patches: Sequence[tuple[Patch, bool]]) -> None:
    """Patch these frameworks: now as far as they are imported, the rest when it is. Never raises for their sake.

    Args:
        patches: Each with whether its extra tier is wanted.
    """
    with _lock:
        for patch, has_extra in patches:
            known = next((active for active in _actives if active.patch == patch), None)
            if known is None:
                _actives.append(Active(patch, has_extra))
                _actives[-1].watch()
            elif has_extra and not known.has_extra:
                known.has_extra = True
                for module in filter(None, map(sys.modules.get, known.modules())):
                    known.arrived(module)
                known.reach_copies(propagate.loaded_modules())


def remove(frameworks: Sequence[str] = ()) -> None:
    """Put back what `install` has replaced in these frameworks; in all, without a name. Never raises."""
    with _lock:
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
    with _lock:
        presence = Presence()
        states = [state for active in _actives for state in active.report(presence, is_thorough)]
        notes = [note for active in _actives for note in active.patch.notes]
    return PatchReport(tuple(states), tuple(notes))


def states() -> list[TargetState]:
    """As the targets of `report`, without a look at what is installed or out of reach: what has not come is waiting."""
    with _lock:
        return [state for active in _actives for state in active.known()]


def patch_travelled(cls: type) -> None:
    """Patch a class that arrived by value, and the ones it is derived from. Never raises."""
    for one in cls.__mro__:
        for active in list(_actives):
            try:
                active.travelled(one)
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
