"""`@mstx_timer`, and `@mstx_range` with a role, on a function called as `f(1, k=2)`: what they add to the bare call."""

from __future__ import annotations

from typing import Any, Mapping

from .harness import NATIVE, TSC, TWIN, Rounds, Row
from .recording import recording

PROCESSES = 3
VARIANTS = {
    "off_native": NATIVE,
    "off_twin": TWIN,
    "recording_native_tsc": {**NATIVE, **TSC},
    "recording_twin": TWIN,
}
AT_MOST = 10_000
CALL = "f(1, k=2)"


def bare(a: int, k: int = 0) -> None:
    """What is decorated."""


def measure(variant: str) -> list[Row]:
    """Over the bare call, in units of `with` over a C object that does nothing."""
    from mstxkit import mstx_range, mstx_timer
    from mstxkit.engine.choose import engine

    timed = {"timed": mstx_timer("timed")(bare), "with role": mstx_range("with role", role="actor")(bare)}
    native = "native" in variant
    if variant.startswith("off"):
        assert bool(engine.NATIVE) is native and not engine.recording()
        rounds = _cases(timed).run()
    else:
        with recording(native, clock="tsc" if variant.endswith("tsc") else "") as session:
            rounds = _cases(timed, after=session.drain, at_most=AT_MOST).run()
            session.expect({name: rounds.cases[name].done for name in timed})
    return [
        rounds.row(f"timer.{variant}", "timed", over="bare"),
        rounds.row(f"timer.decorator_role_{variant}", "with role", over="bare"),
    ]


def _cases(timed: Mapping[str, Any], **options: Any) -> Rounds:
    rounds = Rounds()
    rounds.add("bare", CALL, {"f": bare}, **options)
    for name, function in timed.items():
        rounds.add(name, CALL, {"f": function}, **options)
    return rounds
