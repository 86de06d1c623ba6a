"""`with mstx_range("x")` while recording, kill-safe: clock twice, record, step, stage, track and open slot.

The sealer is waited for between batches. At the end every range is read back, and nothing may have been dropped.
"""

from __future__ import annotations

from .harness import MONOTONIC, NATIVE, TSC, TWIN, Rounds, Row
from .recording import recording

PROCESSES = 3
VARIANTS = {
    "native_monotonic": {**NATIVE, **MONOTONIC},
    "native_tsc": {**NATIVE, **TSC},
    "twin": {**TWIN, **MONOTONIC},
}
EIGHT_INTS = 'with mstx_range("z", a=1, b=2, c=3, d=4, e=5, f=6, g=7, h=8): pass'
AT_MOST = 20_000  # ranges a batch: half a megabyte, which fits the free banks


def measure(variant: str) -> list[Row]:
    """In units of `with` over a C object that does nothing."""
    from mstxkit import mstx_range

    engine, _, clock = variant.partition("_")
    with recording(native=engine == "native", clock=clock) as session:
        rounds = Rounds()
        options = {"after": session.drain, "at_most": AT_MOST}
        names = {"mstx_range": mstx_range}
        plain = rounds.add("range", 'with mstx_range("x"): pass', names, **options)
        nested = rounds.add("nested", 'with mstx_range("a"):\n    with mstx_range("b"): pass', names, per=2, **options)
        typed = rounds.add("attribute", 'with mstx_range("y", tokens=7): pass', names, **{**options, "at_most": 8_000})
        eight = rounds.add("eight ints", EIGHT_INTS, names, **{**options, "at_most": 3_000})
        rounds.run()
        session.expect({"x": plain.done, "y": typed.done, "a": nested.done, "b": nested.done, "z": eight.done})
    return [
        rounds.row(f"range_recording.{variant}", "range"),
        rounds.row(f"range_recording.{variant}_nested", "nested"),
        rounds.row(f"range_recording.{variant}_attribute", "attribute"),
        rounds.row(f"range_recording.{variant}_eight_ints", "eight ints"),
    ]
