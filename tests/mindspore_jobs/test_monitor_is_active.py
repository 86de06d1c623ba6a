"""MindSpore's own `DynamicProfilerMonitor` carries out `profiler_config.json`; where one exists mstxkit stays out."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import mindspore_programs

pytestmark = [pytest.mark.mindspore, pytest.mark.timeout(300)]

MADE = """
import json
from mstxkit.escalation.duty.own_sections import carried_out_by_itself
from mstxkit.profiling import theirs

theirs.watch_profilers()
from mindspore.profiler import DynamicProfilerMonitor

before = carried_out_by_itself("mindspore")
monitor = DynamicProfilerMonitor(cfg_path=".", output_path="out")
print(json.dumps([before, carried_out_by_itself("mindspore")]))
"""


def test_a_monitor_that_exists_carries_out_its_own_file(tmp_path: Path) -> None:
    ended = mindspore_programs.run(MADE, tmp_path)

    before, after = ended.said
    assert before == ""
    assert after.startswith("mindspore is active")
