"""Replace a function where it is held by one that opens a range, and put the very same object back.

What is stored in a class or module is always of the kind that was there: function, static method, property.
"""

from __future__ import annotations

import importlib
import inspect
from types import CellType, FunctionType
from typing import Any, Callable, NamedTuple

from .. import ranges, signatures, wrapping
from ..recorder.engine import engine
from . import contexts, sampling
from .around import around
from .declare import AROUND, CONTEXT, DELEGATE, VALUE, Seam, Target
from .entry import Entry, needs_entry
from .reach import Place, Unreached, function_in
from .report import Reason

# Functions that wrap each other: what is deeper is not looked at.
_DECORATORS = 20


class Change(NamedTuple):
    """One replacement: what is stored at `attribute` of `holder` (or in a closure cell, `attribute` "cell_contents").

    Args:
        before: What `undo` puts back.
        after: What was put there.
        is_own: Was it stored in the holder itself? Otherwise `undo` deletes it.
    """

    holder: Any
    attribute: str
    before: Any
    after: Any
    is_own: bool = True

    def make(self) -> None:
        """Put `after` there."""
        setattr(self.holder, self.attribute, self.after)

    def undo(self) -> bool:
        """Put `before` back, also into a wrapper that somebody has put around `after` since.

        False where somebody else has replaced it, and it is left as it is.
        """
        stored = self.stored()
        if stored is not self.after:
            return _put_into_wrapper(stored, self.after, self.before)
        if self.is_own:
            setattr(self.holder, self.attribute, self.before)
        else:
            delattr(self.holder, self.attribute)
        return True

    def stored(self) -> Any:
        """What is there now."""
        if self.attribute == "cell_contents":
            return self.holder.cell_contents
        return vars(self.holder).get(self.attribute)


def _put_into_wrapper(wrapper: Any, after: Any, before: Any) -> bool:
    """Replace `after` by `before` where a wrapper, or one inside it, holds it; False where none does.

    Why: the first instance of a torch optimizer's class wraps its `step`, which may be ours by then (torch 2.13.0).
    """
    while isinstance(wrapper, FunctionType) and wrapper is not after:
        cells = [cell for cell in wrapper.__closure__ or () if cell != CellType() and cell.cell_contents is after]
        for cell in cells:
            cell.cell_contents = before
        inner = wrapper.__dict__.get("__wrapped__")
        if cells and inner is after:
            wrapper.__dict__["__wrapped__"] = before
        if cells:
            return True
        wrapper = inner
    return False


class Made(NamedTuple):
    """A function that a framework's own range decorator made, and what it wraps."""

    upstream: Any
    inner: Any


def made_by_seam(raw: Any, seam: Seam | None) -> Made | None:
    """Is `raw` the work of this decorator?"""
    if seam is None or not isinstance(raw, FunctionType) or not hasattr(raw, "__wrapped__"):
        return None
    code = raw.__code__
    is_theirs = code.co_name == seam.code_name and code.co_filename.replace("\\", "/").endswith(seam.file)
    return Made(raw, raw.__wrapped__) if is_theirs else None


def beneath(raw: Any, recognise: Callable[[Any], Made | None]) -> list[Change]:
    """What takes a framework's own range out of a function that other decorators have wrapped since; [] for none.

    Args:
        raw: What is stored in the place.
        recognise: Says what such a range is made of.
    """
    function, depth = function_in(raw), 0
    while isinstance(function, FunctionType) and depth < _DECORATORS:
        below = function.__dict__.get("__wrapped__")
        made = recognise(below)
        if made is not None:
            cells = [cell for cell in function.__closure__ or () if cell != CellType() and cell.cell_contents is below]
            held = [Change(cell, "cell_contents", made.upstream, made.inner) for cell in cells]
            return [*held, Change(function, "__wrapped__", made.upstream, made.inner)] if held else []
        function, depth = below, depth + 1
    return []


def replacement(target: Target, place: Place, made: Made | None, has_late_steps: bool, below: Any = None) -> Any:
    """What is to be stored at `place`.

    Args:
        target: What is declared.
        place: Where.
        made: The framework's own range there, which ours takes the place of.
        has_late_steps: See `entry.needs_entry`.
        below: A range beneath decorators, which is being taken out.

    Raises:
        Unreached: it cannot be replaced.
    """
    raw = place.raw if made is None else made.inner
    if target.kind == DELEGATE:
        return raw
    if target.kind == VALUE:
        return _value(target.value or "")
    if has_range(raw, below):
        raise Unreached(Reason.HAS_RANGE)
    if target.kind == CONTEXT:
        return contexts.timed(raw, target)
    entry = Entry(target, _signature(raw)) if needs_entry(target, has_late_steps) else None
    settings = wrapping.Settings(target.name or place.qualname, target.stage, target.domain, None, entry)
    new = wrapping.decorate(tuple(settings), _decided(target, raw))
    if new is raw:
        raise Unreached(Reason.NOT_PATCHABLE, f"a {type(raw).__name__} could not be decorated")
    settle(target, new)
    if not place.is_own:
        _name_after(place, new)
    return new


def _decided(target: Target, raw: Any) -> Any:
    if target.kind != AROUND:
        return raw
    if not isinstance(raw, FunctionType):
        raise Unreached(Reason.NOT_PATCHABLE, f"a {type(raw).__name__} cannot be decided on")
    return around(raw, target.value or "")


def _name_after(place: Place, new: Any) -> None:
    """An inherited method that is now one of the class itself: pickle must find it by its names."""
    function = function_in(new)
    if isinstance(function, FunctionType):
        function.__module__ = place.holder.__module__
        function.__qualname__ = f"{place.holder.__qualname__}.{place.attribute}"


def has_range(raw: Any, but: Any = None) -> bool:
    """Has this function, or one that it wraps, a range of mstxkit? `but`: one that does not count."""
    function, depth = function_in(raw), 0
    while function is not None and depth < _DECORATORS:
        is_ours = signatures.held_by(function) is not None or contexts.MARK in getattr(function, "__dict__", {})
        if is_ours and function is not but:
            return True
        function, depth = getattr(function, "__dict__", {}).get("__wrapped__"), depth + 1
    return False


def problems_of(new: Any) -> list[str]:
    """What a wrapper cannot read of its calls, as its target wants."""
    held = signatures.held_by(function_in(new))
    entry = None if held is None else held.get("attributes")
    return entry.problems if isinstance(entry, Entry) else []


def settle(target: Target, new: Any) -> None:
    """Tell the recorder of this site: how much is recorded one by one, and what its calls are pieces of."""
    function = function_in(new)
    held = signatures.held_by(function)
    if held is None:
        return
    if target.coalesce or target.max_depth is not None or target.max_per_s is not None:
        engine.limit(held["site"], target.coalesce, target.max_depth, target.max_per_s)
    entry = held.get("attributes")
    if isinstance(entry, Entry):
        entry.site = held["site"]
    sampling.mark(target, function)


def generic(function: Callable[..., Any]) -> Any:
    """The range of a function that a framework decorated itself, and that no target declares."""
    return ranges.mstx_timer(function)


def _value(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def _signature(raw: Any) -> inspect.Signature:
    return inspect.signature(function_in(raw))
