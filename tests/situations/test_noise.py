"""All ranks take now longer and now shorter, by 5 %, and none more than the others."""

from __future__ import annotations

import random
from pathlib import Path

from builders.situations import Said, said_of, trained, written


def test_it_is_healthy_and_says_above_what_nothing_is(tmp_path: Path) -> None:
    chance = random.Random(3)
    run = written(tmp_path / "run", *trained(lambda step, rank: 100 * (1 + chance.gauss(0, 0.05)), ranks=4))

    assert said_of(run) == Said(
        "Verdict: healthy: nothing above 4 % of a step; no rank was seen to make others wait in the 50 "
        "steps that were judged.",
        next="", codes=(0, 0), kind="healthy", blames=False,
    )  # fmt: skip
