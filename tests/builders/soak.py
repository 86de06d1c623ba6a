"""How long a test goes on: in `make soak` for the full count, else for a short one; and the seed of what is random.

The seed is the day's, so that short runs cover more and more as days go by; MSTXKIT_TEST_SEED repeats a day.
"""

from __future__ import annotations

import os
import random
from datetime import date
from typing import TypeVar

T = TypeVar("T")

# Without the MSTXKIT_ in front, which tests take for a setting of the package. Workers and children inherit both.
_SOAK, _SEED = "SOAK_TESTS", "SEED_OF_TESTS"


def is_soaking() -> bool:
    """Does this run take everything in full?"""
    return os.environ.get(_SOAK) == "1"


def rounds(full: T, short: T) -> T:
    """`full` in `make soak`, `short` elsewhere: a count, or a list of cases."""
    return full if is_soaking() else short


def seed() -> int:
    """The same in every process of a run of tests."""
    wanted = os.environ.pop("MSTXKIT_TEST_SEED", None)
    return int(os.environ.setdefault(_SEED, wanted or date.today().strftime("%Y%m%d")))


def sample(cases: list[T], count: int) -> list[T]:
    """All cases in `make soak`, elsewhere `count` of them, others each day; in their order."""
    if is_soaking() or count >= len(cases):
        return cases
    chosen = set(random.Random(seed()).sample(range(len(cases)), count))
    return [case for number, case in enumerate(cases) if number in chosen]
