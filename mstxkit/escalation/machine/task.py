"""What one rank keeps of requests: those under way and their session, those that are not, and what all have cost."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Iterable, Mapping, Sequence, TypeVar

from ...errors import ConfigError
from ...store.limits import Policy
from ...store.report import DONE, EXPIRED, FAILED, QUEUED, REFUSED, Report
from ...store.request import ALL, COUNT_AT_MOST, SUSPECT_AND_PEER, WHOLE_STEPS, Known, Request, Sample, check_request
from . import plans
from .moves import NS, Now

_NOTES_AT_MOST = 10
_KEPT_AT_MOST = 4096
_HOUR_NS = 3600 * NS
_NEAR_NS = 2 * NS
_READY_RATIO = 2  # so much longer than the agreeing rank waits for others do these wait for it
V = TypeVar("V")


@dataclass
class Task:
    """A request that has not ended on this rank."""

    request: Request
    deadline_ns: int  # monotonic clock; no session begins after it
    # The rank that agrees for all of its ranks on the step at which its window begins; None: needs none.
    agreeing: int | None = None
    state: str = QUEUED  # one of OPEN_STATES
    reason: str = ""  # what it waits for
    ready_ns: int | None = None  # monotonic clock; since when it waits for the agreement; None: it does not
    # First step of the window; None until it is decided, and where occurrences are counted.
    first_step: int | None = None
    # A step that is not recorded: it was heard in it, or nothing was recorded of it so far; None: any is.
    heard_in: int | None = None
    suspects: tuple[int, ...] = ()  # the ranks that "suspect+peer" stands for
    had_session: bool = False  # was any session begun for it, or about to begin?
    is_announced: bool = False  # is it written down ahead that one is to begin?
    elsewhere: frozenset[str] = frozenset()  # as of `Machine`: these are not waited for
    # A later last step of the window, for a stage that was passed over; None: as it was asked for.
    longer_to: int | None = None
    # State and reason that it is to end with as soon as no session is open; None: it goes on.
    ending: tuple[str, str] | None = None
    counts: Counter[str] = field(default_factory=Counter)  # occurrences recorded, by stage
    steps: list[int] = field(default_factory=list)  # steps in which anything was recorded, in order
    bytes: int = 0
    notes: list[str] = field(default_factory=list)  # what is worth a word in its report

    def __post_init__(self) -> None:
        self.wait("")

    @property
    def needs_agreement(self) -> bool:
        """Do its ranks have to agree on its first step?"""
        return self.agreeing is not None

    def await_others(self, first: Task, now: Now) -> None:
        """Be ready for the agreement; but for those of one agreeing rank at a time, as no two may get the same step:
        `first` is whose turn it is here.
        """
        if self.agreeing == first.agreeing:
            self.ready_ns = now.mono_ns if self.ready_ns is None else self.ready_ns
            self.reason = "waits for the other ranks"
        else:
            self.ready_ns = None
            self.reason = f"waits for request {first.request.id}, which was made before it"

    @property
    def recorded(self) -> int:
        """Sessions that were recorded."""
        return sum(self.counts.values())

    @property
    def last_step(self) -> int | None:
        """Last step of the window; None where it has no first, or counts occurrences."""
        if self.first_step is None:
            return None
        return max(self.first_step + (self.request.steps or 1) - 1, self.longer_to or 0)

    def wants(self, stage: str, step: int | None) -> bool:
        """Is this occurrence to be recorded? Where no step was ever told, a step is one occurrence."""
        if stage not in self.request.stages or (stage == WHOLE_STEPS and self.counts[stage]):
            return False
        if self.request.occurrences is not None or step is None:
            return self.counts[stage] < self._times
        return step != self.heard_in if self.first_step is None else self.first_step <= step <= (self.last_step or 0)

    def wrong_ranks(self, world_size: int) -> str:
        """Why its ranks are none of this run's."""
        if self.request.ranks == SUSPECT_AND_PEER and not self.suspects:
            return f"nobody is suspected in this run; name ranks, or {ALL}"
        if isinstance(self.request.ranks, str) and not self.suspects:
            return f"it does not say which ranks {self.request.ranks} are; name ranks, or ask by mstxkit escalate"
        return f"this run has the ranks 0 to {world_size - 1}"

    def is_due(self, step: int | None) -> bool:
        """A planned window: is this one of its steps?"""
        return None not in (step, self.first_step) and self.first_step <= step <= self.last_step  # type: ignore[operator]

    def is_near(self, step: int | None, step_ns: int | None) -> bool:
        """Does a window of known steps begin with the next step or within seconds? Or last, not to the run's end?"""
        is_known = self.needs_agreement or self.request.planned is not None
        is_through = self.had_session and self.request.steps == COUNT_AT_MOST
        if step is None or self.first_step is None or not is_known or is_through:
            return False
        return self.first_step - max(1, _NEAR_NS // max(1, step_ns or _NEAR_NS)) <= step <= (self.last_step or 0)

    def place(self, first_step: int) -> None:
        """A planned window begins at this step of the run, unless it has begun."""
        if self.state == QUEUED:
            self.first_step = first_step
            self.wait("")

    def wait(self, for_room: str) -> None:
        """It is queued: for its step, for room in the budgets, or for its turn."""
        planned = self.request.planned
        for_step = "" if planned is None else plans.explain_wait(planned, self.first_step)
        self.reason = "; ".join(filter(None, (for_step, for_room)))

    def has_recorded(self, stage: str, steps: Sequence[int], size_bytes: int) -> None:
        """A session of this stage, in these steps, is closed and its data is there."""
        self.counts[stage] += 1
        self.bytes += size_bytes
        self.steps += [step for step in steps if step not in self.steps]

    def passes_over(self, stage: str, step: int | None, why: str, is_taken: bool = False) -> str:
        """Why it is over, as an occurrence that it wanted has no session; empty where it goes on.

        Only what is recorded counts as an occurrence. A window of steps begins anew where nothing of it is, or lasts a
        step longer for a stage of which nothing is. One that was agreed on stays; `is_taken`: its turn is right after.
        """
        if self.needs_agreement and not (self.recorded or is_taken):
            return f"the agreed step {self.first_step} had begun here: {why}"
        self.note(f"an occurrence was passed over: {why}")
        if self.needs_agreement and not self.recorded:
            self.first_step = (self.last_step or 0) + 1
            self.reason = f"its turn begins with step {self.first_step}"
        if self.first_step is None or step is None or self.needs_agreement or self.request.planned is not None:
            return ""
        if not self.recorded:
            is_of_whole = len(self.request.stages) > 1 or WHOLE_STEPS in self.request.stages
            self.first_step, self.heard_in = (step + 1 if is_of_whole else None), step
        elif not self.counts[stage]:
            self.longer_to = step + 1
        return ""

    def verdict(self, step: int | None) -> tuple[str, str] | None:
        """State and reason if it is at its end in this step; None while it goes on."""
        if self.request.occurrences is not None or self.first_step is None:
            is_over = all(self.counts[stage] >= self._times for stage in self._own_stages)
        else:
            begins_anew = step is not None and bool(self.recorded) and step < self.first_step
            is_over = begins_anew or (step is not None and step > (self.last_step or 0))
        if not is_over:
            return None
        missing = [stage for stage in self._own_stages if not self.counts[stage]]
        if missing:
            return FAILED, f"{', '.join(missing)} was not recorded in steps {self.first_step} to {self.last_step}"
        return DONE, ""

    def waits_for(self, theirs: Iterable[tuple[str, int]], lead: int) -> bool:
        """Are there profiles of others that are on, or begin (in so many steps) before this request could be through?
        Its reason says so then.
        """
        is_later = self.request.occurrences is None and self.request.planned is None  # than the step of now
        takes = (self.request.steps or 1) + (lead if self.needs_agreement else is_later)
        words = "; ".join(words for words, begins_in in theirs if begins_in < takes)
        if words:
            self.ready_ns, self.reason = None, f"waits for {words}"
        return bool(words)

    def note(self, words: str) -> None:
        """Its report is to tell this besides, once; so many notes at most."""
        if words and words not in self.notes and len(self.notes) < _NOTES_AT_MOST:
            self.notes.append(words)

    def over(self, step: int | None, now: Now, spending: Spending, process_ends: bool) -> tuple[str, str] | None:
        """State and reason of its end, if it is at its end now and no session of it is open; else None."""
        if self.ending is not None:
            return self.ending
        is_late = now.mono_ns >= self.deadline_ns
        verdict = None if self.state == QUEUED else self.verdict(step)
        if verdict is None and (process_ends or is_late) and self.state != QUEUED and step is not None:
            last = self.verdict(step + 1)  # its last step may be recorded, and just not be followed by another
            verdict = last if last == (DONE, "") else None
        if verdict is None and self.request.planned is not None:
            verdict = self._planned_end(step, process_ends)
        if verdict is not None:
            return verdict
        if process_ends:
            return FAILED, f"the process ended; {self.progress()}"
        if is_late:
            return EXPIRED, "; ".join(filter(None, (self.reason, self.progress())))
        waits_s = _READY_RATIO * spending.policy.agreement_s
        if self.ready_ns is not None and now.mono_ns - self.ready_ns > int(waits_s * NS):
            silent = f"no step was agreed: rank {self.agreeing}, which agrees for all that were asked, did not answer"
            why = f"it has ended, or never enters {' or '.join(self.request.stages)}"
            return EXPIRED, f"{silent} within {waits_s:g} s: {why}; ask for ranks that do, or by occurrences"
        used_up = spending.used_up()
        if used_up:
            return (FAILED, f"{used_up}; {self.progress()}") if self.had_session else (REFUSED, used_up)
        return None

    def _planned_end(self, step: int | None, process_ends: bool) -> tuple[str, str] | None:
        """How a planned window ends that did not come to its last step, or never to its first."""
        if process_ends and self.recorded and self.request.steps == COUNT_AT_MOST:
            return DONE, "recorded to the end of the run"
        if self.state != QUEUED:
            return None
        if step is not None and self.last_step is not None and step > self.last_step:
            return EXPIRED, f"{self.reason}: it was over in step {step}, and nothing could begin before"
        return (EXPIRED, f"{self.reason}: the process ended before that") if process_ends else None

    def progress(self) -> str:
        """How far it came, in words."""
        if self.request.steps == COUNT_AT_MOST:
            return f"{len(self.steps)} steps recorded"
        if self.request.occurrences is not None or self.first_step is None:
            return f"{self.recorded} of {self._times * len(self._own_stages)} occurrences recorded"
        return f"{len(self.steps)} of {self.request.steps} steps recorded"

    def report(self, rank: int, step: int | None, state: str | None = None, reason: str | None = None) -> Report:
        """As a report of this rank; `state` and `reason`: those of its end."""
        words = "; ".join(filter(None, [self.reason if reason is None else reason, *self.notes]))
        return Report(
            self.request.id, rank, state or self.state, step, ready=self.ready_ns is not None and state is None,
            first_step=self.first_step, last_step=self.last_step, recorded=self.recorded,
            recorded_steps=tuple(self.steps), bytes=self.bytes, reason=words,
        )  # fmt: skip

    def remembered(self, rank: int, step: int | None) -> dict[str, Any]:
        """As plain data, for a restart."""
        return {
            "request": self.request.as_json(),
            "suspects": list(self.suspects),
            "had_session": self.had_session or self.is_announced,
            "first_step": self.first_step if self.needs_agreement or self.request.planned is not None else None,
            "report": self.report(rank, step)._asdict(),
        }

    @property
    def _own_stages(self) -> Sequence[str]:
        """Its stages, without those of other processes of this rank."""
        own = [stage for stage in self.request.stages if self.counts[stage] or stage not in self.elsewhere]
        return own or self.request.stages

    @property
    def _times(self) -> int:
        return self.request.occurrences or self.request.steps or 1


@dataclass
class Occurrence:
    """One occurrence of a wanted stage, on the thread that entered it. The stage may be entered inside of it again."""

    stage: str
    thread: int
    sample: Sample | None = None  # which part of it is recorded; None: all
    depth: int = 1  # how often it is entered
    passed: int = 0  # boundaries of the sample's kind
    had_session: bool = False  # was one begun in it? There is one at most

    def left(self, stage: str, thread: int) -> bool:
        """A stage was left: does this occurrence end with it?"""
        if (stage, thread) != (self.stage, self.thread):
            return False
        self.depth -= 1
        return self.depth <= 0

    def sample_of(self, per: str, stages: Sequence[str], thread: int) -> Sample | None:
        """Its sample, if this boundary is one of those that it counts; else None."""
        counts = self.sample is not None and (per, thread) == (self.sample.per, self.thread) and self.stage in stages
        return self.sample if counts else None

    def missed(self) -> str:
        """At its end: what of its sample it had not, and what to ask for; empty where nothing is missing."""
        if self.sample is None:
            return ""
        per, skip, record = self.sample
        if self.passed <= skip and not self.had_session:
            return f"{self.stage} was too short for its sample: {self.passed} {per}, skip {skip}; skip fewer"
        if self.passed < skip + record and self.had_session:
            there = f"{self.stage} had {self.passed} {per} and skip={skip}"
            return f"its sample found {self.passed - skip} of {record} {per}: {there}; record or skip fewer"
        return ""


@dataclass
class CoveringSession:
    """One session, from the order to start it until it is known to be closed."""

    stage: str
    thread: int  # which started it, and alone may stop it
    step: int | None
    started_ns: int  # monotonic clock
    limit_ns: int  # after so long it is stopped
    had_one_before: bool = False  # had its request any session before it?
    stop_because: str = ""  # with the next event of its thread
    stopping: bool = False  # was the order given?
    steps: tuple[int, ...] = ()  # in which it recorded: one, unless it is of whole steps, or none is known


class Ledger:
    """Requests that are not under way, by id in order of arrival. So many of each are kept: the oldest go."""

    def __init__(self) -> None:
        self.ended: dict[str, Report] = {}  # the last of this rank
        self.elsewhere: dict[str, None] = {}  # of other ranks, which this one has agreed on
        self.commits: dict[str, int] = {}  # agreed first steps that came before their request
        self.cancels: dict[str, str] = {}  # cancellations that did, and why

    def is_settled(self, id: str) -> bool:
        """Is there nothing more for this rank to do about it?"""
        return id in self.ended or id in self.elsewhere

    def put(self, kept: dict[str, V], id: str, value: V) -> None:
        """Into one of these, unless the request is settled already."""
        if not self.is_settled(id):
            kept[id] = value
            while len(kept) > _KEPT_AT_MOST:
                del kept[next(iter(kept))]

    def memory(self) -> dict[str, Any]:
        """As plain data, for a restart."""
        return {
            "ended": [report._asdict() for report in self.ended.values()],
            "elsewhere": list(self.elsewhere),
            "early": {"commits": self.commits, "cancels": self.cancels},
        }

    def restore(self, memory: Mapping[str, Any]) -> None:
        """Go on from what `memory` gave."""
        self.ended = {report.id: report for report in map(Report.read, memory["ended"])}
        self.elsewhere = {str(id): None for id in memory["elsewhere"]}
        self.commits = {str(id): int(step) for id, step in memory["early"]["commits"].items()}
        self.cancels = {str(id): str(why) for id, why in memory["early"]["cancels"].items()}


class Spending:
    """Time and bytes that sessions took, of what the policy lets them take in an hour and in a run."""

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

    def restore(self, memory: Mapping[str, Any], now: Now) -> None:
        """Go on from what `memory` gave; what the wall clock puts into the future was just now."""
        self.run_ns, self.run_bytes = int(memory["run_ns"]), int(memory["run_bytes"])
        ages = [(max(0, now.wall_ns - int(end)), int(duration)) for end, duration in memory["sessions"]]
        self._sessions = [(now.mono_ns - age, duration) for age, duration in ages]

    def _of_the_hour(self, now: Now) -> list[tuple[int, int]]:
        return [(end, duration) for end, duration in self._sessions if now.mono_ns - end < _HOUR_NS]


def remembered_request(fields: Mapping[str, Any]) -> Request | None:
    """A request from a rank's memory: checked when it came, so any name is known. None: only to a newer mstxkit."""
    presets = [] if fields["preset"] is None else [fields["preset"]]
    try:
        return check_request(fields, Known(fields["stages"], range(1 << 31), presets), "memory")
    except ConfigError:
        return None


def life_ns(request: Request, now: Now) -> int:
    """How long a request has to live: never longer than its maker said, however wrong one of their clocks is."""
    return min(request.expires_ns - now.wall_ns, request.expires_ns - request.created_ns)
