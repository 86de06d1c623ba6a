"""A rank was slow in a job that ended months ago."""

from __future__ import annotations

import os
from pathlib import Path

from builders.situations import Said, said_of, trained, written


def test_next_needs_nobody_that_still_runs(tmp_path: Path) -> None:
    run = written(tmp_path / "run", *trained(lambda step, rank: 150.0 if rank == 1 else 100.0))
    os.utime(run / "run.json", (0, 0))

    assert said_of(run) == Said(
        "Verdict: rank 1 takes longer than the others in actor_generate: without it a step takes 142 ms, "
        "not 191 ms: 26 % less, in steps 2 to 59.",
        next="mstxkit report RUN --stages actor_generate --ranges 20", codes=(0, 1), kind="compute", blames=True,
    )  # fmt: skip
