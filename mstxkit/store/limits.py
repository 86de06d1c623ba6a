"""What ends one session early, and what a rank does not exceed: for requests, configurations and whoever keeps them.

It is in `store` because a request file holds limits, and requests are read where `profiling` may not be imported.
"""

from __future__ import annotations

# ruff: noqa: UP045  (annotations are evaluated, and Python 3.9 has no `X | None`)
from typing import Annotated, Any, NamedTuple, Optional, get_type_hints

# CANN's own limit (ACL_PROF_STORAGE_LIMIT in acl_prof.h) is set in MB and is at least this.
CANN_LEAST_BYTES = 200 << 20
OBSERVE, ESCALATE = ACTS = ("observe", "escalate")  # what verdicts may do: be said, or ask for profiles too
SESSION_S = 600.0  # the limit of a session, where nothing sets another


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


class Policy(NamedTuple):
    """What a rank does not exceed, whatever it is asked."""

    cooldown_s: float = 30.0  # seconds without a session after each request that had one
    session_s: float = SESSION_S  # seconds after which any session is ended, whatever its request says
    hour_s: float = 600.0  # seconds of sessions in any hour; requests wait until there is room
    run_s: float = 7200.0  # seconds of sessions in a whole run, restarts included; then requests are refused
    run_bytes: Optional[int] = None  # the same in bytes of raw data; None: no limit
    agreement_s: float = 120.0  # seconds in which all ranks of a request have to be ready for a step together
    lead_steps: int = 2  # steps that an agreed step is ahead of all ranks, at least
    # Seconds a message may take to every rank; where steps are short, the lead is at least that long.
    transport_s: float = 4.0
    queue: int = 64  # requests that wait on one rank; more are refused


def by_name() -> dict[str, Limit]:
    """All limits by name, in the order of `SessionLimits`."""
    hints = get_type_hints(SessionLimits, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items()}
