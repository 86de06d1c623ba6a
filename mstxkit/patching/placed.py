"""One target while its patch is on: what was put into its places, and whether that is still there and was called.

Targets are values: the same object may stand in several patches, and each of these has one of its own for it.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any, Callable, Mapping, Optional

from ..engine.choose import engine
from ..marking import signatures
from . import reach
from .declare import RANGE, Target
from .reach import FunctionPlace, Unreached, function_in
from .replacements import Replacement, leads_to
from .report import APPLIED, FAILED, Reason, TargetState

# Calls by site; None for a site of several targets.
Calls = Mapping[int, Optional[int]]


class Placed:
    """A target in one patch.
    `changes`: what was replaced for it, in this order; `gone`: what of it is in modules that were executed again.
    `calls_before`: calls of its sites before it was patched. `was_put_again`: was it wrapped once more since?
    """

    def __init__(self, framework: str, target: Target) -> None:
        self.framework, self.target = framework, target
        # What must be imported for it.
        self.modules = (target.module,) if target.with_module is None else (target.module, target.with_module)
        self.state: TargetState | None = None  # what became of it; None: nothing yet
        self.seen: TargetState | None = None  # the same, by what its places held when they were last looked at
        self.changes: list[Replacement] = []
        self.gone: list[Replacement] = []
        self.marks: list[Callable[[], None]] = []  # what takes back what was said of the calls of its functions
        self.calls_before, self.was_put_again = 0, False
        self.calls_then: int | None = None  # its calls when somebody else's function was first seen in its place

    def as_state(self, state: str, reason: str = "", detail: str = "") -> TargetState:
        """That state of it."""
        return TargetState.of(self.framework, self.target, state, reason, detail)

    def settled(self, state: TargetState) -> None:
        """It is patched, or not."""
        self.state, self.seen, self.calls_then = state, None, None

    def sites(self) -> set[int]:
        """Of its functions, as the engine counts their calls; none for what is no range of its own."""
        held = (signatures.held_by(function_in(change.after)) for change in self.changes)
        return {roles["site"].id for roles in held if roles is not None}

    def calls(self, counted: Calls) -> int | None:
        """Its calls since it was patched; None where they are not counted for it alone."""
        counts = [counted.get(site, 0) for site in self.sites()]
        return None if not counts or None in counts else sum(filter(None, counts)) - self.calls_before

    def look(self, counted: Calls) -> FunctionPlace | None:
        """See what its places hold now: the first that holds neither ours, nor what calls ours."""
        if self.state is None or self.state.state != APPLIED or not self.changes:
            return None
        calls = self.calls(counted)
        calls = calls if calls or engine.recording() else None
        place, by = self._find_replaced()
        is_called = self.calls_then is not None and (calls or 0) > self.calls_then
        if not by or (is_called and not (place and self.is_executed_again(place))):
            self.seen, self.calls_then = self.state._replace(calls=calls), self.calls_then if by else None
            return None
        self.seen = self.as_state(FAILED, Reason.REPLACED, by)._replace(calls=calls)
        self.calls_then = calls if self.calls_then is None else self.calls_then
        return place

    def _find_replaced(self) -> tuple[FunctionPlace | None, str]:
        """The first of its places that holds what does not lead to ours, and by whom; or why there is none any more."""
        try:
            places = reach.find_places(self.target)
        except KeyError:  # its module is not imported here: its class has arrived by value
            return None, ""
        except Unreached as exc:
            return None, str(exc.detail or exc.reason)
        for place in places:
            own = [c.after for c in self.changes if c.attribute == place.attribute]
            if own and not any(leads_to(place.raw, after) for after in own):
                return place, name_owner(place.raw)
        return None, ""

    def is_executed_again(self, place: FunctionPlace) -> bool:
        """Is what the place holds the framework's own, as it was before it was patched?"""
        code = getattr(function_in(place.raw), "__code__", None)
        codes = [getattr(function_in(change.before), "__code__", None) for change in self.changes]
        sources = [(of.co_filename, of.co_name) for of in (code, *codes) if of is not None]
        return code is not None and sources[0] in sources[1:]

    def can_be_put_again(self, place: FunctionPlace) -> bool:
        """May what somebody else has put there become a range, too? Only a function of the same kind, and once."""
        before = self.changes[0].before
        if self.target.kind != RANGE or self.was_put_again or not type(before) is type(place.raw) is FunctionType:
            return False
        return signatures.interface_of(before).kind == signatures.interface_of(place.raw).kind

    def take_back_marks(self, but: int = 0) -> None:
        """Nothing is said of its calls any more, but for the first marks."""
        while len(self.marks) > but:
            self.marks.pop()()


def calls_by_site() -> dict[int, int | None]:
    """Calls of each site that has any, since the process began."""
    return {site.id: calls for site, calls, *_ in engine.site_costs()}


def name_owner(raw: Any) -> str:
    """Whose function took the place, as a reader would look for it."""
    function = function_in(raw)
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    return f"by {name} of {module}" if type(module) is type(name) is str else f"by a {type(raw).__name__}"
