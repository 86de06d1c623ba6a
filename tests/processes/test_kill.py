"""A process that dies at any moment: every range that had ended is read back once and unaltered, every open one is
named.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from builders import lives, soak

from mstxkit.reading import endings
from mstxkit.recorder import adopt

NURSERY = Path(__file__).resolve().parents[1] / "builders/nursery.py"
DEATHS = soak.rounds(100, 20)
OUTSIDE, ENTERING, INSIDE, LEAVING = range(4)
# Faults that a child may die in the middle of are its own; these are the reader's.
pytestmark = pytest.mark.timeout(600)


def deaths(run: Path, kind: str, count: int) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, str(NURSERY), str(run), kind, str(count), str(soak.seed())],
        env=lives.environment(), capture_output=True, text=True, timeout=500,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def wrong_with(life: dict[str, Any], rows: list[dict[str, Any]]) -> list[str]:
    """What contradicts the journal of one process."""
    wrong = []
    for thread, word in enumerate(life["words"]):
        number, where = divmod(word, 4)
        parts = [row["attributes"].get("number") for row in rows if row["name"] == f"part {thread}" and not row["open"]]
        ended = number if where == OUTSIDE else number - 1
        allowed = [list(range(1, ended + 1))] + ([list(range(1, number + 1))] if where == LEAVING else [])
        if parts not in allowed:
            wrong.append(f"thread {thread} had ended {ended} (at {where}), read back: {len(parts)}, last {parts[-1:]}")
        is_open = Counter(row["name"] for row in rows if row["open"])
        if life["began"][thread] and is_open[f"whole {thread}"] != 1:
            wrong.append(f"thread {thread}: its outer range is named {is_open[f'whole {thread}']} times")
        certain = {OUTSIDE: 0, INSIDE: 1, LEAVING: int(len(parts) < number)}.get(where)
        if certain is not None and is_open[f"part {thread}"] != certain:
            wrong.append(f"thread {thread}: {is_open[f'part {thread}']} parts are named as open, not {certain}")
    return wrong


def altered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Ranges that are not as the nursery made them."""

    def is_as_made(row: dict[str, Any]) -> bool:
        name = row["name"].partition(" ")[0]
        stage = row["name"] if name == "part" else None if name == "whole" else row["stage"]
        depth = {"whole": 0, "part": 1, "inner": 2}.get(name)
        keys = ["number"] if name == "part" and not row["open"] else []
        took_s = (row["duration_ns"] or 0) / 1e9
        return (
            (row["stage"], row["depth"], list(row["attributes"])) == (stage, depth, keys)
            and not row["error"] and 0 <= took_s < 60
        )  # fmt: skip

    return [row for row in rows if not is_as_made(row)]


@pytest.mark.parametrize("kind", ["SIGKILL", "SIGSEGV", "SIGTERM", "os._exit"])
def test_whatever_had_ended_or_was_open_at_a_sudden_death_is_read_back(run: Path, kind: str) -> None:
    """Deaths at random moments, most of them while banks are sealed or an earlier death is being adopted."""
    found = deaths(run, kind, DEATHS)

    rows = lives.ranges(run)
    by_rank: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        by_rank.setdefault(row["rank"], []).append(row)
    told = lives.processes(run)
    assert sum(1 for life in found if life["began"][0]) > DEATHS // 2, "too few lived long enough to record"
    assert {life["status"] for life in found}.isdisjoint({99 << 8, 1 << 8}), "a child failed by itself"
    assert sum(row["dropped"] for row in told) == 0, "the sealer fell behind: the nursery must go slower"
    assert not [wrong for life in found for wrong in wrong_with(life, by_rank.get(life["rank"], []))]
    assert not altered(rows)
    assert len({row["process"] for row in told}) == len(told) <= DEATHS
    inside = {row["process"] for row in told if any(r["open"] and r["pid"] == row["pid"] for r in rows)}
    # Those that were gone when the last of them was may have been ended together: the last of all, and where the host
    # held this test up for seconds, so that the next is one of a new start. One that was killed as it began was never
    # seen, and inside of nothing.
    seen = [row for row in told if row["last_seen_ns"] is not None]
    over_ns: dict[int, int] = {}
    for row in seen:
        over_ns[row["attempt"]] = max(row["last_seen_ns"] - endings.AT_ONCE_NS, over_ns.get(row["attempt"], 0))
    earlier = [row for row in seen if row["last_seen_ns"] < over_ns[row["attempt"]] and row["process"] in inside]
    assert inside <= {row["process"] for row in seen}
    assert {row["state"] for row in earlier} <= {"killed"}
    assert {row["state"] for row in told} <= {"killed", "left"}
    assert not lives.damage(run)


def test_a_kill_loses_coalesced_calls_that_are_not_written_yet_but_not_their_number(run: Path) -> None:
    lives.run(
        """
        import os, signal, sys, mstxkit
        from mstxkit.engine.choose import engine
        mstxkit.capture(sys.argv[1])
        site = engine.intern("polled")
        engine.limit(site, coalesce=True)
        def poll(times):
            for number in range(times):
                with engine.timed(site, None, {"number": number}):
                    pass
        poll(30)
        engine.flush_coalesced()
        poll(20)
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        run,
        status=-9,
    )
    adopt.collect_dead(run)

    assert [row["attributes"]["coalesced"] for row in lives.ranges(run)] == [30]
    assert [process["coalesced"] for process in lives.processes(run)] == [50]
