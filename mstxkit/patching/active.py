"""One framework while it is patched: hooks on its modules, what became of each of its targets, and the way back."""

from __future__ import annotations

import sys
from functools import partial
from types import FunctionType, ModuleType
from typing import Any, Callable, Sequence

from ..host import imports
from ..pieces import sampling
from . import apply, reach, replacements
from .declare import EXTRA, RANGE, VALUE, Patch, Target
from .presence import Presence
from .reach import FunctionPlace, Unreached
from .replacements import Replacement
from .report import APPLIED, FAILED, SKIPPED, WAITING, Reason, TargetState
from .seams import OpenSeam

# Held while patching and putting back: a function is replaced once, whatever threads do.
lock = imports.own_lock()
# Called when states have changed.
on_change: Callable[[], None] | None = None
_FAILURES = (Reason.FAILED, Reason.NOT_PATCHABLE)
_BENEATH = ("cell_contents", "__wrapped__")


class Active:
    """One patch that is on, with or without its extra tier, and what became of it."""

    def __init__(self, patch: Patch, has_extra: bool) -> None:
        self.patch, self.has_extra = patch, has_extra
        # What a wildcard names too is patched as the target of its own says.
        self._ordered = sorted(patch.targets, key=lambda target: "*" in target.qualname)
        self.has_late_steps = any(target.step_after is not None for target in patch.targets)
        # By id of the target: a path may be declared twice, for different versions.
        self.states: dict[int, TargetState] = {}
        self.changes: dict[int, list[Replacement]] = {}
        # What was copied by name before it was patched is found by its id here.
        self.copied: dict[int, tuple[int, Replacement]] = {}
        self.seam = None if patch.seam is None else OpenSeam(patch.seam)
        self.undos: list[Any] = []
        self.is_installing = True

    def modules(self) -> list[str]:
        """Full names of the modules that it patches; the seam's first, which must be open before others import it."""
        names = [name for target in self.patch.targets for name in _needed(target)]
        return list(dict.fromkeys(names if self.patch.seam is None else [self.patch.seam.module, *names]))

    def watch(self) -> None:
        """Patch what is imported, and the rest when it is."""
        for name in self.modules():
            self.undos.append(imports.when_imported(name, partial(self.arrived, name)))
        self.is_installing = False
        self.reach_copies()

    def look_again(self) -> None:
        """Patch what of the extra tier is imported already."""
        for name in self.modules():
            if sys.modules.get(name) is not None:
                self.arrived(name, sys.modules[name])
        self.reach_copies()

    def arrived(self, name: str, module: Any) -> None:
        """A module of the framework is there, under this name: patch the targets in it."""
        with lock:
            if self.seam is not None and name == self.seam.seam.module and isinstance(module, ModuleType):
                self.seam.open(module)
            copied = len(self.copied)
            for target in self._ordered:
                if name in _needed(target) and all(sys.modules.get(other) is not None for other in _needed(target)):
                    self._install(target)
            if not self.is_installing:
                # Only functions of a module are copied by name, and finding the copies takes milliseconds.
                if self.seam is not None or len(self.copied) > copied:
                    self.reach_copies(name)
                _tell_change()

    def _install(self, target: Target) -> None:
        state = self._refused(target)
        if state is not None or not self.changes.get(id(target)):
            self.states[id(target)] = state or self._patched(target)

    def _refused(self, target: Target) -> TargetState | None:
        if target.tier == EXTRA and not self.has_extra:
            return self._state(target, SKIPPED, Reason.DISABLED_TIER, f"on with {self.patch.framework}+extra")
        if target.unless is not None and reach.exists(target.unless):
            return self._state(target, SKIPPED, Reason.SUPERSEDED, target.unless)
        return None

    def _patched(self, target: Target, cls: type | None = None) -> TargetState:
        """Patch one target, all of it or nothing; its state. `cls`: in this class, which arrived by value."""
        try:
            places = reach.places(target, cls)
            if cls is not None and all(apply.has_range(place.raw) for place in places):
                for place in places:  # given to it where it was made
                    apply.settle(target, place.raw)
                return self._state(target, APPLIED, detail="it arrived with its range")
            if "*" in target.qualname:  # what has a range already keeps that
                places = [place for place in places if self._is_free(place)] or places
            changes = self._replace(target, places)
            # A class may arrive by value where a module's own of that name has been patched.
            self.changes.setdefault(id(target), []).extend(changes)
        except Unreached as exc:
            return self._state(target, FAILED if exc.reason in _FAILURES else SKIPPED, exc.reason, exc.detail)
        except Exception as exc:
            return self._state(target, FAILED, Reason.FAILED, f"{type(exc).__name__}: {exc}")
        problems = [problem for change in _named(changes) for problem in change.problems]
        return self._state(target, APPLIED, detail="; ".join(problems))

    def _is_free(self, place: FunctionPlace) -> bool:
        return not apply.has_range(place.raw) or (self.seam is not None and self.seam.made(place.raw) is not None)

    def _replace(self, target: Target, places: Sequence[FunctionPlace]) -> list[Replacement]:
        done: list[Replacement] = []
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
        return done

    def _changes(self, target: Target, place: FunctionPlace) -> list[Replacement]:
        """What has to be replaced for one place: the function, and in its class and derived ones every copy of it."""
        before, plain, inner, below = place.raw, place, [], None
        if self.seam is not None:
            made = self.seam.made(place.raw)
            if made is not None:  # without us there would be the framework's own range
                before, plain = made.upstream, place._replace(raw=made.inner)
            else:
                inner = self.seam.beneath(place.raw)
                below = inner[-1].stored() if inner else None
        change = apply.replacement(target, plain, self.has_late_steps, below)._replace(before=before)
        if change.after is place.raw:  # a delegation layer without a range of its own
            return inner
        if isinstance(place.holder, type):
            copies = replacements.in_classes(place.holder, place.raw, change.after)
            others = [copy for copy in copies if (copy.holder, copy.attribute) != (place.holder, place.attribute)]
            return [*inner, change, *(copy._replace(before=before) for copy in others)]
        if isinstance(place.raw, FunctionType) and target.kind != VALUE:
            self.copied[id(place.raw)] = (id(target), change)
        return [*inner, change]

    def reach_copies(self, name: str | None = None) -> None:
        """Replace what `from x import y` has copied before its target was patched: near this module, or anywhere."""
        if not self.copied:
            return
        replaced = {key: (change.before, change.after) for key, (_, change) in self.copied.items()}
        owners = {id(change.after): target for target, change in self.copied.values()}
        modules = replacements.loaded_modules() if name is None else replacements.near(name)
        for copy in replacements.in_modules(replaced, modules):
            copy.make()
            self.changes[owners[id(copy.after)]].append(copy)

    def travelled(self, cls: type) -> None:
        """Patch a class that Ray has brought by value: no module holds it."""
        with lock:
            for target in self._ordered:
                parents, _, _ = target.qualname.rpartition(".")
                if target.module == cls.__module__ and parents == cls.__qualname__ and not self._refused(target):
                    self.states[id(target)] = self._patched(target, cls)
                    _tell_change()

    def patched_copy(self, function: Any) -> Any:
        """What to run instead of a function that Ray has brought by value: what a module holds of it stays as it is."""
        for target in self.patch.targets:
            named = (target.module, target.qualname) == (function.__module__, function.__qualname__)
            if named and target.kind == RANGE and not self._refused(target):
                patched = self._copied(target, function)
                self.states.setdefault(id(target), self._state(target, APPLIED, detail="it arrived by value"))
                _tell_change()
                return patched
        return function

    def _copied(self, target: Target, function: Any) -> Any:
        if apply.has_range(function):  # given to it where it was made
            apply.settle(target, function)
            return function
        made = None if self.seam is None else self.seam.made(function)
        raw = function if made is None else made.inner
        place = FunctionPlace(None, target.qualname, raw, True, target.qualname)
        return apply.replacement(target, place, self.has_late_steps).after

    def _state(self, target: Target, state: str, reason: str = "", detail: str = "") -> TargetState:
        return TargetState.of(self.patch.framework, target, state, reason, detail)

    def report(self, presence: Presence, is_thorough: bool = False) -> list[TargetState]:
        """Every target in the order declared.

        Args:
            presence: Tells whether what has not been patched yet can come.
            is_thorough: Also look for who else holds what was replaced.
        """
        return [self._reported(target, presence, is_thorough) for target in self.patch.targets]

    def _reported(self, target: Target, presence: Presence, is_thorough: bool) -> TargetState:
        state = self.states.get(id(target)) or self._refused(target)
        if state is None:
            return self._state(target, *_coming(target, presence))
        if is_thorough and state.state == APPLIED and not state.detail:
            changes = self.changes.get(id(target), [])
            for change in _named(changes):
                if change.is_own:  # copies that could not be reached are calls without a range
                    return state._replace(detail=replacements.held_elsewhere(change, changes))
        return state

    def remove(self) -> None:
        """Put everything back, and reach what was copied in the meantime."""
        for undo in self.undos:
            undo()
        values = {id(target) for target in self.patch.targets if target.kind == VALUE}
        own = [change for target, changes in self.changes.items() if target not in values for change in changes]
        if self.seam is not None:
            own += self.seam.changes()
        replacements.undo([change for target in values for change in self.changes.get(target, ())])
        replacements.put_back(own)
        if self.seam is not None:
            self.seam.silence()
        for target in self.patch.targets:
            sampling.unmark(target)
        for table in (self.states, self.changes, self.copied):
            table.clear()


def _needed(target: Target) -> tuple[str, ...]:
    """The modules that must be imported for it."""
    return (target.module,) if target.with_module is None else (target.module, target.with_module)


def _coming(target: Target, presence: Presence) -> tuple[str, str, str]:
    """State, reason and detail of a target for which a module is missing."""
    comings = [presence.of_module(name) for name in _needed(target)]
    return next((coming for coming in comings if coming[0] != WAITING), comings[0])


def _named(changes: Sequence[Replacement]) -> list[Replacement]:
    """The change of what a target names itself, without what was beneath it and its copies; [] for none."""
    return [change for change in changes if change.attribute not in _BENEATH][:1]


def _tell_change() -> None:
    if on_change is not None:
        on_change()
