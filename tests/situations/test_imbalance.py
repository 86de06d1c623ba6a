"""Each rank has more to generate than the one before it, and the last of them twice as much as the first."""

from __future__ import annotations

from pathlib import Path

from builders.situations import Said, said_of, trained, written


def test_who_has_more_work_is_not_called_slow(tmp_path: Path) -> None:
    run = written(
        tmp_path / "run",
        *trained(lambda step, rank: 100 + 14.3 * rank, ranks=8, work=lambda step, rank: 1000 + 143 * rank),
    )

    assert said_of(run) == Said(
        "Verdict: rank 7 has more work than the others in actor_generate; it is not slower at it: without "
        "it a step takes 192 ms, not 241 ms: 21 % less, in steps 2 to 59.",
        next="mstxkit report RUN --stages actor_generate --ranges 20", codes=(0, 1), kind="imbalance", blames=True,
    )  # fmt: skip
