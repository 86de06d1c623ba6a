"""What one rank keeps of requests besides those under way: how they ended, which are others', what came too early.

At most so many of each are kept: the oldest go.
"""

from __future__ import annotations

from typing import Any, Mapping, TypeVar

from .moves import Report

_KEPT_AT_MOST = 4096
V = TypeVar("V")


class Ledger:
    """By request id, each in order of arrival.

    Attributes:
        ended: The last report of this rank.
        elsewhere: Requests of other ranks, which this one has agreed on.
        commits: Agreed first steps that came before their request.
        cancels: Cancellations that did, and why.
    """

    def __init__(self) -> None:
        self.ended: dict[str, Report] = {}
        self.elsewhere: dict[str, None] = {}
        self.commits: dict[str, int] = {}
        self.cancels: dict[str, str] = {}

    def is_settled(self, id: str) -> bool:
        """Is there nothing more for this rank to do about it?"""
        return id in self.ended or id in self.elsewhere

    def has_early(self, id: str) -> bool:
        """Was it decided before it came?"""
        return id in self.commits or id in self.cancels

    def end(self, report: Report) -> None:
        """This was the last word on a request."""
        _put(self.ended, report.id, report)

    def leave_to_others(self, id: str) -> None:
        """The request is of other ranks."""
        _put(self.elsewhere, id, None)

    def commit_early(self, id: str, first_step: int) -> None:
        """Its step is agreed, and the request is still to come."""
        if not self.is_settled(id):
            _put(self.commits, id, first_step)

    def cancel_early(self, id: str, reason: str) -> None:
        """It is not wanted any more, and is still to come."""
        if not self.is_settled(id):
            _put(self.cancels, id, reason)

    def memory(self) -> dict[str, Any]:
        """As plain data, for a restart."""
        return {
            "ended": [report.as_json() for report in self.ended.values()],
            "elsewhere": list(self.elsewhere),
            "early": {"commits": self.commits, "cancels": self.cancels},
        }

    def restore(self, told: Mapping[str, Any]) -> None:
        """Go on from what `memory` gave."""
        self.ended = {report.id: report for report in map(Report.read, told["ended"])}
        self.elsewhere = {str(id): None for id in told["elsewhere"]}
        self.commits = {str(id): int(step) for id, step in told["early"]["commits"].items()}
        self.cancels = {str(id): str(why) for id, why in told["early"]["cancels"].items()}


def _put(kept: dict[str, V], key: str, value: V) -> None:
    kept[key] = value
    while len(kept) > _KEPT_AT_MOST:
        del kept[next(iter(kept))]
