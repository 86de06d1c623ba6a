"""`@mstx_timer` on a function called as `f(1, k=2)`: what it adds to the bare call, off and while recording."""

from __future__ import annotations

from typing import Any

from .harness import NATIVE, TSC, TWIN, Rounds, Row
from .recording import recording

PROCESSES = 3
VARIANTS = {
    "off_native": NATIVE,
    "off_twin": TWIN,
    "recording_native_tsc": {**NATIVE, **TSC},
    "recording_twin": TWIN,
}
AT_MOST = 20_000
CALL = "f(1, k=2)"


def bare(a: int, k: int = 0) -> None:
    """What is decorated."""


def measure(variant: str) -> list[Row]:
    """Over the bare call, in units of `with` over a C object that does nothing."""
    from mstxkit import mstx_timer
    from mstxkit.engine.choose import engine

    timed = mstx_timer("timed")(bare)
    native = "native" in variant
    if variant.startswith("off"):
        assert bool(engine.NATIVE) is native and not engine.recording()
        rounds = _cases(timed).run()
    else:
        with recording(native, clock="tsc" if variant.endswith("tsc") else "") as session:
            rounds = _cases(timed, after=session.drain, at_most=AT_MOST).run()
            session.expect({"timed": rounds.cases["timed"].done})
    return [rounds.row(f"timer.{variant}", "timed", over="bare")]


def _cases(timed: Any, **options: Any) -> Rounds:
    rounds = Rounds()
    rounds.add("bare", CALL, {"f": bare}, **options)
    rounds.add("timed", CALL, {"f": timed}, **options)
    return rounds
