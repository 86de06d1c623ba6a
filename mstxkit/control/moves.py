"""The vocabulary of escalation: what a rank is told (events), what it answers (actions), in which states a request is.

Data only. Times are `Now`s: the wall clock, which may be set at any time, says when; the monotonic one how long.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Mapping, NamedTuple, Union

from .requests import Request

QUEUED, ARMED, RUNNING, DRAINING = OPEN_STATES = ("queued", "armed", "running", "draining")
DONE, CANCELLED, EXPIRED, REFUSED, FAILED = END_STATES = ("done", "cancelled", "expired", "refused", "failed")
IDLE, COOLDOWN = "idle", "cooldown"
NS = 10**9


class Now(NamedTuple):
    """One instant on both clocks of a host, ns."""

    wall_ns: int
    mono_ns: int


@dataclass(frozen=True)
class Policy:
    """What a rank does not exceed, whatever it is asked.

    Args:
        cooldown_s: Seconds without a session after each request that had one.
        session_s: Seconds after which any session is ended, whatever its request says.
        hour_s: Seconds of sessions in any hour; requests wait until there is room.
        run_s: Seconds of sessions in a whole run, restarts included; then requests are refused.
        run_bytes: The same in bytes of raw data; None: no limit.
        agreement_s: Seconds in which all ranks of a request have to be ready for a step together.
        lead_steps: Steps that an agreed step is ahead of all ranks, at least.
        transport_s: Seconds a message may take to every rank; where steps are short, the lead is at least that long.
        queue: Requests that wait on one rank; more are refused.
    """

    cooldown_s: float = 30.0
    session_s: float = 600.0
    hour_s: float = 600.0
    run_s: float = 7200.0
    run_bytes: int | None = None
    agreement_s: float = 120.0
    lead_steps: int = 2
    transport_s: float = 4.0
    queue: int = 64


@dataclass(frozen=True)
class Report:
    """What became of a request on one rank, up to now.

    Args:
        id: The request's.
        rank: Who says so.
        state: One of OPEN_STATES and END_STATES.
        step: The rank's step; None before its first.
        ready: Queued, and waiting for all ranks to agree on a step.
        first_step: First step of the window; None where it is not decided, or occurrences are counted.
        last_step: Last step of the window.
        recorded: Sessions that were recorded.
        recorded_steps: Steps in which these were, each once.
        bytes: Raw data of these, as far as told.
        reason: Why it waits, or ended as it did; notes on sessions that were cut short.
    """

    id: str
    rank: int
    state: str
    step: int | None = None
    ready: bool = False
    first_step: int | None = None
    last_step: int | None = None
    recorded: int = 0
    recorded_steps: tuple[int, ...] = ()
    bytes: int = 0
    reason: str = ""

    @property
    def has_ended(self) -> bool:
        """Is this the last word of that rank?"""
        return self.state in END_STATES

    def as_json(self) -> dict[str, Any]:
        """A plain dict; `Report.read` makes an equal report of it."""
        return asdict(self)

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> Report:
        """Of what `as_json` gave, after JSON. ValueError or TypeError where it is something else."""
        report = cls(**{**told, "recorded_steps": tuple(told.get("recorded_steps", ()))})
        if report.state not in OPEN_STATES + END_STATES:
            raise ValueError(f"no state of a request: {report.state!r}")
        return report


# Events. Those with a thread come from the thread that trains: only in answer to these does a session begin or end.


@dataclass(frozen=True)
class RequestReceived:
    """A request is there. `suspects` are the ranks that "suspect+peer" stands for, the same on every rank."""

    request: Request
    suspects: tuple[int, ...] = ()


@dataclass(frozen=True)
class CancelReceived:
    """A request is not wanted any more. It may come before the request itself."""

    id: str
    reason: str = "cancelled"


@dataclass(frozen=True)
class Acknowledged:
    """Another rank's report."""

    report: Report


@dataclass(frozen=True)
class StageEntered:
    """The training thread is about to enter a stage; before its mstx range begins.

    Args:
        stage: Canonical key.
        thread: The calling thread.
        may_move: Its body may end on another thread (coroutines, generators): no session can cover it.
    """

    stage: str
    thread: int = 0
    may_move: bool = False


@dataclass(frozen=True)
class StageLeft:
    """A stage has ended, well or not; after its mstx range ended."""

    stage: str
    thread: int = 0
    error: bool = False


@dataclass(frozen=True)
class BoundaryEntered:
    """One piece of a stage begins: `micro_batch`, `mini_batch` or `decode_step`. Dummy batches are not told."""

    per: str
    thread: int = 0


@dataclass(frozen=True)
class BoundaryLeft:
    """One piece of a stage has ended."""

    per: str
    thread: int = 0


@dataclass(frozen=True)
class StepAdvanced:
    """The rank's step is this from now on."""

    step: int
    thread: int = 0


@dataclass(frozen=True)
class Tick:
    """Time has passed.

    Args:
        thread: The calling thread where it trains; None: the watcher's.
        session_bytes: Raw data that the open session has written by now; None: not known.
    """

    thread: int | None = None
    session_bytes: int | None = None


@dataclass(frozen=True)
class SessionStarted:
    """The session that was asked for records."""


@dataclass(frozen=True)
class SessionStopped:
    """No session is open any more; what it recorded is there. `problems` are for the report."""

    bytes: int = 0
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class SessionFailed:
    """No session is open, for it could not be started, or its data is not there."""

    reason: str


@dataclass(frozen=True)
class Ending:
    """The process ends in order: the last event of its training thread."""

    thread: int = 0


# Actions.


@dataclass(frozen=True)
class Acknowledge:
    """Tell everybody this report; a refusal is a report in state refused."""

    report: Report


@dataclass(frozen=True)
class Commit:
    """Tell every rank: this request's window begins at this step. Also an event, for those who are told."""

    id: str
    first_step: int


@dataclass(frozen=True)
class Drop:
    """Tell every rank: no step will be agreed for this request. Also an event, for those who are told."""

    id: str
    reason: str


@dataclass(frozen=True)
class PauseLight:
    """Light capture is to stop now, if it records, and not to begin until `ResumeLight`."""


@dataclass(frozen=True)
class ResumeLight:
    """Light capture may go on."""


@dataclass(frozen=True)
class StartSession:
    """Start a session now, on this thread; answer with `SessionStarted` or `SessionFailed`.

    Args:
        id: The request's.
        stage: Canonical key of the stage that it covers, or a part of.
        step: The rank's step; None before its first.
        preset: A preset's name; None where options say it all.
        options: Explicit options.
        seconds: After so many the machine will stop it: for limits behind it.
        bytes: After so many bytes likewise; None: no limit.
    """

    id: str
    stage: str
    step: int | None
    preset: str | None
    options: tuple[tuple[str, Any], ...]
    seconds: float
    bytes: int | None


@dataclass(frozen=True)
class StopSession:
    """Stop the open session now, on this thread; answer with `SessionStopped` or `SessionFailed`."""

    id: str
    why: str


Event = Union[
    RequestReceived, CancelReceived, Acknowledged, Commit, Drop, StageEntered, StageLeft, BoundaryEntered,
    BoundaryLeft, StepAdvanced, Tick, SessionStarted, SessionStopped, SessionFailed, Ending,
]  # fmt: skip
Action = Union[Acknowledge, Commit, Drop, PauseLight, ResumeLight, StartSession, StopSession]
