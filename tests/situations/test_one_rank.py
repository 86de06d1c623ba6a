"""One process alone."""

from __future__ import annotations

from pathlib import Path

from builders.situations import Said, said_of, trained, written


def test_it_is_compared_with_nobody(tmp_path: Path) -> None:
    run = written(tmp_path / "run", *trained(ranks=1))

    assert said_of(run) == Said(
        "Verdict: one process alone is compared with nobody.",
        next="mstxkit report RUN --stages actor_generate --ranges 20", codes=(0, 0), kind="not_judged", blames=False,
    )  # fmt: skip
