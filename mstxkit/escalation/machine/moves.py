"""The vocabulary of escalation: what a rank is told (events), what it answers (actions), what it may do.

Data only. Times are `Now`s: the wall clock, which may be set at any time, says when; the monotonic one how long.
"""

from __future__ import annotations

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


class Acknowledged(NamedTuple):
    """Another rank's report."""

    report: Report


class StageEntered(NamedTuple):
    """The training thread is about to enter a stage; before its mstx range begins. `may_move`: its body may end on
    another thread (coroutines, generators): no session can cover it.
    """

    stage: str
    thread: int = 0
    may_move: bool = False


class StageLeft(NamedTuple):
    """A stage has ended, well or not; after its mstx range ended."""

    stage: str
    thread: int = 0
    error: bool = False


class BoundaryEntered(NamedTuple):
    """One piece of a stage begins: `micro_batch`, `mini_batch` or `decode_step`. Dummy batches are not told."""

    per: str
    stages: tuple[str, ...]  # whose piece it is
    thread: int = 0


class BoundaryLeft(NamedTuple):
    """One piece of a stage has ended."""

    per: str
    stages: tuple[str, ...]
    thread: int = 0


class StepAdvanced(NamedTuple):
    """The rank's step is this from now on; `thread`: None where the watcher noticed."""

    step: int
    thread: int | None = 0


class Tick(NamedTuple):
    """Time has passed; `thread` is None for the watcher's, `session_bytes` what the open session has written by now."""

    thread: int | None = None
    session_bytes: int | None = None


class SessionStopped(NamedTuple):
    """No session is open any more; what it recorded is there. `problems` are for the report."""

    bytes: int = 0
    problems: tuple[str, ...] = ()


class SessionFailed(NamedTuple):
    """No session is open, for it could not be started, or its data is not there."""

    reason: str


class SessionPutOff(NamedTuple):
    """No session is open: that one begins is not saved yet, another process has the device (`is_taken`), or somebody
    else's profile comes first, `waits_for`. Training goes on. A later occurrence may have one.
    """

    reason: str
    waits_for: str = ""
    is_taken: bool = False


class TheirProfiles(NamedTuple):
    """Profiles of others, as far as they are known: in words, and the steps until each; 0: it is on."""

    coming: tuple[tuple[str, int], ...] = ()


class GiveWay(NamedTuple):
    """The profiler of `who` is about to begin on this thread."""

    who: str
    thread: int = 0


class Ending(NamedTuple):
    """The process ends in order: the last event of its training thread."""

    thread: int = 0


# Actions.


class Acknowledge(NamedTuple):
    """Tell everybody this report; a refusal is a report in state refused."""

    report: Report


class ResumeLight(NamedTuple):
    """Light capture may go on."""


class StartSession(NamedTuple):
    """Start a session of this request now, on this thread: it counts as open from now on. Light capture stops before
    it, and waits for `ResumeLight`. Where it is not begun, answer with `SessionFailed`, or, where the machine's memory
    could not be saved in time, or another profiler or process comes first, with `SessionPutOff`.
    """

    id: str
    stage: str
    step: int | None  # the rank's step; None before its first
    preset: str | None  # a preset's name; None where options say it all
    options: tuple[tuple[str, Any], ...]
    seconds: float  # after so many the machine will stop it, for limits behind it
    bytes: int | None  # likewise; None: no limit


class StopSession(NamedTuple):
    """Stop the open session now, on this thread; answer with `SessionStopped` or `SessionFailed`."""

    id: str
    why: str
    steps: tuple[int, ...] = ()  # that were recorded


Event = Union[
    RequestReceived, CancelReceived, Acknowledged, Commit, Drop, StageEntered, StageLeft, BoundaryEntered,
    BoundaryLeft, StepAdvanced, Tick, SessionStopped, SessionFailed, SessionPutOff, TheirProfiles, GiveWay, Ending,
]  # fmt: skip
Action = Union[Acknowledge, Commit, Drop, ResumeLight, StartSession, StopSession]
