"""The settings of `capture`, pinned: `tests/test_typing.py` has mypy check this file, nothing runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

from typing_extensions import assert_type

import mstxkit
from mstxkit import capture

running = capture("runs/exp7", act="escalate", seal_every_s=5, rings=True, judge=False, live_folder=Path("/dev/shm"))
assert_type(running.run, Optional[Path])
capture(config={"hang_s": 60}, flops_per_token={"actor_update": 4.2e10}, peak_flops="actor_update=3e14", light=None)
with mstxkit.capture(hang_s=150) as block:
    assert_type(block.stop(), None)
capture("runs/exp7", seal_every=5)  # type: ignore[call-arg]
capture("runs/exp7", seal_every_s="5")  # type: ignore[arg-type]
capture("runs/exp7", act="escalat")  # type: ignore[arg-type]
capture("runs/exp7", bank_bytes=2.5)  # type: ignore[arg-type]
capture("runs/exp7", "run.yaml")  # type: ignore[call-arg]
