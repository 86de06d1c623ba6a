"""Test your own instrumentation with no NPU: ranges as data, a clock you set, the real torch_npu on stand-in CANN.

How to use it: `docs/guide/testing.md`.
"""

from __future__ import annotations

from .cann_run import CannCall, CannRange, CannRun, run_under_cann
from .clock import FakeClock
from .recording import Captured, CapturedMark, CapturedRange, OpenRange, captured
from .stand_in import Fail, StandIn

__all__ = [
    "CannCall", "CannRange", "CannRun", "Captured", "CapturedMark", "CapturedRange", "Fail", "FakeClock", "OpenRange",
    "StandIn", "captured", "run_under_cann",
]  # fmt: skip
