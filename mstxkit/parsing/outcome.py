"""Did a parse succeed? The files on disk and the errors that the parser printed decide."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from . import record
from .kinds import DB, OUTPUT, Kind, exports_of
from .record import ParseRecord

_SQLITE = b"SQLite format 3\0"
_TRACE = "trace_view.json"
_LOG_BYTES = 1 << 20
# torch_npu ends a parse whose task failed like any other: `_task_manager.py`, `_utils.py`.
_FAILED = re.compile(
    r"Task \[\w+\] run failed|Call (to )?\w+ failed|DB parser failed|offline analysis failed|Parser \w+ error"
)
# `[time] [ERROR] [pid] profiler.py: text`, and `[ERROR] ME(pid:thread,process):time [file:line] text` of MindSpore.
_ERROR_LINE = re.compile(r".*?\[ERROR\]\s*(?:\[\d+\]\s*)?(?:profiler\.py:|ME\([^)]*\):\S+ \[[^\]]*\])?\s*(.*)")


def problem(kind: Kind, raw: Path, wanted: tuple[str, ...], log: Path | None) -> str:
    """Why a parse is not to be relied on; "" if it is. It should have written what is wanted, as `kinds.exports_of`
    says; in the log is what the parser printed.
    """
    output = raw / OUTPUT
    if output.is_symlink() or not output.is_dir():
        return _join_reasons(f"no {OUTPUT} was written", log)
    if kind.marker and not (output / kind.marker).is_file():
        return _join_reasons(f"{OUTPUT}/{kind.marker} is missing: the parser did not come to its end", log)
    for export in wanted:
        lacking = _tell_lacking(kind, output, export)
        if lacking:
            return _join_reasons(lacking, log)
    failed = [line for line in errors(log) if _FAILED.search(line)]
    return _join_reasons("a part of it failed", log) if failed else ""


def of_somebody_else(kind: Kind, raw: Path) -> ParseRecord | None:
    """A parse by the framework itself, which its configuration can ask for; None where there is no whole output."""
    if problem(kind, raw, exports_of(kind, raw), None):
        return None
    note = "not by this command, which knows only that the output is there"
    return ParseRecord(record.PARSED, outputs=record.outputs_in(raw / OUTPUT), notes=(note,))


def errors(log: Path | None) -> list[str]:
    """The errors that a parser printed, each once, without time and process."""
    tail = b""
    if log is not None:
        with suppress(OSError), open(log, "rb") as stream:
            stream.seek(max(0, stream.seek(0, 2) - _LOG_BYTES))
            tail = stream.read()
    matches = map(_ERROR_LINE.match, tail.decode("utf-8", "replace").splitlines())
    return list(dict.fromkeys(match[1].strip() for match in matches if match and match[1]))


def _join_reasons(what: str, log: Path | None) -> str:
    return "; ".join([what, *errors(log)[:3]])


def _tell_lacking(kind: Kind, output: Path, export: str) -> str:
    """What an output of this form should hold, and does not."""
    if export != DB:
        trace = output / _TRACE
        return "" if trace.is_file() and trace.stat().st_size else f"no {_TRACE} is in {OUTPUT}"
    for path in output.iterdir():
        if kind.database.fullmatch(path.name) and path.is_file() and not path.is_symlink():
            with open(path, "rb") as stream:
                return "" if stream.read(len(_SQLITE)) == _SQLITE else f"{OUTPUT}/{path.name} is no database"
    return f"no database is in {OUTPUT}"
