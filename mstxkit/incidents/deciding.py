"""Who is stuck and who merely waits for him: from the reports of all processes, pure.

Whoever is gone, stopped, or held by the kernel, a lock or code of his own waits for nobody. Whoever waits in a
collective waits for the members that have not entered it; whoever waits for others, for those that still work. While
they do, or somebody debugs one of them, nobody is stuck.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Collection, Iterable, Mapping, NamedTuple, Sequence

from ..host import parts
from ..store.collectives import ranks_as_text, ranks_in
from ..store.stacks import ThreadStack
from ..store.values import count_of, group_by, list_of, small_number, table_of, text_of, whole_number
from . import waiting

Report = Mapping[str, Any]
# Up to so many times its limit nobody is named where none of several has said what it is at.
_EARLY = 3.0
_PIECES_AT_MOST, _OTHERS_AT_MOST = 8, 4
# How a process is held that waits for nobody, what is surest first, in words.
HELD = {
    "gone": "it is gone",
    "stopped": "it is stopped (SIGSTOP)",
    "disk": "the kernel holds it, in a disk or a file system",
    "native": "native code holds Python's lock (the GIL)",
    "lock": "it waits for a lock",
    "own": "it is in its own code",
    "left": "it has ended, in order",
}


class Missing(NamedTuple):
    """The first collective of a group that not all have entered."""

    group: int  # its number
    # name, operation, sequence: as torch calls them
    name: str
    operation: str
    sequence: int
    # entered, missing: ranks, in the world of the group
    entered: tuple[int, ...]
    missing: tuple[int, ...]

    @property
    def words(self) -> str:
        """`all_reduce 17 of group 0: entered by 0,2-7, missing 1`."""
        who = f"entered by {_list_ranks(self.entered)}, missing {_list_ranks(self.missing)}"
        return f"{self.operation} {self.sequence} of group {self.name or self.group}: {who}"


class Cause(NamedTuple):
    """What a hang comes to."""

    report: Report | None  # of the cause; None where nobody alone is
    how: str  # in which way it is held: a key of HELD, `missing`, `collective`, `others`
    reason: str  # in words
    waiting: tuple[Report, ...] = ()  # reports of those that wait
    missing: Missing | None = None  # the collective that is missing somebody


def find_cause(reports: Sequence[Report], hang_s: float, blamed: Mapping[str, int] = {}) -> Cause | None:
    """Who is stuck, by the reports of all processes; None: nobody is, as they wait for those who work, or for a
    debugger. Whoever has done something within `hang_s` goes on. `blamed`: processes that hangs are laid to which are
    not over, with when these were told of, wall clock: what holds them up since before is that again.
    """
    stuck = [report for report in reports if is_stuck(report)]
    if not stuck or any(map(is_debugged, reports)):
        return None
    missing = first_missing(reports)
    waiters = [report for report in stuck if _waits_for_others(report)]
    # Who is gone holds up only those that wait for others; so does who is stopped, before he himself is stuck.
    held_fast = [r for r in reports if is_stuck(r) or (waiters and hold_of(r) == "stopped")]
    held_fast = [r for r in held_fast if not _waits_for_others(r) and (waiters or not r.get("gone_ns"))]
    if held_fast:
        return _of_held(held_fast, reports, missing, blamed)
    in_collectives = [report for report in waiters if hold_of(report) == waiting.COLLECTIVE]
    if in_collectives:
        return _of_collectives(in_collectives, reports, missing, hang_s)
    return _of_others(waiters, reports, hang_s)


def _of_held(
    candidates: list[Report], reports: Sequence[Report], missing: Missing | None, blamed: Mapping[str, int]
) -> Cause | None:
    """The surest, and first those of whom it is known what they are at; of several those that a collective misses, of
    these the one that is not like the others. None: nobody has said yet what he is at.
    """
    absent = () if missing is None else missing.missing
    alike, order = Counter(_place_of(report) for report in reports), list(HELD)
    accused = [report for report in candidates if is_accused(report, blamed)]
    # Several at one place may wait there, although no call says so.
    alone = [r for r in candidates if alike[_place_of(r)] == 1 or hold_of(r) in ("stopped", "disk")]
    alone = [report for report in alone if not is_accused(report, blamed)]
    candidates = [report for report in candidates if small_number(report.get("rank")) in absent] or candidates
    if accused:  # whoever came later waits for these, or is another hang
        new = {id(report) for report in alone}
        candidates = [report for report in candidates if id(report) in new] or accused
    chosen = min(
        candidates,
        key=lambda r: (_is_mute(r), order.index(hold_of(r)), alike[_place_of(r)], since_ns(r), _rank_of(r)),
    )
    # Who is late would answer if there were a core for it; who only works has time enough.
    is_late = chosen.get("is_late") is True and chosen.get("works") is not True
    if _is_mute(chosen) and (len(candidates) > 1 or is_late) and _is_early(chosen):
        return None
    others = [report for report in (*accused, *alone) if report is not chosen and not _is_mute(report)]
    reason = HELD[hold_of(chosen)]
    if missing is not None and small_number(chosen.get("rank")) in absent:
        reason += f"; it has not entered {missing.words}"
    reason += f"; stuck as well: {_who_where(others)}" if others else ""
    held_fast = {id(report) for report in (chosen, *others)}
    living = [r for r in reports if id(r) not in held_fast and not r.get("gone_ns")]
    waits = tuple(r for r in living if is_stuck(r) or waits_now(r))
    return Cause(chosen, hold_of(chosen), reason, waits, missing)


def is_accused(report: Report, blamed: Mapping[str, int]) -> bool:
    """Is it held up since before that was told of? `blamed`: as of `find_cause`."""
    return since_ns(report) <= blamed.get(_rank_of(report), -1)


def _of_collectives(
    waiters: list[Report], reports: Sequence[Report], missing: Missing | None, hang_s: float
) -> Cause | None:
    """All that are stuck wait in a collective: for those that are not in it."""
    if any(map(_is_unknown, reports)) and any(map(_is_early, waiters)):
        return None
    world = {_world_of(report) for report in waiters}
    members = [report for report in reports if _world_of(report) in world and not _is_beside(report)]
    if missing is not None:
        absent = [report for report in members if small_number(report.get("rank")) in missing.missing]
    else:
        absent = [report for report in members if hold_of(report) != waiting.COLLECTIVE]
    if any(goes_on(report, hang_s) or may_wait(report) for report in absent):
        return None
    if absent:
        chosen = min(absent, key=lambda report: (since_ns(report) or 1 << 63, _rank_of(report)))
        reason = "it is not in the collective that the others wait in"
        reason = f"it has not entered {missing.words}" if missing is not None else reason
        others = tuple(report for report in reports if report is not chosen and waits_now(report))
        return Cause(chosen, "missing", reason, others, missing)
    if missing is not None and missing.missing:
        return Cause(None, "collective", f"{missing.words}, and nothing is known of these", tuple(waiters), missing)
    groups = groups_of(waiters)
    if len(groups) == 2 and len(groups[1][1]) == 1 and len(groups[0][1]) > 1:  # one is elsewhere than all the others
        odd, others = groups[1][1][0], tuple(groups[0][1])
        return Cause(odd, "collective", "it is in another collective than the others", others, missing)
    first = min(waiters, key=lambda report: (since_ns(report), _rank_of(report)))
    if len(waiters) == 1 and sum(_world_of(report) == _world_of(first) for report in reports) < 2:
        return Cause(first, "collective", "it waits in a collective for processes that are not recorded", (), missing)
    ranks = {report.get("rank") for report in reports if report.get("world_size") == first.get("world_size")}
    unknown = count_of(first.get("world_size")) - len(ranks)
    reason = "all of them are in the same collective, and nobody is missing: the network, or a device"
    if unknown > 0:
        reason = f"all of them are in the same collective, and nothing is known of {unknown} other ranks"
    return Cause(None, "collective", reason, tuple(waiters), missing)


def _of_others(waiters: list[Report], reports: Sequence[Report], hang_s: float) -> Cause | None:
    """All that are stuck wait for other processes: for whoever goes on."""
    if any(goes_on(report, hang_s) for report in reports if not _is_beside(report)):
        return None
    if any(map(may_wait, waiters)):
        return None
    # A driver, which has no rank, waits for those that have one, and of these they all for who waits for its own child.
    held_up = {report.get("rank") for report in reports if _is_beside(report) and is_unmarked(report)}
    chosen = min(
        waiters,
        key=lambda r: (small_number(r.get("rank")) is None, r.get("rank") not in held_up, since_ns(r), _rank_of(r)),
    )
    others = tuple(report for report in waiters if report is not chosen)
    reason = "it waits for another process, and none that is recorded works"
    unmarked = who_all(filter(is_unmarked, reports))
    reason += f"; in its own code, inside of no range: {unmarked}" if unmarked else ""
    return Cause(chosen, "others", reason, others)


def is_stuck(report: Report) -> bool:
    """Is a range of it stuck, or is it gone inside of one? Compilers may take as long as they work."""
    if report.get("gone_ns") or (report.get("compiles") is True and report.get("works") is True):
        return bool(report.get("gone_ns"))
    return any(range_.get("is_stuck") is True for range_ in _ranges_inside(report))


def goes_on(report: Report, hang_s: float) -> bool:
    """Does it work, is it inside of a range that may last longer, or has it done something lately?"""
    if is_stuck(report) or report.get("state") in ("stopped", "gone", "left"):
        return False
    quiet_s = report.get("quiet_s")
    is_new = isinstance(quiet_s, (int, float)) and 0 <= quiet_s < hang_s
    is_running = report.get("state") == "running"  # on a busy host it may not have come to its range yet
    return report.get("works") is True or bool(_ranges_inside(report)) or is_new or is_running


def may_wait(report: Report) -> bool:
    """Does it wait for others, and is not known yet how long that takes?"""
    return hold_of(report) == waiting.OTHERS and _is_within(report, "patience_s")


def _waits_for_others(report: Report) -> bool:
    return hold_of(report) in (waiting.COLLECTIVE, waiting.OTHERS)


def waits_now(report: Report) -> bool:
    """Does it stand in a range, in which it waits for others?"""
    return bool(_ranges_inside(report)) and _waits_for_others(report)


def hold_of(report: Report) -> str:
    """In which way a process is held: a key of HELD, `collective` or `others`."""
    state = text_of(report.get("state"))
    if report.get("gone_ns"):
        return "left" if state == "left" else "gone"
    if state in ("stopped", "disk"):
        return state
    waits = text_of(report.get("waits"))
    if waits in (waiting.COLLECTIVE, waiting.OTHERS, waiting.LOCK):  # these let go of the GIL
        return waits
    if report.get("stacks_by") == "signal" or report.get("has_gil") is True:  # it has not answered itself
        return "native"
    # A lock of C's, as `threading.Lock` is, has no call of Python's own.
    return "lock" if "futex" in text_of(report.get("waits_in")) else "own"


def is_unmarked(report: Report) -> bool:
    """Is it at something of its own, of which no range says what it is, as a data loader that is stuck?"""
    is_known = not _ranges_inside(report) and bool(table_of(report.get("thread")))
    return is_known and hold_of(report) in ("own", "lock")


def _is_mute(report: Report) -> bool:
    """Is it not known what it is at? On a busy host who merely waits may be late to answer."""
    return hold_of(report) in ("lock", "own") and not table_of(report.get("thread"))


def _is_unknown(report: Report) -> bool:
    """Has it not said yet which rank it is, nor what it is at? It may be the one that all wait for."""
    is_quiet = not report.get("gone_ns") and report.get("works") is not True and not _is_beside(report)
    return is_quiet and small_number(report.get("rank")) is None and not table_of(report.get("thread"))


def _is_early(report: Report) -> bool:
    """May it be asked again before it is named?"""
    return _is_within(report, "limit_s", _EARLY)


def _is_within(report: Report, limit: str, times: float = 1.0) -> bool:
    quiet_s, limit_s = map(find_innermost(report).get, ("quiet_s", limit))
    return isinstance(quiet_s, (int, float)) and isinstance(limit_s, (int, float)) and quiet_s <= times * limit_s


def first_missing(reports: Iterable[Report]) -> Missing | None:
    """Of the groups whose members are not all at the same collective, the one that waited first."""
    groups: dict[int, dict[int, Mapping[str, Any]]] = {}
    unread = set[int]()  # in a collective, and has not said in which
    for report in reports:
        rank = small_number(report.get("rank"))
        if rank is None or _is_beside(report):
            continue
        if hold_of(report) == waiting.COLLECTIVE and report.get("has_ring") is False:
            unread.add(rank)
            continue
        for entry in map(table_of, list_of(report.get("entered"))):
            groups.setdefault(whole_number(entry.get("group")), {})[rank] = entry
    missing = filter(None, (_missing_of(group, entries, unread) for group, entries in groups.items()))
    return min(missing, key=lambda pair: pair[0], default=(0, None))[1]


def _missing_of(
    group: int, entries: Mapping[int, Mapping[str, Any]], unread: Collection[int]
) -> tuple[int, Missing] | None:
    """And when the first of those entered it that did."""
    sequences = {rank: whole_number(entry.get("sequence")) for rank, entry in entries.items()}
    members = set(ranks_in(next(iter(entries.values())).get("ranks"))) or set(entries)
    least = min(sequences.values())
    behind = {rank for rank, sequence in sequences.items() if sequence == least}
    if len(behind) == len(sequences):  # they are all at one: who has said nothing of it may not be
        behind, least = members - set(sequences) - set(unread), least - 1
    number = min((sequence for sequence in sequences.values() if sequence > least), default=0)
    entered = sorted(rank for rank, sequence in sequences.items() if sequence >= number)
    if not number or not behind or not entered:
        return None
    entry = min((entries[rank] for rank in entered), key=lambda entry: whole_number(entry.get("sequence")))
    name, operation = text_of(entry.get("name")), text_of(entry.get("operation"))
    when_ns = min(whole_number(entries[rank].get("entered_ns")) for rank in entered)
    return when_ns, Missing(group, name, operation, number, tuple(entered), tuple(sorted(behind)))


def groups_of(reports: Iterable[Report]) -> list[tuple[tuple[str, ...], list[Report]]]:
    """Stages and stacks with those that are at them, the largest group, which is the healthy one, first. Who is gone is
    in another one than who lives.
    """
    groups = group_by(reports, lambda report: (*_place_of(report), "gone" * bool(report.get("gone_ns"))))
    return sorted(groups.items(), key=lambda pair: (-len(pair[1]), pair[0]))


def _place_of(report: Report) -> tuple[str, ...]:
    """Its stage, and its stack without lines, in which a loop may differ: functions and files, innermost first."""
    frames = ThreadStack.read(table_of(report.get("thread"))).frames
    stack = (f"{frame.function} ({frame.file.rpartition('/')[2]})" for frame in frames)
    return text_of(find_innermost(report).get("stage")), *stack


def since_ns(report: Report) -> int:
    """When it entered the innermost range that is stuck, else the innermost one; 0: it is in none."""
    return whole_number(find_innermost(report).get("since_ns"))


def find_innermost(report: Report) -> Mapping[str, Any]:
    """The innermost of its ranges that are stuck, else of those that it is inside of; {}: of none."""
    inside = _ranges_inside(report)
    at = [range_ for range_ in inside if range_.get("is_stuck") is True] or inside
    # A stage and the first range in it begin as good as at once.
    depths = [(whole_number(range_.get("since_ns")) // 100_000, count_of(range_.get("depth"))) for range_ in at]
    return at[depths.index(max(depths))] if at else {}


def who_is(report: Report) -> str:
    """`rank 1 actor`; `process 3 (pid 4711)` where it has none."""
    rank, role = small_number(report.get("rank")), text_of(report.get("role"))
    part = text_of(report.get("part"))
    if rank is None:
        return f"{parts.name_process(part, whole_number(report.get('pid')))} {role}".rstrip()
    return " ".join(filter(None, (f"rank {rank}", role, part if part not in ("", role, parts.TRAINER) else "")))


def _who_where(reports: Sequence[Report]) -> str:
    ranges = [(who_is(report), find_innermost(report)) for report in reports[:_OTHERS_AT_MOST]]
    texts = [f"{name} in {text_of(at.get('name'))} ({text_of(at.get('stage'))})" for name, at in ranges]
    return ", ".join(texts) + (f" and {len(reports) - len(texts)} more" if len(reports) > len(texts) else "")


def who_all(reports: Iterable[Report]) -> str:
    """`ranks 0,2-7 actor`; each where it has no rank."""
    by_role: dict[str, set[int]] = {}
    others = []
    for report in reports:
        rank = small_number(report.get("rank"))
        if rank is None or _is_beside(report):
            others.append(who_is(report))
        else:
            by_role.setdefault(text_of(report.get("role")), set()).add(rank)
    texts = []
    for role, ranks in sorted(by_role.items()):
        text = _list_ranks(ranks)
        word = "" if text.endswith("ranks") else "ranks " if len(ranks) > 1 else "rank "
        texts.append(f"{word}{text} {role}".rstrip())
    return ", ".join([*texts, *others[:8]]) + (f" and {len(others) - 8} more" if len(others) > 8 else "")


def _list_ranks(ranks: Iterable[int]) -> str:
    """`0,2-7`; of many pieces a few: what comes after them on a line is not to be cut off."""
    pieces = ranks_as_text(ranks).split(",")
    return ",".join(pieces[:_PIECES_AT_MOST]) + ",..." * (len(pieces) > _PIECES_AT_MOST) or f"{len(set(ranks))} ranks"


def _ranges_inside(report: Report) -> list[Mapping[str, Any]]:
    return [table_of(range_) for range_ in list_of(report.get("inside"))]


def is_debugged(report: Report) -> bool:
    """Is a debugger attached, or does a breakpoint wait?"""
    return bool(report.get("tracer")) or report.get("is_debugged") is True


def _is_beside(report: Report) -> bool:
    return report.get("under") in parts.BESIDE


def _world_of(report: Report) -> tuple[str, object]:
    return text_of(report.get("role")), report.get("world_size")


def _rank_of(report: Report) -> str:
    return text_of(report.get("process"))
