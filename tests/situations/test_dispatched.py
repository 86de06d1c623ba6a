"""A controller works between the stages of four ranks, from the first step on: 12 ms before each of two, of 66 ms."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from builders.run_files import BankFiles
from builders.situations import MS, Life, Said, said_of, written

DISPATCHED = (("actor_generate", 22.0), ("actor_update", 20.0))


def dispatched(is_marked: bool) -> list[Life]:
    """Four ranks that do what they are told at once, and who tells them, which marks what it does or does not."""
    chance, ranks, controller, now = random.Random(0), [BankFiles() for _ in range(4)], BankFiles(), 0
    for step in range(60):
        for stage, ms in DISPATCHED:
            begin, now = now, now + 12 * MS
            if is_marked:
                controller.range(f"prepare_{stage}", begin, now, stage=f"prepare_{stage}", own=True, step=step)
            ends = [now + round((ms + chance.gauss(0, 0.1)) * MS) for _ in ranks]
            for bank, end in zip(ranks, ends):
                bank.range(stage, now, end, stage=stage, own=True, step=step)
            now = max(ends)
        controller.mark("told", now, step=step)
    lives = [Life(rank, bank, 0, now, {"role": "actor"}) for rank, bank in enumerate(ranks)]
    return [*lives, Life(None, controller, 0, now, {"role": "controller"})]


@pytest.mark.parametrize(
    ("is_marked", "words", "kind", "next_"),
    [
        (False, "for 36 % of the steps’ time no process is in a stage", "not_marked", "mstxkit report RUN --all"),
        (
            True, "for 36 % of the steps’ time controller alone is in a stage", "one_alone",
            "mstxkit report RUN --stages prepare_actor_generate --ranges 20",
        ),
    ],
    ids=["marked by nobody", "marked"],
)  # fmt: skip
def test_a_step_that_is_spent_between_stages_is_not_called_healthy(
    tmp_path: Path, is_marked: bool, words: str, kind: str, next_: str
) -> None:
    run = written(tmp_path / "run", *dispatched(is_marked))

    nobody = "no rank was seen to make others wait in the 50 steps that were judged"
    assert said_of(run) == Said(f"Verdict: {words}; else {nobody}.", next_, (0, 0), kind, False)
