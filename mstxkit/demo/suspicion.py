"""Who holds the others up, and in which stage: read from the stages of a run, while it runs or after.

In a training whose ranks meet in every step, the slow rank's peers show as slow too, in the stage where they wait for
it. So time counts from when the last rank has begun a stage: who came before that was waiting.
"""

from __future__ import annotations

import statistics
from typing import Any, Iterable, NamedTuple

# The first steps pay for what is done once; and one slow step shows nothing.
SKIPPED_STEPS = 2
STEPS_NEEDED = 6


class Suspect(NamedTuple):
    """The rank that is slowest in a stage, and how much longer it takes there than the fastest: seconds a step."""

    rank: int
    stage: str
    behind_s: float


def suspect(rows: Iterable[dict[str, Any]], ranks: int) -> Suspect | None:
    """The rank and stage with the longest delay; None until each stage has run on all ranks in enough steps.

    Args:
        rows: Of `Run.stages()`.
        ranks: How many there are. A single one is compared with nothing: its longest stage is the answer.
    """
    together: dict[str, dict[int, dict[int, dict[str, Any]]]] = {}
    for row in rows:
        if row["step"] is not None and row["step"] >= SKIPPED_STEPS and row["rank"] is not None:
            together.setdefault(row["stage"], {}).setdefault(row["step"], {})[row["rank"]] = row
    candidates = []
    for stage, steps in together.items():
        delays = [_delays_ns(by_rank) for by_rank in steps.values() if len(by_rank) == ranks]
        if len(delays) < STEPS_NEEDED:
            return None
        for rank in delays[0]:
            candidates.append(Suspect(rank, stage, statistics.median(of_step[rank] for of_step in delays) / 1e9))
    return max(candidates, key=lambda candidate: candidate.behind_s, default=None)


def _delays_ns(by_rank: dict[int, dict[str, Any]]) -> dict[int, int]:
    """Of one step: rank to how much longer it was in the stage than the fastest, once all were there."""
    all_there_ns = max(row["start_ns"] for row in by_rank.values())
    spent = {rank: max(0, min(row["total_ns"], row["end_ns"] - all_there_ns)) for rank, row in by_rank.items()}
    fastest_ns = min(spent.values()) if len(spent) > 1 else 0
    return {rank: spent_ns - fastest_ns for rank, spent_ns in spent.items()}
