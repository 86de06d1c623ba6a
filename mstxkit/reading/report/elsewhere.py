"""What of a run is not here: still on the disks of its hosts, removed for good, or never come; as lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

from .escape import for_terminal
from .units import size, spans

if TYPE_CHECKING:
    import polars as pl

_SHOWN, _RANKS_AT_MOST = 10, 1 << 20


def missing(processes: pl.DataFrame) -> str:
    """`0,4-7`: ranks of the last attempt of which nothing is here; "" where all are, or nobody knows how many."""
    rows = processes.select("attempt", "rank", "world_size").rows()
    newest = max((attempt for attempt, *_ in rows), default=0)
    sizes = {size for attempt, rank, size in rows if attempt == newest and size and rank is not None}
    there = {rank for attempt, rank, _ in rows if attempt == newest}
    return spans({*range(min(*sizes, _RANKS_AT_MOST))} - there) if len(sizes) == 1 else ""


def lines(places: list[dict[str, Any]], absent: str = "") -> list[Text]:
    """One line a host with files on its own disk, the most bytes first; one for what was removed of processes of which
    nothing is left; one for ranks that are `missing`. Rows of `places.rows`.
    """
    held = sorted((row for row in places if row["files"]), key=lambda row: -row["bytes"])
    made = [_held(row) for row in held[:_SHOWN]]
    if len(held) > _SHOWN:
        rest = sum(row["bytes"] for row in held[_SHOWN:])
        made.append(Text(f"… and {len(held) - _SHOWN} more hosts, {size(rest)} (--json lists all)", "dim"))
    files, records = (sum(row[key] for row in places) for key in ("gone_files", "gone_records"))
    if files:
        made.append(Text(f"removed for a quota or for age: all of some processes, {files} files, {records} records"))
    if absent:
        made.append(Text(f"ranks of which nothing is here: {absent}; not recorded, or their files are elsewhere"))
    return made


def _held(row: dict[str, Any]) -> Text:
    count = f"{row['files']} sealed file{'' if row['files'] == 1 else 's'}, {size(row['bytes'])}"
    where = "on this host's own disk, and read" if row["is_here"] else "on the own disk of its host, and not read here"
    why = f": {for_terminal(row['problem'], 200)}" if row["problem"] else ""
    return Text.assemble((f"{for_terminal(row['host'], 64)}: ", "yellow"), f"{count} {where}{why}")
