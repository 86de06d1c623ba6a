"""A word of what became of a request for profiles: a value between who judges a run and who exports what he says."""

from __future__ import annotations

from typing import NamedTuple


class EscalationNews(NamedTuple):
    """One request in a state that it has just come to."""

    request: str  # its id
    state: str  # one of `report.OPEN_STATES` and `END_STATES`, of all ranks together
    # time_ns, asked_ns: wall clock: when that was seen, and when it was asked for
    time_ns: int
    asked_ns: int
    counts: str = ""  # `armed 3, done 5 of 8`
    reason: str = ""  # of a rank in that state, in its words; "" for none
    # stages, ranks, preset: what was asked for
    stages: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    preset: str = ""
    asks: str = ""  # why, in the asker's words
    verdict: str = ""  # id of the verdict that asks; "" for none
