"""All steps of a role as arrays: cut into pieces, each member's own time in a piece apart from what it waits there.

Everything that says where a step's time goes (bubbles, critical path, stragglers, what-if) is made of these.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, Iterable, NamedTuple, TypeVar, cast

import numpy as np
import numpy.typing as npt

from ..judging import cutting, shaping
from ..judging import inside as judging_inside
from ..judging.cutting import BEFORE, IN, Piece
from ..triggers.late_rank import middle_of

if TYPE_CHECKING:
    from ..judging.evidence import Peer, RoleStep

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
        steps: (T,) numbers of the steps.
        came_s, done_s: (T, M, K) seconds when a member came to a piece and was done with it; NaN: it was not there.
        own_s: (T, M, K) seconds of its own there: of a piece in which members wait, since the last of them has come.
        wait_s: (T, M, K) seconds that it waited there until then; 0 where nobody waits.
        waits: (K,) do members wait for each other in that piece?
        labels: (M, K) who waits for whom there: members of one number.
        inside_s: (T, M, K) own seconds between the collectives of a stage; NaN where nothing tells of them.
        links: Of each step, stage and group what its collectives took: (place of the step, piece, members, seconds).
        work: (T, M, K, 3) tokens, responses, longest response; NaN where nobody says so.
        error_s: (M,) bound of the error of a member's times against the others'.
        kept: What `once` has made.
    """

    role: str
    members: tuple[Peer, ...]
    kinds: tuple[Piece, ...]
    steps: Whole
    came_s: Seconds
    done_s: Seconds
    own_s: Seconds
    wait_s: Seconds
    waits: Truths
    labels: Whole
    inside_s: Seconds
    links: tuple[tuple[int, int, tuple[int, ...], float], ...]
    work: Seconds
    error_s: Seconds
    kept: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def ranks(self) -> list[int | None]:
        """(M,) the rank of each member."""
        return [peer.rank for peer in self.members]

    @property
    def is_free(self) -> bool:
        """Does nobody wait for anybody here?"""
        return not self.waits.any()

    def once(self, name: str, make: Callable[[], T]) -> T:
        """What is computed of it for several tables, and kept under that name."""
        if name not in self.kept:
            self.kept[name] = make()
        return cast("T", self.kept[name])

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
    for step in map(shaping.compared, steps):
        if np.isfinite(step.entered_s).any():
            of_role = by_role.setdefault(step.role, {})
            before = of_role.get(step.step)
            if before is None or before.collectives is None or step.collectives is not None:
                of_role[step.step] = step
    runs = (_of_role([of_role[number] for number in sorted(of_role)]) for _, of_role in sorted(by_role.items()))
    return tuple(run for run in runs if run is not None)


def _of_role(steps: list[RoleStep]) -> RoleRun | None:
    widest = max(len(step.members) * 2 * len(step.stages) for step in steps)
    steps = steps[-max(1, CELLS_AT_MOST // widest) :]
    members = _members(steps)
    places = {shaping.key_of(peer): place for place, peer in enumerate(members)}
    cut = _cut(steps, places)
    kinds = _in_order([pieces.kinds for pieces, _ in cut])
    if not kinds:
        return None
    shape = len(steps), len(members), len(kinds)
    arrays = [np.full(shape, np.nan) for _ in range(4)]
    work, error = np.full((*shape, 3), np.nan), np.zeros(len(members))
    for at, (step, (pieces, rows)) in enumerate(zip(steps, cut)):
        columns = [kinds.index(kind) for kind in pieces.kinds]
        here: tuple[Any, ...] = np.ix_(np.array([at]), rows, np.array(columns, np.int64))
        for array, values in zip(arrays, (pieces.came_s, pieces.done_s, pieces.took_s)):
            array[here] = values[None]
        is_stage = np.array([kind.where == IN for kind in pieces.kinds])
        for number, values in enumerate(step.work):
            work[here + (number,)] = np.where(is_stage, values[:, pieces.stages], np.nan)[None]
        np.maximum.at(error, rows, step.error_s)
    links, meets = _inside(steps, cut, kinds, arrays[3])
    return _apart(steps, members, kinds, arrays, _Met(tuple(links), meets), work, error)


class _Met(NamedTuple):
    """What collectives tell: what they took, and of each piece who met in it."""

    links: tuple[tuple[int, int, tuple[int, ...], float], ...]
    meets: dict[int, list[tuple[int, ...]]]


def _members(steps: list[RoleStep]) -> tuple[Peer, ...]:
    every = {shaping.key_of(peer): peer for step in steps for peer in step.members}
    return tuple(sorted(every.values(), key=lambda peer: (peer.rank is None, peer.rank or 0, peer.process)))


def _cut(steps: list[RoleStep], places: dict[str, int]) -> list[tuple[cutting.StepPieces, Whole]]:
    """Each step in pieces, and the places of its members."""
    ended, number = np.full(len(places), np.nan), -2
    cut: list[tuple[cutting.StepPieces, Whole]] = []
    for step in steps:
        rows = np.array([places[shaping.key_of(peer)] for peer in step.members], np.int64)
        before = ended[rows] if step.step == number + 1 else None
        cut.append((cutting.in_pieces(step, before), rows))
        ended, number = np.full(len(places), np.nan), step.step
        ended[rows] = np.fmax.reduce(step.left_s, axis=1)
    return cut


def _in_order(kinds: list[tuple[Piece, ...]]) -> tuple[Piece, ...]:
    """All pieces, by where they stand in the steps that have them."""
    seen: dict[str, list[float]] = {}
    for of_step in kinds:
        for place, kind in enumerate(of_step[1::2]):
            seen.setdefault(kind.stage, []).append(place / max(1, len(of_step)))
    ordered = sorted(seen, key=lambda stage: (float(np.mean(seen[stage])), stage))
    return tuple(Piece(where, stage) for stage in ordered for where in (BEFORE, IN))


def _inside(
    steps: list[RoleStep], cut: list[tuple[cutting.StepPieces, Whole]], kinds: tuple[Piece, ...], own: Seconds
) -> tuple[list[tuple[int, int, tuple[int, ...], float]], dict[int, list[tuple[int, ...]]]]:
    """Fill in own times between collectives; what the collectives took, and who met in each piece."""
    links: list[tuple[int, int, tuple[int, ...], float]] = []
    meets: dict[int, list[tuple[int, ...]]] = {}
    for at, (step, (_, rows)) in enumerate(zip(steps, cut)):
        if step.collectives is None:
            continue
        tells = judging_inside.inside(step, step.collectives)
        piece_of = {n: kinds.index(Piece(IN, s)) for n, s in enumerate(step.stages) if Piece(IN, s) in kinds}
        for number, piece in piece_of.items():
            own[at, rows, piece] = tells.own_s[:, number]
        who: dict[tuple[int, int], set[int]] = {}
        rings = step.collectives
        for member, group, stage in set(zip(rings.member.tolist(), rings.group.tolist(), rings.stage.tolist())):
            if stage in piece_of and 0 <= member < len(rows):
                who.setdefault((piece_of[stage], group), set()).add(int(rows[member]))
        for (piece, _), together in who.items():
            meets.setdefault(piece, []).append(tuple(sorted(together)))
        links += [
            (at, piece_of[time.stage], tuple(sorted(who[piece_of[time.stage], time.group])), time.took_s)
            for time in tells.groups
            if time.stage in piece_of
        ]
    return links, meets


def _apart(
    steps: list[RoleStep], members: tuple[Peer, ...], kinds: tuple[Piece, ...], arrays: list[Seconds], met: _Met,
    work: Seconds, error: Seconds,
) -> RoleRun:  # fmt: skip
    """Put own time and waiting apart."""
    came, done, took, inside = arrays
    labels = np.zeros((len(members), len(kinds)), np.int64)
    for piece, together in met.meets.items():
        labels[:, piece] = _connected(len(members), set(together))
    labels = _of_gaps_too(labels, kinds)
    waits = _waiting(came, done, took, labels, error)
    waits |= np.array([piece in met.meets for piece in range(len(kinds))])
    own, wait = took.copy(), np.where(np.isfinite(took), 0.0, np.nan)
    for piece in np.flatnonzero(waits).tolist():
        last = last_of(came[:, :, piece], labels[:, piece])
        own[:, :, piece] = np.maximum(0.0, done[:, :, piece] - last)
        wait[:, :, piece] = np.clip(last - came[:, :, piece], 0.0, np.maximum(0.0, took[:, :, piece]))
    numbers = np.array([step.step for step in steps], np.int64)
    return RoleRun(
        steps[0].role, members, kinds, numbers, came, done, own, wait, waits, labels, inside, met.links, work, error
    )


def _of_gaps_too(labels: Whole, kinds: tuple[Piece, ...]) -> Whole:
    """Nobody knows of gaps who meets in them; where all stages have the same groups, it is these."""
    of_stages = [labels[:, piece] for piece in range(len(kinds)) if labels[:, piece].any()]
    if of_stages and all((other == of_stages[0]).all() for other in of_stages):
        return np.repeat(of_stages[0][:, None], len(kinds), axis=1)
    return labels


def _connected(count: int, groups: Iterable[tuple[int, ...]]) -> Whole:
    """(count,) a number for each set of members that meet, directly or through others."""
    labels = np.arange(count)
    for group in groups:
        same = np.isin(labels, labels[list(group)])
        labels[same] = labels[same].min()
    return np.unique(labels, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _waiting(came: Seconds, done: Seconds, took: Seconds, labels: Whole, error: Seconds) -> Truths:
    """(K,) where the time falls by as much as a member comes later, for sure, and members are closer together after."""
    with np.errstate(all="ignore"):
        later = np.stack([_off(came[:, :, k], labels[:, k]) for k in range(came.shape[2])], axis=2)
        later = np.sign(later) * np.maximum(0.0, np.abs(later) - 2 * error[None, :, None])
        longer = np.stack([_off(took[:, :, k], labels[:, k]) for k in range(came.shape[2])], axis=2)
        both = np.isfinite(later) & np.isfinite(longer)
        x, y = np.where(both, later, 0.0), np.where(both, longer, 0.0)
        spread = (x * x).sum(axis=(0, 1))
        slope = (x * y).sum(axis=(0, 1)) / spread
        rest = ((y - slope * x) ** 2).sum(axis=(0, 1)) / np.maximum(1, both.sum(axis=(0, 1)) - 1)
        is_sure = (spread > 0) & (slope + 2 * np.sqrt(rest / spread) < -0.5)
        return np.asarray(is_sure & _gather(came, done, labels))


def _gather(came: Seconds, done: Seconds, labels: Whole) -> Truths:
    """(K,) are members closer together when they are done than when they came? A single late one does not count."""
    closer = np.zeros(came.shape[2], bool)
    for k in range(came.shape[2]):
        before, after = _off(came[:, :, k], labels[:, k]), _off(done[:, :, k], labels[:, k])
        ratios = (spread(after) / spread(before) for spread in (_mean_off, _middle_off))
        closer[k] = any(np.median(np.append(ratio[np.isfinite(ratio)], 1.0)) < _CLOSER for ratio in ratios)
    return closer


def _mean_off(values: Seconds) -> Seconds:
    """(T,) how far the members are from their mean, in the mean of squares."""
    squares = np.nan_to_num(values**2).sum(axis=1)
    return np.asarray(np.sqrt(squares / np.isfinite(values).sum(axis=1)))


def _middle_off(values: Seconds) -> Seconds:
    """(T,) how far the members are from their middle, in the middle."""
    return middle_of(np.abs(values - middle_of(values.T)[:, None]).T)


def _off(values: Seconds, labels: Whole) -> Seconds:
    """(T, M) against the mean of those that a member meets."""
    off = np.full(values.shape, np.nan)
    for label in np.unique(labels):
        own = values[:, labels == label]
        count = np.maximum(1, np.isfinite(own).sum(axis=1, keepdims=True))
        off[:, labels == label] = own - np.nansum(own, axis=1, keepdims=True) / count
    return off


def last_of(came: Seconds, labels: Whole) -> Seconds:
    """(T, M) when the last of those came whom a member meets."""
    last = np.full(came.shape, np.nan)
    for label in np.unique(labels):
        members = labels == label
        last[:, members] = np.fmax.reduce(came[:, members], axis=1)[:, None]
    return np.where(np.isfinite(came), last, np.nan)


def of_gap(kind: Piece) -> bool:
    """Is it the gap before a stage?"""
    return kind.where == BEFORE


def shown_ns(seconds: float) -> int | None:
    """Whole ns; None of what is not known."""
    return round(seconds * 1e9) if np.isfinite(seconds) else None
