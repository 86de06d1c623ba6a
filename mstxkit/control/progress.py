"""How requests stand, as anybody sees it who can read the run: who listens, what was asked, what became of it.

Read from the control folder alone, so that it needs no tables. Every rank that was asked has a word here: its own
newest one, that of the agreeing rank where it was lost, or what its silence means.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import Iterable, NamedTuple, Sequence

from .. import identity, presets, stages
from ..errors import ConfigError
from .files import REQUESTS, Acknowledgement, ControlFolder, messages_of, read
from .messages import Standing, as_event
from .moves import (
    CANCELLED,
    DONE,
    DRAINING,
    END_STATES,
    EXPIRED,
    FAILED,
    OPEN_STATES,
    QUEUED,
    REFUSED,
    RUNNING,
    CancelReceived,
    Event,
    Report,
    RequestReceived,
)
from .requests import Request

# A run of more ranks than this does not say so itself: somebody else wrote that.
RANKS_AT_MOST = 1 << 20
_IN_A_SESSION = (RUNNING, DRAINING)
_WEIGHTS = (DONE, REFUSED, EXPIRED, CANCELLED, FAILED, *OPEN_STATES)


class Heard(NamedTuple):
    """What one process of the run said last.

    Args:
        acknowledgement: Who said it, and when.
        standing: What it said.
        is_alive: Does that process still run? None where this host cannot tell.
    """

    acknowledgement: Acknowledgement
    standing: Standing
    is_alive: bool | None

    @property
    def rank(self) -> int:
        """Its global rank."""
        return self.acknowledgement.rank


class Asked(NamedTuple):
    """A request as it lies in the control folder.

    Args:
        request: What is asked for.
        suspects: The ranks that "suspect+peer" stands for.
        cancelled: Why it is not wanted any more; None while it is.
    """

    request: Request
    suspects: tuple[int, ...] = ()
    cancelled: str | None = None


@dataclass(frozen=True)
class Progress:
    """How a request stands.

    Args:
        asked: The request.
        reports: One of each rank that is asked, by rank; what a silent rank is in is concluded.
    """

    asked: Asked
    reports: tuple[Report, ...]

    @property
    def has_ended(self) -> bool:
        """Has every rank said its last word?"""
        return all(report.has_ended for report in self.reports)

    @property
    def is_done(self) -> bool:
        """Was the whole window recorded on every rank?"""
        return bool(self.reports) and all(report.state == DONE for report in self.reports)

    def counts(self) -> dict[str, int]:
        """State to number of ranks, in the order in which a request goes through them."""
        counted = Counter(report.state for report in self.reports)
        return {state: counted[state] for state in (*OPEN_STATES, *END_STATES) if counted[state]}

    def __str__(self) -> str:
        """`armed 3, done 5 of 8`; of one rank `armed`."""
        if len(self.reports) == 1:
            return self.reports[0].state
        counts = ", ".join(f"{state} {count}" for state, count in self.counts().items())
        return f"{counts} of {len(self.reports)}" if counts else "no rank is asked"


def heard(control: ControlFolder) -> list[Heard]:
    """What every process said last, by rank and role; what cannot be read is left out."""
    found = []
    for one in control.acknowledgements():
        try:
            standing = Standing.read(one.document)
        except (ConfigError, OverflowError):
            continue
        found.append(Heard(one, standing, _is_alive(one)))
    return found


def _is_alive(one: Acknowledgement) -> bool | None:
    process = one.document.get("process")
    return identity.is_alive(process) if isinstance(process, dict) else None


def asked(control: ControlFolder) -> list[Asked]:
    """The requests of a run that are still in its folder (the newest some hundred), oldest first.

    Raises:
        Unusable: the file of requests is not what it should be.
    """
    content = read(control.path, REQUESTS)
    events = [] if content is None else list(_events(messages_of(content, control.run_id)))
    cancels = {event.id: event.reason for event in events if isinstance(event, CancelReceived)}
    return [
        Asked(event.request, event.suspects, cancels.get(event.request.id))
        for event in events
        if isinstance(event, RequestReceived)
    ]


def _events(found: Iterable[dict[str, object]]) -> Iterable[Event]:
    known = presets.known()
    for message in found:
        try:
            yield as_event(message, known)
        except ConfigError:
            continue


def progress(one: Asked, said: Sequence[Heard], now_ns: int | None = None) -> Progress:
    """How a request stands.

    Args:
        one: The request.
        said: What `heard` gave.
        now_ns: Wall clock; default: this host's.
    """
    now_ns = time.time_ns() if now_ns is None else now_ns
    ranks = one.request.ranks_in(world_size(said), one.suspects)
    words = _words(one.request, said, now_ns)
    silent = _silent(one, now_ns)
    return Progress(one, tuple(words.get(rank) or replace(silent, rank=rank) for rank in ranks))


def world_size(said: Sequence[Heard]) -> int:
    """Ranks of the run: as most processes know it, and all that were seen."""
    told = [one.standing.world_size for one in said if 0 < one.standing.world_size <= RANKS_AT_MOST]
    return max([0, *told, *(one.rank + 1 for one in said)])


def _silent(one: Asked, now_ns: int) -> Report:
    id = one.request.id
    if one.cancelled is not None:
        return Report(id, 0, CANCELLED, reason=one.cancelled)
    if now_ns >= one.request.expires_ns:
        return Report(id, 0, EXPIRED, reason="it never answered")
    return Report(id, 0, QUEUED, reason="no answer yet")


def _words(request: Request, said: Sequence[Heard], now_ns: int) -> dict[int, Report]:
    """Rank to what counts of all that is said of this request on it."""
    own: dict[int, list[tuple[bool, Report]]] = {}
    of_others: dict[int, Report] = {}
    is_late = now_ns >= request.expires_ns
    for one in said:
        runs_it = any(stages.canonical(stage) in request.stages for stage in one.standing.stages)
        for report in one.standing.reports:
            if report.id != request.id or not is_sound(report):
                continue
            if report.rank == one.rank:
                own.setdefault(one.rank, []).append((runs_it, _as_seen_from_outside(report, one, is_late)))
            else:
                of_others[report.rank] = report
    spoken = {rank: _weightiest(words) for rank, words in own.items()}
    # What a lost rank said last is outdated by what the agreeing rank says of it, unless it was its end.
    lost = {rank: report for rank, report in of_others.items() if rank not in spoken or not spoken[rank].has_ended}
    return {**spoken, **lost}


def is_sound(report: Report) -> bool:
    """Are its fields what they should be? It may have been written by anybody with this user's rights."""
    steps = (report.step, report.first_step, report.last_step)
    numbers = (report.rank, report.recorded, report.bytes, *(step for step in steps if step is not None))
    return all(type(number) is int for number in (*numbers, *report.recorded_steps)) and isinstance(report.reason, str)


def _weightiest(words: list[tuple[bool, Report]]) -> Report:
    """Of processes with one rank and several roles: those that run the stage count, and of these the farthest from
    a good end.
    """
    relevant = [report for runs_it, report in words if runs_it] or [report for _, report in words]
    return max(relevant, key=lambda report: _WEIGHTS.index(report.state))


def _as_seen_from_outside(report: Report, one: Heard, is_late: bool) -> Report:
    """A process that is gone ends nothing any more: a session of it has ended with it."""
    if report.has_ended or one.is_alive is not False:
        return report
    if report.state in _IN_A_SESSION:
        return replace(report, state=FAILED, reason="its process ended in the middle of a session")
    reason = "; ".join(filter(None, (report.reason, "its process has ended")))
    return replace(report, state=EXPIRED if is_late else report.state, ready=False, reason=reason)
