"""`patches/<process>.json`: what became of every target of `autopatch` in one process, and its trainer's settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Iterable, Mapping

from ..errors import FormatError
from ..host import folders
from . import documents, layout
from .values import short_text, text_of

FORMAT, LIMIT_BYTES, _NAME_CHARACTERS = 1, 1 << 20, 200
FIELDS = ("framework", "path", "state", "reason", "detail", "tier", "version")


def write_record(run: Path, process: str, states: Iterable[Any], settings: Mapping[str, Any]) -> None:
    """Replace the record of a process; its states have the attributes of FIELDS, and `calls`.
    Raises OSError, CaptureError: it cannot be written.
    """
    targets = [{name: getattr(state, name) for name in (*FIELDS, "calls")} for state in states]
    folder = run / layout.PATCHES
    folders.make_folder(folder)
    content = json.dumps({"format": FORMAT, "targets": targets, "settings": dict(settings)})
    documents.replace_file(folder / f"{process}{layout.PATCHES_SUFFIX}", content.encode())


def parse_record(raw: bytes) -> list[tuple[Any, ...]]:
    """The fields of each target, as texts, and its calls, where known. Raises FormatError: it is no such record."""
    try:
        targets = json.loads(raw)["targets"]
        calls = [n if type(n := target.get("calls")) is int and 0 <= n < 1 << 63 else None for target in targets]
        return [(*(text_of(str(target.get(name, ""))) for name in FIELDS), n) for target, n in zip(targets, calls)]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as exc:
        raise FormatError(f"the record of patches cannot be read: {exc}") from None


def parse_settings(raw: bytes) -> dict[str, str]:
    """What the trainer of the process was configured with, as texts; nothing where that is not known.
    Raises FormatError: it is no such record.
    """
    try:
        settings = json.loads(raw).get("settings", {}).items()
        short = short_text(_NAME_CHARACTERS)
        return {short(str(name)): short(str(value)) for name, value in settings}
    except (ValueError, TypeError, AttributeError, RecursionError) as exc:
        raise FormatError(f"the record of patches cannot be read: {exc}") from None
