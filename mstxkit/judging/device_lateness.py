"""Who came last by one profiled step: on a device a collective lasts until the last has come, who stays least in it.

That holds where everybody's result needs everybody's data; other operations, which somebody may leave before the others
have come, are left out. It says who came last, and by the shortest stay at most how wrong that may be. It does not say
that who came last waited for nobody then: in real profiles of levels 0 to 2 all ranks waited inside, for their hosts.

Source: torch_npu 2.13 and CANN 8.5, `ascend_pytorch_profiler_<rank>.db`: table COMMUNICATION_OP (level 1 and up), else
ranges of the mstx domain `communication` in MSTX_EVENTS, whose device part is the row of TASK with their
`connectionId`; their message is JSON with `groupName` and `opName`. Durations alone are compared: no clock is needed.
"""

from __future__ import annotations

import json
import re
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any, Iterator, Mapping, NamedTuple, Sequence

import numpy as np

from .evidence import DEVICE, Collectives, Seconds

_DOMAIN = "communication"
_ROWS_AT_MOST = 1 << 18
# Of one text, of all of one reading, and between two looks at the time: a database is what anybody may have written.
_TEXT_AT_MOST, _READS_WITHIN_S, _LOOKS_EVERY = 1 << 16, 10.0, 100_000
_NEEDS_ALL = re.compile(r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|barrier", re.IGNORECASE)
_OPERATIONS = """
select g.value, o.startNs, o.endNs, n.value from COMMUNICATION_OP o join STRING_IDS g on g.id = o.groupName
left join STRING_IDS n on n.id = o.opName order by o.startNs limit ?
"""
_RANGES = """
select m.value, t.startNs, t.endNs from MSTX_EVENTS e
join STRING_IDS m on m.id = e.message join STRING_IDS d on d.id = e.domainId
join TASK t on t.connectionId = e.connectionId
where d.value = ? order by t.startNs limit ?
"""


def needs_all(name: str) -> bool:
    """Does everybody in an operation, or a kernel, of this name need what all the others send?"""
    return bool(_NEEDS_ALL.search(name[:200]))


class DeviceCollective(NamedTuple):
    """One collective of a rank on its device, ns of that host's wall clock."""

    group: str
    start_ns: int
    end_ns: int


def read_collectives(database: Path) -> list[DeviceCollective]:
    """The collectives of a rank, the first begun first; [] where its database tells of none, or is none."""
    try:
        with closing(sqlite3.connect(f"{database.resolve().as_uri()}?mode=ro", uri=True)) as base:
            ends_s = time.monotonic() + _READS_WITHIN_S
            base.set_progress_handler(lambda: time.monotonic() > ends_s, _LOOKS_EVERY)
            if sys.version_info >= (3, 11):
                base.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _TEXT_AT_MOST)
            tables = {name for (name,) in base.execute("select name from sqlite_master where type = 'table'")}
            rows = list(_read_rows(base, tables))
    except (sqlite3.Error, OSError):
        return []
    usable = (DeviceCollective(*row) for row in rows if [*map(type, row)] == [str, int, int])
    return [row for row in usable if 0 <= row.start_ns <= row.end_ns]


def _read_rows(base: sqlite3.Connection, tables: set[str]) -> Iterator[tuple[Any, Any, Any]]:
    """Group, start and end of what needs everybody's data, as the database has them, whatever they are."""
    if {"COMMUNICATION_OP", "STRING_IDS"} <= tables:
        has_any = False
        for group, start, end, name in base.execute(_OPERATIONS, (_ROWS_AT_MOST,)):
            has_any = True
            if not isinstance(name, str) or needs_all(name):
                yield group, start, end
        if has_any:
            return
    if {"MSTX_EVENTS", "STRING_IDS", "TASK"} <= tables:
        for message, start, end in base.execute(_RANGES, (_DOMAIN, _ROWS_AT_MOST)):
            try:
                fields = json.loads(message)
            except (TypeError, ValueError, RecursionError):
                fields = None
            group, name = (fields.get(key) if isinstance(fields, dict) else None for key in ("groupName", "opName"))
            if not isinstance(name, str) or needs_all(name):
                yield group, start, end


def join_collectives(of_ranks: Mapping[int, Sequence[DeviceCollective]]) -> Collectives | None:
    """One stage's collectives of each rank as evidence, its members in this order; None where no two of them have any
    in common.

    The k-th of a group in one member is the k-th in the others. Where counts differ, somebody's window was another:
    that group is left out. Times are made so that each collective is over for all at once, as it is.
    """
    of_members, ranks = list(of_ranks.values()), np.array(list(of_ranks))
    names = sorted({each.group for member in of_members for each in member if each.group})
    rows = [row for number, name in enumerate(names) for row in _of_group(number, name, of_members)]
    if not rows:
        return None
    member, group, sequence, entered, left = (np.array(column) for column in zip(*rows))
    groups = {of: tuple(ranks[np.unique(member[group == of])].tolist()) for of in set(group.tolist())}
    return Collectives(
        member, group, sequence, entered.astype(np.float64), left.astype(np.float64), 0 * member, groups, DEVICE
    )


def bounds_s(entered: Collectives) -> Seconds:
    """(K,) by how much each entry may be wrong against the others of its collective: the shortest duration of that.

    For so long, about, all members are in it and data move. Their ends are taken as one moment here; it is taken that
    they lie no farther apart than that.
    """
    took_s = entered.left_s - entered.entered_s
    _, place = np.unique((entered.group << 32) | entered.sequence, return_inverse=True)
    shortest_s = np.full(place.max() + 1 if len(place) else 0, np.inf)
    np.minimum.at(shortest_s, place, took_s)
    return np.asarray(shortest_s[place])


def _of_group(
    number: int, name: str, of_members: Sequence[Sequence[DeviceCollective]]
) -> list[tuple[int, int, int, float, float]]:
    """(member, group, sequence, entered, left) of each; seconds from the first member's first."""
    mine = {at: [each for each in member if each.group == name] for at, member in enumerate(of_members)}
    mine = {at: entries for at, entries in mine.items() if entries}
    if len(mine) < 2 or len({len(entries) for entries in mine.values()}) > 1:
        return []
    first = next(iter(mine.values()))
    over_s = [(each.end_ns - first[0].start_ns) / 1e9 for each in first]
    return [
        (at, number, sequence, over_s[sequence] - (each.end_ns - each.start_ns) / 1e9, over_s[sequence])
        for at, entries in mine.items()
        for sequence, each in enumerate(entries)
    ]
