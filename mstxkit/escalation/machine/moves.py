"""The vocabulary of escalation: what a rank is told (events), what it answers (actions), what it may do.

Data only. Times are `Now`s: the wall clock, which may be set at any time, says when; the monotonic one how long.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Union

from ...store.messages import CancelReceived as CancelReceived
from ...store.messages import Commit as Commit
from ...store.messages import Drop as Drop
from ...store.messages import RequestReceived as RequestReceived
from ...store.report import Report

IDLE, COOLDOWN = "idle", "cooldown"
NS = 10**9


class Now(NamedTuple):
    """One instant on both clocks of a host, ns."""

    wall_ns: int
    mono_ns: int


# Events; also the messages of `store.messages`, of which decisions are actions of the agreeing rank too. Those with a
# thread come from the thread that trains: only in answer to these does a session begin or end.


@dataclass(frozen=True)
class Acknowledged:
    """Another rank's report."""

    report: Report


@dataclass(frozen=True)
class StageEntered:
    """The training thread is about to enter a stage; before its mstx range begins. `may_move`: its body may end on
    another thread (coroutines, generators): no session can cover it.
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
    """The rank's step is this from now on; `thread`: None where the watcher noticed."""

    step: int
    thread: int | None = 0


@dataclass(frozen=True)
class Tick:
    """Time has passed; `thread` is None for the watcher's, `session_bytes` what the open session has written by now."""

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
class SessionPutOff:
    """No session is open: that one begins is not saved yet, or somebody else's profile comes first, `waits_for`.
    Training goes on. A later occurrence may have one.
    """

    reason: str
    waits_for: str = ""


@dataclass(frozen=True)
class TheirProfiles:
    """Profiles of others, as far as they are known: in words, and the steps until each; 0: it is on."""

    coming: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class GiveWay:
    """The profiler of `who` is about to begin on this thread."""

    who: str
    thread: int = 0


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
class PauseLight:
    """Light capture is to stop before the session that is ordered next begins, and to wait for `ResumeLight`."""


@dataclass(frozen=True)
class ResumeLight:
    """Light capture may go on."""


@dataclass(frozen=True)
class StartSession:
    """Start a session of this request now, on this thread; answer with `SessionStarted`, `SessionFailed`, or, where
    the machine's memory could not be saved in time or another profiler comes first, `SessionPutOff`.
    """

    id: str
    stage: str
    step: int | None  # the rank's step; None before its first
    preset: str | None  # a preset's name; None where options say it all
    options: tuple[tuple[str, Any], ...]
    seconds: float  # after so many the machine will stop it, for limits behind it
    bytes: int | None  # likewise; None: no limit


@dataclass(frozen=True)
class StopSession:
    """Stop the open session now, on this thread; answer with `SessionStopped` or `SessionFailed`."""

    id: str
    why: str
    steps: tuple[int, ...] = ()  # that were recorded


Event = Union[
    RequestReceived, CancelReceived, Acknowledged, Commit, Drop, StageEntered, StageLeft, BoundaryEntered,
    BoundaryLeft, StepAdvanced, Tick, SessionStarted, SessionStopped, SessionFailed, SessionPutOff, TheirProfiles,
    GiveWay, Ending,
]  # fmt: skip
Action = Union[Acknowledge, Commit, Drop, PauseLight, ResumeLight, StartSession, StopSession]
