"""A host is gone with all of its ranks: it says nothing any more, while the other one does."""

from __future__ import annotations

from pathlib import Path

from builders.situations import S, Said, said_of, seen, trained, written


def test_the_host_is_named_and_not_its_ranks_one_by_one(tmp_path: Path) -> None:
    lives = [life.ending(host="node1") for life in trained(ranks=4)[:2]]
    lost = [life.ending(host="node2", ended=None) for life in trained(ranks=4, steps=range(31))[2:]]
    run = written(tmp_path / "run", *lives, *lost)
    seen(run, "node1", 300 * S)
    seen(run, "node2", 0)

    assert said_of(run) == Said(
        "Verdict: host node2 is gone, with rank 2, rank 3: the job ended 4.12 s later.",
        next="mstxkit status RUN", codes=(1, 1), kind="host_gone", blames=True,
    )  # fmt: skip
