"""One rank agrees for all on the step at which a request of several ranks begins: two phases, or an end that is stated.

First every rank says that it is ready, and its step; then a step ahead of all is committed. One request at a time is
under way on any rank. Who never answers is said to have failed, so that every request ends. Pure: no clock, no files.

The lowest rank that is asked agrees: who that is, the request alone says, so that every rank and every restart knows it
without asking. It has to run the stage like all that are asked. It speaks for those that are lost, as does rank 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Collection, Iterator, Mapping, Sized

from ...store.limits import Policy
from ...store.report import FAILED, Report
from ...store.request import Request
from .moves import NS, Acknowledge, Action, Commit, Drop, Now
from .task import life_ns, remembered_request

_LEAD_AT_MOST = 10_000
_NAMED_AT_MOST = 8
_BUSY_RATIO = 1.5  # who is only busy is waited for longer than who says nothing, and shorter than READY_RATIO


def needs_agreement(request: Request, ranks: Sized) -> bool:
    """Do the ranks of a request have to agree? Where they record the same steps; occurrences are each rank's own, and
    the steps of a planned window are known to all.
    """
    return request.occurrences is None and request.planned is None and len(ranks) > 1


@dataclass
class _Matter:
    """One request, as this rank sees it; `is_ours`: this rank agrees on its step."""

    request: Request
    ranks: tuple[int, ...]
    gives_up_ns: int
    decided: bool
    is_ours: bool
    reports: dict[int, Report] = field(default_factory=dict)
    ready: dict[int, int | None] = field(default_factory=dict)
    since_ns: int | None = None

    def pending(self) -> list[int]:
        return [rank for rank in self.ranks if rank not in self.reports or not self.reports[rank].has_ended]


class Agreement:
    """What one rank knows of the requests that it follows for others: who is ready for them, and how they ended. It
    follows those of several ranks of which it is the lowest; rank 0 all that it hears of.
    `agrees`: False: it follows none, as another process speaks as this rank.
    """

    def __init__(self, rank: int, policy: Policy, agrees: bool = True) -> None:
        self.rank, self.policy, self.agrees = rank, policy, agrees
        self._matters: dict[str, _Matter] = {}

    def received(self, request: Request, ranks: tuple[int, ...], now: Now, decided: bool = False) -> None:
        """A request of these ranks is there; `decided`: its step was agreed, or dropped, before this rank restarted."""
        speaks = choose_agreeing(ranks) == self.rank and len(ranks) > 1
        is_ours = speaks and needs_agreement(request, ranks)
        if self.agrees and request.id not in self._matters and (speaks or self.rank == 0):
            # A session that began in time may go on beyond the expiry.
            spare_ns = int((self.policy.session_s + 2 * self.policy.agreement_s) * NS)
            gives_up_ns = now.mono_ns + max(0, life_ns(request, now)) + spare_ns
            self._matters[request.id] = _Matter(request, ranks, gives_up_ns, decided or not is_ours, is_ours)

    def reported(self, report: Report, now: Now) -> None:
        """A rank tells the state of a request on it."""
        matter = self._matters.get(report.id)
        if matter is None or report.rank not in matter.ranks:
            return
        matter.reports[report.rank] = report
        matter.ready.pop(report.rank, None)
        if report.ready:
            matter.ready[report.rank] = report.step
            matter.since_ns = now.mono_ns if matter.since_ns is None else matter.since_ns
        if report.has_ended:  # its cooldown begins: what it said about other requests is of the past
            for other in self._matters.values():
                other.ready.pop(report.rank, None)

    def cancelled(self, id: str) -> None:
        """No step is to be agreed any more."""
        if id in self._matters:
            self._matters[id].decided = True

    def awaited(self) -> dict[str, list[int]]:
        """Request id to the ranks that have not said their last word on it."""
        return {id: matter.pending() for id, matter in self._matters.items()}

    def restore(self, memory: list[Mapping[str, Any]], now: Now) -> None:
        """Go on from what `memory` gave; who was ready has to say so again."""
        for matter in memory:
            request = remembered_request(matter["request"])
            if request is not None:
                self.received(request, tuple(matter["ranks"]), now, bool(matter["decided"]))

    def memory(self) -> list[dict[str, Any]]:
        """As plain data, for a restart."""
        return [
            {"request": matter.request.as_json(), "ranks": list(matter.ranks), "decided": matter.decided}
            for matter in self._matters.values()
        ]

    def due(self, step: int | None, step_ns: int | None, now: Now) -> Iterator[Action]:
        """What is decided by now. `step_ns`: how long a step takes; None: that is waited for, as no lead is long enough
        where it is not known.
        """
        for id, matter in list(self._matters.items()):
            decision = None if matter.decided else self._decide(matter, step, step_ns, now)
            if decision is not None:
                matter.decided = True
                yield decision
            if not matter.pending():
                del self._matters[id]
            elif now.mono_ns >= matter.gives_up_ns:
                del self._matters[id]
                for rank in matter.pending():
                    last = matter.reports.get(rank)
                    why = "rank lost: " + ("it never answered" if last is None else f"its last word was {last.state}")
                    lost = Report(id, rank, FAILED) if last is None else last
                    yield Acknowledge(lost._replace(state=FAILED, ready=False, reason=why))

    def _decide(self, matter: _Matter, step: int | None, step_ns: int | None, now: Now) -> Commit | Drop | None:
        """The step of one that is undecided, or why it gets none; None: it goes on waiting."""
        id = matter.request.id
        for rank in matter.ranks:
            if rank in matter.reports and matter.reports[rank].has_ended:
                return Drop(id, f"rank {rank} is out: {matter.reports[rank].reason}")
        if len(matter.ready) < len(matter.ranks):
            why = "" if matter.since_ns is None else self._too_late(matter, (now.mono_ns - matter.since_ns) / NS)
            return Drop(id, why) if why else None
        stepless = [rank for rank, step_there in matter.ready.items() if step_there is None]
        if stepless:
            return Drop(id, f"{name_ranks(stepless)} counts no steps; ask for occurrences instead")
        # Another one that is decided, and has not ended on one of these ranks, comes first.
        others = [other for other in self._matters.values() if other is not matter and other.decided and other.is_ours]
        if step_ns is None or any(not set(matter.ranks).isdisjoint(other.pending()) for other in others):
            return None
        ahead = max(step or 0, *(step_there or 0 for step_there in matter.ready.values()))
        return Commit(id, ahead + choose_lead(self.policy, step_ns))

    def _too_late(self, matter: _Matter, waited_s: float) -> str:
        """Why ranks that are ready need not wait any longer for the others, and what to do; empty: they do."""
        silent = [rank for rank in matter.ranks if rank not in matter.reports]
        stages, ask = " or ".join(matter.request.stages), "ask for ranks that do, or by occurrences"
        if silent and waited_s > self.policy.agreement_s:
            why = f"nothing is known of it there: it may never enter {stages}; {ask}"
            return f"{name_ranks(silent)} was not ready within {self.policy.agreement_s:g} s, {why}"
        limit_s = _BUSY_RATIO * self.policy.agreement_s
        busy = [rank for rank in matter.ranks if rank not in matter.ready]
        if silent or waited_s <= limit_s:
            return ""
        why = next(filter(None, (matter.reports[rank].reason for rank in busy)), "it was busy")
        return f"{name_ranks(busy)} was not ready within {limit_s:g} s ({why}); ask again when it is idle"


def choose_agreeing(ranks: Collection[int]) -> int:
    """Which of the ranks of a request agrees on its step for all of them."""
    return min(ranks)


def name_ranks(ranks: Collection[int]) -> str:
    """`rank 2`, `rank 2, 3`; of many the first."""
    more = f" and {len(ranks) - _NAMED_AT_MOST} more" if len(ranks) > _NAMED_AT_MOST else ""
    return f"rank {', '.join(map(str, sorted(ranks)[:_NAMED_AT_MOST]))}{more}"


def choose_lead(policy: Policy, step_ns: int | None) -> int:
    """Steps ahead: at least as long as messages take, there and back, where steps are short."""
    steps = math.ceil(2 * policy.transport_s * NS / max(step_ns, 1)) if step_ns is not None else 0
    return min(max(1, policy.lead_steps, steps), _LEAD_AT_MOST)
