"""Four hosts whose clocks nobody has compared: a rank that is 40 ms slow may be on one that is 40 ms behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.situations import called, said_of, trained, written

HOSTS, RANKS = 4, 16


@pytest.mark.parametrize("hosts", [1, HOSTS])
@pytest.mark.parametrize("slow", [None, 5])
def test_what_clocks_may_hide_is_not_called_healthy(tmp_path: Path, slow: int | None, hosts: int) -> None:
    lives = trained(lambda step, rank: 140.0 if rank == slow else 100.0, ranks=RANKS)
    apart = [life.ending(host=f"node{rank % hosts}") for rank, life in enumerate(lives)]
    run = written(tmp_path / "run", *apart)

    said = said_of(run)
    if hosts > 1:
        assert said.first.startswith("Verdict: healthy as far as is seen: ")
        apart = "the clocks of its hosts may be 50 ms apart, where a step takes 1"
        assert apart in called("report", str(run)).output
    elif slow is None:
        assert said.first.startswith("Verdict: healthy: ")
    else:
        assert said.first.startswith("Verdict: rank 5 takes longer than the others in actor_generate: ")


def test_of_steps_that_are_far_longer_nothing_is_hidden(tmp_path: Path) -> None:
    lives = trained(lambda step, rank: 1400.0 if rank == 5 else 1000.0, ranks=RANKS)
    run = written(tmp_path / "run", *(life.ending(host=f"node{rank % HOSTS}") for rank, life in enumerate(lives)))

    assert said_of(run).first.startswith("Verdict: rank 5 takes longer than the others in actor_generate: ")


def test_under_ray_clocks_are_compared(tmp_path: Path) -> None:
    lives = [life.ending(under="ray") for life in trained(ranks=RANKS)]
    run = written(tmp_path / "run", *(life.ending(host=f"node{rank % HOSTS}") for rank, life in enumerate(lives)))

    assert said_of(run).first.startswith("Verdict: healthy: ")
