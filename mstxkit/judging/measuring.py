"""What each member's time in each piece of a step was, against what it should have been for the work it did."""

from __future__ import annotations

from typing import Any, Callable, Iterable, Mapping, NamedTuple, Optional

import numpy as np

from ..triggers.late_rank import after_others, middle_of
from .columns import JointEnds, OwnHistory, PieceColumns, Ranks, Regression, or_zero
from .cutting import BEFORE, IN, Piece, StepPieces, are_of
from .evidence import Matrix, RoleStep, Truths, Vector, Whole
from .in_a_row import RowOrder, Rows, after_the_row_before, waited_for_rows_behind
from .meeting import Labels, after_those, labels_in, last_of

BEHIND, BEHIND_GAP, INSIDE = "behind", "behind_gap", "inside"
# Of the work: tokens, responses, the longest response, and how often the stage was entered. As long as nothing else is
# known, time goes with the last: three rounds of generation take three times as long as one.
FEATURES = 4
_PRIOR = np.array([0.0, 0.0, 0.0, 1.0])
# Times are compared as logarithms of so much more: pieces shorter than this share of a step are all alike.
BASE_RATIO = 0.01
WAITS, FREE, UNKNOWN, FED, IN_A_ROW, HANDED = range(6)
# Time goes with the square of the work, at most: a little more of it does not explain a much longer time.
_CURVATURE = 2.0
# Nothing is learned of a member that may have waited for a larger share of its time (a logarithm).
_DOUBT = 0.1
# By so many standard deviations one half of the members lies apart from the other.
_APART = 6.0


class MeasuredStep(NamedTuple):
    """K pieces of a step, measured.

    Args:
        kinds: What each is; `where` is BEHIND for what a member does in a stage once all have been released in it.
        at: (K,) its column.
        mode: (K,) WAITS: it is over for all together; FREE: for each alone; FED: another side decides;
            IN_A_ROW: each row of members waits for the one before; HANDED: members send and receive in it, of which
            only its entries tell; UNKNOWN.
        came_s, done_s: (M, K) when each came to it, and was done.
        excess: (M, K) logarithm of time over what is expected for its work, less what may have been waiting.
        learned: (M, K) the same of those that have surely not waited; NaN of others.
        by_work: (M, K) logarithm of what is expected for its work over what is expected for the usual work.
        load: (M, K) logarithm of its work over the usual work, by the feature by which it is most.
        level: (K,) logarithm of the time that a member takes for usual work, of two that of the quicker one; where they
            wait, after the last came.
        work: (K, F) logarithm of the work: in the middle, and where all wait, the most of it.
        cost: (K, F) by how much the level goes with that.
        took_s: (M, K) each member's own time in it; where all wait, from when the last had come.
        usual_s: (K,) that in the middle; of two members that of the quicker one.
        owners: Of each the stage that its time is of; "": none.
        is_first: (K,) is it the gap before the step's first stage?
        error_s: (M,) bound of the error of each member's times.
        noise: (M, K) standard deviation of what is learned of each, from step to step.
        is_comparable: (K,) are members compared by it? In a role where nobody waits for anybody, a gap is idleness.
    """

    kinds: tuple[Piece, ...]
    at: Whole
    mode: Whole
    came_s: Matrix
    done_s: Matrix
    excess: Matrix
    learned: Matrix
    by_work: Matrix
    load: Matrix
    level: Vector
    work: Matrix
    cost: Matrix
    took_s: Matrix
    usual_s: Vector
    owners: tuple[str, ...]
    is_first: Truths
    error_s: Vector
    noise: Matrix
    is_comparable: Truths


class Norms:
    """What is usual in a role: who waits where, and what the work costs. Learned from its steps."""

    def __init__(self) -> None:
        self.columns, self.places = PieceColumns(), PieceColumns()
        self.waiting, self.regression = JointEnds(), Regression(FEATURES)
        self.collective_in: set[str] = set()
        self.handed_in: set[str] = set()
        self.regrouped: set[Piece] = set()  # of which it was just learned who meets there, or who decides them
        self.rows, self._of_members, self._of_places = RowOrder(), OwnHistory(), OwnHistory()
        self.fed: Mapping[Piece, str] = {}  # pieces that another side decides
        self.suspected: set[str] = set()  # stages in which something is slow: nothing is learned there of who waits
        self._meets: dict[str, Labels] = {}

    def learn_groups(self, step: RoleStep) -> None:
        """Who meets in which stage, as collectives tell. Own time there counts otherwise from then on."""
        self.regrouped.clear()
        rings = step.collectives
        if rings is None:
            return
        is_meeting, is_handed = rings.is_meeting, ~(rings.is_meeting | rings.is_taking)
        self.handed_in |= {step.stages[stage] for stage in np.unique(rings.stage[is_handed & (rings.stage >= 0)])}
        for stage in np.unique(rings.stage[is_meeting & (rings.stage >= 0)]).tolist():
            self.collective_in.add(step.stages[stage])
            labels, before = labels_in(rings, stage, len(step.members)), self._meets.get(step.stages[stage])
            if (labels is None) != (before is None):
                self.regrouped.add(Piece(BEHIND, step.stages[stage]))
            if labels is None:
                self._meets.pop(step.stages[stage], None)
            else:
                self._meets[step.stages[stage]] = labels

    def forget_groups(self) -> None:
        """Members have come or gone: who meets is to be learned anew."""
        self._meets.clear()
        self.waiting, self.rows = JointEnds(), RowOrder()
        self._of_members, self._of_places = OwnHistory(), OwnHistory()

    def meets(self, kinds: Iterable[Piece]) -> list[Labels | None]:
        """Who meets in each piece; None: all, or nobody is known to."""
        return [self._meets.get(stage) if where == IN else None for where, stage in kinds]

    def rows_of(self, kind: Piece) -> Rows | None:
        """(M,) the row of each member in a piece; None: they are in none."""
        return self.rows.of(self.places.find(kind))

    def learned_modes(self) -> dict[Piece, int]:
        """How each piece that was seen comes to be over."""
        kinds = tuple(kind for kind in self.places if isinstance(kind, Piece))
        return dict(zip(kinds, self.modes(kinds).tolist()))

    def last_came(self, pieces: StepPieces) -> Matrix:
        """(M, K) when the last came of those that each meets in a piece."""
        return _apply_to_each(self._by_group(pieces), last_of, pieces.came_s)

    def own_s(self, pieces: StepPieces, mode: Whole, last_came: Matrix) -> Matrix:
        """(M, K) each member's own time: where all wait, since the last came; in a row, since the row before was done.
        `last_came`: when the last came to each, as the function of that name tells.
        """
        own_s = np.where(mode == WAITS, np.maximum(0.0, pieces.done_s - last_came), pieces.took_s)
        for piece in np.flatnonzero(mode == IN_A_ROW).tolist():
            rows = self.rows_of(pieces.kinds[piece])
            if rows is not None:
                own_s[:, piece] = after_the_row_before(rows, pieces.took_s[:, piece], pieces.done_s[:, piece])
        return own_s

    def _by_group(self, pieces: StepPieces) -> list[tuple[Whole, Labels | None]]:
        """Places of pieces in which the same members meet, and who does."""
        sets: dict[int, tuple[list[int], Labels | None]] = {}
        for place, labels in enumerate(self.meets(pieces.kinds)):
            sets.setdefault(id(labels), ([], labels))[0].append(place)
        return [(np.array(places), labels) for places, labels in sets.values()]

    def measure(self, step: RoleStep, pieces: StepPieces, step_s: float, base_s: float, ranks: Ranks) -> MeasuredStep:
        """Measure one step, by what was learned from those before it."""
        place = self.places.of(pieces.kinds)
        mode = self.modes(pieces.kinds)
        behind = {(IN, WAITS): BEHIND, (BEFORE, WAITS): BEHIND_GAP, (BEFORE, FED): BEHIND_GAP}
        with_modes = zip(pieces.kinds, mode.tolist())
        kinds = tuple(Piece(behind.get((where, waits), where), stage) for (where, stage), waits in with_modes)
        at = self.columns.of(kinds)
        ranks.widen(len(self.columns))
        kept = (at >= 0) & (place >= 0)
        kinds = tuple(kind for kind, keep in zip(kinds, kept) if keep)
        return self._measured(step, pieces.only(kept), kinds, at[kept], mode[kept], step_s, base_s, ranks)

    def modes(self, kinds: tuple[Piece, ...]) -> Whole:
        """(K,) how each piece comes to be over, as far as is known."""
        place = self.places.of(kinds)
        slope, error = self.waiting.slopes(np.maximum(place, 0))
        mode = np.full(len(place), UNKNOWN)
        mode[slope + 3 * error < -0.5] = WAITS
        is_inside = are_of(kinds, INSIDE)
        meets = np.array([kind.stage in self.collective_in and kind.where == IN for kind in kinds], bool)
        mode[slope - 3 * error > -0.5] = FREE
        sureness = self.waiting.known(np.maximum(place, 0))
        mode[sureness > 0], mode[sureness < 0] = WAITS, FREE
        is_handed = np.array([kind.stage in self.handed_in and kind.where == IN for kind in kinds], bool)
        mode[[self.rows.of(column) is not None for column in place.tolist()]] = IN_A_ROW
        mode[meets & ~is_handed], mode[is_handed] = WAITS, HANDED
        mode[is_inside & (mode != IN_A_ROW)] = FREE
        mode[np.array([kind in self.fed for kind in kinds], bool)] = FED
        return mode

    def _measured(
        self, step: RoleStep, pieces: StepPieces, kinds: tuple[Piece, ...], at: Whole, mode: Whole,
        step_s: float, base_s: float, ranks: Ranks,
    ) -> MeasuredStep:  # fmt: skip
        waits, together, last_came = mode == WAITS, self._by_group(pieces), self.last_came(pieces)
        took, place = self.own_s(pieces, mode, last_came), self.places.of(pieces.kinds)
        features, load, work = _make_features(step, pieces, waits)
        slopes = self.regression.slopes(at) + _PRIOR
        most = _CURVATURE * np.abs(features).max(axis=2)
        predicted = np.clip(np.einsum("mkf,kf->mk", features, slopes), -most, most)
        is_theirs = ((mode == FED) & ~are_of(pieces.kinds, BEFORE)) | (mode == HANDED)
        times = np.where(is_theirs, np.nan, np.log(took + base_s))
        rest = times - predicted
        excess, level = _after_the_quicker(rest, ranks.usual_noise(at)), _usual_of(rest)
        if len(together) > 1:
            excess = np.where(waits, _apply_to_each(together, after_those, rest), excess)
            # The slowest group is what the others wait for later.
            has_groups = np.array([labels is not None for labels in self.meets(pieces.kinds)], bool)
            level = np.where(waits & has_groups, np.fmax.reduce(rest, axis=0), level)
        for piece in np.flatnonzero(mode == IN_A_ROW).tolist():
            is_learned = pieces.kinds[piece].stage not in self.suspected
            excess[:, piece] = self._of_members.excess(int(place[piece]), rest[:, piece], is_learned)
        excess[:, mode == FED] = np.nan
        places = _labels_of_places(step)
        if places is not None:
            own = np.flatnonzero((mode == FREE) | (mode == UNKNOWN))
            excess[:, own] = after_those(rest[:, own], places)
            for piece in own.tolist():
                excess[:, piece] += self._more_of_places(pieces, piece, int(place[piece]), rest[:, piece], places)
        # How much of its time a member may have waited, or its clock may be wrong.
        doubt_s = np.where(mode == UNKNOWN, last_came - pieces.came_s + pieces.error_s, 0.0)
        doubt_s = or_zero(
            np.where((mode == WAITS) | (mode == IN_A_ROW) | are_of(pieces.kinds, INSIDE), pieces.error_s, doubt_s)
        )
        self._doubt_rows(doubt_s, pieces, mode, (took + base_s) * -np.expm1(-excess))
        sure = np.log(np.maximum(took - doubt_s, 0.0) + base_s) - times
        learned = np.where(sure > -_DOUBT, excess, np.nan)
        noise = ranks.noise(at, learned)
        self._learn(step, pieces, at, times, features, learned / noise, step_s, together, ranks)
        # Of these it is not known yet whether others wait there for who comes before them.
        is_open = (self.waiting.known(np.maximum(place, 0)) == 0) & ((mode == UNKNOWN) | waits)
        is_inside = are_of(kinds, INSIDE)
        may_be = [self.rows.may_be(*each) for each in zip(place.tolist(), is_inside.tolist())]
        may_be_in_a_row = np.array(may_be, bool) & (is_inside | is_open)
        # Time is taken to go with tokens where all wait, until more is known.
        usual = np.where(waits[:, None], np.array([1.0, 0.0, 0.0, 1.0]), slopes)
        return MeasuredStep(
            kinds, at, mode, pieces.came_s, pieces.done_s, np.where(sure < 0, excess + sure, excess), learned,
            after_others(predicted), load, level, work, usual, took,
            _usual_of(took), pieces.owners, pieces.is_first, step.error_s, noise,
            _find_comparable(kinds, mode, pieces, step_s) & ~may_be_in_a_row,
        )  # fmt: skip

    def _more_of_places(self, pieces: StepPieces, piece: int, column: int, times: Vector, places: Labels) -> Vector:
        """(M,) by how much more each place takes than it did, where the others do not."""
        of_places = np.array([middle_of(times[places == place]) for place in range(int(places.max()) + 1)])
        is_learned = pieces.kinds[piece].stage not in self.suspected
        more = self._of_places.excess(column, of_places, is_learned)
        return np.where(np.isnan(more), 0.0, more)[places]

    def _doubt_rows(self, doubt_s: Matrix, pieces: StepPieces, mode: Whole, more_s: Matrix) -> None:
        """Who comes after a row that takes more than usual has waited for it: where stages take turns, in each of them.
        Of a piece that ends while work comes back in another one, as forwards do while there are backwards, those
        before them may have waited for rows behind, too.
        """
        in_rows = np.flatnonzero((mode == IN_A_ROW) & are_of(pieces.kinds, IN)).tolist()
        came_s, done_s = (middle_of(times[:, in_rows]) for times in (pieces.came_s, pieces.done_s))
        is_amid: Any = ((came_s < done_s[:, None]) & (done_s[:, None] < done_s)).any(axis=1)
        in_all_s = np.maximum(0.0, np.nansum(more_s[:, in_rows], axis=1))
        for piece, waits_behind in zip(in_rows, is_amid.tolist()):
            if (rows := self.rows_of(pieces.kinds[piece])) is not None:
                doubt_s[:, piece] += waited_for_rows_behind(int(rows.max()) - rows, in_all_s)
                doubt_s[:, piece] += waits_behind * waited_for_rows_behind(rows, more_s[:, piece])

    def _learn(
        self, step: RoleStep, pieces: StepPieces, at: Whole, times: Matrix, features: Matrix, off: Matrix,
        step_s: float, together: _Together, ranks: Ranks,
    ) -> None:  # fmt: skip
        came, error = _apply_to_each(together, after_those, pieces.came_s), step.error_s[:, None]
        came = np.sign(came) * np.maximum(0.0, np.abs(came) - 2 * error)
        took = _apply_to_each(together, after_those, pieces.took_s)
        place = self.places.of(pieces.kinds)
        heard = np.array([kind.stage not in self.suspected for kind in pieces.kinds], bool)
        self.waiting.learn(place[heard], came[:, heard] / step_s, took[:, heard] / step_s)
        # Between collectives nobody is known to wait: there all are looked at, unless sends tell who hands over.
        is_open = heard & (self.waiting.known(np.maximum(place, 0)) == 0)
        may_be = np.where(are_of(pieces.kinds, INSIDE), not self.handed_in, is_open)
        for piece in np.flatnonzero(may_be).tolist():
            came_s, done_s = pieces.came_s[:, piece], pieces.done_s[:, piece]
            is_looked_at = pieces.kinds[piece].where in (IN, INSIDE)
            if is_looked_at and self.rows.learn(int(place[piece]), came_s, done_s, step_s):
                ranks.begin_anew(at[piece])  # who waited for the row before looked slow
        with np.errstate(invalid="ignore", divide="ignore"):
            weights = np.where(np.isfinite(off), np.minimum(1.0, 3 / np.abs(off)), 0.0)
        times = times - features @ _PRIOR
        self.regression.learn(at, features, times - middle_of(times), weights)


def _after_the_quicker(values: Matrix, noise: Vector) -> Matrix:
    """(M, K) each value against the middle of the others; where half of them lie clearly apart from the other half,
    against the middle of the quicker half: of a job of two hosts one may be slow.
    """
    off, count = after_others(values), len(values)
    if count < 4 or count % 2 or np.isnan(values).all():
        return off
    ordered = np.sort(values, axis=0)
    half = count // 2
    gap, within = (
        ordered[half] - ordered[half - 1],
        np.fmax(ordered[half - 1] - ordered[0], ordered[-1] - ordered[half]),
    )
    are_apart = (gap > _APART * noise) & (gap > within)
    return np.where(are_apart[None, :], values - middle_of(ordered[:half])[None, :], off) if are_apart.any() else off


def _usual_of(values: Matrix) -> Vector:
    """(K,) in the middle; of two members that of the quicker one."""
    return np.where(np.isfinite(values).sum(axis=0) == 2, np.fmin.reduce(values, axis=0), middle_of(values))


_Together = list[tuple[Whole, Optional[Labels]]]


def _apply_to_each(together: _Together, of: Callable[[Matrix, Labels | None], Matrix], values: Matrix) -> Matrix:
    """Apply to the pieces of each set of members that meet."""
    if len(together) == 1:
        return of(values, together[0][1])
    result = np.empty_like(values)
    for places, labels in together:
        result[:, places] = of(values[:, places], labels)
    return result


def _labels_of_places(step: RoleStep) -> Labels | None:
    """(M,) a number for each part of the model; None where they are not known, or all have the same."""
    names = [peer.place for peer in step.members]
    if not all(names) or len(set(names)) < 2:
        return None
    return np.unique(names, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _find_comparable(kinds: tuple[Piece, ...], mode: Whole, pieces: StepPieces, step_s: float) -> Truths:
    with np.errstate(all="ignore"):
        apart_s = np.fmax.reduce(pieces.came_s, axis=0) - np.fmin.reduce(pieces.came_s, axis=0)
    go_together = bool(np.nanmin(apart_s, initial=np.inf) < 0.5 * step_s) and bool(len(apart_s))
    is_gap = are_of(kinds, BEFORE, BEHIND_GAP)
    is_compared = ~is_gap | (mode == WAITS).any() | (mode == FED) | (go_together & pieces.is_first)
    return np.asarray(is_compared & (mode != HANDED) & ((mode != FED) | is_gap))


def _make_features(step: RoleStep, pieces: StepPieces, waits: Truths) -> tuple[Matrix, Matrix, Matrix]:
    """(M, K, F) logarithms of the work against the middle; (M, K) the largest of them; (K, F) what all did.

    0 where nothing is known of it, and in gaps.
    """
    in_stage = ~are_of(pieces.kinds, BEFORE)
    if np.isnan(step.work).all() and (step.occurrences <= 1).all():
        nothing = np.zeros(pieces.took_s.shape)
        return np.zeros((*nothing.shape, FEATURES)), nothing, np.zeros((len(waits), FEATURES))
    raw = np.stack([values[:, pieces.stages] for values in (*step.work, step.occurrences)], axis=2)
    raw = np.log(np.where(in_stage[None, :, None] & (raw > 0), raw, np.nan))
    features = raw - middle_of(raw)
    is_known = np.isfinite(features)
    work = np.where(waits[:, None], np.fmax.reduce(raw, axis=0), middle_of(raw))
    features = np.where(is_known, features, 0.0)
    return features, features.max(axis=2), or_zero(work)
