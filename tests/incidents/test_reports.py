"""The report on one process, within its share of what those of all ranks may take."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mstxkit.incidents import deciding, reports
from mstxkit.incidents.deciding import Report
from mstxkit.store import collectives, handed_over, layout
from mstxkit.store.collectives import CollectiveEntry

RANKS = 10_240
SHARE = reports.ALL_BYTES // RANKS
LIBRARY = "/opt/conda/envs/train/lib/python3.10/site-packages/torch"


def entered(groups: int, sequence: int = 17) -> list[dict[str, Any]]:
    each = {"ranks": f"0-{RANKS - 1}", "sequence": sequence, "operation": "all_reduce", "entered_ns": 10**18}
    return [{**each, "group": group, "name": f"data_parallel_{group}"} for group in range(groups)]


def report(rank: int, calls: int, groups: int = 4, line: int = 2810, **more: Any) -> dict[str, Any]:
    """Of one of very many ranks, which waits in a collective below so many calls, inside of three ranges."""
    inside = [
        {"name": name, "stage": "update", "since_ns": 10**18 + at, "is_stuck": name == "backward", "step": 8}
        for at, name in enumerate(("fit", "update", "backward"))
    ]
    calls_out = [[f"{LIBRARY}/nn/modules/module.py", line, "_wrapped_call_impl"]] * (calls - 1)
    frames = [[f"{LIBRARY}/distributed/distributed_c10d.py", line, "all_reduce"], *calls_out]
    return {
        "process": f"node-{rank:05d}", "rank": rank, "role": "actor", "world_size": RANKS, "state": "sleeping",
        "waits": "collective", "has_ring": True, "stacks_by": "itself", "inside": inside, "entered": entered(groups),
        "thread": {"tid": 1, "name": "MainThread", "frames": frames},
        "threads": [{"tid": 1, "name": "MainThread", "frames": frames}] * 16, "kernel": [["python", "S", "futex"]] * 16,
        "last": [["backward", "update", 7, 10**18, 10**9, False]] * 200, "exceptions": [],
        "ring": [["0", 16, "all_reduce", 1, 1, 1]] * 200, **more,
    }  # fmt: skip


def fitted(rank: int, calls: int, **more: Any) -> Report:
    return reports.fit_report(report(rank, calls, **more), RANKS)


@pytest.mark.parametrize("calls", [5, 30, 64])
def test_of_ten_thousand_ranks_each_says_what_it_is_stuck_in_and_in_which_collectives_however_deep(calls: int) -> None:
    made = fitted(0, calls)

    assert len(json.dumps(made)) <= SHARE
    assert deciding.is_stuck(made) and deciding.find_innermost(made)["name"] == "backward"
    assert made["entered"] == entered(4) and made["thread"]["frames"][0][2] == "all_reduce"


def test_a_rank_with_no_room_for_all_its_groups_is_not_said_to_be_missing_in_one() -> None:
    own = [{**of_group, "ranks": "1"} for of_group in entered(80)[4:]]
    many = fitted(1, 5, entered=[*own, *entered(4)])
    missing = deciding.first_missing([many, *(fitted(rank, 5) for rank in range(RANKS) if rank % 512 == 0)])

    assert len(many["entered"]) < 80
    assert missing is not None and 1 not in missing.missing


def test_ranks_at_the_same_place_stay_at_the_same_place() -> None:
    """Lines differ where loops do, and have as many digits as they have."""
    assert len(deciding.groups_of([fitted(0, 64, line=9), fitted(10_000, 64, line=123_456)])) == 1


def test_a_group_of_many_ranks_of_five_digits_is_said_with_all_of_them_and_no_others(tmp_path: Path) -> None:
    ranks = tuple(first + 4 * nth for first in range(10_000, 12_048, 64) for nth in range(8))
    ring = handed_over.SummaryRing(tmp_path / f"p{layout.RINGS_SUFFIX}", 8, handed_over.OF_COLLECTIVES)
    groups = {"5": {"name": "experts", "ranks": collectives.ranks_as_text(ranks)}}
    ring.put(CollectiveEntry(5, 1, 2, 3, 1, 0, 4).pack(), {handed_over.GROUPS: groups})

    (said,) = reports.of_collectives(tmp_path, "p")["entered"]

    assert collectives.ranks_in(said["ranks"]) == ranks
