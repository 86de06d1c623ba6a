"""The report on a terminal, from its summary. Every name in it goes through `escape`."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from .. import labels
from . import waits
from .escape import NAME_LIMIT, for_rich, for_terminal, shown
from .units import duration, share_over

RANK_LIMIT = 8
_PATH_LIMIT = 160
_STAGE_WIDTH = 26  # reference_compute_log_prob
DAMAGE_LIMIT = 20
LOSS_WORDS = {
    "dropped": "records dropped",
    "evicted": "records evicted by the disk quota",
    "coalesced": "calls coalesced",
    "slots_overflowed": "open ranges not shown (no free slot)",
    "attributes_lost": "ranges that lost attributes",
    "names_capped": "ranges given the catch-all name",
    "texts_cut": "texts cut",
    "faults": "faults inside mstxkit",
}


def render(summary: dict[str, Any], all_ranks: bool = False) -> RenderableType:
    """The whole report; of stages with many ranks only the slowest, unless `all_ranks`."""
    parts: list[RenderableType] = [_headline(summary)]
    parts.append(_stage_table(summary["stages"], all_ranks) if summary["stages"] else Text("No stage has ended."))
    parts += waits.lines(summary["waits"])
    parts += [_killed(process) for process in summary["killed"]]
    parts += [Text()] * bool(summary["endings"]) + [_ended(ending) for ending in summary["endings"]]
    parts += [_lost(process) for process in summary["losses"]]
    parts += _coalesced(summary["coalesced"])
    parts += damage_lines(summary["damage"])
    return Group(*parts)


def who(process: dict[str, Any], with_host: bool = False) -> str:
    """`rank 3 actor`, as no other process of the run is called."""
    return labels.placed(process) if with_host else str(process["label"])


def _headline(summary: dict[str, Any]) -> Text:
    states = ", ".join(f"{count} {state}" for state, count in summary["states"].items())
    text = Text.assemble(("Run ", "bold"), for_terminal(summary["path"]), f": {summary['processes']} processes")
    text.append(f" ({states})" if states else "")
    if summary["first_step"] is not None:
        text.append(f", steps {summary['first_step']} to {summary['last_step']}")
    if summary["step"] is not None:
        text.append(f"; stages of step {summary['step']}")
    return text


def _stage_table(stages: list[dict[str, Any]], all_ranks: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    # Where it gets too narrow, who is slowest is broken between words before the names of stages are.
    longest = max(len(stage["stage"]) for stage in stages)
    table.add_column("stage", overflow="fold", min_width=min(longest, _STAGE_WIDTH))
    table.add_column("rank", no_wrap=True)
    for name in ("count", "total", "mean", "p50", "p99"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("slowest", overflow="fold", min_width=10)
    for stage in stages:
        _add_stage(table, stage, all_ranks)
    return table


def _add_stage(table: Table, stage: dict[str, Any], all_ranks: bool) -> None:
    rows = listed = stage["ranks"]
    table.add_row(for_rich(stage["stage"], NAME_LIMIT, "bold"), "all", *_numbers(stage), _slowest(stage["slowest"]))
    if len(rows) > RANK_LIMIT and not all_ranks:
        listed = sorted(rows, key=lambda row: -row["mean_ns"])[:RANK_LIMIT]
    for row in listed:
        table.add_row("", Text(who(row).removeprefix("rank ")), *_numbers(row), "")
    if len(listed) < len(rows):
        table.add_row("", Text(f"… {len(rows) - len(listed)} faster (--all)", "dim"))


def _numbers(row: dict[str, Any]) -> list[str]:
    return [str(row["count"]), *(duration(row[name]) for name in ("total_ns", "mean_ns", "p50_ns", "p99_ns"))]


def _slowest(slowest: dict[str, Any] | None) -> Text:
    if slowest is None:
        return Text("")
    return Text(f"{who(slowest)} ({share_over(slowest['mean_ns'], slowest['median_ns'])})")


def _killed(process: dict[str, Any]) -> Text:
    how = f" {process['how']}" if process["how"] else ""
    text = Text.assemble("\n", (f"{who(process, with_host=True)} was killed{how}", "bold red"))
    if not process["inside"]:
        return text.append(", outside of any range" if how else " outside of any range")
    for place, inside in enumerate(process["inside"]):
        text.append(" inside " if place == 0 else f"\n  on track {inside['track']} inside ")
        text.append(shown(inside["name"]), "bold").append(_context(inside))
    return text


def _ended(ending: dict[str, Any]) -> Text:
    """One line for all that ended alike: how many, who, and what they were inside of."""
    alike = ending["processes"]
    text = Text.assemble((f"{len(alike)} {ending['state']} {shown(ending['how'])}: ", "bold"))
    text.append(_listed([shown(who(process)) for process in alike]))
    opened = [(process, inside) for process in alike for inside in process["inside"]]
    inside_of = [f"{shown(who(process))} in {shown(inside['name'])}{_context(inside)}" for process, inside in opened]
    return text.append(f"; open: {_listed(inside_of, '; ')}" if inside_of else "")


def _listed(texts: list[str], between: str = ", ") -> str:
    more = [f"{len(texts) - RANK_LIMIT} more (--json lists all)"] if len(texts) > RANK_LIMIT else []
    return between.join(texts[:RANK_LIMIT] + more)


def _context(inside: dict[str, Any]) -> str:
    domain = "" if inside["domain"] == "default" else f" of {shown(inside['domain'])}"
    stage = "" if inside["stage"] is None else f", stage {shown(inside['stage'])}"
    step = "" if inside["step"] is None else f", step {inside['step']}"
    # Last seen is a heartbeat: nothing is known of how long the range went on if it began after the last one.
    entered = f", entered {duration(inside['open_ns'])} before it was last seen" if inside["open_ns"] else ""
    return f"{domain}{stage}{step}{entered}"


def _lost(process: dict[str, Any]) -> Text:
    lost = ", ".join(f"{process[name]} {words}" for name, words in LOSS_WORDS.items() if process[name])
    return Text.assemble((f"{who(process, with_host=True)}: ", "yellow"), lost)


def _coalesced(ranges: list[dict[str, Any]]) -> list[RenderableType]:
    if not ranges:
        return []
    named = [f"{shown(r['name'])} ({r['calls']} calls in {r['records']} records)" for r in ranges]
    return [Text.assemble(("coalesced: ", "yellow"), _listed(named))]


def damage_lines(damage: list[dict[str, Any]]) -> list[RenderableType]:
    """What could not be read, one line each, the first twenty."""
    lines: list[RenderableType] = []
    for part in damage[:DAMAGE_LIMIT]:
        where = f"{for_terminal(part['path'])} at byte {part['offset']}"
        size = f", {part['size']} bytes" if part["size"] else ""
        lines.append(Text.assemble(("not read: ", "yellow"), f"{where}{size}: {for_terminal(part['reason'], 200)}"))
    if len(damage) > DAMAGE_LIMIT:
        lines.append(Text(f"… and {len(damage) - DAMAGE_LIMIT} more places (--json lists all)", "dim"))
    return lines


def patch_lines(patches: list[dict[str, Any]]) -> list[str]:
    """What autopatch reached: how much in how many processes, and what failed, once each; as text.

    From the rows of `Run.patches()`, as dicts; nothing of a framework that no process has imported.
    """
    by_framework: dict[str, list[dict[str, Any]]] = {}
    for row in patches:
        by_framework.setdefault(row["framework"], []).append(row)
    return [line for name, rows in sorted(by_framework.items()) for line in _framework_lines(name, rows)]


def _framework_lines(framework: str, rows: list[dict[str, Any]]) -> list[str]:
    applied = [row for row in rows if row["state"] == "applied"]
    failed = {(row["path"], row["reason"], row["detail"]) for row in rows if row["state"] == "failed"}
    if not applied and not failed:
        return []
    paths, processes = {row["path"] for row in applied}, {(row["host"], row["pid"]) for row in applied}
    # What some process has skipped is not in this version, or was not asked for. A path can be declared twice.
    tried = paths | {path for path, _, _ in failed}
    held = tried | ({row["path"] for row in rows} - {row["path"] for row in rows if row["state"] == "skipped"})
    waiting = held - tried
    counted = f"{len(paths)} of the {len(held)} targets that this version has, in {len(processes)} processes"
    rest = f"; {len(waiting)} in modules that none has imported" if waiting else ""
    lines = [f"autopatch {for_rich(framework, _PATH_LIMIT)}: {counted}{rest}"]
    for path, reason, detail in sorted(failed):
        failure = f"{path}: {reason}" + (f" ({detail})" if detail else "")
        lines.append(f"  not reached: {for_rich(failure, _PATH_LIMIT)}")
    return lines
