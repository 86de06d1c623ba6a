"""One rank generates more slowly than the other, from step 30 on."""

from __future__ import annotations

from pathlib import Path

from builders.situations import Said, said_of, trained, written


def test_who_is_slow_is_named_with_what_it_costs_in_which_steps(tmp_path: Path) -> None:
    run = written(tmp_path / "run", *trained(lambda step, rank: 150.0 if rank == 1 and step >= 30 else 100.0))

    assert said_of(run) == Said(
        "Verdict: rank 1 takes longer than the others in actor_generate: without it a step takes 141 ms, "
        "not 191 ms: 26 % less, in steps 30 to 59 (30 of 58).",
        next="mstxkit compare RUN --before 2:29 --after 30:59", codes=(0, 1), kind="compute", blames=True,
    )  # fmt: skip
