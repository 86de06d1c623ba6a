"""One framework while it is patched: hooks on its modules, what became of each of its targets, and the way back."""

from __future__ import annotations

import sys
from functools import partial
from types import FunctionType
from typing import Any, Callable, Iterable, Sequence

from ..host import imports
from . import apply, reach, replacements, versions
from .declare import AROUND, EXTRA, RANGE, VALUE, Patch
from .holders import hand_over
from .placed import Calls, Placed, calls_by_site, name_owner
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


class Active:
    """One patch that is on, with or without its extra tier, and what became of it."""

    def __init__(self, patch: Patch, has_extra: bool) -> None:
        self.patch, self.has_extra, self.version = patch, has_extra, versions.describe_unknown(patch)
        self.placed = [Placed(patch.framework, target) for target in patch.targets]
        # What a wildcard names too is patched as the target of its own says.
        self._ordered = sorted(self.placed, key=lambda placed: "*" in placed.target.qualname)
        self.has_late_steps = any(target.step_after is not None for target in patch.targets)
        self._in_order: list[Placed] = []  # as they were installed
        # Functions of modules that were replaced: others may have copied them by name before.
        self._copied: list[tuple[Placed, Replacement]] = []
        self._exchanged: list[Replacement] = []  # those who hold what was there are still to get the new ones
        self.seam = OpenSeam(patch.seam)
        self.undos: list[Any] = []
        self.is_installing = True

    def modules(self) -> list[str]:
        """Full names of the modules that it patches; the seam's first, which must be open before others import it."""
        names = [name for placed in self.placed for name in placed.modules]
        return list(dict.fromkeys(names if self.patch.seam is None else [self.patch.seam.module, *names]))

    def watch(self) -> None:
        """Patch what is imported, and the rest when it is."""
        for name in self.modules():
            self.undos.append(imports.when_imported(name, partial(self.arrived, name)))
        self.is_installing = False
        self.reach_copies()

    def look_again(self) -> None:
        """Patch what of the extra tier is imported already, and what another patch had until now."""
        for name in self.modules():
            if sys.modules.get(name) is not None:
                self.arrived(name, sys.modules[name])
        self.reach_copies()

    def arrived(self, name: str, module: Any) -> None:
        """A module of the framework is there, under this name: patch the targets in it."""
        with lock:
            self.seam.open(name, module)
            installed = len(self._in_order)
            for placed in self._ordered:
                if name in placed.modules and all(sys.modules.get(other) is not None for other in placed.modules):
                    self._install_placed(placed)
            counted = calls_by_site() if len(self._in_order) > installed else {}
            for placed in self._in_order[installed:]:
                placed.calls_before = placed.calls(counted) or 0
            if not self.is_installing:
                self.reach_copies(name)
                _tell_change()

    def _install_placed(self, placed: Placed) -> None:
        state = self._refuse_target(placed)
        if state is not None or not placed.changes:
            placed.settled(state or self._patch_target(placed))
            self._in_order.append(placed)

    def _refuse_target(self, placed: Placed) -> TargetState | None:
        target = placed.target
        if target.tier == EXTRA and not self.has_extra:
            return placed.as_state(SKIPPED, Reason.DISABLED_TIER, f"on with {self.patch.framework}+extra")
        if target.unless is not None and reach.symbol_exists(target.unless):
            return placed.as_state(SKIPPED, Reason.SUPERSEDED, target.unless)
        return None

    def _patch_target(self, placed: Placed, cls: type | None = None) -> TargetState:
        """Patch one target, all of it or nothing; its state. `cls`: in this class, which arrived by value."""
        target = placed.target
        try:
            places = reach.find_places(target, cls)
            if cls is not None and all(apply.has_range(place.raw) for place in places):
                for place in places:  # given to it where it was made
                    placed.marks += apply.settle_site(target, place.raw)
                return placed.as_state(APPLIED, detail="it arrived with its range")
            if "*" in target.qualname:  # what has a range already keeps that
                made = self.seam.made
                places = [p for p in places if not apply.has_range(p.raw) or made(p.raw) is not None] or places
            changes = self._replace(placed, places)
            # A class may arrive by value where a module's own of that name has been patched.
            placed.changes += changes
        except Unreached as exc:
            return placed.as_state(FAILED if exc.reason in _FAILURES else SKIPPED, exc.reason, exc.detail)
        except Exception as exc:
            return placed.as_state(FAILED, Reason.FAILED, f"{type(exc).__name__}: {exc}")
        problems = dict.fromkeys(problem for change in changes for problem in change.problems)
        return placed.as_state(APPLIED, detail="; ".join(problems))

    def _replace(self, placed: Placed, places: Sequence[FunctionPlace]) -> list[Replacement]:
        done: list[Replacement] = []
        exchanged: list[Replacement] = []
        marks = len(placed.marks)
        try:
            for place in places:
                for change in self._plan_changes(placed, place):
                    change.make()
                    done.append(change)
                # What is inherited stays its parent's.
                exchanged += [done[-1]._replace(before=place.raw)] if done and place.is_own else []
        except BaseException:
            for change in reversed(done):
                change.undo()
            placed.take_back_marks(marks)
            raise
        self._exchanged += exchanged if placed.target.kind != VALUE else []
        return done

    def _plan_changes(self, placed: Placed, place: FunctionPlace) -> list[Replacement]:
        """What has to be replaced for one place: the function, and in its class and derived ones every copy of it."""
        before, plain, inner, made = place.raw, place, list[Replacement](), self.seam.made(place.raw)
        if made is not None:  # without us there would be the framework's own range
            before, plain = made.upstream, place._replace(raw=made.inner)
        else:
            inner = self.seam.beneath(place.raw)
        below = inner[-1].stored() if inner else None
        change = self._make_replacement(placed, plain, below)._replace(before=before)
        if change.after is place.raw:  # a delegation layer without a range of its own
            return inner
        if isinstance(place.holder, type):
            copies = replacements.in_classes(place.holder, place.raw, change.after)
            others = [copy for copy in copies if (copy.holder, copy.attribute) != (place.holder, place.attribute)]
            return [*inner, change, *(copy._replace(before=before) for copy in others)]
        if isinstance(place.raw, FunctionType) and placed.target.kind != VALUE:
            self._copied.append((placed, change._replace(before=place.raw)))
        return [*inner, change]

    def _make_replacement(self, placed: Placed, place: FunctionPlace, below: Any = None) -> Replacement:
        change = apply.make_replacement(placed.target, place, self.has_late_steps, below)
        if placed.target.kind in (RANGE, AROUND):
            placed.marks += apply.settle_site(placed.target, change.after)  # before anybody can call it
        return change

    def reach_copies(self, name: str = "") -> None:
        """Replace what `from x import y` has copied before its target was patched: near this module, or anywhere. Then
        whoever else holds one of the functions gets the new one, too.
        """
        exchanged, self._exchanged = self._exchanged, []
        replaced = {id(change.before): (change.before, change.after) for _, change in self._copied}
        if replaced and (exchanged or self.patch.seam is not None):  # finding them takes milliseconds
            for copy in replacements.in_modules(replaced, replacements.loaded_modules(name)):
                owner = next((placed for placed, change in self._copied if change.after is copy.after), None)
                if owner is not None:  # a handler of a signal may have put it back
                    copy.make()
                    owner.changes.append(copy)
        replaced.clear()
        changes = [change for placed in self.placed for change in placed.changes]
        hand_over(
            replacements.find_exchanges(exchanged, [*exchanged, *(change for _, change in self._copied), *changes])
        )

    def travelled(self, cls: type) -> None:
        """Patch a class that Ray has brought by value: no module holds it."""
        with lock:
            for placed in self._ordered:
                target = placed.target
                parents, _, _ = target.qualname.rpartition(".")
                if target.module == cls.__module__ and parents == cls.__qualname__ and not self._refuse_target(placed):
                    placed.settled(self._patch_target(placed, cls))
                    _tell_change()

    def patched_copy(self, function: Any) -> Any:
        """What to run instead of a function that Ray has brought by value: what a module holds of it stays as it is."""
        for placed in self.placed:
            target = placed.target
            named = (target.module, target.qualname) == (function.__module__, function.__qualname__)
            if named and target.kind == RANGE and not self._refuse_target(placed):
                patched = function
                if apply.has_range(function):  # given to it where it was made
                    placed.marks += apply.settle_site(target, function)
                else:
                    made = self.seam.made(function)
                    raw, name = function if made is None else made.inner, target.qualname
                    patched = self._make_replacement(placed, FunctionPlace(None, name, raw, True, name)).after
                placed.state = placed.state or placed.as_state(APPLIED, detail="it arrived by value")
                _tell_change()
                return patched
        return function

    def look(self, counted: Calls, mends: bool) -> None:
        """See what the places of its targets hold now.

        `mends`: patch again what a module has that was executed again; and wrap once more what somebody else has put
        there, where calls of it were none of ours since the last look.
        """
        for placed in self.placed:
            was_seen, place = placed.calls_then is not None, placed.look(counted)
            if place is None or not mends:
                continue
            if placed.is_executed_again(place):
                placed.gone, placed.changes = [*placed.gone, *placed.changes], []
                self._install_placed(placed)
                self.reach_copies(placed.target.module)
            elif was_seen and placed.can_be_put_again(place):
                placed.was_put_again = True
                state = self._patch_target(placed)
                if state.state == APPLIED:
                    placed.settled(state._replace(detail=f"around what was put there {name_owner(place.raw)}"))

    def report(self, presence: Presence) -> list[TargetState]:
        """Every target in the order declared. `presence`: whether what has not been patched yet can come."""
        states = []
        for placed in self.placed:
            state = placed.seen or placed.state or self._refuse_target(placed)
            if state is None:  # a module is missing
                comings = [presence.of_module(name) for name in placed.modules]
                state = placed.as_state(*next((coming for coming in comings if coming[0] != WAITING), comings[0]))
            states.append(state._replace(version=self.version))
        return states

    def remove(self, others: Iterable[Active]) -> None:
        """Put everything back, and reach what was copied in the meantime. `others`: are left, and put back what is
        there now, in the place of what this one has put there.
        """
        for undo in self.undos:
            undo()
        in_order = list(dict.fromkeys([*self._in_order, *self.placed]))
        values = [change for placed in in_order if placed.target.kind == VALUE for change in placed.changes]
        own = [change for placed in in_order if placed.target.kind != VALUE for change in placed.changes]
        own += self.seam.changes()
        self._copied = []
        replacements.undo_changes(values)
        replacements.put_back(own, [change for placed in self.placed for change in placed.gone])
        self.seam.silence()
        for placed in self.placed:
            placed.take_back_marks()
        self.placed = []
        undone = [*values, *own]
        for other in others:
            for placed in other.placed:
                placed.changes = replacements.stand_on(undone, placed.changes)
            if other.seam.change is not None:
                (other.seam.change,) = replacements.stand_on(undone, [other.seam.change])


def _tell_change() -> None:
    if on_change is not None:
        on_change()
