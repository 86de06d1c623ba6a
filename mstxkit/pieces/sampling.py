"""Which patched calls are pieces of a stage: declared when they are patched.

A coroutine or generator may end on another thread than it began on, and in between its thread does other things. So its
calls are no pieces: that is told as the reason why its stage cannot be sampled by them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Protocol

from ..marking import signatures
from . import boundaries
from .kinds import PieceRole


@dataclass(frozen=True)
class PieceSampling:
    """What a call means for the pieces of its stage, beyond being one (`Target.boundary`).

    Args:
        until_next, within, ends_before, ends_after, across, ends_round, ends_round_after, is_round: As in `PieceRole`.
        mixes: Kinds of pieces that cannot be told apart inside a call, each with why.
        mixes_if: Condition (`conditions.py`) under which that is so; None: always.
        ticks: A call is told to the open session all the same: its limits are looked at.
    """

    until_next: bool = False
    within: str | None = None
    ends_before: tuple[str, ...] = ()
    ends_after: tuple[str, ...] = ()
    across: str | None = None
    ends_round: bool = False
    ends_round_after: bool = False
    is_round: bool = False
    mixes: Mapping[str, str] = field(default_factory=dict)
    mixes_if: str | None = None
    ticks: bool = False

    def role(self, boundary: str | None) -> PieceRole:
        """As `boundaries.declare` takes it."""
        return PieceRole(boundary, **{name: getattr(self, name) for name in PieceRole._fields[1:]})

    @property
    def is_watched(self) -> bool:
        """Must `edges` hear of each call?"""
        return self.ticks or self.mixes_if is not None or self.role(None) != PieceRole()


class Sampled(Protocol):
    """What is asked of a patch target here."""

    @property
    def qualname(self) -> str:
        """What it patches, for messages."""

    @property
    def boundary(self) -> str | None:
        """Kind of the pieces that its calls are."""

    @property
    def sampling(self) -> PieceSampling:
        """What else its calls mean."""


def mark(target: Sampled, wrapper: Any) -> list[Callable[[], None]]:
    """Say what the calls of a function that this target has made a range are; gives what takes each of it back."""
    held = signatures.held_by(wrapper)
    if held is None:
        return []
    undos: list[Callable[[], None]] = []
    if target.boundary is not None and signatures.interface_of(wrapper).kind != signatures.CALL:
        why = f"{target.qualname} is a coroutine or generator, which may end on another thread"
        undos.append(boundaries.forbid(held["site"], target.boundary, why))
    elif target.boundary is not None or target.sampling.is_watched:
        undos.append(boundaries.declare(held["site"], target.sampling.role(target.boundary)))
    if target.sampling.mixes_if is None:
        undos += [boundaries.forbid(held["site"], per, why) for per, why in target.sampling.mixes.items()]
    return undos
