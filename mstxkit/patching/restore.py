"""The way back: what was replaced is put back by identity, also in copies, and what cannot be reached falls silent."""

from __future__ import annotations

from types import FunctionType
from typing import Sequence

from .. import faults, signatures
from . import propagate
from .apply import Change
from .around import bare
from .reach import function_in


def undo(changes: Sequence[Change]) -> None:
    """Undo these, the last first. What somebody else has replaced since stays as it is, and is told once."""
    for change in reversed(changes):
        if not change.undo():
            faults.warn_once("unpatch", f"{_where(change)} was replaced by somebody else since, and is left so")


def _where(change: Change) -> str:
    name = getattr(change.holder, "__qualname__", getattr(change.holder, "__name__", type(change.holder).__name__))
    return f"{name}.{change.attribute}"


def silence(changes: Sequence[Change]) -> None:
    """Copies out of reach hold our wrappers for good: they are calls without a range from now on."""
    for wrapper in {id(change.after): change.after for change in changes}.values():
        function = function_in(wrapper)
        held = signatures.held_by(function)
        if held is not None:
            signatures.silence(function, bare(held["function"]))


def copies(changes: Sequence[Change]) -> None:
    """Put back names and class attributes that were bound to a wrapper after it was put in its place."""
    wrappers = {id(c.after): (c.after, c.before) for c in changes if isinstance(c.after, FunctionType)}
    for back in propagate.in_modules(wrappers, propagate.loaded_modules()):
        back.make()
    for change in changes:
        if isinstance(change.holder, type):
            for back in propagate.in_classes(change.holder, change.after, change.before):
                back.make()
