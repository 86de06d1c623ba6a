"""What a request would do, said before it does it: who records, when, how long training pauses, how many megabytes.

From what the run's processes have said of themselves, and from the sessions that it has had; what neither tells is
said to be unknown, or is named as the assumption that it is. Nothing is sent.
"""

from __future__ import annotations

import math
import statistics
from typing import Any, Iterator, Mapping, NamedTuple, Sequence

from .. import presets, stages
from .agreement import needs_agreement
from .moves import COOLDOWN, NS, Policy
from .progress import Heard, Progress, world_size
from .requests import Request

MB = 10**6
# Source: CANN 8.5.0, environment variables of HCCL: seconds a collective waits for a device that is not there yet
# (0: for ever; at most 1091 where algorithms run on the AI Vector), and seconds for the first connection.
HCCL_EXEC, HCCL_EXEC_S = "HCCL_EXEC_TIMEOUT", 1836
HCCL_CONNECT, HCCL_CONNECT_S = "HCCL_CONNECT_TIMEOUT", 120
_WITHOUT_HCCL = "torch"
_NEAR_RATIO = 0.5
_FEW = 8
_UNKNOWN_PAUSE = (
    "unknown: this run has had no such session. The profiler's own code takes milliseconds; at the stop the device is "
    "waited for and data are written, which nobody has measured here. Allow for seconds, for tens of them with deep"
)


class Participant(NamedTuple):
    """One rank that is asked.

    Args:
        rank, role, host, pid: Of its process; None where it has not been heard of.
        is_alive: Does it still run? None where that is not known.
        step, phase: As it said last.
        backend: The profiler it records with; None where none can, or where it is not known.
        hindrance: Why it cannot record, or not yet; empty where nothing is known to hinder it.
    """

    rank: int
    role: str | None
    host: str | None
    pid: int | None
    is_alive: bool | None
    step: int | None
    phase: str | None
    backend: str | None
    hindrance: str


class Pause(NamedTuple):
    """How long one session holds training up, start and stop together, in seconds; None: unknown.

    Args:
        median_s, longest_s: Of earlier sessions of this run with the same preset.
        sessions: How many these were.
        words: The same as a sentence.
    """

    median_s: float | None
    longest_s: float | None
    sessions: int
    words: str


class Explanation(NamedTuple):
    """What a request would do.

    Args:
        recorders: Who records.
        when: When each session begins, a sentence each.
        ahead: Ids of requests that come first on one of these ranks.
        pause: How long training is held up by each session.
        total_mb: Raw data of all ranks, megabytes; None: unknown.
        size: How that is reckoned.
        nears_timeout: Does the pause come near HCCL's time-out? None: unknown.
        timeout: The same as a sentence.
    """

    recorders: tuple[Participant, ...]
    when: tuple[str, ...]
    ahead: tuple[str, ...]
    pause: Pause
    total_mb: float | None
    size: str
    nears_timeout: bool | None
    timeout: str

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        told = self._asdict()
        return {**told, "recorders": [one._asdict() for one in self.recorders], "pause": self.pause._asdict()}


def explained(
    request: Request, said: Sequence[Heard], suspects: Sequence[int] = (), *, others: Sequence[Progress] = (),
    sessions: Sequence[Mapping[str, Any]] = (), environment: Mapping[str, str] | None = None,
    policy: Policy | None = None,
) -> Explanation:  # fmt: skip
    """What a request would do in a run.

    Args:
        request: Checked against the run.
        said: What its processes said last.
        suspects: Whom "suspect+peer" stands for.
        others: The requests that the run has had.
        sessions: Earlier sessions, as their session.json has them.
        environment: Where HCCL's time-outs may be set; the job's own is not known from outside.
        policy: The run's; default: the default one.
    """
    policy = Policy() if policy is None else policy
    ranks = request.ranks_in(world_size(said), tuple(suspects))
    recorders = tuple(_recorder(request, rank, said) for rank in ranks)
    ahead = tuple(one.asked.request.id for one in others if _comes_first(one, request, ranks))
    pause = _pause(request, sessions)
    total_mb, size = _size(request, recorders, sessions)
    nears, timeout = _timeout(request, recorders, pause, environment or {}, policy)
    when = tuple(_when(request, recorders, ahead, said, policy))
    return Explanation(recorders, when, ahead, pause, total_mb, size, nears, timeout)


def _recorder(request: Request, rank: int, said: Sequence[Heard]) -> Participant:
    """Of several processes of one rank, the newest that lives and runs the stage."""
    own = [one for one in said if one.rank == rank]
    own.sort(key=lambda one: (one.is_alive is False, not _runs(one, request), -one.acknowledgement.written_ns))
    if not own:
        return Participant(rank, None, None, None, None, None, None, None, "nothing was heard of it yet")
    one, standing = own[0], own[0].standing
    return Participant(
        rank, one.acknowledgement.role or None, one.acknowledgement.host, one.acknowledgement.pid, one.is_alive,
        standing.step, standing.phase, standing.backend, _hindrance(one, request),
    )  # fmt: skip


def _runs(one: Heard, request: Request) -> bool:
    return not set(request.stages).isdisjoint(stages.canonical(stage) for stage in one.standing.stages)


def _hindrance(one: Heard, request: Request) -> str:
    if one.is_alive is False:
        return "its process has ended"
    if one.standing.backend is None:
        why = "; ".join(f"{name}: {reason}" for name, reason in one.standing.why_no_backend.items())
        return f"no profiler can record there: {why or 'it does not say why'}"
    if not _runs(one, request):
        return f"it has not entered {' or '.join(request.stages)} yet"
    return ""


def _comes_first(other: Progress, request: Request, ranks: Sequence[int]) -> bool:
    return other.asked.request.id != request.id and any(
        report.rank in ranks and not report.has_ended for report in other.reports
    )


# When.


def _when(
    request: Request, recorders: Sequence[Participant], ahead: Sequence[str], said: Sequence[Heard], policy: Policy
) -> Iterator[str]:
    ranks = [one.rank for one in recorders]
    stage = " or ".join(request.stages)
    if needs_agreement(request, tuple(ranks)):
        yield _agreed(recorders, said, policy)
    elif request.occurrences is not None:
        yield f"each rank by itself: its next {_times(request.occurrences, 'entry', 'entries')} of {stage}"
    elif len(request.stages) > 1:
        yield f"with the next whole step, as one of its stages may be over in this one; then {_window(request)}"
    else:
        yield f"at the next entry of {stage}: it, and every other in {_window(request)}"
    if request.sample is not None:
        per, skip, record = request.sample
        yield f"of each occurrence {record} {per} after the first {skip}; it is refused where {per} is not marked"
    if ahead:
        yield f"after {_times(len(ahead), 'request', 'requests')} before it: {', '.join(ahead[:_FEW])}"
    if ahead or any(one.phase == COOLDOWN for one in recorders):
        yield f"{policy.cooldown_s:g} s after the last session on its ranks, or what capture() was given as cooldown_s"


def _agreed(recorders: Sequence[Participant], said: Sequence[Heard], policy: Policy) -> str:
    together = f"at a step on which all of its {len(recorders)} ranks agree"
    steps = [one.step for one in recorders if one.step is not None]
    if len(steps) < len(recorders):
        return f"{together}; where a rank counts no steps it expires: ask for occurrences instead"
    lead, step_ns = _lead(said, policy)
    soon = f", {lead * step_ns / NS:.2g} s from now" if step_ns else ""
    return (
        f"{together}, at least {lead} ahead of the farthest: step {max(steps) + lead} or later{soon}; without "
        f"agreement within {policy.agreement_s:g} s it expires"
    )


def _lead(said: Sequence[Heard], policy: Policy) -> tuple[int, int | None]:
    """Steps ahead, as the agreeing rank reckons: two journeys of a message, where steps are short; and a step's ns."""
    told = [one.standing.step_ns for one in said if one.rank == 0 and one.standing.step_ns]
    steps = math.ceil(2 * policy.transport_s * NS / told[0]) if told else 0
    return max(1, policy.lead_steps, steps), told[0] if told else None


def _window(request: Request) -> str:
    steps = request.steps or 1
    return "that step" if steps == 1 else f"{steps} steps in a row"


def _times(count: int, one: str, several: str) -> str:
    return f"{count} {one if count == 1 else several}"


# How long, how large.


def _of_this_kind(request: Request, sessions: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [
        one for one in sessions
        if request.preset is not None and one.get("preset") == request.preset and one.get("state") == "recorded"
    ]  # fmt: skip


def _pause(request: Request, sessions: Sequence[Mapping[str, Any]]) -> Pause:
    costs = [_number(one, "start_cost_ns") + _number(one, "stop_cost_ns") for one in _of_this_kind(request, sessions)]
    if not costs:
        return Pause(None, None, 0, _UNKNOWN_PAUSE)
    median_s, longest_s = statistics.median(costs) / NS, max(costs) / NS
    words = (
        f"{median_s:.2g} s at start and stop of each session, {longest_s:.2g} s at most, in "
        f"{_times(len(costs), 'earlier session', 'earlier sessions')} of this run"
    )
    return Pause(median_s, longest_s, len(costs), words)


def _size(
    request: Request, recorders: Sequence[Participant], sessions: Sequence[Mapping[str, Any]]
) -> tuple[float | None, str]:
    able = sum(1 for one in recorders if one.backend is not None or one.phase is None)
    kept = [_number(one, "bytes") for one in _of_this_kind(request, sessions) if one.get("stage") in request.stages]
    count = request.steps or request.occurrences or 1
    ranks = _times(able, "rank", "ranks")
    if kept:
        each_mb = statistics.median(kept) / MB
        total_mb = each_mb * count * len(request.stages) * able
        return total_mb, (
            f"{total_mb:.3g} MB: {each_mb:.3g} MB in earlier sessions of this run × "
            f"{_times(count * len(request.stages), 'occurrence', 'occurrences')} × {ranks}"
        )
    if request.preset is None:
        return None, "unknown: no preset says what its options amount to"
    each = presets.load(request.preset).est_mb_per_step
    total_mb = each * count * able
    words = f"at most about {total_mb:,} MB: {each} MB a step (assumed, not measured) × {count} × {ranks}"
    part = "; a stage, or a sample of it, is only a part of a step" if request.preset != "light" else ""
    return float(total_mb), words + part


def _number(told: Mapping[str, Any], key: str) -> int:
    value = told.get(key)
    return value if isinstance(value, int) and value >= 0 else 0


# Time-outs of those who wait.


def _timeout(
    request: Request, recorders: Sequence[Participant], pause: Pause, environment: Mapping[str, str], policy: Policy
) -> tuple[bool | None, str]:
    backends = {one.backend for one in recorders if one.backend is not None}
    if backends and backends <= {_WITHOUT_HCCL}:
        return False, f"no HCCL where {_WITHOUT_HCCL} is the profiler; the process group's own time-out holds there"
    allowed_s, whence = _allowed(environment, HCCL_EXEC, HCCL_EXEC_S)
    if allowed_s == 0:
        return False, f"{HCCL_EXEC}=0 ({whence}): collectives wait for ever"
    waits = (
        f"other ranks wait in collectives meanwhile, {allowed_s:g} s at most ({HCCL_EXEC}, {whence}), and "
        f"{_allowed(environment, HCCL_CONNECT, HCCL_CONNECT_S)[0]:g} s for a first connection ({HCCL_CONNECT})"
    )
    return _verdict(waits, allowed_s, pause, min(policy.session_s, request.limits.seconds or policy.session_s))


def _verdict(waits: str, allowed_s: float, pause: Pause, session_s: float) -> tuple[bool | None, str]:
    """Recording makes a stage longer too, so that the longest session counts as well as the pause."""
    longest_s = session_s + (pause.longest_s or 0)
    limit = f"a session of {session_s:g} s, its limit, would come near: set a lower one (--limit-s)"
    also = f"; {limit}" if longest_s > _NEAR_RATIO * allowed_s else ""
    if pause.longest_s is None:
        return None, f"{waits}; how long the stop takes is unknown{also}"
    nears = pause.longest_s > _NEAR_RATIO * allowed_s
    return nears, f"{waits}: the pause {'COMES NEAR THAT' if nears else 'is far from it'}{also}"


def _allowed(environment: Mapping[str, str], name: str, default_s: int) -> tuple[float, str]:
    """Seconds, and where that is from."""
    given = environment.get(name, "")
    if given.isdecimal() and len(given) < 12:
        return float(given), "as set in this shell"
    return float(default_s), "CANN's default; the job may have set another"
