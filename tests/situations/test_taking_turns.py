"""In each step one of four ranks takes 36 ms longer, each time another one by chance: nobody is slow, all wait."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from builders.situations import said_of, trained, written


@pytest.mark.parametrize("seed", range(6))
def test_who_is_slow_in_turn_is_not_blamed_for_it(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    slow = [chance.randrange(4) for _ in range(100)]
    lives = trained(lambda step, rank: 60.0 + 36.0 * (slow[step] == rank), ranks=4, steps=range(100))
    run = written(tmp_path / "run", *lives)

    said = said_of(run)
    assert said.first.startswith("Verdict: there is a long tail in actor_generate: all wait for the last of it: ")
    assert said.first.endswith(" ms, not 137 ms: 26 % less, in steps 2 to 99.")
    assert said[1:] == ("mstxkit report RUN --stages actor_generate --ranges 20", (0, 1), "tail", True)
