"""Which of the patched calls are pieces of a stage, told to the recorder while they are patched.

A coroutine or generator may end on another thread than it began on, and in between its thread does other things. So its
calls are no pieces: that is told as the reason why its stage cannot be sampled by them.
"""

from __future__ import annotations

from typing import Any, Callable

from .. import signatures
from ..recorder import boundaries
from .declare import Target

# By id of the target, which a patch keeps as long as it is on.
_undos: dict[int, list[Callable[[], None]]] = {}


def mark(target: Target, wrapper: Any) -> None:
    """Say what the calls of a function that this target has made a range are. Once for each place it has."""
    held = signatures.held_by(wrapper)
    if held is None:
        return
    undos, role = _undos.setdefault(id(target), []), target.sampling.role(target.boundary)
    if target.boundary is not None and signatures.interface_of(wrapper).kind != signatures.CALL:
        why = f"{target.qualname} is a coroutine or generator, which may end on another thread"
        undos.append(boundaries.forbid(held["site"], target.boundary, why))
    elif target.boundary is not None or target.sampling.is_told:
        undos.append(boundaries.declare(held["site"], role))
    if target.sampling.mixes_if is None:
        undos += [boundaries.forbid(held["site"], per, why) for per, why in target.sampling.mixes.items()]


def unmark(target: Target) -> None:
    """Take all of it back."""
    for undo in _undos.pop(id(target), ()):
        undo()
