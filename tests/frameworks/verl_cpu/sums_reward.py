"""The reward of a sum, as verl's custom_reward_function: digits, and one first. It can hold the training up.

With SUMS_HOLD in the environment ("<calls> <file>"), what is asked after so many calls waits until the file is there:
a test has all the time it needs for what it does to a job between two of its steps.
"""

from __future__ import annotations

import itertools
import os
import time
from typing import Any

HELD_AT_MOST_S = 900
_calls = itertools.count()


def compute_score(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None, **_: Any) -> float:
    """What verl calls once for each answer."""
    hold()
    answer = solution_str.strip()
    return sum(char.isdigit() for char in answer) / max(1, len(answer)) + float(answer[:1].isdigit())


def hold() -> None:
    """Let who asks too often wait for the file."""
    calls, _, file = os.environ.get("SUMS_HOLD", "").partition(" ")
    if not calls or next(_calls) < int(calls):
        return
    deadline_s = time.monotonic() + HELD_AT_MOST_S
    while not os.path.exists(file):
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{file} did not come")
        time.sleep(0.05)
