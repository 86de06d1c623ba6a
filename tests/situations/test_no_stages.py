"""Ranges and steps, but no stage is marked."""

from __future__ import annotations

from pathlib import Path

from builders.situations import Said, said_of, trained, written


def test_it_says_what_to_mark(tmp_path: Path) -> None:
    run = written(tmp_path / "run", *trained(has_stages=False))

    assert said_of(run) == Said(
        "Verdict: not judged: no stage is marked.",
        next="mstxkit report RUN --all", codes=(0, 0), kind="not_judged", blames=False,
    )  # fmt: skip
