"""A rank was killed; the job was started again, and has ended well."""

from __future__ import annotations

from pathlib import Path

from builders.situations import STEPS, S, Said, said_of, trained, written


def test_how_it_is_now_comes_before_how_an_earlier_attempt_ended(tmp_path: Path) -> None:
    before, after = trained(steps=range(20)), trained(steps=range(20, STEPS), begin_ns=20 * S)
    again = [life.ending(pid=5000 + at) for at, life in enumerate(after)]
    run = written(tmp_path / "run", *(life.inside_of(20) for life in before), *again)

    assert said_of(run) == Said(
        "Verdict: healthy: nothing above 1 % of a step; no rank was seen to make others wait in the 44 "
        "steps that were judged.",
        next="", codes=(1, 0), kind="healthy", blames=False,
    )  # fmt: skip
