"""All steps of a role as arrays: cut into pieces, each member's own time in a piece apart from what it waits there.

Everything that says where a step's time goes (bubbles, critical path, stragglers, what-if) is made of these. Who waits
where, and for whom, is what the judge learns of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Callable, Iterable, Iterator, TypeVar, cast

import numpy as np
import numpy.typing as npt

from ..judging import meeting, shaping
from ..judging.cutting import BEFORE, IN, REST, Piece
from ..judging.evidence import Peer, RoleStep
from ..judging.in_a_row import after_the_row_before
from ..judging.inside import inside
from ..judging.measuring import FED, HANDED, IN_A_ROW, UNKNOWN, WAITS
from ..judging.whole_run import CutStep, WholeRun
from ..triggers.late_rank import middle_of

Seconds = npt.NDArray[np.float64]
Truths = npt.NDArray[np.bool_]
Whole = npt.NDArray[np.int64]
T = TypeVar("T")

# Of a long run the last steps count, as many as fit into so many numbers an array.
CELLS_AT_MOST = 6_000_000
# How far apart members are after they waited, of how far apart they were before, at most.
_CLOSER = 0.7


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
        labels: (M, K) who waits for whom there: members of one number.
        inside_s: (T, M, K) own seconds between the collectives of a stage; NaN where nothing tells of them.
        links: Of each step, stage and group what its collectives took: (place of the step, piece, members, seconds).
        work: (T, M, K, 3) tokens, responses, longest response; NaN where nobody says so.
        error_s: (M,) bound of the error of a member's times against the others'.
        rows: Of each piece in which rows of members wait for the row before the row of each; None: they do not.
        cut: (T,) the steps of which it is made.
        rows_at: Of each step of any role, the places of its members among those of the role.
        kept: What `once` has made.
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
    links: tuple[tuple[int, int, tuple[int, ...], float], ...]
    work: Seconds
    error_s: Seconds
    rows: tuple[Whole | None, ...]
    cut: tuple[CutStep, ...]
    rows_at: dict[tuple[str, int], Whole]
    kept: dict[str, Any] = field(default_factory=dict, repr=False)

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

    def is_gap(self, piece: int) -> bool:
        """Is it in no stage?"""
        return not self.owners[piece]

    def stage(self, piece: int) -> str:
        """The stage whose time it is; of a gap the one behind it."""
        return self.owners[piece] or self.kinds[piece].stage

    def where(self, piece: int) -> str:
        """Is it "in" that stage, or "before" it?"""
        return BEFORE if self.is_gap(piece) else IN

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

    def once(self, name: str, make: Callable[[], T]) -> T:
        """What is computed of it for several tables, and kept under that name."""
        if name not in self.kept:
            self.kept[name] = make()
        return cast("T", self.kept[name])

    def without(self, steps: Iterable[int]) -> RoleRun:
        """The same without these steps."""
        keep = ~np.isin(self.steps, list(steps))
        if keep.all():
            return self
        places = np.cumsum(keep) - 1
        names = ("steps", "came_s", "done_s", "own_s", "wait_s", "inside_s", "work")
        links = tuple((int(places[at]), piece, who, took) for at, piece, who, took in self.links if keep[at])
        cut = tuple(each for each, is_kept in zip(self.cut, keep) if is_kept)
        return replace(self, **{name: getattr(self, name)[keep] for name in names}, links=links, cut=cut, kept={})

    def spans_s(self) -> tuple[Seconds, Seconds]:
        """(T,) when each step began, the first member's begin, and when the last member was done with it."""
        with np.errstate(all="ignore"):
            began = np.fmin.reduce(np.fmin.reduce(self.came_s, axis=2), axis=1)
            return began, np.fmax.reduce(np.fmax.reduce(self.done_s, axis=2), axis=1)

    def length_s(self) -> Seconds:
        """(T,) seconds of each step: since the end of the one before, where a member of it did that; else its begin."""
        return self.once("lengths of steps", self._length_s)

    def _length_s(self) -> Seconds:
        began, ended = self.spans_s()
        here = np.isfinite(self.came_s).any(axis=2)
        goes_on = (here & np.roll(here, 1, axis=0)).any(axis=1)
        follows = goes_on & (np.diff(self.steps, prepend=self.steps[:1] - 2) == 1)
        return np.where(follows, ended - np.roll(ended, 1), ended - began)

    def step_s(self) -> float:
        """Seconds that a step takes, in the mean; 0 where that is not known."""
        lengths = self.length_s()
        lasting = lengths[np.isfinite(lengths)]
        return float(lasting.mean()) if len(lasting) else 0.0


def of_steps(steps: Iterable[RoleStep]) -> tuple[RoleRun, ...]:
    """One for each role, by name.

    Args:
        steps: Of any roles, in any order; of two of one role and number the one with collectives counts.
    """
    by_role: dict[str, dict[int, RoleStep]] = {}
    for step in steps:
        of_role = by_role.setdefault(step.role, {})
        before = of_role.get(step.step)
        if before is None or before.collectives is None or step.collectives is not None:
            of_role[step.step] = step
    whole = WholeRun(_last_steps([of_role[number] for of_role in by_role.values() for number in sorted(of_role)]))
    cut: dict[str, list[CutStep]] = {}
    for each in whole.steps:
        if each.pieces.kinds:
            cut.setdefault(each.step.role, []).append(each)
    members = {role: _members(of_role) for role, of_role in cut.items()}
    rows_at: dict[tuple[str, int], Whole] = {}
    for role, every in cut.items():
        places = {shaping.key_of(peer): place for place, peer in enumerate(members[role])}
        for each in every:
            members_of_step = [places[shaping.key_of(peer)] for peer in each.step.members]
            rows_at[role, each.step.step] = np.array(members_of_step, np.int64)
    return tuple(_of_role(whole, members[role], cut[role], rows_at) for role in sorted(cut))


def _last_steps(steps: list[RoleStep]) -> Iterator[RoleStep]:
    """Of each role, as many as there is room for."""
    for _, of_role in groupby(steps, key=lambda step: step.role):
        every = list(of_role)
        widest = max(1, max(len(step.members) * 2 * len(step.stages) for step in every))
        yield from every[-max(1, CELLS_AT_MOST // widest) :]


def _of_role(
    whole: WholeRun, members: tuple[Peer, ...], cut: list[CutStep], rows_at: dict[tuple[str, int], Whole]
) -> RoleRun:
    role = cut[0].step.role
    kinds, owners = _in_order(cut)
    seen = _Seen(members, kinds, len(cut))
    for at, each in enumerate(cut):
        seen.fill(at, each, rows_at[role, each.step.step])
    labels, mode = seen.labels(), whole.modes(role, kinds)
    for piece in np.flatnonzero(mode == UNKNOWN).tolist():
        if seen.seems_to_wait(piece, labels[:, piece]):
            mode[piece] = WAITS
    own, wait = seen.took.copy(), np.full(seen.took.shape, np.nan)
    rows = [whole.rows(role, kind, members) if mode[at] == IN_A_ROW else None for at, kind in enumerate(kinds)]
    for piece in range(len(kinds)):
        own[:, :, piece], wait[:, :, piece] = seen.apart(piece, int(mode[piece]), labels[:, piece], rows[piece])
    return RoleRun(
        role, members, kinds, owners, np.array([each.step.step for each in cut], np.int64), seen.came, seen.done, own,
        wait, mode, labels, seen.inside, tuple(seen.links), seen.work, seen.error, tuple(rows),
        tuple(map(_but_times, cut)), rows_at,
    )  # fmt: skip


def _but_times(cut: CutStep) -> CutStep:
    """Without what the arrays of the run have too."""
    nothing = np.zeros((0, 0))
    return cut._replace(
        pieces=cut.pieces._replace(came_s=nothing, done_s=nothing, took_s=nothing, error_s=nothing)
    )  # fmt: skip


class _Seen:
    """What the steps of a role show of its members' pieces, step by step."""

    def __init__(self, members: tuple[Peer, ...], kinds: tuple[Piece, ...], steps: int) -> None:
        self._kinds = kinds
        shape = steps, len(members), len(kinds)
        self.came, self.done, self.took, self.inside, self._lag, self._between = (
            np.full(shape, np.nan) for _ in range(6)
        )  # fmt: skip
        self.work, self.error = np.full((*shape, 3), np.nan), np.zeros(len(members))
        self.links: list[tuple[int, int, tuple[int, ...], float]] = []
        self._met: dict[int, set[tuple[int, ...]]] = {}

    def fill(self, at: int, cut: CutStep, rows: Whole) -> None:
        """One step more; its members are those in these rows."""
        step, pieces, feeds = cut
        columns = [self._kinds.index(kind) for kind in pieces.kinds]
        here: tuple[Any, ...] = np.ix_(np.array([at]), rows, np.array(columns, np.int64))
        for array, values in zip((self.came, self.done, self.took), (pieces.came_s, pieces.done_s, pieces.took_s)):
            array[here] = values[None]
        is_stage = np.array([kind.where != BEFORE for kind in pieces.kinds])
        for number, values in enumerate(step.work):
            self.work[here + (number,)] = np.where(is_stage, values[:, pieces.stages], np.nan)[None]
        for column, feed in zip(columns, feeds):
            self._lag[at, rows, column] = np.nan if feed is None else feed.lag_s
        np.maximum.at(self.error, rows, step.error_s)
        if step.collectives is not None:
            self._look_inside(at, step, rows)

    def _look_inside(self, at: int, step: RoleStep, rows: Whole) -> None:
        """Own times between collectives, what the collectives took, and who met in each piece."""
        rings = step.collectives
        assert rings is not None
        tells = inside(step, rings)
        of_stage = {
            n: self._kinds.index(Piece(IN, s)) for n, s in enumerate(step.stages) if Piece(IN, s) in self._kinds
        }
        entered, between = tells.entered, tells.entered.behind_s.copy()
        np.add.at(between, (entered.rings.member, entered.rings.stage), entered.own_s)
        for stage, piece in of_stage.items():
            self.inside[at, rows, piece] = tells.own_s[:, stage]
            self._between[at, rows, piece] = between[:, stage]
        who: dict[tuple[int, int], set[int]] = {}
        meeting = set[tuple[int, int]]()
        columns = (rings.member.tolist(), rings.group.tolist(), rings.stage.tolist(), rings.is_meeting.tolist())
        for member, group, stage, is_meeting in set(zip(*columns)):
            if stage in of_stage and 0 <= member < len(rows):
                who.setdefault((of_stage[stage], group), set()).add(int(rows[member]))
                meeting |= {(of_stage[stage], group)} if is_meeting else set()
        for piece, group in meeting:
            self._met.setdefault(piece, set()).add(tuple(sorted(who[piece, group])))
        self.links += [
            (at, of_stage[time.stage], tuple(sorted(who[of_stage[time.stage], time.group])), time.took_s)
            for time in tells.groups
            if time.stage in of_stage
        ]

    def labels(self) -> Whole:
        """(M, K) who meets whom. Nobody knows of gaps who does; where all stages have the same groups, it is these."""
        labels = np.zeros(self.took.shape[1:], np.int64)
        for piece, together in self._met.items():
            labels[:, piece] = _connected(len(labels), together)
        of_stages = [labels[:, piece] for piece in range(labels.shape[1]) if labels[:, piece].any()]
        if of_stages and all((other == of_stages[0]).all() for other in of_stages):
            return np.repeat(of_stages[0][:, None], labels.shape[1], axis=1)
        return labels

    def seems_to_wait(self, piece: int, labels: Whole) -> bool:
        """Where the judge does not know, as times do not change or steps are few: does the time fall by as much as a
        member comes later, for sure, and are members closer together after?
        """
        before, after, longer = (
            meeting.after_those(part[:, :, piece].T, labels).T for part in (self.came, self.done, self.took)
        )
        later = np.sign(before) * np.maximum(0.0, np.abs(before) - 2 * self.error)
        both = np.isfinite(later) & np.isfinite(longer)
        x, y = later[both], longer[both]
        spread = float(x @ x)
        if spread <= 0:
            return False
        slope = float(x @ y) / spread
        rest = float(((y - slope * x) ** 2).sum()) / max(1, len(x) - 1)
        with np.errstate(all="ignore"):
            closer = np.sqrt(np.nansum(after**2, axis=1) / np.nansum(before**2, axis=1))
        is_sure = slope + 2 * math.sqrt(rest / spread) < -0.5
        return is_sure and float(np.median(np.append(closer[np.isfinite(closer)], 1))) < _CLOSER

    def apart(self, piece: int, mode: int, labels: Whole, rows: Whole | None) -> tuple[Seconds, Seconds]:
        """(T, M) own time in a piece, and what each waited there."""
        came, done, took = (part[:, :, piece] for part in (self.came, self.done, self.took))
        if mode == WAITS:
            last = last_of(came, labels)
            return np.maximum(0.0, done - last), np.clip(last - came, 0.0, np.maximum(0.0, took))
        own = took
        if mode == FED:
            own = np.fmin(np.where(np.isfinite(took), np.nan_to_num(self._lag[:, :, piece]), np.nan), took)
        elif rows is not None:
            own = np.stack([after_the_row_before(rows, *each) for each in zip(took, done)])
        elif mode == HANDED:
            own = _between_entries(took, self._between[:, :, piece])
        return own, np.maximum(0.0, took - own)


def _between_entries(took: Seconds, between: Seconds) -> Seconds:
    """(T, M) own time where members send and receive; of steps of which no entries tell, by its share in the others."""
    with np.errstate(all="ignore"):
        share = middle_of(np.clip(between / took, 0.0, 1.0))
    return np.fmin(took, np.where(np.isfinite(between), between, took * np.where(np.isfinite(share), share, 1.0)))


def _members(cut: list[CutStep]) -> tuple[Peer, ...]:
    every = {shaping.key_of(peer): peer for each in cut for peer in each.step.members}
    return tuple(sorted(every.values(), key=lambda peer: (peer.rank is None, peer.rank or 0, peer.process)))


def _in_order(cut: list[CutStep]) -> tuple[tuple[Piece, ...], tuple[str, ...]]:
    """All pieces, by where they stand in the steps that have them, and of which stage each is."""
    seen: dict[Piece, list[float]] = {}
    owners: dict[Piece, str] = {}
    for each in cut:
        kinds = each.pieces.kinds
        owners.update(zip(kinds, each.pieces.owners))
        for place, kind in enumerate(kinds):
            seen.setdefault(kind, []).append(place / len(kinds))

    def key(kind: Piece) -> tuple[float, str, bool]:  # the gap before a stage stays before it
        by = kind if kind.where == REST else Piece(IN, kind.stage)
        return float(np.mean(seen[by])), kind.stage, kind.where == IN

    kinds = tuple(sorted(seen, key=key))
    return kinds, tuple(owners[kind] for kind in kinds)


def _connected(count: int, groups: Iterable[tuple[int, ...]]) -> Whole:
    """(count,) a number for each set of members that meet, directly or through others."""
    labels = np.arange(count)
    for group in groups:
        same = np.isin(labels, labels[list(group)])
        labels[same] = labels[same].min()
    return np.unique(labels, return_inverse=True)[1].reshape(-1).astype(np.int64)


def last_of(came: Seconds, labels: Whole) -> Seconds:
    """(T, M) when the last of those came whom a member meets."""
    return np.where(np.isfinite(came), meeting.last_of(came.T, labels).T, np.nan)


def shown_ns(seconds: float) -> int | None:
    """Whole ns; None of what is not known."""
    return round(seconds * 1e9) if np.isfinite(seconds) else None
