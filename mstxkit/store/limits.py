"""What ends one session early: one entry for each limit, for requests, configurations and whoever keeps them.

It is in `store` because a request file holds limits, and requests are read where `profiling` may not be imported.
"""

from __future__ import annotations

# ruff: noqa: UP045  (annotations are evaluated, and Python 3.9 has no `X | None`)
from typing import Annotated, Any, NamedTuple, Optional, get_type_hints

# CANN's own limit (ACL_PROF_STORAGE_LIMIT in acl_prof.h) is set in MB and is at least this.
CANN_LEAST_BYTES = 200 << 20


class Limit(NamedTuple):
    """What may be given for a limit: where `kind` is int, a whole number from 1 to `most`; else above 0, below it."""

    kind: type
    most: float
    meaning: str

    def takes(self, value: Any) -> bool:
        """May this be its value?"""
        if self.kind is int:
            return type(value) is int and 1 <= value <= self.most
        return type(value) in (int, float) and 0 < value < self.most

    @property
    def demand(self) -> str:
        """What a message demands."""
        if self.kind is int:
            return f"must be a whole number from 1 to {self.most}"
        return f"must be a number above 0, and below {self.most:g}"


_SECONDS = Limit(float, 1e9, "Wall clock seconds of one recording; null: no limit.")
_RAW_DATA = "Bytes of raw data of one recording on disk; null: no limit. Not enforceable for torch.profiler."


class SessionLimits(NamedTuple):
    """What ends a recording early, at the next boundary of the thread that owns it."""

    seconds: Annotated[Optional[float], _SECONDS] = None
    bytes: Annotated[Optional[int], Limit(int, 1 << 62, _RAW_DATA)] = None

    def seconds_within(self, policy_s: float) -> float:
        """The seconds that hold under a policy, which no request can exceed."""
        return min(policy_s, self.seconds or policy_s)


def by_name() -> dict[str, Limit]:
    """All limits by name, in the order of `SessionLimits`."""
    hints = get_type_hints(SessionLimits, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items()}
