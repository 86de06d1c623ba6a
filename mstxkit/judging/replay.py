"""Steps of a job gone through again without some of their time: by how much earlier each member would be done.

Who hands over to whom stays as it was. What one member loses the others lose only as far as they wait for it: where
another one is nearly as late, or something else takes as long, little is won.
"""

from __future__ import annotations

from typing import Mapping, NamedTuple, Sequence

import numpy as np

from ..triggers.late_rank import middle_of
from .cutting import BEFORE, IN, REST, Piece, are_of
from .evidence import Matrix, Peer, Truths, Vector, Whole
from .in_a_row import Rows, handed_on
from .inside import Entered
from .measuring import BEHIND_GAP, FED, FREE, HANDED, WAITS
from .meeting import Labels, last_of

Place = tuple[str, int]
# Members that begin so far apart, as a share of a step, do not go through it together.
_APART = 0.5
# Of a stage with more collectives than this, what is taken away is taken to be lost to all.
_CALLS_AT_MOST = 20_000


class Feed(NamedTuple):
    """By whom a piece was over for each of M members.

    Args:
        courses: Steps of roles in which that happened.
        course: (M,) which of these; -1: nobody that is known of.
        member: (M,) which member of it.
        stage: The stage at whose end it did.
        lag_s: (M,) how long after that.
    """

    courses: tuple[Place, ...]
    course: Whole
    member: Whole
    stage: str
    lag_s: Vector


class Course(NamedTuple):
    """How M members of a role have gone through a step.

    Args:
        role, step, members: Whose it is, which, and who they are.
        kinds: K pieces in their order: stages, and the gaps before them.
        stages: (K,) index of the stage of each.
        mode: (K,) WAITS where it is over for all together, FED where another side decides.
        came_s, done_s: (M, K) when each came to it, and was done.
        took_s, wait_s: (M, K) its own time in it, where it waits since the last had come; and what it waited.
        meets: Of each piece, who meets there; None: all.
        feeds: Of each piece that is FED by whom; None: nobody is known.
        rows: Of each piece that is IN_A_ROW the row of each member; None: it is not.
        began_s, ended_s: (M,) when each was done with the step before, else came to this one; and with this one.
        entered: Into collectives; None where nobody tells of them.
        inside_s: (M, S) own time inside of the stages, as collectives tell; NaN where they do not.
        inside_wait_s, uneven_s: (M, K) of `took_s` what it waited in these collectives; and by how much its own time
            before them was longer than the mean, all of it together; 0 where nothing tells of it.
    """

    role: str
    step: int
    members: tuple[Peer, ...]
    kinds: tuple[Piece, ...]
    stages: Whole
    mode: Whole
    came_s: Matrix
    done_s: Matrix
    took_s: Matrix
    wait_s: Matrix
    meets: tuple[Labels | None, ...]
    feeds: tuple[Feed | None, ...]
    rows: tuple[Rows | None, ...]
    began_s: Vector
    ended_s: Vector
    entered: Entered | None
    inside_s: Matrix
    inside_wait_s: Matrix
    uneven_s: Matrix

    @property
    def place(self) -> Place:
        """Its role and step."""
        return self.role, self.step

    def piece(self, where: str, stage: str) -> int:
        """The place of a piece, by what it is called where it is judged; -1: it is not there."""
        in_course = BEFORE if where in (BEFORE, BEHIND_GAP) else REST if where == REST else IN
        wanted = Piece(in_course, stage)
        return self.kinds.index(wanted) if wanted in self.kinds else -1

    @property
    def is_free(self) -> bool:
        """Does nobody wait for anybody here, as among the rollouts of async RL? Then a step lasts as it does in the
        mean: what one member loses the others do not.
        """
        is_stage = are_of(self.kinds, IN)
        if (self.mode == WAITS).any() or any(feed is not None for feed in self.feeds):
            return False
        # Or are members not even in the same step at the same time?
        apart_s = np.nanmax(self.began_s, initial=-np.inf) - np.nanmin(self.began_s, initial=np.inf)
        is_apart = apart_s > _APART * np.nanmean(self.ended_s - self.began_s)
        return bool(np.isin(self.mode, (FREE, FED))[is_stage].all() or is_apart)

    def over_s(self, at_s: Vector, those: Truths) -> float:
        """When a step begins or is over for all of those."""
        return float(np.nanmean(at_s[those]) if self.is_free else np.fmax.reduce(at_s[those]))


class Less(NamedTuple):
    """What is taken away of one piece of a step.

    Args:
        piece: In which piece.
        seconds: (M,) of each member's own time.
        is_inside: Between the collectives of that stage.
        of_groups: Of the collectives of groups in that stage.
    """

    piece: int
    seconds: Vector
    is_inside: bool = False
    of_groups: Mapping[int, float] = {}


def leads_of(courses: Sequence[Course], less: Mapping[Place, Sequence[Less]]) -> dict[Place, Matrix]:
    """Of each step (M, K + 1): by how much earlier each member begins with it, and is done with each piece. `courses`:
    steps of all roles that have to do with each other, in the order in which they were over.
    """
    walk = _Replay(courses, less)
    # Members of a role may be steps apart: who is handed something by who comes later here learns of it the next time.
    for _ in range(2 if any(feed is not None for course in courses for feed in course.feeds) else 1):
        walk.go()
    return walk.leads


class _Replay:
    """Goes through the pieces of all steps in the order in which they were over. `leads`: as of `leads_of`."""

    def __init__(self, courses: Sequence[Course], less: Mapping[Place, Sequence[Less]]) -> None:
        self._courses = {course.place: course for course in courses}
        self._less = {place: [*parts] for place, parts in less.items()}
        self.leads = {place: np.zeros((len(of.ended_s), len(of.kinds) + 1)) for place, of in self._courses.items()}
        self._before: dict[Place, Course] = {}
        newest: dict[str, Course] = {}
        for course in courses:
            before = newest.get(course.role)
            if before is not None and before.members == course.members and before.step < course.step:
                self._before[course.place] = before
            newest[course.role] = course
        # By when each piece was over for half of the members; no sooner than the one before it.
        over_s = [np.maximum.accumulate(np.nan_to_num(middle_of(course.done_s), nan=-np.inf)) for course in courses]
        self._order = sorted(
            (at_s, number, at) for number, of in enumerate(over_s) for at, at_s in enumerate(of.tolist())
        )
        self._places = [course.place for course in courses]

    def go(self) -> None:
        """Once through all of them."""
        for _, number, at in self._order:
            course = self._courses[self._places[number]]
            leads = self.leads[course.place]
            if at == 0:
                before = self._before.get(course.place)
                leads[:, 0] = 0.0 if before is None else self.leads[before.place][:, -1]
            leads[:, at + 1] = self._after(course, at, leads[:, at])
            if at == len(course.kinds) - 1:
                leads[:, -1] = np.where(np.isfinite(course.ended_s), leads[:, -1], leads[:, 0])

    def _after(self, course: Course, at: int, lead: Vector) -> Vector:
        """(M,) by how much earlier each is done with a piece."""
        mode, less = int(course.mode[at]), self._less.get(course.place, [])
        parts = [part for part in less if part.piece == at]
        # Stages in which members send and receive may alternate: they are gone through together, as the first of them.
        together = np.flatnonzero(course.mode == HANDED).tolist() if mode == HANDED else [at]
        in_calls = [part for part in less if part.piece in together and (part.is_inside or part.of_groups)]
        if course.entered is not None and (in_calls or mode == HANDED):
            lead = _through_calls(course, course.entered, together, in_calls, lead) if at == together[0] else lead
            parts = [part for part in parts if not (part.is_inside or part.of_groups)]
        elif mode == WAITS:
            came_s, meets = course.came_s[:, at], course.meets[at]
            lead = np.where(np.isfinite(came_s), last_of(came_s, meets) - last_of(came_s - lead, meets), lead)
        elif mode == FED:
            lead = self._fed(course, at, lead)
        rows, less_s = course.rows[at], _sum_of(parts, len(lead))
        if course.entered is None and any(part.is_inside for part in parts):
            less_s = last_of(less_s, course.meets[at])  # nothing tells of the step where they wait for each other
        if rows is not None and course.entered is None:
            return handed_on(rows, course.done_s[:, at] - course.came_s[:, at], lead, less_s)
        return lead + less_s

    def _fed(self, course: Course, at: int, lead: Vector) -> Vector:
        """Whoever was given something goes on as much earlier as that was, as far as it is there itself by then. Who
        came later than it was given has not waited: what it took then is its own. What the last member had to do with
        is whole no sooner than the next to last is done.
        """
        feed, came_s, done_s = course.feeds[at], course.came_s[:, at], course.done_s[:, at]
        if feed is None:
            return lead
        of_source = np.full(len(lead), np.nan)
        for number, place in enumerate(feed.courses):
            source = self._courses.get(place)
            piece = -1 if source is None else max(source.piece(IN, feed.stage), source.piece(REST, feed.stage))
            if source is not None and piece >= 0:
                of_this = np.flatnonzero(feed.course == number)
                ended_s, sooner_s = source.done_s[:, piece], self.leads[place][:, 1 + piece]
                last_s, by = np.fmax.reduce(ended_s), feed.member[of_this]
                whole_s = last_s - np.fmax.reduce(ended_s - sooner_s)
                of_source[of_this] = np.where(ended_s[by] >= last_s, whole_s, sooner_s[by])
        own_s, there_s = np.fmin(feed.lag_s, done_s - came_s), came_s - lead
        if course.kinds[at].where == BEFORE and np.nanmin(done_s) >= np.nanmax(came_s):
            there_s = np.fmax.reduce(there_s)  # who begins the next stage for all waits for all of them
        by_itself, by_source = done_s - own_s - there_s, feed.lag_s - own_s + of_source
        return np.where(np.isfinite(by_source) & np.isfinite(by_itself), np.fmin(by_itself, by_source), lead)


def _through_calls(
    course: Course, entered: Entered, pieces: Sequence[int], parts: Sequence[Less], begin: Vector
) -> Vector:
    """(M,) by how much earlier each member is through with some stages.

    Args:
        course, entered: The step, and its collectives.
        pieces: Of these stages.
        parts: Taken away of each member's own time in them, and of what the collectives of groups take.
        begin: (M,) by how much earlier each comes to the first of them.
    """
    less_s = {
        int(course.stages[piece]): _sum_of([part for part in parts if part.piece == piece], len(begin))
        for piece in pieces
    }
    of_groups = {group: seconds for part in parts for group, seconds in part.of_groups.items()}
    here = np.flatnonzero(np.isin(entered.rings.stage, list(less_s)))
    calls = np.unique(entered.call[here])
    if not len(here) or len(calls) > _CALLS_AT_MOST:
        most = max((float(less.max(initial=0.0)) for less in less_s.values()), default=0.0)
        return np.asarray(begin + most + max(of_groups.values(), default=0.0))
    of_entry, behind = np.zeros(len(entered.call)), np.zeros(len(begin))
    for stage, less in less_s.items():
        if less.any():
            before, after = _shared_out(entered, np.flatnonzero(entered.rings.stage == stage), stage, less)
            of_entry, behind = of_entry + before, behind + after
    of_calls: dict[int, float] = {}
    for group, seconds in of_groups.items():
        calls = np.unique(entered.call[here][entered.rings.group[here] == group])
        of_calls.update(dict.fromkeys(calls.tolist(), seconds / max(1, len(calls))))
    return _gone_through(entered, here, of_entry, of_calls, begin) + behind


def _shared_out(entered: Entered, here: Whole, stage: int, less_s: Vector) -> tuple[Vector, Vector]:
    """(K,) what is taken away before each entry, (M,) and behind the last: first where the member took longer than the
    others in that collective, before sends and receives of all it took; of what is more than that (they are slow too)
    each entry's own time loses its share.
    """
    member, own, count = entered.rings.member[here], entered.own_s[here], len(less_s)
    more = np.maximum(0.0, own - _of_others(entered.call[here], own) * entered.rings.is_meeting[here])
    behind = np.maximum(0.0, entered.behind_s[:, stage])
    total = np.bincount(member, more, count) + behind
    share = less_s / np.maximum(total, np.maximum(less_s, 1e-12))
    taken = more * share[member]
    of_all = (less_s - share * total) / np.maximum(np.bincount(member, own - taken, count), 1e-12)
    of_entry = np.zeros(len(entered.call))
    of_entry[here] = taken + (own - taken) * np.minimum(1.0, of_all)[member]
    return of_entry, behind * share


def _of_others(call: Whole, own: Vector) -> Vector:
    """(K,) own time before each entry in the middle of those that enter the same collective; of two, the shorter."""
    order = np.lexsort((own, call))
    begins = np.flatnonzero(np.diff(call[order], prepend=-1))
    sizes = np.diff(np.append(begins, len(call)))
    low = own[order][begins + (sizes - 1) // 2]
    high = own[order][begins + np.where(sizes > 2, sizes // 2, 0)]
    middle = np.empty(len(call))
    middle[order] = np.repeat((low + high) / 2, sizes)
    return middle


def _gone_through(
    entered: Entered, here: Whole, of_entry: Vector, of_call: Mapping[int, float], begin: Vector
) -> Vector:  # fmt: skip
    """Entry by entry, those that go on together at once; whoever has gone on meanwhile waits for all of them later."""
    lead: Vector = begin.copy()
    over, over_now = (np.full(len(begin), -np.inf) for _ in range(2))  # of those that it will wait for
    every, (here, last_s, goes_on) = entered.rings, _in_order(entered, here)
    member, came, call, waits_now = (
        every.member[here],
        every.entered_s[here],
        entered.call[here],
        entered.has_waited[here],
    )
    less, is_sent = of_entry[here], every.left_s[here] < last_s  # who sends waits for nobody
    begins = np.flatnonzero((np.diff(call, prepend=-1) != 0) | goes_on | np.append(True, goes_on[:-1]))
    # Of those in a call that have gone on meanwhile: when the last came, and who waits for it later.
    sooner_of, gone_on = dict[int, float](), dict[int, list[int]]()
    for first, end in zip(begins.tolist(), [*begins[1:].tolist(), len(here)]):
        these, number = member[first:end], int(call[first])
        waited = these[waits_now[first:end] & np.isfinite(over[these])]
        lead[waited] = over[waited] - over_now[waited]
        over[waited] = over_now[waited] = -np.inf
        lead[these] += less[first:end]
        sooner = max(sooner_of.get(number, -np.inf), float((came[first:end] - lead[these]).max()))
        if goes_on[first]:
            sooner_of[number] = sooner
            gone_on.setdefault(number, []).extend(these[~is_sent[first:end]].tolist())
            continue
        these = np.append(these, gone_on[number]).astype(int) if gone_on.get(number) else these
        over[these] = np.maximum(over[these], last_s[first])
        over_now[these] = np.maximum(over_now[these], sooner - of_call.get(number, 0.0))
    waits = np.isfinite(over)
    lead[waits] = over[waits] - over_now[waits]
    return lead


def _in_order(entered: Entered, here: Whole) -> tuple[Whole, Vector, Truths]:
    """(K,) these entries as one went on after the other, when the last entered the call of each, and whether its
    member had entered another one by then.
    """
    came_s, member, call = entered.rings.entered_s[here], entered.rings.member[here], entered.call[here]
    last_s, next_s = np.full(len(entered.call), -np.inf), np.full(len(here), np.inf)
    np.maximum.at(last_s, call, came_s)
    by_member = np.lexsort((came_s, member))
    next_s[by_member[:-1]] = np.where(np.diff(member[by_member]) == 0, came_s[by_member[1:]], np.inf)
    last_s, goes_on = last_s[call], next_s < last_s[call]
    order = np.lexsort((call, np.where(goes_on, came_s, last_s)))
    return here[order], last_s[order], goes_on[order]


def _sum_of(parts: Sequence[Less], count: int) -> Vector:
    return np.asarray(sum((part.seconds for part in parts), np.zeros(count)))


def near_to(course: Course, those: Truths) -> Truths:
    """(M,) who waits in this step for those members, or they for them; all where none waits for another, or all do."""
    waits = [labels for labels, mode in zip(course.meets, course.mode.tolist()) if mode == WAITS]
    if not those.any() or not waits or course.is_free or any(labels is None for labels in waits):
        return np.ones(len(course.ended_s), bool)
    those = those.copy()
    for labels in waits:
        assert labels is not None
        those |= np.isin(labels, labels[those])
    return those


def won_s(course: Course, lead: Matrix, those: Truths) -> float:
    """By how much shorter the step is for those: below 0 where it makes up for what was won before."""
    begun = course.over_s(course.began_s, those) - course.over_s(course.began_s - lead[:, 0], those)
    ended = course.over_s(course.ended_s, those) - course.over_s(course.ended_s - lead[:, -1], those)
    return ended - begun


def sooner_s(course: Course, kind: Piece, lead: Matrix, those: Truths) -> float:
    """By how much earlier those are done with a piece."""
    at = course.kinds.index(kind)
    done_s = course.done_s[:, at]
    return course.over_s(done_s, those) - course.over_s(done_s - lead[:, at + 1], those)


def length_s(course: Course, those: Truths) -> float:
    """How long the step is for those."""
    return course.over_s(course.ended_s, those) - course.over_s(course.began_s, those)
