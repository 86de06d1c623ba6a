"""What is judged: one step of the processes that do the same work, as arrays. Seconds, on the run's aligned clock.

Live summaries, a run's tables and the simulator all give these; the judge knows nothing of where they come from.
"""

from __future__ import annotations

from typing import Mapping, NamedTuple

import numpy as np
import numpy.typing as npt

from ..host import parts

# Arrays of the judge: of one axis or of several, of whole numbers, of what is so or not.
Seconds = npt.NDArray[np.float64]
Vector = npt.NDArray[np.float64]
Matrix = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
Truths = npt.NDArray[np.bool_]

FLIGHT_RECORDER, STAGE_ENTRY, DEVICE, CALL = ("flight_recorder", "stage_entry", "device", "call")

MEET, SEND, RECEIVE, TAKE = range(4)


class Peer(NamedTuple):
    """One process of a role: its rank, host, process name, and what it is to its rank.

    `is_controller`: it waits for others and computes nothing; it is never compared with them. `place`: which part of
    the model it has ("pp1"), "" where that is not known; only those in the same place are expected to take as long.
    """

    rank: int | None
    host: str = ""
    process: str = ""
    part: str = ""
    is_controller: bool = False
    place: str = ""

    @property
    def who(self) -> str:
        """`rank 3`; who has none is called by its part and its pid."""
        pid = self.process.rsplit("-", 2)[1:2]
        name = parts.name_process(self.part, int(pid[0]) if pid else 0)
        return f"rank {self.rank}" if self.rank is not None else name


class Collectives(NamedTuple):
    """Entries into collectives, K of them, from rings or from device ranges.

    Args:
        member: (K,) who entered, as an index of `RoleStep.members`.
        group: (K,) which group of processes, by a number that all of it have for it.
        sequence: (K,) which of that group's collectives.
        entered_s, left_s: (K,) when it was entered, and over as that member saw it; NaN: not known.
        stage: (K,) in which stage of that member, as an index of `RoleStep.stages`; -1: in none.
        groups: Group to the ranks of it, where they are known. Of sends and receives: (who sends, who receives), a
            group of its own for each pair and direction, so that the n-th receive takes what the n-th send gave.
        source: FLIGHT_RECORDER, say.
        kind: (K,) MEET, SEND, RECEIVE, or TAKE: from a queue or another process, alone; None: all of them meet.
        waited_s: (K,) for how long that member did nothing but wait for it until it was over; NaN: not known.
        is_of_host: (K,) does it tell of the host alone, whose device is behind? None: of none.
    """

    member: Whole
    group: Whole
    sequence: Whole
    entered_s: Seconds
    left_s: Seconds
    stage: Whole
    groups: Mapping[int, tuple[int, ...]]
    source: str = FLIGHT_RECORDER
    kind: Whole | None = None
    waited_s: Seconds | None = None
    is_of_host: Truths | None = None

    @property
    def is_meeting(self) -> Truths:
        """(K,): do all wait for each other in it?"""
        return np.ones(len(self.member), bool) if self.kind is None else self.kind == MEET

    @property
    def is_taking(self) -> Truths:
        """(K,): does a member wait for something other than the members?"""
        return np.zeros(len(self.member), bool) if self.kind is None else self.kind == TAKE

    def only(self, keep: Truths | Whole) -> Collectives:
        """Those entries alone: a mask, or their places in the order that is wanted."""
        of_each = {name: getattr(self, name) for name in self._fields if name not in ("groups", "source")}
        return self._replace(**{name: value[keep] for name, value in of_each.items() if value is not None})


class Work(NamedTuple):
    """What a stage did: (M, S) each, NaN where nobody says so."""

    tokens: Seconds
    responses: Seconds
    longest_response: Seconds


class RoleStep(NamedTuple):
    """One step of one role: M members that do the same work, S stages. NaN: that member was not in that stage.

    Args:
        role: "" where none is known.
        step: Number of the step, or of the generation of weights, as that role counts.
        members: Those that are compared with each other.
        stages: Canonical keys.
        entered_s, left_s: (M, S) first begin and last end.
        total_s: (M, S) union of their time.
        occurrences: (M, S) occurrences; 0 where there are none.
        work: What was done in them.
        error_s: (M,) bound of the error of that member's times against the others'.
        collectives: None where this step has no ring or device range to tell by.
        cpu: (M, 2) which share of the time each has run of late, and has waited for a CPU; NaN: not known. None: of
            nobody.
        waits_for: Stages that only wait, with whom they wait for: a role, "controller", "loader"; "": nobody says.
        waited_s: (M, S) for how long a member has done nothing in it but wait for what it takes; None: nobody says.
    """

    role: str
    step: int
    members: tuple[Peer, ...]
    stages: tuple[str, ...]
    entered_s: Seconds
    left_s: Seconds
    total_s: Seconds
    occurrences: Seconds
    work: Work
    error_s: Seconds
    collectives: Collectives | None = None
    cpu: Seconds | None = None
    waits_for: Mapping[str, str] = {}
    waited_s: Seconds | None = None

    @property
    def ended_s(self) -> Vector:
        """(M,) when each member ended its last stage; NaN: it was in none."""
        return np.asarray(np.fmax.reduce(self.left_s, axis=1, initial=np.nan))
