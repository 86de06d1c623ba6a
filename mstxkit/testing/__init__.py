"""Test your own instrumentation with no NPU: ranges as data, a clock you set, the real torch_npu on stand-in CANN.

`judge` has tables of your own judged.

How to use it: `docs/guide/testing.md`.
"""

from __future__ import annotations

from .cann_run import CannCall, CannRange, CannRun, run_under_cann
from .clock import FakeClock
from .judge import judge
from .recording import Captured, CapturedMark, CapturedRange, OpenRange, captured
from .stand_in import Fail, StandIn

__all__ = [
    "CannCall", "CannRange", "CannRun", "Captured", "CapturedMark", "CapturedRange", "Fail", "FakeClock", "OpenRange",
    "StandIn", "captured", "judge", "run_under_cann",
]  # fmt: skip
