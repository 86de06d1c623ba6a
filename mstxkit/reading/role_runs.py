"""All steps of a role as arrays: cut into pieces, each member's own time in a piece apart from what it waits there.

Everything that says where a step's time goes (bubbles, critical path, stragglers, what-if) is made of these. Who waits
where, and for whom, is what the judge learns of it.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress
from typing import Any, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from ..judging import meeting, shaping
from ..judging.cutting import BEFORE, IN, REST, Piece
from ..judging.evidence import Peer, RoleStep
from ..judging.measuring import BASE_RATIO, FREE, HANDED, IN_A_ROW, UNKNOWN, WAITS
from ..judging.replay import Course
from ..judging.whole_run import SeenStep, WholeRun
from ..store.values import group_by
from ..triggers.late_rank import middle_of

Seconds = npt.NDArray[np.float64]
Truths = npt.NDArray[np.bool_]
Whole = npt.NDArray[np.int64]

_Link = tuple[int, int, tuple[int, ...], float]
# Of each step, member and piece.
_OF_CELLS = ("came_s", "done_s", "own_s", "wait_s", "inside_s", "excess", "excess_inside")
# Of a long run the last steps count, as many as fit into so many numbers an array.
CELLS_AT_MOST = 6_000_000
# Of a step: what is shorter is not told as a share.
LEAST_RATIO = 1e-3
# What takes such a share of a step, and is left by all within such a share of its own time, may hide somebody.
_HIDES_FROM, _AT_ONCE = 0.05, 0.01


@dataclass(frozen=True, eq=False)
class RoleRun:
    """T steps of the M members of one role, in K pieces: stages in their order, and the gap before each.

    Args:
        role: Its name; "" where none is known.
        members: M of them; whoever was there in any step.
        kinds: K pieces, in their order.
        owners: Of each the stage that its time is of; "": it is a gap.
        steps: (T,) numbers of the steps.
        came_s, done_s: (T, M, K) seconds when a member came to a piece and was done with it; NaN: it was not there.
        own_s: (T, M, K) seconds of its own there: of a piece in which members wait, since the last of them has come.
        wait_s: (T, M, K) seconds that it waited there; 0 where nobody waits.
        mode: (K,) how a piece is over: as `judging.measuring` has it.
        labels: (M, K) who waits for whom there, as far as collectives tell: members of one number.
        inside_s: (T, M, K) own seconds between the collectives of a stage; NaN where nothing tells of them.
        inside_wait_s: (T, M, K) seconds of `own_s` that it waited in these collectives; 0 where nothing tells of it.
        uneven_s: (T, M, K) by how much its own time before them was longer than the mean, all of it together.
        links: Of each step, stage and group what its collectives took: (place of the step, piece, members, seconds).
        work: (T, M, K, 3) tokens, responses, longest response; NaN where nobody says so.
        rows: (M, K) of pieces in which rows of members wait for the row before the row of each; -1: they do not.
        excess: (T, M, K) logarithm of a member's own time over what is expected for its work; NaN: not known.
        excess_inside: (T, M, K) the same of the time between collectives.
        parts: (T,) the steps of which it is made, without controllers.
        courses: (T,) how members have gone through them.
        rows_of: Of each of them, the places of its members among those of the role.
    """

    role: str
    members: tuple[Peer, ...]
    kinds: tuple[Piece, ...]
    owners: tuple[str, ...]
    steps: Whole
    came_s: Seconds
    done_s: Seconds
    own_s: Seconds
    wait_s: Seconds
    mode: Whole
    labels: Whole
    inside_s: Seconds
    inside_wait_s: Seconds
    uneven_s: Seconds
    links: tuple[_Link, ...]
    work: Seconds
    rows: Whole
    excess: Seconds
    excess_inside: Seconds
    parts: tuple[RoleStep, ...]
    courses: tuple[Course, ...]
    rows_of: tuple[Whole, ...]

    @property
    def ranks(self) -> list[int | None]:
        """(M,) the rank of each member."""
        return [peer.rank for peer in self.members]

    @property
    def waits(self) -> Truths:
        """(K,) do members wait there until all of them have come?"""
        return np.asarray(self.mode == WAITS)

    @property
    def is_free(self) -> bool:
        """Does nobody wait for another member here?"""
        return not np.isin(self.mode, (WAITS, IN_A_ROW, HANDED)).any()

    @cached_property
    def is_gap(self) -> Truths:
        """(K,) is it in no stage?"""
        return np.array([not owner for owner in self.owners], bool)

    def stage(self, piece: int) -> str:
        """The stage whose time it is; of a gap the one behind it."""
        return self.owners[piece] or self.kinds[piece].stage

    def where(self, piece: int) -> str:
        """Is it "in" that stage, or "before" it?"""
        return BEFORE if self.is_gap[piece] else IN

    def stages(self) -> dict[str, list[int]]:
        """The pieces that are a stage's time, its begin first: of one around others there are several."""
        pieces = {kind.stage: [at] for at, kind in enumerate(self.kinds) if kind.where == IN}
        for at, owner in enumerate(self.owners):
            if owner and self.kinds[at] != Piece(IN, owner):
                pieces[owner].append(at)
        return pieces

    def own_of(self, pieces: list[int]) -> Seconds:
        """(T, M) own seconds in all pieces of a stage; NaN: it was not there."""
        if len(pieces) == 1:
            return np.asarray(self.own_s[:, :, pieces[0]])
        return np.where(np.isfinite(self.own_s[:, :, pieces[0]]), np.nansum(self.own_s[:, :, pieces], axis=2), np.nan)

    def hiding_stages(self) -> list[str]:
        """Those in which one may be slow unseen: no small share of a step, left at once, and nothing tells more."""
        hiding = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a step in which nobody was there
            for stage, pieces in ((stage, at) for stage, at in self.stages().items() if self.mode[at[-1]] != FREE):
                last, own_s = pieces[-1], self.own_of(pieces)
                done_s, labels = self.done_s[:, :, last].T, self.labels[:, last]
                apart_s = meeting.by_group(done_s, labels, lambda part: np.broadcast_to(np.ptp(part, 0), part.shape))
                apart = np.nanmedian(apart_s[np.bincount(labels)[labels] > 1]) / np.nanmedian(own_s)
                is_long = np.nanmedian(np.nanmin(own_s, axis=1)) >= _HIDES_FROM * self.step_s()
                is_told = np.isfinite(self.inside_s[:, :, pieces]).any()
                hiding += [stage] if is_long and apart <= _AT_ONCE and not is_told else []
        return hiding

    def base_s(self) -> float:
        """Times are compared as logarithms of so much more: what is shorter is all alike."""
        return max(1e-6, BASE_RATIO * self.step_s())

    def spent(self, is_inside: bool) -> tuple[Seconds, Seconds]:
        """(T, M, K) own times, or those between collectives; and the logarithm of these over what is expected."""
        return (self.inside_s, self.excess_inside) if is_inside else (self.own_s, self.excess)

    def expected_s(self, excess: Seconds, own_s: Seconds) -> Seconds:
        """Own times without what is too much of them, a logarithm."""
        return np.asarray(np.maximum(0.0, (own_s + self.base_s()) * np.exp(-excess) - self.base_s()))

    def longer(self, is_inside: bool = False) -> Seconds:
        """(T, M, K) by which share own times, or those between collectives, are longer than expected; NaN: not known.
        Where next to no time is spent, that is 0.
        """
        own_s, excess = self.spent(is_inside)
        least_s = max(1e-6, LEAST_RATIO * self.step_s())
        with np.errstate(all="ignore"):
            return np.asarray((own_s + least_s) / (self.expected_s(excess, own_s) + least_s) - 1)

    def without(self, steps: Iterable[int]) -> RoleRun:
        """The same without these steps."""
        keep = ~np.isin(self.steps, list(steps))
        if keep.all():
            return self
        places = np.cumsum(keep) - 1
        names = ("steps", "work", "inside_wait_s", "uneven_s", *_OF_CELLS)
        links = tuple((int(places[at]), piece, who, took) for at, piece, who, took in self.links if keep[at])
        kept: dict[str, Any] = {name: getattr(self, name)[keep] for name in names}
        kept |= {name: tuple(compress(getattr(self, name), keep)) for name in ("parts", "courses", "rows_of")}
        return replace(self, **kept, links=links)

    def since_met(self, piece: int) -> Whole:
        """Pieces since members waited before, that one too, the latest first: after it each has a rest of its own.
        Before the first that they wait in, also those of the step before: from `piece` on.
        """
        met, before = np.flatnonzero(self.waits), np.flatnonzero(self.waits[:piece])
        last = np.arange(before[-1], piece) if len(before) else np.r_[met[-1] : len(self.kinds), :piece]
        return last[::-1]

    @cached_property
    def came_last(self) -> Whole:
        """(T, M, K) who came last there of those that each member meets; -1: it meets nobody, or was not there."""
        return np.stack([most_of(self.came_s[:, :, at], self.labels[:, at]) for at in range(len(self.kinds))], axis=2)

    @property
    def busy_s(self) -> Seconds:
        """(T, M, K) own seconds; 0 in a piece that others of the step are in, and a member of it is not."""
        return np.where(np.isfinite(self.came_s).any(axis=2, keepdims=True), np.nan_to_num(self.own_s), np.nan)

    @cached_property
    def more_s(self) -> Seconds:
        """(T, M, K) by how much longer than the middle of those that it meets each was in a piece, of its own time."""
        return np.stack([self.over_middle(self.busy_s[:, :, at], at) for at in range(len(self.kinds))], axis=2)

    def over_middle(self, values: Seconds, piece: int) -> Seconds:
        """(T, M) each value less the middle of those whom that member meets in a piece."""
        return np.asarray(meeting.by_group(values.T, self.labels[:, piece], lambda part: part - middle_of(part)).T)

    def cells(self, at: int) -> tuple[Any, ...]:
        """An index: where the members and pieces of a step are among those of all."""
        columns = [self.kinds.index(kind) for kind in self.courses[at].kinds]
        return np.ix_(self.rows_of[at], np.array(columns, np.int64))

    def spans_s(self) -> tuple[Seconds, Seconds]:
        """(T,) when each step began, the first member's begin, and when the last member was done with it."""
        with np.errstate(all="ignore"):
            began = np.fmin.reduce(np.fmin.reduce(self.came_s, axis=2), axis=1)
            return began, np.fmax.reduce(np.fmax.reduce(self.done_s, axis=2), axis=1)

    @cached_property
    def lengths_s(self) -> Seconds:
        """(T,) seconds of each step: since the end of the one before, where a member of it did that; else its begin."""
        began, ended = self.spans_s()
        here = np.isfinite(self.came_s).any(axis=2)
        goes_on = (here & np.roll(here, 1, axis=0)).any(axis=1)
        follows = goes_on & (np.diff(self.steps, prepend=self.steps[:1] - 2) == 1)
        return np.where(follows, ended - np.roll(ended, 1), ended - began)

    def step_s(self) -> float:
        """Seconds that a step takes, in the mean; 0 where that is not known."""
        lasting = self.lengths_s[np.isfinite(self.lengths_s)]
        return float(lasting.mean()) if len(lasting) else 0.0


def of_steps(steps: Iterable[RoleStep]) -> tuple[RoleRun, ...]:
    """One for each role, by name. Of two steps of one role and number the one with collectives counts."""
    by_role: dict[str, dict[int, RoleStep]] = {}
    for step in steps:
        of_role = by_role.setdefault(step.role, {})
        before = of_role.get(step.step)
        if before is None or before.collectives is None or step.collectives is not None:
            of_role[step.step] = step
    last: list[RoleStep] = []  # of each role, as many as there is room for
    for of_role in by_role.values():
        widest = max(1, max(len(step.members) * 2 * len(step.stages) for step in of_role.values()))
        last += [of_role[number] for number in sorted(of_role)[-max(1, CELLS_AT_MOST // widest) :]]
    whole = WholeRun(last)
    seen = group_by((each for each in whole.steps if each.pieces.kinds), lambda each: each.step.role)
    return tuple(_of_role(seen[role]) for role in sorted(seen))


def _of_role(steps: list[SeenStep]) -> RoleRun:
    every = {shaping.key_of(peer): peer for each in steps for peer in each.step.members}.values()
    members = tuple(sorted(every, key=lambda peer: (peer.rank is None, peer.rank or 0, peer.process)))
    kinds, owners = _in_order(steps)
    places = {shaping.key_of(peer): place for place, peer in enumerate(members)}
    rows_of = [np.array([places[shaping.key_of(peer)] for peer in each.step.members], np.int64) for each in steps]
    shape = len(steps), len(members), len(kinds)
    run = RoleRun(
        role=steps[0].step.role, members=members, kinds=kinds, owners=owners, mode=np.full(len(kinds), UNKNOWN),
        steps=np.array([each.step.step for each in steps], np.int64), work=np.full((*shape, 3), np.nan),
        labels=np.zeros(shape[1:], np.int64), rows=np.full(shape[1:], -1), inside_wait_s=np.zeros(shape),
        uneven_s=np.zeros(shape), parts=tuple(each.step for each in steps), rows_of=tuple(rows_of),
        courses=tuple(each.course for each in steps), **dict[str, Any]((n, np.full(shape, np.nan)) for n in _OF_CELLS),
        links=tuple(link for at, each in enumerate(steps) for link in _list_links(at, each, kinds, rows_of[at])),
    )  # fmt: skip
    for at, each in enumerate(steps):
        _fill_step(run, at, each)
    _share_handed(run, np.array([each.tells is not None for each in steps]))
    return run


def _list_links(at: int, seen: SeenStep, kinds: Sequence[Piece], rows: Whole) -> Iterator[_Link]:
    for time in () if seen.tells is None else seen.tells.groups:
        piece, rings = Piece(IN, seen.step.stages[time.stage]), seen.step.collectives
        if piece in kinds and rings is not None:
            met = (rings.stage == time.stage) & (rings.group == time.group) & (rings.member >= 0)
            yield at, kinds.index(piece), tuple(np.unique(rows[rings.member[met]]).tolist()), time.took_s


def _fill_step(run: RoleRun, at: int, seen: SeenStep) -> None:
    pieces, course, rows, here = seen.pieces, seen.course, run.rows_of[at], run.cells(at)
    own = course.took_s, course.wait_s, seen.inside_s, seen.excess, seen.excess_inside
    inside = course.inside_wait_s, course.uneven_s
    for name, values in zip((*_OF_CELLS, "inside_wait_s", "uneven_s"), (pieces.came_s, pieces.done_s, *own, *inside)):
        getattr(run, name)[at][here] = values
    columns = here[1].reshape(-1)
    run.mode[columns] = course.mode
    for column, labels, row in zip(columns, course.meets, course.rows):
        run.labels[rows, column] = 0 if labels is None else np.unique(labels, return_inverse=True)[1]
        run.rows[rows, column] = -1 if row is None else row
    is_stage = np.array([kind.where != BEFORE for kind in pieces.kinds])
    for number, values in enumerate(seen.step.work):
        run.work[at, :, :, number][here] = np.where(is_stage, values[:, pieces.stages], np.nan)


def _share_handed(run: RoleRun, is_told: Truths) -> None:
    """Own time where members send and receive, in steps of which no entries tell: by its share in the others."""
    for piece in np.flatnonzero(run.mode == HANDED).tolist():
        whole = run.own_s[:, :, piece] + run.wait_s[:, :, piece]
        with np.errstate(all="ignore"):
            share = middle_of((run.own_s[:, :, piece] / whole)[is_told])
        share[~np.isfinite(share)] = 1.0
        run.own_s[~is_told, :, piece] = (whole * share)[~is_told]
        run.wait_s[:, :, piece] = whole - run.own_s[:, :, piece]


def _in_order(steps: list[SeenStep]) -> tuple[tuple[Piece, ...], tuple[str, ...]]:
    """All pieces, by where they stand in the steps that have them, and of which stage each is."""
    seen: dict[Piece, list[float]] = {}
    owners: dict[Piece, str] = {}
    for each in steps:
        kinds = each.pieces.kinds
        owners.update(zip(kinds, each.pieces.owners))
        for place, kind in enumerate(kinds):
            seen.setdefault(kind, []).append(place / len(kinds))

    def key(kind: Piece) -> tuple[float, str, bool]:  # the gap before a stage stays before it
        by = kind if kind.where == REST else Piece(IN, kind.stage)
        return float(np.mean(seen[by])), kind.stage, kind.where == IN

    kinds = tuple(sorted(seen, key=key))
    return kinds, tuple(owners[kind] for kind in kinds)


def most_of(values: Seconds, labels: Whole) -> Whole:
    """(T, M) who has the largest value of those with a member's label; -1: there are not two, or it has none itself."""
    last, is_there = np.full(values.shape, -1), np.isfinite(values)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        largest = np.where(is_there, values, -np.inf)[:, members].argmax(axis=1)
        is_met = is_there[:, members] & (is_there[:, members].sum(axis=1) > 1)[:, None]
        last[:, members] = np.where(is_met, members[largest][:, None], -1)
    return last


def shown_ns(seconds: float) -> int | None:
    """Whole ns; None of what is not known."""
    return round(seconds * 1e9) if np.isfinite(seconds) else None
