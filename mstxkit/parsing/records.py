"""What became of the parse of one profile, by the files on disk and the errors that the parser printed; and
`analysis.json` beside it, so that a command that is run again goes on.

A record says "parsing" from before the parser starts until it was looked at what it left: a command or a machine that
dies in between leaves a profile that is parsed again, never one that passes for parsed.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ..store import documents
from ..store.values import list_of, table_of
from .kinds import DB, OUTPUT, Kind, exports_of

FORMAT = 1
PARSING, PARSED, FAILED, INTERRUPTED = "parsing", "parsed", "failed", "interrupted"
_STATES = (PARSING, PARSED, FAILED, INTERRUPTED)
_TEXT_LIMIT = 4000
_SQLITE = b"SQLite format 3\0"
_TRACE = "trace_view.json"
_LOG_BYTES = 1 << 20
# torch_npu ends a parse whose task failed like any other: `_task_manager.py`, `_utils.py`.
_FAILED = re.compile(
    r"Task \[\w+\] run failed|Call (to )?\w+ failed|DB parser failed|offline analysis failed|Parser \w+ error"
)
# `[time] [ERROR] [pid] profiler.py: text`, and `[ERROR] ME(pid:thread,process):time [file:line] text` of MindSpore.
_ERROR_LINE = re.compile(r".*?\[ERROR\]\s*(?:\[\d+\]\s*)?(?:profiler\.py:|ME\([^)]*\):\S+ \[[^\]]*\])?\s*(.*)")


class ParsedFile(NamedTuple):
    """One file that a parse left: its name below the output folder, and its size."""

    name: str
    bytes: int


class ParseRecord(NamedTuple):
    """What is known of one parse."""

    state: str  # parsing, parsed, failed, or interrupted: stopped on purpose before its end
    seconds: float = 0.0
    outputs: tuple[ParsedFile, ...] = ()
    error: str = ""  # why it failed
    notes: tuple[str, ...] = ()  # what is worth knowing of a parse that went well, or was done by somebody else
    versions: dict[str, str] = {}  # what parsed: framework to version
    host: str = ""
    start_ns: int = 0  # Unix time


def write_record(file: Path, record: ParseRecord, **more: Any) -> None:
    """Keep a record, whole at once. Raises: OSError where it cannot be written."""
    outputs = [output._asdict() for output in record.outputs]
    fields = {"format": FORMAT, **record._asdict(), "outputs": outputs, **more}
    documents.replace_file(file, json.dumps(fields, indent=1).encode())


def read_record(file: Path) -> ParseRecord | None:
    """The record in a file; None if there is none that can be believed."""
    document = documents.read_json(file)
    if document is None or document.get("format") != FORMAT or document.get("state") not in _STATES:
        return None
    get = document.get
    files = [file for file in list_of(get("outputs")) if isinstance(file, dict)]
    outputs = tuple(ParsedFile(_read_text(file.get("name")), int(_read_number(file.get("bytes")))) for file in files)
    notes = tuple(map(_read_text, list_of(get("notes"))))
    versions = {_read_text(key): _read_text(value) for key, value in table_of(get("versions")).items()}
    start_ns = int(_read_number(get("start_ns")))
    seconds, error, host = _read_number(get("seconds")), _read_text(get("error")), _read_text(get("host"))
    return ParseRecord(document["state"], seconds, outputs, error, notes, versions, host, start_ns)


def outputs_in(folder: Path, limit: int = 1000) -> tuple[ParsedFile, ...]:
    """The files below an output folder, sorted; no link is followed."""
    paths = [Path(place, name) for place, _, names in os.walk(folder) for name in names]
    files = sorted(ParsedFile(str(path.relative_to(folder)), path.lstat().st_size) for path in paths)
    return tuple(files[:limit])


def _read_text(value: Any) -> str:
    return value[:_TEXT_LIMIT] if isinstance(value, str) else ""


def _read_number(value: Any) -> float:
    """A number that a table can show: JSON has infinite ones, and whole ones of any length."""
    usable = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1 << 63
    return value if usable else 0


def find_problem(kind: Kind, raw: Path, wanted: tuple[str, ...], log: Path | None) -> str:
    """Why a parse is not to be relied on; "" if it is. It should have written what is wanted, as `kinds.exports_of`
    says; in the log is what the parser printed.
    """
    output = raw / OUTPUT
    if output.is_symlink() or not output.is_dir():
        problem = f"no {OUTPUT} was written"
    elif kind.marker and not (output / kind.marker).is_file():
        problem = f"{OUTPUT}/{kind.marker} is missing: the parser did not come to its end"
    else:
        problem = next(filter(None, (_tell_lacking(kind, output, export) for export in wanted)), "")
    errors = find_errors(log)
    if not problem and any(map(_FAILED.search, errors)):
        problem = "a part of it failed"
    return "; ".join([problem, *errors[:3]]) if problem else ""


def of_somebody_else(kind: Kind, raw: Path) -> ParseRecord | None:
    """A parse by the framework itself, which its configuration can ask for; None where there is no whole output."""
    if find_problem(kind, raw, exports_of(kind, raw), None):
        return None
    note = "not by this command, which knows only that the output is there"
    return ParseRecord(PARSED, outputs=outputs_in(raw / OUTPUT), notes=(note,))


def find_errors(log: Path | None) -> list[str]:
    """The errors that a parser printed, each once, without time and process."""
    tail = b""
    if log is not None:
        with suppress(OSError), open(log, "rb") as stream:
            stream.seek(max(0, stream.seek(0, 2) - _LOG_BYTES))
            tail = stream.read()
    matches = map(_ERROR_LINE.match, tail.decode("utf-8", "replace").splitlines())
    return list(dict.fromkeys(match[1].strip() for match in matches if match and match[1]))


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
