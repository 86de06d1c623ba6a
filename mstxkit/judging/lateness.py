"""By how much later than the first each rank enters its groups' collectives, step by step: of rows, in arrays.

Entries come from calls and rings; where there are none, a stage that synchronises counts as one collective of all that
are in it. A difference within the bound of the clocks is no difference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Mapping, NamedTuple, Sequence

import numpy as np

from ..store import collectives
from .evidence import FLIGHT_RECORDER, MEET, RECEIVE, SEND, Collectives, RoleStep

if TYPE_CHECKING:
    import numpy.typing as npt

    from .evidence import Seconds, Whole

    Rows = npt.NDArray[np.void]
    Mask = npt.NDArray[np.bool_]

NO_STEP = -1
INTERVAL = np.dtype([("step", "<i8"), ("stage", "<i8"), ("entered_ns", "<i8"), ("left_ns", "<i8")])
_NEVER = np.iinfo(np.int64).max
COLUMNS = ("step", "group", "rank", "stage", "late_ns", "error_ns", "source")


class Entries(NamedTuple):
    """Entries of some members into collectives, N of them, each with its step and stage.

    Args:
        member: (N,) index of who entered.
        group, sequence: (N,) which collective.
        entered_ns, left_ns: (N,) on the aligned clock; left 0: not known.
        flags: (N,) as in `store.collectives`.
        step: (N,) NO_STEP: not known.
        stage: (N,) index as in the intervals; -1: in none.
        until_ns: (N,) when it left that stage; 0: in none.
        kind: (N,) as in `evidence.Collectives`.
    """

    member: Whole
    group: Whole
    sequence: Whole
    entered_ns: Whole
    left_ns: Whole
    flags: Whole
    step: Whole
    stage: Whole
    until_ns: Whole
    kind: Whole


def rows_in(data: bytes) -> Rows:
    """What a process handed over, as an array of `store.collectives.FIELDS`; half a row at the end is left out."""
    whole = len(data) // collectives.ROW_BYTES * collectives.ROW_BYTES
    return np.frombuffer(data[:whole], dtype=np.dtype(collectives.FIELDS))


def kinds_of(rows: Rows) -> Whole:
    """(N,) MEET, SEND or RECEIVE, by what they did."""
    operation = collectives.operation_in(rows["operation"])
    is_of_pair = [operation == collectives.SEND, operation == collectives.RECEIVE]
    return np.select(is_of_pair, [SEND, RECEIVE], MEET).astype(np.int64)


def located(member: int, rows: Rows, intervals: Rows, offset_ns: int | Whole = 0) -> Entries:
    """One member's entries, with the step and stage in which it was: of its shortest interval around each.

    What is in none of its stages, but within its step, has the step alone.

    Args:
        member: Its index.
        rows: As `rows_in` gives them, on its host's CLOCK_MONOTONIC.
        intervals: Of INTERVAL, on the same clock.
        offset_ns: What makes the aligned clock of that: one number, or one for each row.
    """
    entered = rows["entered_ns"].astype(np.int64)
    order = np.argsort(entered, kind="stable")
    place = np.full(len(rows), -1, dtype=np.int64)
    around = np.concatenate([_steps(intervals), intervals])
    around = around[np.argsort(around["entered_ns"] - around["left_ns"], kind="stable")]
    first = np.searchsorted(entered[order], around["entered_ns"], "left")
    behind = np.searchsorted(entered[order], around["left_ns"], "right")
    for index in np.flatnonzero(first < behind):  # the longest first: shorter ones replace it
        place[order[first[index] : behind[index]]] = index
    step = np.where(place < 0, NO_STEP, around["step"][place] if len(around) else NO_STEP)
    stage = np.where(place < 0, -1, around["stage"][place] if len(around) else -1)
    until = np.where(stage < 0, 0, around["left_ns"][place] + offset_ns if len(around) else 0)
    left = rows["left_ns"].astype(np.int64)
    return Entries(
        np.full(len(rows), member, dtype=np.int64), rows["group"].astype(np.int64), rows["sequence"].astype(np.int64),
        entered + offset_ns, np.where(left > 0, left + offset_ns, 0), rows["flags"].astype(np.int64), step, stage,
        until, kinds_of(rows),
    )  # fmt: skip


def _steps(intervals: Rows) -> Rows:
    """From the first stage of each step to the last, in no stage."""
    steps, at = np.unique(intervals["step"], return_inverse=True)
    spans = np.zeros(len(steps), dtype=INTERVAL)
    spans["step"], spans["stage"] = steps, -1
    spans["entered_ns"], spans["left_ns"] = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    np.minimum.at(spans["entered_ns"], at, intervals["entered_ns"])
    np.maximum.at(spans["left_ns"], at, intervals["left_ns"])
    return spans


def joined(parts: Sequence[Entries]) -> Entries:
    """The entries of all members; each collective is in the latest step in which anybody saw it.

    A collective that a reading of the ring may have held up, in whatever member, is left out.
    """
    columns = [np.concatenate(values) if values else np.zeros(0, np.int64) for values in _columns(parts)]
    entries = Entries(*columns)
    key = _key(entries)
    if not len(key):
        return entries
    _, at = np.unique(key, return_inverse=True)
    latest, disturbed = np.full(at.max() + 1, NO_STEP), np.zeros(at.max() + 1, dtype=bool)
    np.maximum.at(latest, at, entries.step)
    np.logical_or.at(disturbed, at, entries.flags & collectives.DISTURBED > 0)
    return _only(entries._replace(step=latest[at]), ~disturbed[at])


def _columns(parts: Sequence[Entries]) -> list[list[Whole]]:
    return [[part[index] for part in parts] for index in range(len(Entries._fields))]


def of_step(entries: Entries, step: int, groups: Mapping[int, tuple[int, ...]]) -> Collectives | None:
    """The entries of one step as evidence; None where nobody has any.

    Where a ring does not know when a collective was over (gloo's never does), the last one of a stage was over by the
    time that the first member left that stage.

    Args:
        entries: As `joined` gives them.
        groups: Number to ranks, as far as they are known.
    """
    chosen = _only(entries, entries.step == step)
    if not len(chosen.member):
        return None
    left_ns = np.where(chosen.left_ns > 0, chosen.left_ns, _over_by(chosen))
    left = np.where(left_ns > 0, left_ns / 1e9, np.nan)
    count = len(left)
    return Collectives(
        chosen.member, chosen.group, chosen.sequence, chosen.entered_ns / 1e9, left, chosen.stage, groups,
        FLIGHT_RECORDER, chosen.kind, np.full(count, np.nan), np.zeros(count, bool),
    )  # fmt: skip


def together(called: Collectives | None, rings: Collectives) -> Collectives:
    """Both, of one step: what was called, and what rings tell beside it."""
    if called is None:
        return rings
    names = [name for name in called._fields if name not in ("groups", "source")]
    both = {name: np.concatenate([getattr(called, name), getattr(rings, name)]) for name in names}
    return called._replace(**both)


def _over_by(entries: Entries) -> Whole:
    """(N,) by when each was over; 0 where it is not the last of its group in that stage, or no meeting."""
    _, place = np.unique((entries.group << 8) + entries.stage, return_inverse=True)
    last, first_left = np.full(place.max() + 1, -1), np.full(place.max() + 1, _NEVER)
    np.maximum.at(last, place, entries.sequence)
    is_last = (entries.sequence == last[place]) & (entries.until_ns > 0)
    np.minimum.at(first_left, place[is_last], entries.until_ns[is_last])
    over = first_left[place]
    is_known = is_last & (over >= entries.entered_ns) & (over < _NEVER) & (entries.kind == MEET)
    return np.where(is_known, over, 0)


class Late(NamedTuple):
    """By how much later than the first each of K entries came, in collectives that at least two are known to enter.

    Args:
        at: (K,) which entries of the collectives these are.
        late_s: (K,) from 0 on.
        error_s: (K,) the bound of that: the member's own and that of who came first.
    """

    at: Whole
    late_s: Seconds
    error_s: Seconds


def late_in(entered: Collectives, error_s: Seconds) -> Late:
    """Each entry against the first of its collective; of sends and receives nothing: one is to come before the other.

    Args:
        error_s: (M,) bound of the error of each member's times.
    """
    order = np.lexsort((entered.entered_s, entered.sequence, entered.group))
    order = order if entered.kind is None else order[entered.kind[order] == MEET]
    if not len(order):
        return Late(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
    group, sequence = entered.group[order], entered.sequence[order]
    begins = np.concatenate([[True], (group[1:] != group[:-1]) | (sequence[1:] != sequence[:-1])])
    first = np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))
    size = np.bincount(np.cumsum(begins) - 1)[np.cumsum(begins) - 1]
    errors = error_s[entered.member[order]]
    late = entered.entered_s[order] - entered.entered_s[order][first]
    kept = size > 1
    return Late(order[kept], late[kept], np.where(first == np.arange(len(order)), 0.0, errors + errors[first])[kept])


def table(step: RoleStep, entered: Collectives) -> dict[str, list[object]]:
    """Rows of `run.lateness()`, by column: of each group, rank and stage the entry that was latest in this step."""
    late = late_in(entered, step.error_s)
    member, group, stage = entered.member[late.at], entered.group[late.at], entered.stage[late.at]
    order = np.lexsort((-late.late_s, stage, member, group))
    keys = np.stack([group, member, stage])[:, order]
    chosen = order[np.concatenate([[True], (keys[:, 1:] != keys[:, :-1]).any(axis=0)])] if len(order) else order
    return {
        "step": [step.step] * len(chosen),
        "group": [int(number) for number in group[chosen]],
        "rank": [step.members[index].rank for index in member[chosen]],
        "stage": [step.stages[index] if index >= 0 else None for index in stage[chosen]],
        "late_ns": [round(seconds * 1e9) for seconds in late.late_s[chosen]],
        "error_ns": [round(seconds * 1e9) for seconds in late.error_s[chosen]],
        "source": [entered.source] * len(chosen),
    }


def _key(entries: Entries) -> Whole:
    return (entries.group << 32) | entries.sequence


def _only(entries: Entries, kept: Mask) -> Entries:
    return Entries(*(values[kept] for values in entries))
