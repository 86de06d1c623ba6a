"""The one judge of what became of a request: `status`, `escalate --wait`, a cancellation and the tables ask it.

Every rank that was asked has a word here: its own newest one, that of the agreeing rank where it was lost, that of its
session.json, or what its silence means. A request that nobody can answer any more ends on every host:

- a rank that never answered has let it expire when its time is over;
- a rank that is known to be gone fails where it was in a session, and expires with the request where it was not;
- a rank of which nobody here can tell whether it lives speaks once a minute if it does. Where it does not, it has
  failed when the limit of its session and LATE_S are over since its last word; outside of a session it expires LATE_S
  after the request did.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Callable, Iterable, Mapping, NamedTuple, Optional, Sequence

from .. import stages
from ..errors import ConfigError
from ..host import life
from . import messages, session_file
from . import report as states
from .control_folder import ControlFolder, is_id
from .documents import Unusable
from .limits import SESSION_S
from .messages import CancelReceived, RequestReceived
from .report import END_STATES, OPEN_STATES, Acknowledgement, Report, Standing
from .request import Request
from .session_file import RecordedSession
from .values import group_by, small_number, step_number, table_of, whole_number

NS = 10**9
# How much longer than it should a rank may be silent: three of its words are lost, or clocks of hosts differ so much.
LATE_S = 3 * states.SAY_AGAIN_S
# A run of more ranks than this does not say so itself: somebody else wrote that.
RANKS_AT_MOST = 1 << 20
_WEIGHTS = (states.DONE, states.REFUSED, states.EXPIRED, states.CANCELLED, states.FAILED, *OPEN_STATES)

# Does the process of this identity (host, pid, what `life.of_this` says) still run? None where nobody can tell.
Liveness = Callable[[Mapping[str, Any]], Optional[bool]]


class Heard(NamedTuple):
    """What one process of the run said last, and whether it still runs; None where this host cannot tell."""

    acknowledgement: Acknowledgement
    standing: Standing
    is_alive: bool | None

    @property
    def rank(self) -> int:
        """Its global rank."""
        return self.acknowledgement.rank

    @property
    def keys(self) -> set[str]:
        """Canonical keys of the stages that it has entered."""
        return {stages.canonical_key(stage) for stage in self.standing.stages}


class Asked(NamedTuple):
    """A request as it lies in the control folder, whom "suspect+peer" stands for, and why it is cancelled, if it is."""

    request: Request
    suspects: tuple[int, ...] = ()
    cancelled: str | None = None


@dataclass(frozen=True)
class Progress:
    """How a request stands: a report of each rank that is asked, by rank; what a silent rank is in is concluded."""

    asked: Asked
    reports: tuple[Report, ...]

    @property
    def has_ended(self) -> bool:
        """Has every rank said its last word? A plan for ranks of which none is there yet has not ended."""
        waits = not self.reports and self.asked.request.planned is not None
        return not waits and all(report.has_ended for report in self.reports)

    @property
    def is_done(self) -> bool:
        """Was the whole window recorded on every rank?"""
        return bool(self.reports) and all(report.state == states.DONE for report in self.reports)

    def counts(self) -> dict[str, int]:
        """State to number of ranks, in the order in which a request goes through them."""
        counted = Counter(report.state for report in self.reports)
        return {state: counted[state] for state in (*OPEN_STATES, *END_STATES) if counted[state]}

    def __str__(self) -> str:
        """`armed 3, done 5 of 8`; of one rank `armed`."""
        if len(self.reports) == 1:
            return self.reports[0].state
        if not self.reports and self.asked.request.planned is not None:
            return states.QUEUED
        counts = ", ".join(f"{state} {count}" for state, count in self.counts().items())
        return f"{counts} of {len(self.reports)}" if counts else "no rank is asked"


def read_heard(
    control: ControlFolder, is_alive: Liveness = life.is_alive, unusable: list[Unusable] | None = None
) -> list[Heard]:
    """What every process said last, by rank and role; what cannot be read is left out, and added to `unusable`."""
    return list(filter(None, (speaker_of(ack, is_alive) for ack in control.acknowledgements(unusable))))


def speaker_of(ack: Acknowledgement, is_alive: Liveness = life.is_alive) -> Heard | None:
    """Who wrote an acknowledgement; None where it says nothing that can be read."""
    try:
        standing = Standing.read(ack.document)
    except (ConfigError, OverflowError):
        return None
    who = {"host": ack.host, "pid": ack.pid, **table_of(ack.document.get("process"))}
    return Heard(ack, standing, is_alive(who))


def read_asked(control: ControlFolder) -> list[Asked]:
    """The requests of a run that are still in its folder (the newest some hundred), oldest first.
    Raises Unusable: the file of requests is not what it should be.
    """
    received: list[RequestReceived] = []
    cancels: dict[str, str] = {}
    for fields in control.messages():
        with suppress(ConfigError):
            message = messages.read_message(fields)
            if isinstance(message, RequestReceived):
                received.append(message)
            elif isinstance(message, CancelReceived):
                cancels[message.id] = message.reason
    return [Asked(message.request, message.suspects, cancels.get(message.request.id)) for message in received]


def world_size(speakers: Sequence[Heard]) -> int:
    """Ranks of the run: as most processes know it, and all that were seen."""
    sizes = [size for speaker in speakers if 0 < (size := speaker.standing.world_size) <= RANKS_AT_MOST]
    return max([0, *sizes, *(speaker.rank + 1 for speaker in speakers)])


class Fates:
    """How requests stand, by all that is known of a run: what `read_heard` gave, and the run's sessions, which are
    asked for where a rank says nothing of a request. `now_ns`: wall clock; default: this host's.
    """

    def __init__(
        self, speakers: Sequence[Heard], sessions: Callable[[], Iterable[RecordedSession]] = tuple,
        is_alive: Liveness = life.is_alive, now_ns: int | None = None,
    ) -> None:  # fmt: skip
        self._sessions, self._is_alive = sessions, is_alive
        self._now_ns = time.time_ns() if now_ns is None else now_ns
        self._world_size = world_size(speakers)
        self._is_over = bool(speakers) and all(speaker.is_alive is False for speaker in speakers)
        seen = ((speaker, frozenset(speaker.keys)) for speaker in speakers)
        words = ((*by, report) for by in seen for report in filter(is_sound, by[0].standing.reports))
        self._words = group_by(words, lambda word: word[2].id)

    @property
    def ids(self) -> Iterable[str]:
        """Of all requests of which anything is said."""
        return self._words.keys()

    def progress(self, asked: Asked) -> Progress:
        """How a request stands."""
        id, words = asked.request.id, self.words(asked.request.id, asked.request)
        ranks = self.ranks(asked)
        return Progress(asked, tuple(words.get(rank) or self.silence(id, rank, asked) for rank in ranks))

    def ranks(self, asked: Asked) -> tuple[int, ...]:
        """The ranks that are asked."""
        return asked.request.ranks_in(self._world_size, asked.suspects)

    def words(self, id: str, request: Request | None) -> dict[int, Report]:
        """Rank to what counts of all that is said of a request on it; None: nobody knows any more what was asked."""
        own: dict[int, list[tuple[bool, Report]]] = {}
        of_others: dict[int, Report] = {}
        for speaker, seen, report in self._words.get(id, ()):
            if report.rank == speaker.rank:
                runs_it = request is None or not seen.isdisjoint(request.stages)
                own.setdefault(speaker.rank, []).append((runs_it, self._outlive_speaker(report, speaker, request)))
            elif report.has_ended:
                of_others[report.rank] = report
        spoken = {rank: self._find_weightiest(words, request) for rank, words in own.items()}
        # What a lost rank said last is outdated by what the agreeing rank says of it, unless it was its end.
        lost = {rank: report for rank, report in of_others.items() if rank not in spoken or not spoken[rank].has_ended}
        return {**spoken, **lost}

    def _find_weightiest(self, words: list[tuple[bool, Report]], request: Request | None) -> Report:
        """Of processes with one rank and several roles: of those that run the stage, the farthest from a good end; with
        what others say that came to the same end, such as who has the device, and what all of them have recorded: each
        lacks the stages of the others.
        """
        relevant = [report for runs_it, report in words if runs_it] or [report for _, report in words]
        word = max(relevant, key=lambda report: _WEIGHTS.index(report.state))
        reasons = [word.reason, *(report.reason for report in relevant if report.state == word.state)]
        word = word._replace(reason="; ".join(filter(None, dict.fromkeys(reasons))))
        if len(relevant) == 1 or not word.has_ended:
            return word
        word = word._replace(**{key: sum(getattr(each, key) for each in relevant) for key in ("recorded", "bytes")})
        is_short = word.state in (states.FAILED, states.EXPIRED)
        return self._count_recorded(word, request) if is_short and request and not request.planned else word

    def _count_recorded(self, word: Report, request: Request) -> Report:
        """The end of a rank of several processes: each lacks the stages of the others, all together may have all."""
        steps: dict[str, list[int]] = {stage: [] for stage in request.stages}
        for session in self._list_recorded.get((word.id, word.rank), []):
            if session.document.get("state") == session_file.RECORDED and session.key[1] in steps:
                steps[session.key[1]] += session.steps or [-1 - len(steps[session.key[1]])]
        counts = {stage: len(those if request.occurrences else set(those)) for stage, those in steps.items()}
        if not any(counts.values()):
            return word
        wanted, kind = request.occurrences or request.steps or 1, "occurrences" if request.occurrences else "steps"
        words = f"recorded: {', '.join(f'{stage} in {n} of {wanted} {kind}' for stage, n in counts.items())}"
        if min(counts.values()) >= wanted:
            return word._replace(state=states.DONE, reason=words)
        return word._replace(reason=f"{words}; {word.reason}")

    def silence(self, id: str, rank: int | None, asked: Asked | None) -> Report:
        """What it means that a rank says nothing of a request. A rank of None: sessions that do not name theirs."""
        silent, recorded = Report(id, rank or 0, states.QUEUED), self._list_recorded.get((id, rank), [])
        if recorded:
            return self._by_sessions(silent, recorded, None if asked is None else asked.request)
        if asked is None:
            return silent._replace(reason="no answer yet")
        if asked.cancelled is not None:
            return silent._replace(state=states.CANCELLED, reason=asked.cancelled)
        if self._now_ns >= asked.request.expires_ns:
            return silent._replace(state=states.EXPIRED, reason="it never answered")
        if asked.request.planned is None:
            return silent._replace(reason="no answer yet")
        # A planned window lives for days: it ends where nobody can come to it any more.
        planned = f"planned for step {asked.request.planned.first_step}"
        if 0 < self._world_size <= silent.rank:
            return silent._replace(state=states.REFUSED, reason=f"this run has the ranks 0 to {self._world_size - 1}")
        if self._is_over:
            return silent._replace(state=states.EXPIRED, reason=f"{planned}: the processes ended before that")
        return silent._replace(reason=planned)

    @cached_property
    def _list_recorded(self) -> dict[tuple[str, int | None], list[RecordedSession]]:
        return group_by(self._sessions(), lambda session: (session.key[0], session.key[2]))

    def _by_sessions(self, silent: Report, recorded: Sequence[RecordedSession], request: Request | None) -> Report:
        recording = [kept.document for kept in recorded if kept.document.get("state") == session_file.RECORDING]
        if not recording:
            has_failed = any(kept.document.get("state") == session_file.FAILED for kept in recorded)
            reason = "as its session.json says; the rank itself says nothing of it"
            return silent._replace(state=states.FAILED if has_failed else states.DONE, reason=reason)
        last = max(recording, key=lambda kept: whole_number(kept.get("start_ns")))
        since_ns, limit_s = whole_number(last.get("start_ns")), self._limit_s(silent, request)
        return self._in_a_session(silent._replace(state=states.RUNNING), self._is_alive(last), since_ns, limit_s)

    def _outlive_speaker(self, report: Report, speaker: Heard, request: Request | None) -> Report:
        """A word as it counts now: whoever is gone ends nothing any more, and who lives would have spoken again."""
        if report.has_ended or speaker.is_alive:
            return report
        written_ns = speaker.acknowledgement.written_ns
        if report.state == states.DRAINING and speaker.is_alive is False:  # its session says how it has ended
            recorded = self._list_recorded.get((report.id, report.rank), [])
            if recorded:
                return self._by_sessions(report, recorded, request)
        if report.state in states.IN_A_SESSION:
            return self._in_a_session(report, speaker.is_alive, written_ns, self._limit_s(report, request))
        expires_ns = None if request is None else request.expires_ns
        is_over, why = expires_ns is not None and self._now_ns >= expires_ns, "its process has ended"
        if request is not None and request.planned is not None:  # its steps are over where another rank's are
            is_over = is_over or self._is_over or any(word.has_ended for _, _, word in self._words[report.id])
        if speaker.is_alive is None:
            if expires_ns is None or not self._is_late(max(expires_ns, written_ns)):
                return report
            is_over, why = True, "nothing is heard of it any more"
        reason = "; ".join(filter(None, (report.reason, why)))
        return report._replace(state=states.EXPIRED if is_over else report.state, ready=False, reason=reason)

    def _in_a_session(self, report: Report, is_alive: bool | None, since_ns: int, limit_s: float) -> Report:
        if is_alive is False:
            return report._replace(state=states.FAILED, reason="its process ended in the middle of a session")
        if is_alive is None and self._is_late(since_ns + int(limit_s * NS)):
            reason = f"nothing is heard of it any more, and the {limit_s:g} s of its session are over"
            return report._replace(state=states.FAILED, reason=reason)
        return report

    def _is_late(self, due_ns: int) -> bool:
        return self._now_ns >= due_ns + int(LATE_S * NS)

    def _limit_s(self, report: Report, request: Request | None) -> float:
        if request is not None and request.limits.seconds is not None:
            return request.limits.seconds
        recorded = self._list_recorded.get((report.id, report.rank), [])
        limits: list[Any] = [table_of(session.document.get("limits")).get("seconds") for session in recorded]
        in_s = (float(limit) for limit in limits if type(limit) in (int, float) and 0 < limit < 1e9)
        return max(in_s, default=SESSION_S)


def is_sound(report: Report) -> bool:
    """Are its fields what they should be? It may have been written by anybody with this user's rights."""
    reason: Any = report.reason
    if not isinstance(reason, str) or not is_id(report.id):
        return False
    window = (report.step, report.first_step, report.last_step)
    steps = [*(step for step in window if step is not None), *report.recorded_steps]
    numbers = (report.rank, *steps, report.recorded, report.bytes)
    are_small = small_number(report.rank) is not None and all(step_number(step) is not None for step in steps)
    return are_small and all(type(number) is int and 0 <= number < 1 << 63 for number in numbers)
