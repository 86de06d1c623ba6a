"""What a target puts into a place: a function that opens a range, contexts that are ranges, or a value.

What is stored in a class or module is always of the kind that was there: function, static method, property.
"""

from __future__ import annotations

import functools
import inspect
import pkgutil
from types import FunctionType, TracebackType
from typing import Any, Callable

from .. import stages
from ..engine.choose import engine
from ..marking import ranges, signatures, wrapping
from ..pieces import boundaries
from ..store.summaries import WAITS_FOR, WORKERS
from .declare import AROUND, CONTEXT, DELEGATE, VALUE, WRAP, Target
from .entry import Entry
from .reach import FunctionPlace, Unreached, function_in
from .replacements import AROUND_MARK, Replacement
from .report import Reason

# Functions that wrap each other: what is deeper is not looked at.
DECORATORS = 20
# A function that returns timed contexts is held where `held_by` does not look: this attribute says that it is ours.
CONTEXT_MARK = "__mstxkit_context__"


def make_replacement(target: Target, place: FunctionPlace, has_late_steps: bool, below: Any = None) -> Replacement:
    """What is to be stored at `place`, and what it cannot read of its calls.
    `place`: where; what it holds, without a range of the framework's own. `has_late_steps`: does a target of the same
    patch tell its step only at the end of it (`step_after`)? `below`: a range beneath decorators, which is being taken
    out. Raises Unreached: it cannot be replaced.
    """
    raw = place.raw
    change = Replacement(place.holder, place.attribute, raw, raw, place.is_own)
    if target.kind == DELEGATE:
        return change
    after = pkgutil.resolve_name(target.value or "") if target.kind == VALUE else None
    if after is raw or has_range(raw, below, target.kind == WRAP):
        raise Unreached(Reason.HAS_RANGE)
    if target.kind == VALUE:
        return change._replace(after=after)
    if target.kind == CONTEXT:
        return change._replace(after=_time_contexts(raw, target))
    if target.kind == WRAP:
        return change._replace(after=_decide_function(target, raw))
    more_than_a_range = (
        target.attributes, target.step, target.step_after, target.role, target.process_role, target.dummy,
        target.sampling.mixes_if, target.waits, has_late_steps and target.stage is not None,
    )  # fmt: skip
    entry = Entry(target, inspect.signature(function_in(raw))) if any(more_than_a_range) else None
    settings = wrapping.RangeSettings(target.name or place.qualname, target.stage, target.domain, None, entry)
    new = wrapping.decorate_target(settings, _decide_function(target, raw))
    if new is raw:
        raise Unreached(Reason.NOT_PATCHABLE, f"a {type(raw).__name__} could not be decorated")
    function = function_in(new)
    if not place.is_own and isinstance(function, FunctionType):
        # An inherited method that is now one of the class itself: pickle must find it by its names.
        function.__module__ = place.holder.__module__
        function.__qualname__ = f"{place.holder.__qualname__}.{place.attribute}"
    return change._replace(after=new, problems=tuple(entry.problems) if entry is not None else ())


def _decide_function(target: Target, raw: Any) -> Any:
    """The function that the range is to hold: `raw`, or one that calls a function of ours with it, which decides.

    Why: MindSpeed-RL's own profiler must not start beside a session of mstxkit, which a range cannot prevent; what is
    handed to a pool of threads takes its stage along.
    """
    if target.kind not in (AROUND, WRAP):
        return raw
    if not isinstance(raw, FunctionType):
        raise Unreached(Reason.NOT_PATCHABLE, f"a {type(raw).__name__} cannot be decided on")
    decide = pkgutil.resolve_name(target.value or "")

    @functools.wraps(raw)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return decide(raw, *args, **kwargs)

    setattr(wrapper, AROUND_MARK, wrapper)
    return wrapper


def has_range(raw: Any, but: Any = None, or_decides: bool = False) -> bool:
    """Has this function, or one that it wraps, a range of mstxkit? `but`: one that does not count. `or_decides`: or is
    it called by a function of ours that decides?
    """
    function, depth = function_in(raw), 0
    while function is not None and depth < DECORATORS:
        marks = getattr(function, "__dict__", {})
        is_ours = signatures.held_by(function) is not None or CONTEXT_MARK in marks
        if (is_ours and function is not but) or (or_decides and marks.get(AROUND_MARK) is function):
            return True
        function, depth = marks.get("__wrapped__"), depth + 1
    return False


def settle_site(target: Target, new: Any) -> list[Callable[[], None]]:
    """Tell the recorder of this site: how much is recorded one by one, and what its calls are pieces of; gives what
    takes the latter back.

    A coroutine or generator may end on another thread than it began on, and in between its thread does other things. So
    its calls are no pieces: that is told as the reason why its stage cannot be sampled by them.
    """
    function = function_in(new)
    held = signatures.held_by(function)
    if held is None:
        return []
    if target.coalesce or target.max_depth is not None or target.max_per_s is not None:
        engine.limit(held["site"], target.coalesce, target.max_depth, target.max_per_s)
    entry = held.get("attributes")
    if isinstance(entry, Entry):
        entry.site = held["site"]
    site, pieces, undos = held["site"], target.sampling, []
    if target.boundary is not None and signatures.interface_of(function).kind != signatures.CALL:
        why = f"{target.qualname} is a coroutine or generator, which may end on another thread"
        undos.append(boundaries.forbid_pieces(site, target.boundary, why))
    elif target.boundary is not None or pieces.is_watched:
        undos.append(boundaries.declare_site(site, pieces.role(target.boundary)))
    if pieces.mixes_if is None:
        undos += [boundaries.forbid_pieces(site, per, why) for per, why in pieces.mixes.items()]
    return undos


class TimedContext:
    """A framework's context manager, async or not, inside a range. Everything else of it is reached as before."""

    def __init__(self, inner: Any, timed: Any) -> None:
        self._inner, self._timed = inner, timed

    def __enter__(self) -> Any:
        self._timed.__enter__()
        try:
            return self._inner.__enter__()
        except BaseException as exc:
            self._timed.__exit__(type(exc), exc, exc.__traceback__)
            raise

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None) -> Any:
        try:
            return self._inner.__exit__(kind, exc, trace)
        finally:
            self._timed.__exit__(kind, exc, trace)

    async def __aenter__(self) -> Any:
        await self._timed.__aenter__()
        try:
            return await self._inner.__aenter__()
        except BaseException as exc:
            self._timed.__exit__(type(exc), exc, exc.__traceback__)
            raise

    async def __aexit__(self, *raised: Any) -> Any:
        try:
            return await self._inner.__aexit__(*raised)
        finally:
            self._timed.__exit__(*raised)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What calling theirs gives; each call of a function that it decorates is a range."""
        made = self._inner(*args, **kwargs)
        return self._timed(made) if isinstance(made, FunctionType) else made

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _time_contexts(function: Callable[..., Any], target: Target) -> Callable[..., Any]:
    """`function`, each of whose contexts is a range named by its first argument, or by the target if that is no str.

    For trainers whose stages are `with` blocks in one long method. A name of a stage that some system knows sets it.
    """

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        inner = function(*args, **kwargs)
        first = (*args[:2], *kwargs.values())[:2]  # a method is called with its self before
        name = next((text for text in first if isinstance(text, str)), target.name or target.qualname)
        if name in target.leaves_out:
            return inner
        stage = target.stage or (stages.canonical_key(name) if stages.is_known(name) else None)
        is_waiting = name in target.waits if isinstance(target.waits, tuple) else target.waits
        attributes = {**({WAITS_FOR: WORKERS} if is_waiting else {}), **({"role": target.role} if target.role else {})}
        return TimedContext(inner, ranges.mstx_range(name, stage=stage, domain=target.domain, **attributes))

    setattr(wrapper, CONTEXT_MARK, True)
    return wrapper
