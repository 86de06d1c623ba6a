"""A range of a coalesced site, by name and as a wrapper makes it: what a call of a storm still costs.

At the end every call is in the counter, and the records hold all of them.
"""

from __future__ import annotations

from typing import Any

from .harness import MONOTONIC, NATIVE, TSC, TWIN, Rounds, Row
from .recording import recording

PROCESSES = 3
VARIANTS = {"native_tsc": {**NATIVE, **TSC}, "twin": {**TWIN, **MONOTONIC}}


def measure(variant: str) -> list[Row]:
    """In units of `with` over a C object that does nothing."""
    from mstxkit import mstx_range

    engine, _, clock = variant.partition("_")
    with recording(native=engine == "native", clock=clock) as session:
        site = session.engine.intern("storm")
        session.engine.limit(site, coalesce=True)
        rounds = Rounds()
        named = rounds.add("named", 'with mstx_range("storm"): pass', {"mstx_range": mstx_range})
        timed = rounds.add("timed", "with timed(site): pass", {"timed": session.engine.timed, "site": site})
        rounds.run()
        _check(session.engine, named.done + timed.done)
    return [rounds.row(f"coalesced.{variant}", "timed"), rounds.row(f"coalesced.{variant}_named", "named")]


def _check(engine: Any, calls: int) -> None:
    engine.flush_coalesced()
    counted = engine.counters()["coalesced"]
    assert counted == calls, f"{calls} calls, {counted} counted"
