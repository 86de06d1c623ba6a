"""`with mstx_range("x")` while nothing records and no tool listens: the price of being ready."""

from __future__ import annotations

from .harness import NATIVE, TWIN, Rounds, Row

PROCESSES = 3
VARIANTS = {"native": NATIVE, "twin": TWIN}


def measure(variant: str) -> list[Row]:
    """In units of `with` over a C object that does nothing."""
    from mstxkit import mstx_range, stage
    from mstxkit.engine.choose import engine

    assert bool(engine.NATIVE) is (variant == "native")
    assert not engine.recording()
    rounds = Rounds()
    rounds.add("range", 'with mstx_range("x"): pass', {"mstx_range": mstx_range})
    rounds.add("attribute", 'with mstx_range("x", tokens=7): pass', {"mstx_range": mstx_range})
    rounds.add("stage", 'with stage("x"): pass', {"stage": stage})
    rounds.run()
    return [
        rounds.row(f"range_off.{variant}", "range"),
        rounds.row(f"range_off.{variant}_attribute", "attribute"),
        rounds.row(f"range_off.{variant}_stage", "stage"),
    ]
