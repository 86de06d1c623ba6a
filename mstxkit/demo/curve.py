"""The reward curve of a run of the demo: a file with a line of JSON for each step, and what it says about learning."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Sequence

FILE_NAME = "rewards.jsonl"
MEAN_OVER_STEPS = 5


@dataclass(frozen=True)
class Learning:
    """How far a policy came: mean reward, from 0 to 1, of the first and of the last few steps."""

    steps: int
    first_reward: float
    final_reward: float

    @property
    def ratio(self) -> float:
        """How many times the first reward the final one is."""
        return self.final_reward / self.first_reward if self.first_reward else 0.0


def learning(rewards: Sequence[float]) -> Learning:
    """Compare the mean of the last steps with that of the first."""
    count = min(MEAN_OVER_STEPS, len(rewards)) or 1
    return Learning(len(rewards), sum(rewards[:count]) / count, sum(rewards[-count:]) / count)


def read_rewards(run: Path) -> list[float]:
    """The reward of each step that was finished; none where no step was."""
    path = run / FILE_NAME
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line)["reward"] for line in lines if line.endswith("}")]
