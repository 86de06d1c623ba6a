"""What a request would cost those who wait for its ranks: said before it does, as the ranks themselves keep to it."""

from __future__ import annotations

import math
from typing import Any, Iterable, Mapping, NamedTuple, Sequence

from ..store import hccl
from ..store.fate import Heard, world_size
from ..store.limits import Policy
from ..store.request import Request
from ..store.values import whole_number
from .machine.moves import NS


class Costs(NamedTuple):
    """Seconds that earlier sessions of this preset took, the longest of each; None: there was none."""

    pause_s: float | None  # start and stop together
    length_s: float | None  # from start to stop, of the stages that are asked for


def costs(request: Request, sessions: Iterable[Mapping[str, Any]]) -> Costs:
    """Of earlier sessions, as their session.json has them."""
    pauses, lengths = [], []
    for session in sessions:
        pauses.append((whole_number(session.get("start_cost_ns")) + whole_number(session.get("stop_cost_ns"))) / NS)
        if session.get("stage") in request.stages and whole_number(session.get("end_ns")):
            lengths.append(max(0, whole_number(session.get("end_ns")) - whole_number(session.get("start_ns"))) / NS)
    return Costs(max(pauses, default=None), max(lengths, default=None))


def explained(
    request: Request, backends: Iterable[str | None], heard: Sequence[Heard], spent: Costs,
    shell: Mapping[str, str], policy: Policy,
) -> tuple[bool | None, str]:  # fmt: skip
    """Does a session come near the time-out of those who wait, and the same as a sentence.
    `backends`: the profilers of the ranks that record; None where there is none. `heard`: what all processes said: of
    those that wait, the one with the least patience counts. `shell`: the asker's own environment, for ranks that do not
    say theirs.

    Returns: None where it is not known how long a session takes.
    """
    if world_size(heard) == 1:
        return False, "nobody waits for the only rank of a run"
    profilers = {backend for backend in backends if backend is not None}
    if profilers and profilers <= {hccl.WITHOUT_HCCL}:
        return False, f"no HCCL where {hccl.WITHOUT_HCCL} is the profiler; the process group's own time-out holds there"
    patience, first = _least(request, heard, spent, shell)
    if patience.seconds == math.inf:
        return False, f"collectives wait for ever: {patience.source}"
    waits = f"other ranks wait in collectives meanwhile, {patience.seconds:g} s at most ({patience.source}) and {first}"
    bound = _bounded(request, patience, policy)
    if spent.pause_s is None:
        return None, f"{waits}; how long the stop takes is unknown{bound}"
    near_s = hccl.NEAR_RATIO * patience.seconds
    nearing = [
        what for what, took_s in (("pause", spent.pause_s), ("length of a session", spent.length_s or 0.0))
        if took_s > near_s
    ]  # fmt: skip
    verdict = f"the {' and the '.join(nearing)} COMES NEAR THAT" if nearing else "the pause is far from it"
    return bool(nearing), f"{waits}: {verdict}{bound}"


def _bounded(request: Request, patience: hccl.Patience, policy: Policy) -> str:
    """What the ranks do about it by themselves."""
    session_s, bound_s = request.limits.seconds_within(policy.session_s), patience.bound_s(request.preset)
    if not request.force and patience.refusal(request.preset):
        return "; without --force a rank where start and stop took so long refuses it"
    if session_s <= bound_s:
        return ""
    if request.force:
        return f"; --force: a session may take {session_s:g} s all the same"
    ends = f"a session is ended at the first stage or piece after {bound_s:.4g} s, and not {session_s:g} s"
    return f"; {ends} (--limit-s sets less, --force more)"


def _least(
    request: Request, heard: Sequence[Heard], spent: Costs, shell: Mapping[str, str]
) -> tuple[hccl.Patience, str]:
    """The patience of the one with the least of it, and that for a first connection in words."""
    pauses_s = {request.preset: spent.pause_s or 0.0}
    waiting = [
        (process.standing.timeouts, f"as set on rank {process.rank}", process.standing.is_connecting)
        for process in heard
        if process.is_alive is not False and process.standing.timeouts is not None
    ] or [(hccl.set_here(shell), "as set in this shell; the job's own is not known", False)]
    places = (hccl.patience(*set_there, pauses_s) for set_there in waiting)
    connects = (hccl.seconds(variables, hccl.CONNECT) for variables, *_ in waiting)
    least_s = min(connect_s or hccl.DEFAULTS_S[hccl.CONNECT] for connect_s in connects)
    return min(places, key=lambda place: place.seconds), f"{least_s:g} s for a first connection ({hccl.CONNECT})"
