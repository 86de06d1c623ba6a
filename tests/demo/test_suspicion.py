"""Who holds the others up: found from the times of stages, however the others wait."""

from __future__ import annotations

from typing import Any

from mstxkit.demo.suspicion import SKIPPED_STEPS, STEPS_NEEDED, Suspect, suspect

MS = 10**6
ENOUGH = SKIPPED_STEPS + STEPS_NEEDED


def row(stage: str, step: int | None, rank: int, start_ms: int, end_ms: int) -> dict[str, Any]:
    start_ns, end_ns = start_ms * MS, end_ms * MS
    return {
        "stage": stage, "step": step, "rank": rank, "start_ns": start_ns, "end_ns": end_ns,
        "total_ns": end_ns - start_ns,
    }  # fmt: skip


def lockstep(step: int, generates_ms: list[int]) -> list[dict[str, Any]]:
    """A step in which each rank generates for so long, then updates together with the others, for 10 ms."""
    begin, together = 1000 * step, 1000 * step + max(generates_ms)
    return [
        one
        for rank, took in enumerate(generates_ms)
        for one in (
            row("actor_generate", step, rank, begin, begin + took),
            row("actor_update", step, rank, begin + took, together + 10),
        )
    ]


def test_a_rank_that_waits_for_another_is_not_suspected() -> None:
    rows = [one for step in range(ENOUGH) for one in lockstep(step, [20, 60, 20])]

    # Ranks 0 and 2 are 40 ms slower than rank 1 in actor_update, where they wait for it.
    assert suspect(rows, 3) == Suspect(1, "actor_generate", 0.04)


def test_nobody_is_suspected_before_enough_steps() -> None:
    rows = [one for step in range(ENOUGH - 1) for one in lockstep(step, [20, 60])]

    assert suspect(rows, 2) is None
    assert suspect([], 2) is None


def test_steps_count_that_all_ranks_have_shown() -> None:
    rows = [one for step in range(ENOUGH) for one in lockstep(step, [20, 60])]

    assert suspect([one for one in rows if one["rank"] == 0], 2) is None
    assert suspect(rows, 3) is None


def test_one_slow_step_makes_no_suspect() -> None:
    rows = [one for step in range(ENOUGH) for one in lockstep(step, [900, 30] if step == ENOUGH - 1 else [20, 30])]

    assert suspect(rows, 2) == Suspect(1, "actor_generate", 0.01)


def test_the_first_steps_do_not_count() -> None:
    rows = [one for step in range(ENOUGH) for one in lockstep(step, [900, 30] if step < SKIPPED_STEPS else [20, 30])]

    assert suspect([*rows, row("init", None, 0, 0, 9000)], 2) == Suspect(1, "actor_generate", 0.01)


def test_of_a_single_rank_the_longest_stage_is_meant() -> None:
    rows = [one for step in range(ENOUGH) for one in lockstep(step, [20])]

    assert suspect(rows, 1) == Suspect(0, "actor_generate", 0.02)
