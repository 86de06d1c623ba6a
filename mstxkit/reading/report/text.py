"""The report on a terminal, from its summary. Every name in it goes through `escape`."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from .. import labels
from ..tables.processes import DROPS
from . import devices, gaps, headline, step_words, waits
from .escape import escape_name, for_terminal
from .number_table import range_table, stage_table
from .sentences import list_texts
from .units import write_count, write_duration, write_spans

RANK_LIMIT = 8
ALIKE = 1.02
DAMAGE_LIMIT = LINES_SHOWN = 20


def render_report(summary: dict[str, Any], everything: bool = False, top: int | None = None) -> RenderableType:
    """The whole report: of a stage the slowest ranks and the longest ranges, `top` of these, or `everything`."""
    parts: list[RenderableType] = [*headline.render_headline(summary["matters"], everything), Text(), _of_run(summary)]
    parts += [Text(summary["judged"]["behind"], "bold yellow")] * bool(summary["judged"]["behind"])
    by_devices = (devices.tell_last(latest, summary["path"]) for latest in summary["by_devices"])
    parts += _set_apart([Text(for_terminal(line)) for line in by_devices])
    parts += [Text(), _step_time(summary), *step_words.render_steps(summary, everything)]
    parts += _set_apart(stage_table(summary["stages"], everything) if summary["stages"] else [])
    parts += waits.render_waits(summary["waits"])
    parts += _set_apart([range_table(summary["ranges"], top, everything)] if summary["ranges"] else [])
    parts += _set_apart(devices.render_devices(summary["devices"], everything))
    parts += [Text(), _own_cost(summary)]
    parts += _set_apart([_tell_ended(ending) for ending in summary["endings"]])
    parts += [_tell_lost(process) for process in summary["losses"][:LINES_SHOWN]]
    if (more := len(summary["losses"]) - LINES_SHOWN) > 0:
        parts.append(Text(f"… and {more} more processes with losses (--json lists all)", "dim"))
    coalesced = [
        f"{escape_name(of['name'])} ({of['calls']} calls in {of['records']} records)" for of in summary["coalesced"]
    ]
    parts += [Text.assemble(("coalesced: ", "yellow"), list_texts(coalesced, ", ", RANK_LIMIT))] if coalesced else []
    parts += gaps.lines_of_profiles(summary["captures_failed"])
    parts += gaps.render_gaps(summary["places"], summary["missing_ranks"])
    parts += map(Text, summary["autopatch"])
    parts += damage_lines(summary["damage"])
    return Group(*parts)


def _set_apart(section: list[RenderableType]) -> list[RenderableType]:
    return [Text(), *section] if section else []


def _of_run(summary: dict[str, Any]) -> Text:
    states = ", ".join(f"{count} {state}" for state, count in summary["states"].items())
    processes = write_count(summary["processes"], "process", "processes") + (f" ({states})" if states else "")
    text = Text.assemble(("Run ", "bold"), f"{for_terminal(summary['path'])}: {processes}")
    if summary["first_step"] is not None:
        text.append(f", steps {summary['first_step']} to {summary['last_step']}")
    if summary["warm_up"] and not summary["chosen"]["steps"]:
        text.append(f"; means leave out warm-up, steps {write_spans(summary['warm_up'])}")
    if summary["chosen_words"]:
        is_of_rows = summary["chosen"]["steps"] or summary["chosen"]["ranks"]
        what = "Stages, ranges and the time of a step" if is_of_rows else "Stages and ranges"
        text.append(f"\n{what} of {for_terminal(summary['chosen_words'])} only; all else is of the whole run.")
    return text


def _step_time(summary: dict[str, Any]) -> Text:
    time = summary["step_time"]
    if time is None:
        nothing = not (summary["stages"] or summary["ranges"])
        return Text("No range has ended." if nothing else "No step was counted: times are of the whole run.")
    text = Text.assemble("A step takes ", (write_duration(time["step_ns"]), "bold"))
    if time["processes"] == 1:
        whose = f" in {time['slowest']['label']}" if sum(summary["states"].values()) > 1 else ""
        return text.append(f"{whose}, the mean of {time['steps']}")
    if time["slowest"]["step_ns"] <= ALIKE * time["fastest"]["step_ns"]:
        return text.append(f" in all {time['processes']} processes alike")
    ends = [f"{write_duration(time[word]['step_ns'])} in {time[word]['label']}" for word in ("fastest", "slowest")]
    return text.append(f" in the middle of {time['processes']} processes: from {ends[0]} to {ends[1]}")


def _own_cost(summary: dict[str, Any]) -> Text:
    cost, dropped = summary["own_cost"], sum(process["dropped"] for process in summary["losses"])
    share = "is not known"
    if cost is not None:
        most = f" at most, in {cost['label']}" if cost["processes"] > 1 else ""
        share = f"{100 * cost['own_cost_ratio']:.2g} % of the time{most}"
    return Text(f"Recording cost {share}; " + (f"records dropped: {dropped}" if dropped else "no record was dropped"))


def _tell_ended(ending: dict[str, Any]) -> Text:
    """One line for all that ended alike: how many, who, and what they were inside of."""
    alike = ending["processes"]
    text = Text.assemble((f"{len(alike)} {ending['state']} {escape_name(ending['how'])}".rstrip() + ": ", "bold"))
    text.append(list_texts([escape_name(process["label"]) for process in alike], ", ", RANK_LIMIT))
    inside_of = []
    for label, inside in ((of["label"], inside) for of in alike for inside in of["inside"]):
        place = f"{escape_name(label)} in {escape_name(inside['name'])}"
        place += "" if inside["domain"] == "default" else f" of {escape_name(inside['domain'])}"
        place += "" if inside["stage"] is None else f", stage {escape_name(inside['stage'])}"
        place += "" if inside["step"] is None else f", step {inside['step']}"
        # Last seen is a heartbeat: nothing is known of how long the range went on if it began after the last one.
        entered = f", entered {write_duration(inside['open_ns'])} before it was last seen" if inside["open_ns"] else ""
        inside_of.append(place + entered)
    return text.append(f"; open: {list_texts(inside_of, '; ', RANK_LIMIT)}" if inside_of else "")


def _tell_lost(process: dict[str, Any]) -> Text:
    lost = ", ".join(f"{process[name]} {words}" for name, words in DROPS.items() if process[name])
    if process["names_capped"]:
        maker = f"made most by module {escape_name(process['names_by'])}; " if process["names_by"] else ""
        lost += f" (too many names, {maker}what differs from call to call belongs into attributes)"
    return Text.assemble((f"{labels.label_with_place(process)}: ", "yellow"), lost)


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
