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
    """In which steps light capture records.

    Args:
        every: From one window's first step to the next one's.
        steps: Length of a window.
        any_device: Also where there is no NPU?
    """

    every: int
    steps: int = 1
    any_device: bool = False

    @classmethod
    def parse(cls, text: str) -> Schedule:
        """A schedule from its words.

        Raises:
            ConfigError: it is none; the message says what is allowed.
        """
        found = _WORDS.fullmatch(str(text).strip())
        if found is None:
            raise ConfigError(f"light={text!r} is no schedule; {_ALLOWED}")
        every, steps = int(found[1]), int(found[2])
        if not 0 < steps <= every <= _AT_MOST:
            raise ConfigError(f"light={text!r}: {steps} of {every} steps cannot be recorded; {_ALLOWED}")
        return cls(every, steps, found[3] is not None)

    def wants(self, step: int) -> bool:
        """Is this step recorded? Windows begin at multiples of `every`, step 0 excepted: a resumed run goes on with
        the same steps, and the first ones, which warm up, are in none.
        """
        return step >= self.every and step % self.every < self.steps

    def __str__(self) -> str:
        def counted(number: int) -> str:
            return f"{number} step{'s' * (number != 1)}"

        return f"every {counted(self.every)}, {counted(self.steps)}{', any device' * self.any_device}"
