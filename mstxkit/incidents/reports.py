"""The report on one process, as it goes into an incident: who it is, how it is, what it is inside of, its stacks, what
it did last, how far it came in its collectives.
"""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path
from typing import Any, Mapping, NamedTuple, Sequence

from ..errors import FormatError
from ..store import collectives, layout, records
from ..store.collectives import CollectiveEntry
from ..store.documents import Unusable
from ..store.handed_over import GROUPS, OF_COLLECTIVES, HandedOver
from ..store.stacks import LastWords
from ..store.values import small_number, table_of, text_of
from . import kernel, waiting
from .asking import Answer
from .looking import LastRange, RangeInside, WatchedProcess

# Of all ranks' reports together; a process has its share of it, within bounds.
ALL_BYTES, _LEAST_BYTES, _MOST_BYTES = 64 << 20, 4 << 10, 64 << 10
_LAST_RANGES, _LAST_S, _OPEN_AT_MOST, _THREADS_SHOWN, _RING_SHOWN = 200, 30.0, 64, 16, 200
_CALL_BYTES, _NS = 16, 10**9  # what a call takes beside its names
# Ranges that one exception ends, end one after the other.
_RAISED_WITHIN_NS = _NS // 2
_OURS = "mstxkit-"
_WHO = ("rank", "role", "part", "under", "world_size", "pid", "host", "python")


class JudgedRange(NamedTuple):
    """A range that a process is inside of, with what the trigger says of it. Seconds; `patience_s`: its limit where it
    waits for somebody that nobody records.
    """

    range: RangeInside
    open_s: float
    quiet_s: float
    limit_s: float
    is_stuck: bool
    patience_s: float = 0.0


def make_report(
    process: WatchedProcess, folder: Path, answer: Answer, judged: Sequence[JudgedRange], *, works: bool = False,
    quiet_s: float = 0.0, gone_ns: int = 0, signal: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """Plain values, within the process's share of what all may take. `folder`: of the live files.
    `judged`: what it is inside of, outermost first on each track. `works`: do CPU or disk work for it? `quiet_s`: since
    anything in it has ended or begun. `gone_ns`: when it was gone, wall clock; 0 while it lives. `signal`: that has
    ended it; 0: none, or not known.
    """
    ours = [thread.tid for thread in answer.threads if thread.name.startswith(_OURS)]  # they wait for the run's disk
    state = "gone" if gone_ns else kernel.state_of(process.pid, ours) if process.pid else ""
    stuck = next((at for at in reversed(judged) if at.is_stuck), None)
    by_tid = {thread.tid: thread for thread in answer.threads if thread.tid}
    mine = by_tid.get(process.pid) or next((thread for thread in answer.threads if thread.name == "MainThread"), None)
    mine = mine if stuck is None else by_tid.get(stuck.range.slot.thread, mine)
    theirs = [thread for thread in answer.threads if not thread.name.startswith(_OURS)]
    words, beat_ns = process.last_words(), process.heartbeat_ns
    made = {
        **tell_who(process.name, process.who), "state": state, "works": works,
        "quiet_s": round(quiet_s, 3),
        "tracer": kernel.find_tracer(process.pid) if process.pid else 0,
        "silent_s": round((time.monotonic_ns() - beat_ns) / _NS, 3) if beat_ns else 0.0,
        "gone_ns": gone_ns, "signal": signal,
        "fatal": words.fatal, "exceptions": [dict(exception) for exception in words.exceptions[-4:]],
        "raised": len(words.exceptions),
        "inside": [_describe_range(at) for at in judged[-_OPEN_AT_MOST:]] or _raised_in(process, words),
        "stacks_by": answer.by, "has_gil": answer.has_gil, "has_ring": answer.has_ring,
        "is_late": not answer.threads and (not process.pid or bool(kernel.running_threads(process.pid))),
        "waits": waiting.of_stack(mine.frames) if mine is not None else "",
        "compiles": mine is not None and waiting.is_compiling(mine.frames),
        "waits_in": kernel.waits_in(process.pid, stuck.range.slot.thread if stuck is not None else process.pid),
        "thread": mine.as_json() if mine is not None else None,
        "is_debugged": any(waiting.of_stack(thread.frames) == waiting.DEBUGGER for thread in answer.threads),
        "threads": [thread.as_json() for thread in theirs[:_THREADS_SHOWN]],
        "kernel": kernel.list_threads(process.pid)[:_THREADS_SHOWN] if process.pid and not gone_ns else [],
        "last": _last_ended(process), **of_collectives(folder, process.name),
    }  # fmt: skip
    return fit_report(made, small_number(process.who.get("world_size")) or 1)


def tell_who(name: str, who: Mapping[str, Any]) -> dict[str, Any]:
    """Which process a report is on."""
    return {"process": name, **{key: who.get(key) for key in _WHO}}


def fit_report(made: dict[str, Any], processes: int) -> dict[str, Any]:
    """A report within its share of what all of them may take: what tells least goes first, what is stuck last."""
    share = min(_MOST_BYTES, max(_LEAST_BYTES, ALL_BYTES // max(1, processes)))
    if made["thread"] is not None:
        frames: list[list[Any]] = made["thread"]["frames"]
        # The same calls of ranks that are at the same place, whatever lines these are in.
        sizes = itertools.accumulate(len(file) + len(function) + _CALL_BYTES for file, _, function in frames)
        made["thread"] = {**made["thread"], "frames": frames[: sum(size <= share // 3 for size in sizes)]}
    for key in ("kernel", "ring", "last", "threads", "exceptions", "entered", "inside"):
        while len(json.dumps(made)) > share and made.get(key):
            kept = len(made[key]) // 2
            made[key] = made[key][len(made[key]) - kept :] if key == "inside" else made[key][:kept]
            made["has_ring"] = made["has_ring"] and key != "entered"  # who does not say all has not said who is missing
    return made


def wall_ns(mono_ns: int) -> int:
    """CLOCK_MONOTONIC on the wall clock, as the two are now."""
    return mono_ns + time.time_ns() - time.monotonic_ns() if mono_ns else 0


def _describe_range(judged: JudgedRange) -> dict[str, Any]:
    range_ = judged.range
    step = None if range_.slot.step == records.NO_STEP else range_.slot.step
    return {
        "name": range_.name[:200], "stage": range_.stage[:200], "domain": range_.domain[:200], "step": step,
        "track": range_.slot.track, "depth": range_.slot.depth, "tid": range_.slot.thread, "start": range_.slot.start,
        "since_ns": wall_ns(range_.since_ns), "quiet_ns": range_.quiet_ns,
        "open_s": round(judged.open_s, 3), "quiet_s": round(judged.quiet_s, 3),
        "limit_s": round(judged.limit_s, 3), "is_stuck": judged.is_stuck, "patience_s": round(judged.patience_s, 3),
    }  # fmt: skip


def _raised_in(process: WatchedProcess, words: LastWords) -> list[dict[str, Any]]:
    """Of who raised what nobody caught: the ranges that ended by that, outermost first."""
    if not words.exceptions:
        return []
    try:
        raised = [range_ for range_ in process.last_ranges(_OPEN_AT_MOST) if range_.error]
    except (OSError, FormatError):
        return []
    latest_ns = max((range_.end_ns for range_ in raised), default=0)
    ended = sorted((r for r in raised if latest_ns - r.end_ns <= _RAISED_WITHIN_NS), key=lambda r: -r.end_ns)
    return [
        {
            "name": r.name[:200], "stage": r.stage[:200], "step": r.step, "depth": depth,
            "since_ns": wall_ns(r.end_ns - r.duration_ns),
        }
        for depth, r in enumerate(ended)
    ]  # fmt: skip


def _last_ended(process: WatchedProcess) -> list[list[Any]]:
    """`[name, stage, step, end (wall), ns, error]` of what has ended in the last seconds before anything did."""
    try:
        ranges: list[LastRange] = process.last_ranges(_LAST_RANGES)
    except (OSError, FormatError):
        return []
    newest_ns = max((range_.end_ns for range_ in ranges), default=0)
    return [
        [r.name[:120], r.stage[:120], r.step, wall_ns(r.end_ns), r.duration_ns, r.error]
        for r in ranges
        if newest_ns - r.end_ns <= _LAST_S * _NS
    ]


def of_collectives(folder: Path, name: str) -> dict[str, Any]:
    """What its ring has told, as it was handed over.
    Returns: `entered`: the last collective of each group, as a table. `ring`: the last of all, the newest first,
    `[group, sequence, operation, entered (wall), left (wall; 0: not known), KiB]`. `no_ring`: why there is none.
    """
    try:
        rows, _, document = HandedOver(folder / f"{name}{layout.RINGS_SUFFIX}", 0, OF_COLLECTIVES).read_new()
    except (Unusable, OSError):
        return {"entered": [], "ring": [], "no_ring": ""}
    groups = table_of(document.get(GROUPS))
    entries = list(collectives.unpack_entries(rows))
    newest: dict[int, CollectiveEntry] = {}
    for entry in entries:
        is_newest = entry.group not in newest or entry.sequence >= newest[entry.group].sequence
        if is_newest and collectives.operation_in(entry.operation) < collectives.SEND:  # who sends need not wait
            newest[entry.group] = entry
    names = {number: text_of(table_of(group).get("name"))[:80] for number, group in groups.items()}
    ranks = {number: text_of(table_of(group).get("ranks")) for number, group in groups.items()}
    return {
        "entered": [
            {
                "group": entry.group, "name": names.get(str(entry.group), ""),
                "ranks": ranks.get(str(entry.group), "")[: collectives.RANKS_TEXT_AT_MOST],
                "sequence": entry.sequence, "operation": _name_operation(entry),
                "entered_ns": wall_ns(entry.entered_ns), "left": bool(entry.left_ns),
            }
            for entry in newest.values()
        ],
        "ring": [
            [
                names.get(str(entry.group)) or str(entry.group), entry.sequence, _name_operation(entry),
                wall_ns(entry.entered_ns), wall_ns(entry.left_ns),
                0 if entry.flags & collectives.CALLED else entry.size_kib,
            ]
            for entry in reversed(entries[-_RING_SHOWN:])
        ],
        "no_ring": text_of(document.get(collectives.WHY_NOT))[:300],
    }  # fmt: skip


def _name_operation(entry: CollectiveEntry) -> str:
    number = collectives.operation_in(entry.operation)
    return collectives.OPERATIONS[number] if number < len(collectives.OPERATIONS) else "other"
