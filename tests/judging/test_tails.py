"""Times that lie far out above the usual ones and not below them, as where processes share cores."""

from __future__ import annotations

import random
from typing import Any

import pytest

pytest.importorskip("numpy")

from mstxkit.testing import judge
from mstxkit.testing.judge import JobJudged

pytestmark = pytest.mark.days("even")

PAIRS = {f"tp{at}": (2 * at, 2 * at + 1) for at in range(4)}
GROUPS = {**PAIRS, "all": tuple(range(8))}


def judge_pairs(seed: int, slow: int | None = None) -> JobJudged:
    """Of eight ranks in two places of the model each computes 26 ms and a tail of 2.5 ms in the mean, and meets another
    one; then all meet. From step 40 on one may take 30 % longer.
    """
    draw, now, rows, entries = random.Random(seed), 0.0, list[dict[str, Any]](), list[dict[str, Any]]()
    for step in range(120):
        own = [26 + draw.expovariate(1 / 2.5) for _ in range(8)]
        own = [ms * (1.3 if rank == slow and step >= 40 else 1) for rank, ms in enumerate(own)]
        met = {group: now + max(own[rank] for rank in ranks) + 1 for group, ranks in PAIRS.items()}
        over = max(met.values()) + 60
        for group, rank in ((group, rank) for group, ranks in PAIRS.items() for rank in ranks):
            who = {"rank": rank, "process": f"t{rank}", "role": "trainer"}
            where = {**who, "step": step, "host": "vm", "place": f"pp{rank // 2 % 2}"}
            rows.append({**where, "stage": "forward", **between(now, met[group])})
            rows.append({**where, "stage": "update", **between(met[group], over)})
            entries.append({**who, "group": group, **between(now + own[rank], met[group])})
            entries.append({**who, "group": "all", **between(met[group] + 50, over)})
        now = over + 1
    return judge(rows, collectives=entries, groups=GROUPS)


def between(entered_ms: float, left_ms: float) -> dict[str, int]:
    return {"entered_ns": int(entered_ms * 1e6), "left_ns": int(left_ms * 1e6)}


@pytest.mark.parametrize("seed", [5, 6])
def test_whose_times_lie_far_out_now_and_then_as_those_of_all_do_is_not_slow(seed: int) -> None:
    """Above the middle all are in the mean: added up over fifty steps, one was blamed."""
    assert judge_pairs(seed).verdicts == []


@pytest.mark.parametrize("seed", [5, 6])
def test_who_is_slow_among_such_is_named(seed: int) -> None:
    verdicts = judge_pairs(seed, slow=3).verdicts

    assert {(verdict.kind, verdict.stage, verdict.rank) for verdict in verdicts} == {("compute", "forward", 3)}
