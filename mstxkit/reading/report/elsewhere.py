"""What of a run is still on the disks of its hosts, and what was removed for good, as lines of text."""

from __future__ import annotations

from typing import Any

from rich.console import RenderableType
from rich.text import Text

from .escape import for_terminal
from .units import size

_SHOWN = 10


def lines(places: list[dict[str, Any]]) -> list[RenderableType]:
    """One line a host with files on its own disk, the most bytes first, and one for what was removed of processes of
    which nothing is left. Rows of `places.rows`.
    """
    held = sorted((row for row in places if row["files"]), key=lambda row: -row["bytes"])
    made: list[RenderableType] = [_held(row) for row in held[:_SHOWN]]
    if len(held) > _SHOWN:
        rest = sum(row["bytes"] for row in held[_SHOWN:])
        made.append(Text(f"… and {len(held) - _SHOWN} more hosts, {size(rest)} (--json lists all)", "dim"))
    files, records = (sum(row[key] for row in places) for key in ("gone_files", "gone_records"))
    if files:
        made.append(Text(f"removed for a quota or for age: all of some processes, {files} files, {records} records"))
    return made


def _held(row: dict[str, Any]) -> RenderableType:
    count = f"{row['files']} sealed file{'' if row['files'] == 1 else 's'}, {size(row['bytes'])}"
    where = "on this host's own disk, and read" if row["is_here"] else "on the own disk of its host, and not read here"
    why = f": {for_terminal(row['problem'], 200)}" if row["problem"] else ""
    return Text.assemble((f"{for_terminal(row['host'], 64)}: ", "yellow"), f"{count} {where}{why}")
