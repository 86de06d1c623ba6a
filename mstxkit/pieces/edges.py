"""What begins and ends with a watched call, in order: stages and their pieces. Profiling decides by it.

The hooks of the engine are told calls: `entered(site, may_move)` and `left(site, failed)`. An escalation is decided by
stages and pieces. In between is this: call `edges.enter_call` and `edges.leave_call` in the hooks, for every watched
site, and tell the machine each `Edge` that they give, in that order, as `StageEntered`, `StageLeft`, `BoundaryEntered`
or `BoundaryLeft`. Whatever is not to be counted gives none, at its entry as at its end:

- dummy calls, as the patched function says right before (`next_call`);
- a piece outside of all stages;
- a piece in a call or an open piece of its kind: it is a part of it (a method that calls its parent's);
- pieces in calls that mix them (pipelines, in which one micro-batch begins before another ended);
- what may end on another thread: of that only the stage is told, so that it can be refused.

Rounds. Where a serving engine runs in a process of its own, each of its steps is a whole occurrence of the stage, and
no call surrounds a round of generation. For a request that samples by such steps (`sample_per`) an occurrence lasts
for the whole round. Likewise for a stage that is one mini-batch; and, whether or not pieces are counted, for one whose
calls are the parts of an update in a loop (`PieceRole.is_round`). Rounds may lie in rounds, as the actor's update in
the step.

A call belongs to the innermost occurrence of its stage, if nothing but rounds began inside of that; else it begins one.
One without a stage belongs to what is innermost. Before a stage begins, rounds end in which no call is under way, the
inner first. So they do where a call says so (`ends_round`, `ends_round_after`), where a call fails, and, if they began
in a stage that is no round, at its end.

Call `forget()` when watching begins, and when it goes on for another request: what was under way before is not counted.

Threads/fork: kept per thread. A call that ends on another thread than it began on gives the end of its stage only. A
forked child begins with nothing.
"""

from __future__ import annotations

import itertools
import os
import threading
from typing import Any, NamedTuple

from . import boundaries
from .kinds import PieceRole

STAGE, BOUNDARY = "stage", "boundary"
_NO_ROLE = PieceRole()


class Edge(NamedTuple):
    """One beginning or end."""

    what: str  # `STAGE` or `BOUNDARY`
    key: str  # canonical one of the stage, or kind of the piece
    begins: bool  # or it ends
    stages: tuple[str, ...] = ()  # whose piece it is: of that in which it began, and of those around that


class _Occurrence:
    """A stage that is under way on a thread, or what is outside of all (`stage` None), and its open pieces."""

    def __init__(self, stage: str | None, is_round: bool = False) -> None:
        self.stage, self.is_round = stage, is_round
        self.open: dict[str, tuple[str, ...]] = {}  # in order; whose piece each is

    def end(self, per: str, edges: list[Edge]) -> None:
        """A piece ends, if there is one, and before it what began inside of it."""
        while per in self.open:
            last, stages = self.open.popitem()
            if stages:
                edges.append(Edge(BOUNDARY, last, False, stages))

    def end_all(self, edges: list[Edge]) -> None:
        """The stage ends, and with it what is open in it, the innermost first."""
        for per in [*self.open]:
            self.end(per, edges)
        if self.stage is not None:
            edges.append(Edge(STAGE, self.stage, False))


class _Call(NamedTuple):
    """A watched call under way: what it began, and what ends with it."""

    site_id: int
    role: PieceRole
    occurrence: _Occurrence | None
    within: _Occurrence
    piece: str | None
    mixed: tuple[str, ...]


class _Thread:
    """What is under way on one thread, since the last `forget_open`."""

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.calls: list[_Call] = []
        self.occurrences = [_Occurrence(None)]
        self.coming: dict[int, tuple[bool, tuple[str, ...]]] = {}

    def begin_piece(self, within: _Occurrence, per: str, edges: list[Edge]) -> None:
        """Of this stage, and of those around it, out to where it is a part of one of its kind."""
        around = self.occurrences[self.occurrences.index(within) :: -1]
        whose = itertools.takewhile(lambda occurrence: per not in occurrence.open, around)
        within.open[per] = stages = tuple(occurrence.stage for occurrence in whose if occurrence.stage is not None)
        if stages:
            edges.append(Edge(BOUNDARY, per, True, stages))

    def end_rounds(self, edges: list[Edge]) -> None:
        """The rounds end that are innermost here, out to one in which a call is under way."""
        while (last := self.occurrences[-1]).is_round and all(call.within is not last for call in self.calls):
            self.occurrences.pop().end_all(edges)


_local = threading.local()
_generation = 0


def forget_open() -> None:
    """What is under way on any thread is not counted."""
    global _generation
    _generation += 1


os.register_at_fork(after_in_child=forget_open)


def _thread_here() -> _Thread:
    thread: _Thread | None = getattr(_local, "thread", None)
    if thread is None or thread.generation != _generation:
        coming = {} if thread is None else thread.coming
        thread = _local.thread = _Thread(_generation)
        thread.coming = coming
    return thread


def next_call(site: Any, is_dummy: bool = False, mixed: tuple[str, ...] = ()) -> None:
    """Say of the call that this thread is about to make what only its arguments tell: that it is no piece (a batch
    without requests, run to keep others in step), or which kinds of pieces it mixes.
    """
    _thread_here().coming[site.id] = is_dummy, mixed


def enter_call(site: Any, may_move: bool = False, sample_per: str | None = None) -> tuple[Edge, ...]:
    """What ends and begins with the entry of a watched call, which may end on another thread where it `may_move`.

    `sample_per`: what is sampled by the request that is active; None where it samples nothing, or there is none.
    """
    here = _thread_here()
    is_dummy, mixed = here.coming.pop(site.id, (False, ()))
    if may_move:
        return _of_stage_alone(site, True)
    edges: list[Edge] = []
    stage, role, own = boundaries.stage_of(site), boundaries.role_of(site) or _NO_ROLE, None
    if role.ends_round:
        here.end_rounds(edges)
    within = next(held for held in reversed(here.occurrences) if stage in (None, held.stage) or not held.is_round)
    if stage is not None and stage != within.stage:
        here.end_rounds(edges)
        within = _Occurrence(stage, role.is_round or (sample_per is not None and sample_per in (role.per, role.across)))
        own = None if within.is_round else within
        here.occurrences.append(within)
        edges.append(Edge(STAGE, stage, True))
    for per in role.ends_before:
        within.end(per, edges)
    piece = _begin_piece(here, within, role, is_dummy, edges)
    here.calls.append(_Call(site.id, role, own, within, piece, mixed))
    return tuple(edges)


def _begin_piece(here: _Thread, within: _Occurrence, role: PieceRole, is_dummy: bool, edges: list[Edge]) -> str | None:
    """Begin the piece that the call begins; its kind where it ends with the call."""
    per = role.per
    # In a call that mixes such pieces, or is one of them in this stage, or a dummy of it.
    if per is None or any(per in call.mixed or (per, within) == (call.role.per, call.within) for call in here.calls):
        return None
    if role.until_next:
        within.end(per, edges)
    if is_dummy or per in within.open:
        return None
    if role.within is not None and role.within not in within.open:
        here.begin_piece(within, role.within, edges)
    here.begin_piece(within, per, edges)
    return None if role.until_next else per


def _of_stage_alone(site: Any, begins: bool) -> tuple[Edge, ...]:
    stage = boundaries.stage_of(site)
    return () if stage is None else (Edge(STAGE, stage, begins),)


def leave_call(site: Any, failed: bool = False) -> tuple[Edge, ...]:
    """What ends with a watched call whose begin came here: on any thread, after any failure."""
    here = _thread_here()
    call = next((call for call in reversed(here.calls) if call.site_id == site.id), None)
    if call is None:
        return _of_stage_alone(site, False)
    here.calls.remove(call)
    edges: list[Edge] = []
    for per in (call.piece, *call.role.ends_after):
        if per is not None:
            call.within.end(per, edges)
    if call.occurrence is not None:
        here.end_rounds(edges)  # that began in it
        here.occurrences.remove(call.occurrence)
        call.occurrence.end_all(edges)
    if failed or call.role.ends_round_after:
        here.end_rounds(edges)
    return tuple(edges)
