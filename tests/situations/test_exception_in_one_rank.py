"""An exception ends the program of one rank."""

from __future__ import annotations

from pathlib import Path

from builders.situations import Said, said_of, trained, written


def test_who_raised_and_what_is_said_first(tmp_path: Path) -> None:
    survivor, _ = trained()
    _, raised = trained(steps=range(31))
    run = written(tmp_path / "run", survivor, raised.ending(end={"error": "ValueError"}))

    assert said_of(run) == Said(
        "Verdict: rank 1 raised what nobody caught (ValueError): the job ended 4.11 s later.",
        next="mstxkit status RUN", codes=(1, 1), kind="exception", blames=True,
    )  # fmt: skip
