"""What a request would do, said before it does it: who records, when, how long training pauses, how many megabytes,
and what that costs those who wait for its ranks.

From what the run's processes have said of themselves, and from the sessions that it has had; what neither tells is
said to be unknown, or is named as the assumption that it is. Nothing is sent.
"""

from __future__ import annotations

import math
import statistics
from typing import Any, Collection, Iterator, Mapping, NamedTuple, Sequence

from ..profiling import presets
from ..profiling.declare import Preset
from ..store import hccl
from ..store.fate import Heard, Progress, world_size
from ..store.limits import Policy
from ..store.request import Request
from ..store.values import whole_number
from ..store.whereabouts import Age, Whereabouts, by_process, of_speaker
from .machine.agreement import choose_agreeing, choose_lead, needs_agreement
from .machine.moves import COOLDOWN, NS

MB = 10**6
_FEW = 8
_POLICY = Policy()  # a run may have another one, which none of its ranks says
_UNKNOWN_PAUSE = (
    "unknown: this run has had no such session. The profiler's own code takes milliseconds; at the stop the device is "
    "waited for and data are written, which nobody has measured here. Allow for seconds, for tens of them with deep"
)


class Participant(NamedTuple):
    """One rank that is asked."""

    # rank, role, host, pid: of its process; None where it has not been heard of
    rank: int
    role: str | None
    host: str | None
    pid: int | None
    is_alive: bool | None  # does it still run? None where that is not known
    # step, stage: in which it was, and `seen` says how long ago; None where that is not known
    step: int | None
    phase: str | None
    backend: str | None  # the profiler it records with; None where none can, or where it is not known
    hindrance: str  # why it cannot record, or not yet; empty where nothing is known to hinder it
    stage: str | None = None
    seen: Age | None = None


class Pause(NamedTuple):
    """How long one session holds training up, start and stop together, in seconds, as in so many earlier sessions of
    this run with the same preset; None: unknown.
    """

    median_s: float | None
    longest_s: float | None
    sessions: int
    words: str


class Explanation(NamedTuple):
    """What a request would do."""

    recorders: tuple[Participant, ...]
    when: tuple[str, ...]  # when each session begins, a sentence each
    ahead: tuple[str, ...]  # ids of requests that come first on one of these ranks
    records: str  # depth: the preset with the options over it, as it comes out
    pause: Pause
    total_mb: float | None  # raw data of all ranks, megabytes; None: unknown
    size: str  # how that is reckoned
    nears_timeout: bool | None  # does a session come near HCCL's time-out? None: unknown
    timeout: str  # the same as a sentence

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        recorders = [{**who._asdict(), "seen": who.seen and who.seen._asdict()} for who in self.recorders]
        return {**self._asdict(), "recorders": recorders, "pause": self.pause._asdict()}


def explain_request(
    request: Request, heard: Sequence[Heard], suspects: Sequence[int] = (), *, others: Sequence[Progress] = (),
    sessions: Sequence[Mapping[str, Any]] = (), environment: Mapping[str, str] | None = None,
    seen: Sequence[Whereabouts] = (),
) -> Explanation:  # fmt: skip
    """What a request, checked against the run, would do in it.
    `heard`: what its processes said last. `suspects`: whom "suspect+peer" stands for. `others`: the requests that the
    run has had. `sessions`: earlier sessions, as their session.json has them. `environment`: where HCCL's time-outs may
    be set, for ranks that do not say their own. `seen`: where its processes are, as their keepers say.
    """
    ranks = request.ranks_in(world_size(heard), tuple(suspects))
    places = by_process(seen)
    recorders = tuple(_find_recorder(request, rank, heard, places) for rank in ranks)
    ahead = tuple(
        other.asked.request.id for other in others if other.asked.request.id != request.id
        and any(report.rank in ranks and not report.has_ended for report in other.reports)
    )  # fmt: skip
    depth = presets.made_preset(request.preset, request.options)
    recorded = [session for session in sessions if session.get("state") == "recorded" and request.preset is not None]
    alike = [session for session in recorded if session.get("preset") == depth.preset.name]
    pause, when = _find_pause(alike), tuple(_explain_when(request, recorders, ahead, heard))
    total_mb, size = _estimate_size(request, recorders, alike, depth.preset)
    backends = {recorder.backend for recorder in recorders} - {None}
    nears, timeout = _near_timeout(request, backends, heard, alike, pause.longest_s, environment or {})
    return Explanation(recorders, when, ahead, depth.described(), pause, total_mb, size, nears, timeout)


def _find_recorder(
    request: Request, rank: int, heard: Sequence[Heard], places: Mapping[tuple[str, int], Whereabouts]
) -> Participant:
    """Of several processes of one rank, the newest that lives and runs the stage."""
    own = [process for process in heard if process.rank == rank]
    own.sort(key=lambda process: -process.acknowledgement.written_ns)
    own.sort(key=lambda process: (process.is_alive is False, not _runs_stage(process, request)))
    if not own:
        return Participant(rank, None, None, None, None, None, None, None, "nothing was heard of it yet")
    process, ack, standing = own[0], own[0].acknowledgement, own[0].standing
    where, hindrance = of_speaker(ack, standing.step, places), ""
    if process.is_alive is False:
        hindrance = "its process has ended"
    elif standing.backend is None:
        why = "; ".join(f"{name}: {reason}" for name, reason in standing.why_no_backend.items())
        hindrance = f"no profiler can record there: {why or 'it does not say why'}"
    elif not _runs_stage(process, request):
        hindrance = f"it has not entered {' or '.join(request.stages)} yet"
    return Participant(
        rank, ack.role or None, ack.host, ack.pid, process.is_alive, where.step, standing.phase, standing.backend,
        hindrance, where.stage, where.age,
    )  # fmt: skip


def _runs_stage(process: Heard, request: Request) -> bool:
    return not process.keys.isdisjoint(request.stages) and request.is_for(process.acknowledgement.role)


def _explain_when(
    request: Request, recorders: Sequence[Participant], ahead: Sequence[str], heard: Sequence[Heard]
) -> Iterator[str]:
    stage, steps = " or ".join(request.stages), request.steps or 1
    window = "that step" if steps == 1 else f"{steps} steps in a row"
    if needs_agreement(request, recorders):
        yield _explain_agreement(recorders, heard)
    elif request.occurrences is not None:
        yield f"each rank by itself: its next {_count_times(request.occurrences, 'entry', 'entries')} of {stage}"
    else:
        yield f"with the next whole step, as {stage} may be over in this one: every entry of it in {window}"
    if request.sample is not None:
        per, skip, record = request.sample
        yield f"of each occurrence {record} {per} after the first {skip}; it is refused where {per} is not marked"
    if ahead:
        yield f"after {_count_times(len(ahead), 'request', 'requests')} before it: {', '.join(ahead[:_FEW])}"
    if ahead or any(recorder.phase == COOLDOWN for recorder in recorders):
        cools_s = _POLICY.cooldown_s
        yield f"{cools_s:g} s after the last session on its ranks, or what capture() was given as cooldown_s"


def _explain_agreement(recorders: Sequence[Participant], heard: Sequence[Heard]) -> str:
    together = f"at a step on which all of its {len(recorders)} ranks agree"
    steps = [recorder.step for recorder in recorders if recorder.step is not None]
    if len(steps) < len(recorders):
        return f"{together}; where a rank counts no steps it expires: ask for occurrences instead"
    who = choose_agreeing([recorder.rank for recorder in recorders])
    step_ns = next(filter(None, (process.standing.step_ns for process in heard if process.rank == who)), None)
    ahead = choose_lead(_POLICY, step_ns)
    soon = f", {ahead * step_ns / NS:.2g} s from now" if step_ns else ""
    return (
        f"{together}, at least {ahead} ahead of the farthest: step {max(steps) + ahead} or later{soon}; without "
        f"agreement within {_POLICY.agreement_s:g} s it expires"
    )


def _count_times(count: int, singular: str, plural: str) -> str:
    return f"{count} {singular if count == 1 else plural}"


def _find_pause(sessions: Sequence[Mapping[str, Any]]) -> Pause:
    """From what earlier sessions of this kind cost."""
    costs = [sum(whole_number(s.get(key)) for key in ("start_cost_ns", "stop_cost_ns")) for s in sessions]
    if not costs:
        return Pause(None, None, 0, _UNKNOWN_PAUSE)
    median_s, longest_s = statistics.median(costs) / NS, max(costs) / NS
    words = (
        f"{median_s:.2g} s at start and stop of each session, {longest_s:.2g} s at most, in "
        f"{_count_times(len(costs), 'earlier session', 'earlier sessions')} of this run"
    )
    return Pause(median_s, longest_s, len(costs), words)


def _estimate_size(
    request: Request, recorders: Sequence[Participant], sessions: Sequence[Mapping[str, Any]], preset: Preset
) -> tuple[float | None, str]:
    able = sum(1 for recorder in recorders if recorder.backend is not None or recorder.phase is None)
    sizes = [whole_number(session.get("bytes")) for session in sessions if session.get("stage") in request.stages]
    count = request.steps or request.occurrences or 1
    ranks = _count_times(able, "rank", "ranks")
    if sizes:
        each_mb = statistics.median(sizes) / MB
        total_mb = each_mb * count * len(request.stages) * able
        return total_mb, (
            f"{total_mb:.3g} MB: {each_mb:.3g} MB in earlier sessions of this run × "
            f"{_count_times(count * len(request.stages), 'occurrence', 'occurrences')} × {ranks}"
        )
    each = preset.est_mb_per_step
    total_mb = each * count * able
    words = f"at most about {total_mb:,} MB: {each} MB a step (assumed, not measured) × {count} × {ranks}"
    part = "; a stage, or a sample of it, is only a part of a step" if request.preset != "light" else ""
    return float(total_mb), words + part


def _near_timeout(
    request: Request, backends: Collection[str | None], heard: Sequence[Heard], sessions: Sequence[Mapping[str, Any]],
    pause_s: float | None, shell: Mapping[str, str],
) -> tuple[bool | None, str]:  # fmt: skip
    """Does a session come near the time-out of those who wait, and the same as a sentence.
    `backends`: the profilers of the ranks that record. `heard`: what all processes said: of those that wait, the one
    with the least patience counts. `sessions`: earlier ones like this, of which `pause_s` is the longest pause.
    `shell`: the asker's own environment, for ranks that do not say theirs. Returns: None where it is not known how long
    a session takes.
    """
    if world_size(heard) == 1:
        return False, "nobody waits for the only rank of a run"
    if backends and set(backends) <= {hccl.WITHOUT_HCCL}:
        return False, f"no HCCL where {hccl.WITHOUT_HCCL} is the profiler; the process group's own time-out holds there"
    patience, first = _find_least({request.preset: pause_s or 0.0}, heard, shell)
    if patience.seconds == math.inf:
        return False, f"collectives wait for ever: {patience.source}"
    waits = f"other ranks wait in collectives meanwhile, {patience.seconds:g} s at most ({patience.source}) and {first}"
    bound = _explain_bound(request, patience)
    if pause_s is None:
        return None, f"{waits}; how long the stop takes is unknown{bound}"
    lengths_ns = [whole_number(s.get("end_ns")) - whole_number(s.get("start_ns")) for s in sessions
                  if s.get("stage") in request.stages and whole_number(s.get("end_ns"))]  # fmt: skip
    took_s = {"pause": pause_s, "length of a session": max([0, *lengths_ns]) / NS}
    nearing = [what for what, seconds in took_s.items() if seconds > hccl.NEAR_RATIO * patience.seconds]
    verdict = f"the {' and the '.join(nearing)} COMES NEAR THAT" if nearing else "the pause is far from it"
    return bool(nearing), f"{waits}: {verdict}{bound}"


def _explain_bound(request: Request, patience: hccl.Patience) -> str:
    """What the ranks do about it by themselves."""
    session_s, bound_s = request.limits.seconds_within(_POLICY.session_s), patience.bound_s(request.preset)
    if not request.force and patience.refusal(request.preset):
        return "; without --force a rank where start and stop took so long refuses it"
    if session_s <= bound_s:
        return ""
    if request.force:
        return f"; --force: a session may take {session_s:g} s all the same"
    ends = f"a session is ended at the first stage or piece after {bound_s:.4g} s, and not {session_s:g} s"
    return f"; {ends} (--limit-s sets less, --force more)"


def _find_least(
    pauses_s: Mapping[str | None, float], heard: Sequence[Heard], shell: Mapping[str, str]
) -> tuple[hccl.Patience, str]:
    """The patience of the one with the least of it, and that for a first connection in words."""
    waiting = [
        (process.standing.timeouts, f"as set on rank {process.rank}", process.standing.is_connecting)
        for process in heard
        if process.is_alive is not False and process.standing.timeouts is not None
    ] or [(hccl.set_here(shell), "as set in this shell; the job's own is not known", False)]
    places = (hccl.find_patience(*set_there, pauses_s) for set_there in waiting)
    connects = (hccl.read_seconds(variables, hccl.CONNECT) for variables, *_ in waiting)
    least_s = min(connect_s or hccl.DEFAULTS_S[hccl.CONNECT] for connect_s in connects)
    return min(places, key=lambda place: place.seconds), f"{least_s:g} s for a first connection ({hccl.CONNECT})"
