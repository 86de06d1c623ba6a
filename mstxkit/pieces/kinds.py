"""Pieces of a stage: their kinds, what the calls of a function may be among them, and where these cannot be told apart.

Data only.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Mapping

KINDS = ("micro_batch", "mini_batch", "decode_step")


@dataclass(frozen=True)
class PieceRole:
    """What the calls of a site are among the pieces of a stage.

    A piece is one of three forms. It is the call. Or it begins with the call and goes on (`until_next`): for loops
    that call a function for the first half of each piece, such as the forward pass of a micro-batch, whose backward
    pass is no function's own. Or it begins with the first smaller piece in it (`within`) and ends with another call
    (`ends_after`): the mini-batch that is all micro-batches up to and with an optimizer step.

    Args:
        until_next: It ends where the next one begins, or where a call ends it that says so, or with its stage.
        across: Kind of the pieces that are counted across occurrences of the site's own stage, which are too short to
            hold more than one; where the site's calls are both, that is so anyway. See "Rounds" in `edges.py`.
    """

    per: str | None = None  # kind of the piece that a call begins; None where it begins none
    until_next: bool = False
    within: str | None = None  # kind of the larger piece that begins with it, unless one is under way
    ends_before: tuple[str, ...] = ()  # kinds of pieces that end where a call begins
    ends_after: tuple[str, ...] = ()  # kinds of pieces that end where a call ends
    across: str | None = None
    ends_round: bool = False  # pieces across occurrences are counted anew from here on
    ends_round_after: bool = False  # likewise, from the call's end on
    is_round: bool = False  # the site's own stage lasts for the whole round, whether or not pieces are counted


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
