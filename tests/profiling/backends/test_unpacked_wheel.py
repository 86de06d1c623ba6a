"""The backend of torch_npu against the wheel that MindSpeed-RL ships with: read, as its torch is not to be had."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import recorded_profilers

VERSION = "2.7.1"
UNPACKED = Path(__file__).resolve().parents[3] / ".venvs/torch_npu" / VERSION / "torch_npu"

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*invalid escape sequence"),
    pytest.mark.frameworks,
    pytest.mark.skipif(not UNPACKED.is_dir(), reason=f"torch_npu {VERSION} is not unpacked here"),
]


def test_what_is_recorded_of_it_is_what_the_wheel_has() -> None:
    assert recorded_profilers.record(UNPACKED) == recorded_profilers.recorded(f"torch_npu {VERSION}")


def test_it_takes_mstx_by_both_names() -> None:
    """`msprof_tx` is the older name of `mstx`; the backend asks the signature, not the version."""
    assert {"mstx", "msprof_tx"} <= recorded_profilers.record(UNPACKED)["config"].keys()
