"""What of a run is not here: still on the disks of its hosts, removed for good, or never come; as lines of text.

Also profiles of which nothing came: a capture that recorded nothing is a failure that is told; and what autopatch
reached, in how many processes, whether it was called, and what is not there.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import polars as pl
from rich.console import RenderableType
from rich.text import Text

from ...store.report import EXPIRED, FAILED, REFUSED
from ...store.values import group_by
from ..run import Run
from .escape import SENTENCE_LIMIT, escape_name, for_terminal
from .sentences import list_texts
from .units import write_size, write_spans

_SHOWN, _RANKS_AT_MOST = 10, 1 << 20
_PROFILES_SHOWN, _RANKS_SHOWN = 5, 8
_PATH_LIMIT, _NAMED = 160, 4
_REPLACED = "replaced since"


def list_missing(processes: pl.DataFrame) -> str:
    """`0,4-7`: ranks of the last attempt of which nothing is here; "" where all are, or nobody knows how many."""
    rows = processes.select("attempt", "rank", "world_size").rows()
    newest = max((attempt for attempt, *_ in rows), default=0)
    sizes = {size for attempt, rank, size in rows if attempt == newest and size and rank is not None}
    there = {rank for attempt, rank, _ in rows if attempt == newest}
    return write_spans({*range(min(*sizes, _RANKS_AT_MOST))} - there) if len(sizes) == 1 else ""


def render_gaps(places: list[dict[str, Any]], absent: str = "") -> list[Text]:
    """One line a host with files on its own disk, the most bytes first, by the rows of `places.list_places`; one for
    what was removed of processes of which nothing is left; one for ranks that are `missing`.
    """
    held = sorted((row for row in places if row["files"]), key=lambda row: -row["bytes"])
    made = []
    for row in held[:_SHOWN]:
        count = f"{row['files']} sealed file{'' if row['files'] == 1 else 's'}, {write_size(row['bytes'])}"
        place = "this host's own disk, and read" if row["is_here"] else "the own disk of its host, and not read here"
        why = f": {for_terminal(row['problem'], 200)}" if row["problem"] else ""
        made.append(Text.assemble((f"{for_terminal(row['host'], 64)}: ", "yellow"), f"{count} on {place}{why}"))
    if len(held) > _SHOWN:
        rest = write_size(sum(row["bytes"] for row in held[_SHOWN:]))
        made.append(Text(f"… and {len(held) - _SHOWN} more hosts, {rest} (--json lists all)", "dim"))
    files, records = (sum(row[key] for row in places) for key in ("gone_files", "gone_records"))
    if files:
        made.append(Text(f"removed for a quota or for age: all of some processes, {files} files, {records} records"))
    if absent:
        made.append(Text(f"ranks of which nothing is here: {absent}; not recorded, or their files are elsewhere"))
    return made


def failed_profiles(run: Run) -> list[dict[str, Any]]:
    """What failed, was refused or has expired, the newest first: `request`, `stage`, `state`, `reason`, `ranks`."""
    named = ("request", "stage", "state", "reason")
    failed = run.escalations().filter(pl.col("state").is_in((FAILED, REFUSED, EXPIRED)))
    return failed.group_by(*named, maintain_order=True).agg(ranks="rank").reverse().to_dicts()


def lines_of_profiles(failures: list[dict[str, Any]]) -> list[RenderableType]:
    """A line for each."""
    made: list[RenderableType] = [Text()] * bool(failures)
    for failure in failures[:_PROFILES_SHOWN]:
        ranks = [rank for rank in failure["ranks"] if rank is not None]
        more = f" and {len(ranks) - _RANKS_SHOWN} more" if len(ranks) > _RANKS_SHOWN else ""
        who = f" on rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks[:_RANKS_SHOWN]))}{more}" if ranks else ""
        head = f"Profile of {escape_name(failure['stage'] or '?')}{who} {failure['state']}: "
        reason = for_terminal(failure["reason"] or "no reason was given", SENTENCE_LIMIT)
        style = "bold red" if failure["state"] == FAILED else "yellow"
        made.append(Text.assemble((head, style), f"{reason} (request {escape_name(failure['request'])})"))
    if (rest := len(failures) - _PROFILES_SHOWN) > 0:
        made.append(Text(f"… and {rest} more profiles that did not come (--json lists all)", "dim"))
    return made


def patch_lines(patches: list[dict[str, Any]]) -> list[str]:
    """One line and more a framework, safe to show, from the rows of `Run.patches()` as dicts; nothing of a framework
    that no process has imported, unless its version is not known.
    """
    by_framework = group_by(patches, lambda row: str(row["framework"]))
    texts = [line for name, rows in sorted(by_framework.items()) for line in _of_framework(name, rows)]
    return [for_terminal(text, 2 * _PATH_LIMIT) for text in texts]


def _of_framework(framework: str, rows: list[dict[str, Any]]) -> list[str]:
    applied = [row for row in rows if row["state"] == "applied"]
    failed = {(row["path"], row["reason"], row["detail"]) for row in rows if row["state"] == "failed"}
    paths, processes = {row["path"] for row in applied}, {(row["host"], row["pid"]) for row in applied}
    # What some process has skipped is not in this version, or was not asked for. A path can be declared twice.
    tried = paths | {path for path, _, _ in failed}
    held = tried | ({row["path"] for row in rows} - {row["path"] for row in rows if row["state"] == "skipped"})
    texts = [f"autopatch {framework}: {words}" for words in dict.fromkeys(row["version"] for row in rows) if words]
    if not applied and not failed:
        return [f"{line}; none of its {len({row['path'] for row in rows})} targets is in place" for line in texts]
    counted = f"{len(paths)} of the {len(held)} targets that this version has, in {len(processes)} processes"
    rest = f"; {len(held - tried)} in modules that none has imported" if held - tried else ""
    calls = Counter[str]()  # of those that are in place, and of which that is known
    for row in applied:
        if row["calls"] is not None:
            calls[row["path"]] += row["calls"]
    called = f"; in place and called {sum(calls.values())} times" if calls else ""
    never = [path.partition(":")[2] for path, count in calls.items() if not count]
    called += f"; in place, never called: {list_texts(never, ', ', _NAMED)}" if never else ""
    texts.append(f"autopatch {framework}: {counted}{rest}{called}")
    for path, reason, detail in sorted(failed):
        why = f" {detail}" if reason == _REPLACED else f" ({detail})" if detail else ""
        texts.append(("  " if reason == _REPLACED else "  not reached: ") + f"{path}: {reason}{why}")
    return texts
