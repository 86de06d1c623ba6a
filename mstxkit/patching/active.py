"""One framework while it is patched: hooks on its modules, what became of each of its targets, and the way back."""

from __future__ import annotations

from _thread import RLock
from functools import partial
from types import FunctionType, ModuleType
from typing import Any, Callable, Sequence

from .. import imports
from . import apply, propagate, reach, restore, sampling
from .apply import Change, Made
from .declare import EXTRA, RANGE, VALUE, Patch, Target
from .presence import Presence
from .reach import Place, Unreached
from .report import APPLIED, FAILED, SKIPPED, WAITING, Reason, TargetState
from .seams import OpenSeam

# Whoever patches or puts back holds it: a function is replaced once, whatever threads do.
lock = RLock()
# Called when states have changed.
on_change: Callable[[], None] | None = None
_FAILURES = (Reason.FAILED, Reason.NOT_PATCHABLE, Reason.OUT_OF_REACH)
_BENEATH = ("cell_contents", "__wrapped__")


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
        with lock:
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
        return self._attempt(target, lambda: self._replace(target, reach.found(target)))

    def _attempt(self, target: Target, patching: Callable[[], TargetState]) -> TargetState:
        """The state that `patching` gives, or why it could not."""
        try:
            return patching()
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
            sampling.unmark(target)
            raise
        self.changes[id(target)] = done
        problems = [problem for change in _named(done) for problem in apply.problems_of(change.after)]
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
        with lock:
            for target in self.patch.targets:
                parents, _, _ = target.qualname.rpartition(".")
                if target.module == cls.__module__ and parents == cls.__qualname__ and not self._refused(target):
                    self.states[id(target)] = self._attempt(target, partial(self._patched_in, cls, target))
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
            apply.settle(target, function)
            return function
        place = Place(None, target.qualname, function, True, target.qualname)
        return apply.replacement(target, place, apply.made_by_seam(function, self.patch.seam), self.has_late_steps)

    def _patched_in(self, cls: type, target: Target) -> TargetState:
        places = reach.held_by_class(cls, target)
        if not all(apply.has_range(place.raw) for place in places):
            return self._replace(target, places)
        for place in places:  # given to it where it was made
            apply.settle(target, place.raw)
        return self.state(target, APPLIED, detail="it arrived with its range")

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
        changes = self.changes.get(id(target), [])
        return next((propagate.held_elsewhere(named, changes) for named in _named(changes) if named.is_own), "")

    def remove(self) -> None:
        """Put everything back, and reach what was copied in the meantime."""
        for undo in self.undos:
            undo()
        values = {id(target) for target in self.patch.targets if target.kind == VALUE}
        own = [change for target, changes in self.changes.items() if target not in values for change in changes]
        if self.seam is not None:
            own += self.seam.changes()
        restore.undo([change for target in values for change in self.changes.get(target, ())])
        restore.undo(own)
        restore.copies(own)
        restore.silence(own)
        if self.seam is not None:
            self.seam.silence()
        for target in self.patch.targets:
            sampling.unmark(target)
        for table in (self.states, self.changes, self.copied):
            table.clear()


def _named(changes: Sequence[Change]) -> list[Change]:
    """The change of what a target names itself, without what was beneath it and its copies; [] for none."""
    return [change for change in changes if change.attribute not in _BENEATH][:1]


def _before(raw: Any, made: Made | None) -> Any:
    """What is put back: without us there would be the framework's own range."""
    return raw if made is None else made.upstream


def _tell_change() -> None:
    if on_change is not None:
        on_change()
