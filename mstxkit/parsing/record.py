"""What became of the parse of one profile: `analysis.json` beside it, so that a command that is run again goes on.

A record says "parsing" from before the parser starts until it was looked at what it left: a command or a machine that
dies in between leaves a profile that is parsed again, never one that passes for parsed.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from .. import places

FORMAT = 1
PARSING, PARSED, FAILED, INTERRUPTED = "parsing", "parsed", "failed", "interrupted"
_STATES = (PARSING, PARSED, FAILED, INTERRUPTED)
_TEXT_LIMIT = 4000


class Output(NamedTuple):
    """One file that a parse left: its name below the output folder, and its size."""

    name: str
    bytes: int


class Record(NamedTuple):
    """What is known of one parse.

    Attributes:
        state: parsing, parsed, failed, or interrupted: stopped on purpose before its end.
        seconds: How long it took.
        outputs: What it left.
        error: Why it failed; "" if it did not.
        notes: What is worth knowing of a parse that went well, or was done by somebody else.
        versions: What parsed: framework to version.
        host, start_ns: Where and when, Unix time.
    """

    state: str
    seconds: float = 0.0
    outputs: tuple[Output, ...] = ()
    error: str = ""
    notes: tuple[str, ...] = ()
    versions: dict[str, str] = {}
    host: str = ""
    start_ns: int = 0


def write(file: Path, record: Record, **more: Any) -> None:
    """Keep a record, whole at once.

    Raises:
        OSError: it cannot be written.
    """
    outputs = [one._asdict() for one in record.outputs]
    fields = {"format": FORMAT, **record._asdict(), "outputs": outputs, **more}
    places.replace_file(file, json.dumps(fields, indent=1).encode())


def read(file: Path) -> Record | None:
    """The record in a file; None if there is none that can be believed."""
    found = places.read_json(file)
    if found is None or found.get("format") != FORMAT or found.get("state") not in _STATES:
        return None
    return Record(
        found["state"],
        _number(found.get("seconds")),
        tuple(_outputs(found.get("outputs"))),
        _text(found.get("error")),
        tuple(_text(one) for one in _list(found.get("notes"))),
        {_text(key): _text(value) for key, value in _dict(found.get("versions")).items()},
        _text(found.get("host")),
        int(_number(found.get("start_ns"))),
    )


def outputs_in(folder: Path, limit: int = 1000) -> tuple[Output, ...]:
    """The files below an output folder, sorted; no link is followed."""
    found = []
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place, name)
            found.append(Output(str(path.relative_to(folder)), path.lstat().st_size))
    return tuple(sorted(found)[:limit])


def _outputs(value: Any) -> list[Output]:
    found = [one for one in _list(value) if isinstance(one, dict)]
    return [Output(_text(one.get("name")), int(_number(one.get("bytes")))) for one in found]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value[:_TEXT_LIMIT] if isinstance(value, str) else ""


def _number(value: Any) -> float:
    """A number that a table can show: JSON has infinite ones, and whole ones of any length."""
    usable = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1 << 63
    return value if usable else 0
