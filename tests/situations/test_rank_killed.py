"""A rank is killed, and the other one goes on for a while."""

from __future__ import annotations

from pathlib import Path

from builders.situations import Said, called, said_of, trained, written


def test_who_was_killed_is_said_first_and_where_it_was(tmp_path: Path) -> None:
    survivor, _ = trained()
    _, victim = trained(steps=range(31))
    run = written(tmp_path / "run", survivor, victim.inside_of(31))

    assert said_of(run) == Said(
        "Verdict: rank 1 was killed in actor_update, in step 31: the job ended 4.11 s later.",
        next="mstxkit status RUN", codes=(1, 1), kind="killed", blames=True,
    )  # fmt: skip
    picture = called("top", str(run)).output.splitlines()  # of a job that nobody judged
    assert "the job is over" in picture[0] and "! rank 1 was killed in actor_update, in step 31" in picture
