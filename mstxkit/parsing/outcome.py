"""Did a parse come to something? Decided by what is on disk and by the errors that the parser printed."""

from __future__ import annotations

import re
from pathlib import Path

from . import record
from .kinds import DB, OUTPUT, Kind, exports, info_of
from .record import Record

_SQLITE = b"SQLite format 3\0"
_TRACE = "trace_view.json"
_LOG_BYTES = 1 << 20
# torch_npu ends a parse of which a task failed like any other: `_task_manager.py`, `_utils.py`.
_FAILED = re.compile(
    r"Task \[\w+\] run failed|Call (to )?\w+ failed|DB parser failed|offline analysis failed|Parser \w+ error"
)
# `[time] [ERROR] [pid] profiler.py: text`, and `[ERROR] ME(pid:thread,process):time [file:line] text` of MindSpore.
_SAID = re.compile(r".*?\[ERROR\]\s*(?:\[\d+\]\s*)?(?:profiler\.py:|ME\([^)]*\):\S+ \[[^\]]*\])?\s*(.*)")


def problem(kind: Kind, raw: Path, wanted: tuple[str, ...], log: Path | None) -> str:
    """Why a parse is not to be relied on; "" if it is.

    Args:
        kind, raw: The profile.
        wanted: What it should have written, as `kinds.exports`.
        log: What the parser printed; None where that is not known.
    """
    output = raw / OUTPUT
    if output.is_symlink() or not output.is_dir():
        return _because(f"no {OUTPUT} was written", log)
    if kind.marker and not (output / kind.marker).is_file():
        return _because(f"{OUTPUT}/{kind.marker} is missing: the parser did not come to its end", log)
    for export in wanted:
        lacking = _no_database(kind, output) if export == DB else _no_trace(output)
        if lacking:
            return _because(lacking, log)
    failed = [line for line in errors(log) if _FAILED.search(line)]
    return _because("a part of it failed", log) if failed else ""


def of_somebody_else(kind: Kind, raw: Path) -> Record | None:
    """A parse that this package knows nothing of: frameworks parse their profiles themselves, if they are told to."""
    if problem(kind, raw, exports(kind, info_of(raw)), None):
        return None
    note = "not by this command, which knows only that the output is there"
    return Record(record.PARSED, outputs=record.outputs_in(raw / OUTPUT), notes=(note,))


def errors(log: Path | None) -> list[str]:
    """The errors that a parser printed, each once, without time and process."""
    if log is None:
        return []
    return list(dict.fromkeys(found[1].strip() for line in _tail(log) if (found := _SAID.match(line)) and found[1]))


def _because(what: str, log: Path | None) -> str:
    said = errors(log)
    return "; ".join([what, *said[:3]])


def _no_database(kind: Kind, output: Path) -> str:
    for path in output.iterdir():
        if kind.database.fullmatch(path.name) and path.is_file() and not path.is_symlink():
            with open(path, "rb") as stream:
                return "" if stream.read(len(_SQLITE)) == _SQLITE else f"{OUTPUT}/{path.name} is no database"
    return f"no database is in {OUTPUT}"


def _no_trace(output: Path) -> str:
    trace = output / _TRACE
    return "" if trace.is_file() and trace.stat().st_size else f"no {_TRACE} is in {OUTPUT}"


def _tail(log: Path) -> list[str]:
    try:
        with open(log, "rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, size - _LOG_BYTES))
            return stream.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []
