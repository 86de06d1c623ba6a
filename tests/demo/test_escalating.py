"""What the demo tells of the profiles that verdicts have asked for by themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("polars")

from builders.judged_runs import BEHIND, recorded, say, stage_times, verdict

from mstxkit.demo.launch import read_escalated


def test_the_demo_tells_of_the_verdict_that_costs_most_whatever_else_its_machine_made_a_rank_suffer(
    tmp_path: Path,
) -> None:
    run = recorded(tmp_path / "run", stage_times(BEHIND))
    of_everybody = verdict(id="1" * 16, kind="all_slow", rank=None, impact_ratio=0.9, request="a" * 16)
    # As a busy machine has left them: said first, over by now.
    over = verdict(id="2" * 16, stage="reference", rank=0, impact_ratio=0.9, request="b" * 16, withdrawn="not seen")
    small = verdict(id="3" * 16, stage="reference", rank=0, impact_ratio=0.02, request="c" * 16)
    made = verdict(id="4" * 16, stage="actor_update", rank=1, impact_ratio=0.6, request="d" * 16)
    say(run, of_everybody, over, small, made)

    told = read_escalated(run)

    assert told.verdict is not None
    assert told.verdict.request == made.request
