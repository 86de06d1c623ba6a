"""Four ranks leave each stage at once, as who waits for the others inside of it: one may be slow in it unseen."""

from __future__ import annotations

import random
from pathlib import Path

from builders.run_files import BankFiles
from builders.situations import MS, Life, Said, called, said_of, written


def test_what_nobody_can_see_is_not_called_healthy(tmp_path: Path) -> None:
    chance, banks, now = random.Random(0), [BankFiles() for _ in range(4)], 0
    for step in range(60):
        for stage, ms in (("load_batch", 1), ("reward", 30), ("actor_update", 40)):
            end = now + round(ms * (1 + chance.gauss(0, 0.02)) * MS)
            for bank in banks:
                began, over = now + chance.randrange(20_000), end + chance.randrange(20_000)
                bank.range(stage, began, over, stage=stage, own=True, step=step)
            now = end + MS // 20
    run = written(tmp_path / "run", *(Life(rank, bank, 0, now, {}) for rank, bank in enumerate(banks)))

    assert said_of(run) == Said(
        "Verdict: healthy as far as is seen: nothing above 1 % of a step; no rank was seen to make others wait in the "
        "50 steps that were judged.",
        next="", codes=(0, 0), kind="healthy", blames=False,
    )  # fmt: skip
    hides = "capture(rings=True) alone tells whether a rank is slow inside of actor_update, reward, which all leave"
    assert hides in called("report", str(run)).output
