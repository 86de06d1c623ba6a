"""From step 30 on all ranks take longer than before."""

from __future__ import annotations

from pathlib import Path

from builders.situations import Said, said_of, trained, written


def test_nobody_is_blamed_and_it_says_since_when(tmp_path: Path) -> None:
    run = written(tmp_path / "run", *trained(lambda step, rank: 100.0 if step < 30 else 180.0))

    assert said_of(run) == Said(
        "Verdict: all take longer in actor_generate than earlier: nothing tells whether they wait for one "
        "of them: 36 % of each step is lost by it, since step 30.",
        next="mstxkit compare RUN --before 2:29 --after 30:59", codes=(0, 0), kind="not_enough_evidence", blames=False,
    )  # fmt: skip
