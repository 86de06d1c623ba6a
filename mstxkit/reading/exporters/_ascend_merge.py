"""Ranges of one rank added to a copy of a real profile of torch_npu, whose kernels they then stand above.

Clocks are compared by what both write: ns since 1970. Only ranges that reach into the profile's time are added: a run
lasts days, a profile seconds. Each gets a connection that nothing in the profile has, so that Insight draws all tasks
where it drew them before. A profile has a table TASK, next to which `mstx_sum` fails for ranges that the host alone
knows; so the added ones are of a type that it leaves alone: it counts the profile's own.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from ...errors import MstxkitError
from ..importers._database import connect_to
from ..run import Run
from . import _rank_files
from ._ascend_file import AscendFile
from ._rank_files import OUTPUT
from ._rank_rows import RankRowReader, RankRows

_NAME = re.compile(r"ascend_(?:pytorch|mindspore)_profiler(?:_(\d{1,9}))?\.db")
_COPIED_AT_MOST_BYTES = 64 << 20
_LOCKED = (5, 6)  # SQLITE_BUSY, SQLITE_LOCKED


class ProfileTime(NamedTuple):
    """What a profile says of itself: its rank, and the time that it covers, in ns."""

    rank: int
    first_ns: int
    last_ns: int


def merge_ranges(run: Run, folder: Path, source: Path) -> int:
    """Copy a profile's database, and what lies beside it, into an empty folder, and add its rank's ranges.
    Raises MstxkitError: it is no such profile, the run has no such rank, or nothing of it in that time.
    """
    source = _find_database(source)
    target = _copy_profile(folder, source)
    try:
        with closing(sqlite3.connect(target)) as base, base:
            profile = _read_window(base, source)
            # What Insight computed of a profile that it opened goes: else it takes its depths for whole, and added rows
            # have none. Source: msinsight July 2026: what `status_info` does not say is finished is computed anew.
            if base.execute("select 1 from pragma_table_info('MSTX_EVENTS') where name = 'depth'").fetchone():
                base.execute("update MSTX_EVENTS set depth = null")
            if base.execute("select 1 from pragma_table_info('status_info')").fetchone():
                base.execute("delete from status_info")
        count = _add_ranges(run, target, profile)
    except (sqlite3.Error, UnicodeError, OverflowError) as exc:
        raise MstxkitError(f"{source}: not a profile that can be added to: {exc}") from exc
    if not count:
        raise MstxkitError(
            f"{source} covers {profile.first_ns} to {profile.last_ns} ns since 1970, and no range of rank "
            f"{profile.rank} is in that time: is it a profile of this run?"
        )
    return count


def _find_database(source: Path) -> Path:
    """The database of a profile's folder, or the one that was given."""
    if not source.is_dir():
        return source
    there = [path for path in sorted((source / OUTPUT).glob("*.db")) if _NAME.fullmatch(path.name)]
    if len(there) != 1:
        raise MstxkitError(f"{source}: {len(there)} databases of a profiler in its {OUTPUT}; give the path of one")
    return there[0]


def _copy_profile(folder: Path, source: Path) -> Path:
    """The database and the small files around it; a database in use is copied as it stands."""
    if not source.is_file():
        raise MstxkitError(f"{source}: no such file; give a profile's database (…_ascend_pt/{OUTPUT}/….db)")
    output = source.resolve().parent
    place = folder / output.parent.name / OUTPUT if output.name == OUTPUT else folder
    place.mkdir(parents=True, exist_ok=True, mode=0o750)
    target = place / source.name
    try:
        with closing(connect_to(source)) as there, closing(sqlite3.connect(target)) as here:
            there.backup(here, progress=_stop_where_locked)
    except (sqlite3.Error, UnicodeError, OSError) as exc:
        raise MstxkitError(f"{source} cannot be read as a database: {exc}") from exc
    if output.name == OUTPUT:
        beside = [output / "analysis.db", *output.parent.glob("profiler_*.json")]
        for file in (file for file in beside if file.is_file() and not file.is_symlink()):
            if file.stat().st_size <= _COPIED_AT_MOST_BYTES:
                shutil.copyfile(file, (place if file.parent == output else place.parent) / file.name)
    return target


def _stop_where_locked(status: int, remaining: int, total: int) -> None:
    """Each attempt has waited already; by itself a backup would try again for ever."""
    if status & 0xFF in _LOCKED:
        raise sqlite3.OperationalError("database is locked; try again when its writer is done")


def _read_window(base: sqlite3.Connection, source: Path) -> ProfileTime:
    tables = {name for (name,) in base.execute("select name from sqlite_master where type = 'table'")}
    if not {"STRING_IDS", "SESSION_TIME_INFO"} <= tables:
        raise MstxkitError(f"{source}: not a profile of torch_npu's: it has no STRING_IDS or SESSION_TIME_INFO")
    window = base.execute("select min(startTimeNs), max(endTimeNs) from SESSION_TIME_INFO").fetchone()
    named = _NAME.fullmatch(source.name)
    rank = int(named[1]) if named and named[1] else None
    if rank is None and "RANK_DEVICE_MAP" in tables:
        row = base.execute("select rankId from RANK_DEVICE_MAP limit 1").fetchone()
        rank = row[0] if row else None
    if not isinstance(rank, int) or not all(isinstance(moment, int) for moment in window):
        raise MstxkitError(f"{source} says neither in its name nor in its tables which rank it is of, or when it was")
    return ProfileTime(rank, *window)


def _add_ranges(run: Run, target: Path, profile: ProfileTime) -> int:
    processes = run.processes()
    files = {file.number: file for file in _rank_files.of_run(processes)}
    if profile.rank not in files:
        raise MstxkitError(f"this run has no rank {profile.rank}, of which the profile is; it has {sorted(files)[:12]}")
    pids, members = processes["pid"].to_list(), set(files[profile.rank].processes)
    reader = RankRowReader(run)
    with closing(AscendFile(target)) as base:
        for rows in chain(reader.rows(), reader.open_marks()):
            if rows.process in members:
                is_in = (rows.end >= profile.first_ns) & (rows.start <= profile.last_ns)
                within = rows._replace(**{name: getattr(rows, name)[is_in] for name in RankRows._fields[1:]})
                base.put(within, reader.texts, pids[rows.process])
        base.describe(files[profile.rank], (), {})
        base.begin_early(profile.first_ns, profile.last_ns)
        base.finish()
    return base.count
