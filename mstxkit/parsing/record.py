"""What became of the parse of one profile: `analysis.json` beside it, so that a command that is run again goes on.

A record says "parsing" from before the parser starts until it was looked at what it left: a command or a machine that
dies in between leaves a profile that is parsed again, never one that passes for parsed.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from ..store import documents
from ..store.values import list_of, table_of

FORMAT = 1
PARSING, PARSED, FAILED, INTERRUPTED = "parsing", "parsed", "failed", "interrupted"
_STATES = (PARSING, PARSED, FAILED, INTERRUPTED)
_TEXT_LIMIT = 4000


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


def write(file: Path, record: ParseRecord, **more: Any) -> None:
    """Keep a record, whole at once. Raises: OSError where it cannot be written."""
    outputs = [output._asdict() for output in record.outputs]
    fields = {"format": FORMAT, **record._asdict(), "outputs": outputs, **more}
    documents.replace_file(file, json.dumps(fields, indent=1).encode())


def read(file: Path) -> ParseRecord | None:
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
