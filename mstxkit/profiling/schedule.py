"""When light capture records: a schedule in words, "every 100 steps, 1 step"."""

from __future__ import annotations

import re
from typing import NamedTuple

from ..errors import ConfigError

_AT_MOST = 1_000_000_000
_WORDS = re.compile(r"every\s+([0-9]{1,10})\s+steps?\s*,\s*([0-9]{1,10})\s+steps?(\s*,\s*any\s+device)?", re.IGNORECASE)
_ALLOWED = (
    'allowed: "every 100 steps, 1 step", whole numbers from 1, not more steps than every how many; '
    'with ", any device" also where there is no NPU'
)


class Schedule(NamedTuple):
    """In which steps light capture records."""

    every: int  # from one window's first step to the next one's
    steps: int = 1  # of a window
    any_device: bool = False  # also where there is no NPU?

    @classmethod
    def parse(cls, text: str) -> Schedule:
        """A schedule from its words. Raises ConfigError: it is none; the message says what is allowed."""
        match = _WORDS.fullmatch(str(text).strip())
        if match is None:
            raise ConfigError(f"light={text!r} is no schedule; {_ALLOWED}")
        every, steps = int(match[1]), int(match[2])
        if not 0 < steps <= every <= _AT_MOST:
            raise ConfigError(f"light={text!r}: {steps} of {every} steps cannot be recorded; {_ALLOWED}")
        return cls(every, steps, match[3] is not None)

    def wants(self, step: int) -> bool:
        """Is this step recorded? Windows begin at multiples of `every`, step 0 excepted: a resumed run goes on with
        the same steps, and the first ones, which warm up, are in none.
        """
        return step >= self.every and step % self.every < self.steps

    def __str__(self) -> str:
        every, steps = (f"{number} step{'s' * (number != 1)}" for number in self[:2])
        return f"every {every}, {steps}{', any device' * self.any_device}"
