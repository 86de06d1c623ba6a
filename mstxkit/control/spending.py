"""What sessions of a rank have cost: how much of the hour's and the run's budget is left, also after a restart."""

from __future__ import annotations

from typing import Any, Mapping

from .moves import NS, Now, Policy

_HOUR_NS = 3600 * NS


class Spending:
    """Time and bytes that sessions took.

    Args:
        policy: What they may take.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.run_ns = 0
        self.run_bytes = 0
        self._sessions: list[tuple[int, int]] = []  # (end on the monotonic clock, duration), ns

    def add(self, duration_ns: int, size_bytes: int, now: Now) -> None:
        """A session ended."""
        self.run_ns += max(0, duration_ns)
        self.run_bytes += max(0, size_bytes)
        self._sessions = [*self._of_the_hour(now), (now.mono_ns, max(0, duration_ns))]

    def left_ns(self, now: Now) -> int:
        """Time that a session may take now."""
        hour_ns = int(self.policy.hour_s * NS) - sum(duration for _, duration in self._of_the_hour(now))
        return max(0, min(hour_ns, int(self.policy.run_s * NS) - self.run_ns))

    def used_up(self) -> str:
        """Which budget of the run is used up, in words; empty while none is."""
        if self.run_ns >= self.policy.run_s * NS:
            return f"the run's budget of {self.policy.run_s:g} s of sessions is used up"
        if self.policy.run_bytes is not None and self.run_bytes >= self.policy.run_bytes:
            return f"the run's budget of {self.policy.run_bytes} bytes is used up"
        return ""

    def memory(self, now: Now) -> dict[str, Any]:
        """As plain data; times as wall clock, as the monotonic one may begin anew."""
        ago = [[now.wall_ns - (now.mono_ns - end), duration] for end, duration in self._of_the_hour(now)]
        return {"run_ns": self.run_ns, "run_bytes": self.run_bytes, "sessions": ago}

    def restore(self, told: Mapping[str, Any], now: Now) -> None:
        """Go on from what `memory` gave; what the wall clock puts into the future was just now."""
        self.run_ns, self.run_bytes = int(told["run_ns"]), int(told["run_bytes"])
        ages = [(max(0, now.wall_ns - int(end)), int(duration)) for end, duration in told["sessions"]]
        self._sessions = [(now.mono_ns - age, duration) for age, duration in ages]

    def _of_the_hour(self, now: Now) -> list[tuple[int, int]]:
        return [(end, duration) for end, duration in self._sessions if now.mono_ns - end < _HOUR_NS]
