"""What the calls of a patch target are among the pieces of a stage, and where these cannot be told apart. Data only."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Mapping

from .kinds import PieceRole


@dataclass(frozen=True)
class PieceSampling(PieceRole):
    """What a call means for the pieces of its stage, beyond being one (`Target.boundary`, which becomes `per`)."""

    mixes: Mapping[str, str] = field(default_factory=dict)  # kinds that cannot be told apart inside a call, with why
    mixes_if: str | None = None  # condition (`expressions.py`) under which that is so; None: always
    ticks: bool = False  # a call is told to the open session all the same: its limits are looked at

    def role(self, boundary: str | None) -> PieceRole:
        """Of calls that are such a piece, as `boundaries.declare_site` takes it."""
        return PieceRole(boundary, **{role.name: getattr(self, role.name) for role in fields(PieceRole)[1:]})

    @property
    def is_watched(self) -> bool:
        """Must `edges` hear of each call?"""
        return self.ticks or self.mixes_if is not None or self.role(None) != PieceRole()
