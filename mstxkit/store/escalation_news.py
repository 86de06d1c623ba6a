"""A word of what became of a request for profiles: a value between who judges a run and who exports what he says."""

from __future__ import annotations

from typing import NamedTuple


class EscalationNews(NamedTuple):
    """One request in a state that it has just come to.

    Args:
        request: Its id.
        state: One of `report.OPEN_STATES` and `END_STATES`, of all ranks together.
        time_ns, asked_ns: Wall clock: when that was seen, and when it was asked for.
        counts: `armed 3, done 5 of 8`.
        reason: Of a rank in that state, in its words; "" for none.
        stages, ranks, preset: What was asked for.
        asks: Why, in the asker's words.
        verdict: Id of the verdict that asks; "" for none.
    """

    request: str
    state: str
    time_ns: int
    asked_ns: int
    counts: str = ""
    reason: str = ""
    stages: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    preset: str = ""
    asks: str = ""
    verdict: str = ""
