"""What stands in each section of the page: its charts, and their tables."""

from __future__ import annotations

from typing import Any, Iterable

import numpy as np

from ..report import incident_lines
from ..report.number_table import percent
from ..report.sentences import begun
from ..report.text import LOSS_WORDS
from ..report.units import duration
from . import by_role, reasons
from .document import ALL_LISTED, chart, cut, named, nothing, table, text
from .packed import unpacked

ROWS = 24
_SAME_WORK = 0.05  # of the mean, more or less
_KINDS = {
    "straggler": "rank {rank} as fast as the others {where} {stage}", "bubble": "nobody waits {where} {stage}",
    "link": "the collectives of ranks {group} in {stage} as fast as others",
    "tail": "no rank longer in {stage} than the one in the middle",
    "change": "{stage} as fast as before step {first_step}",
    "split": "{trainers} trainers and {rollouts} rollouts",
}  # fmt: skip
_WHERE = {"inside": "inside of", "in": "in", "before": "before"}


def steps(summary: dict[str, Any], figures: dict[str, Any]) -> str:
    """Where each step's time goes, and the ranges of some steps."""
    roles = figures["roles"]
    if not roles:
        return nothing(reasons.NO_STEP)
    select = _role_select(roles, figures["roles_left_out"])
    first = chart(
        "steps", list(map(_label_of_steps, roles)), by_role.parts(list(map(_note_of_steps, roles)), "span"),
        f'<div class="controls">{select}</div>' if select else "", by_role.parts(list(map(_table_of_steps, roles))),
    )  # fmt: skip
    return first + _zoom(figures["zoom"])


def _longest(role: dict[str, Any]) -> list[tuple[str, float, float]]:
    """Stage, seconds of a step in the mean, and their share, the longest first."""
    path = role["path"]
    seconds = unpacked(path["seconds"])
    shares = seconds.mean(axis=1) / max(seconds.sum(axis=0).mean(), 1e-12)
    rows = zip(path["stages"], seconds.mean(axis=1).tolist(), shares.tolist())
    return sorted(rows, key=lambda row: -row[1])


def _label_of_steps(role: dict[str, Any]) -> str:
    words = ", ".join(f"{percent(share)} {stage}" for stage, _, share in _longest(role)[:3])
    return f"Bars: the length of each step, by the stages on its critical path. In the mean {words}."


def _note_of_steps(role: dict[str, Any]) -> str:
    return f"The critical path: what a step’s time went to, across ranks. {text(role['per_column'])}".strip()


def _table_of_steps(role: dict[str, Any]) -> str:
    rows = ((named(stage), duration(1e9 * s), percent(share)) for stage, s, share in _longest(role))
    return table(("stage", "a step", "share"), rows, "Critical path, mean of all steps", 2)


def _role_select(roles: list[dict[str, Any]], left_out: list[str]) -> str:
    if len(roles) < 2:
        return ""
    options = "".join(f'<option value="{at}">{named(role["role"])}</option>' for at, role in enumerate(roles))
    what = f"more roles, not shown: {', '.join(map(named, left_out[:ROWS]))}"
    return f'<label>Role <select id="role">{options}</select></label>{cut(len(left_out), what)}'


def _zoom(zoom: dict[str, Any] | None) -> str:
    if zoom is None or not any(role["steps"] for role in zoom["roles"]):
        return ""
    options = "".join(
        f'<option value="{at}">step {step["step"]}{", " + step["why"] if step["why"] else ""}</option>'
        for at, step in enumerate(zoom["roles"][0]["steps"])
    )
    note = "Ranges of one step on the run’s clock; drag to look closer, double-click to go back."
    some = by_role.parts(list(map(_ranks_of_zoom, zoom["roles"])), "span")
    other = " Other steps: <code>mstxkit report RUN --html FILE --steps A:B</code>"
    controls = f'<div class="controls"><label>Step <select id="zoom">{options}</select></label></div>'
    label = "Ranges of one step, a row for each rank, by time."
    return "<h3>A step, closely</h3>" + chart("zoom", label, note + some + other, controls)


def _ranks_of_zoom(role: dict[str, Any]) -> str:
    return "" if role["ranks"] >= role["all_ranks"] else f" {role['ranks']} of {role['all_ranks']} ranks are shown."


def who(summary: dict[str, Any], figures: dict[str, Any]) -> str:
    """The heat map of stage × rank over steps."""
    roles = figures["roles"]
    if not any(map(_is_compared, roles)):
        return nothing(reasons.not_compared(roles) or reasons.NO_PEER)
    behind = stragglers(summary["stragglers"], figures["stragglers_in_all"])
    label = "Heat map: ranks by steps, coloured by how much longer each took than the others for its work."
    note = (
        "Each cell compares a rank with the others in the same step, for the work it had: waiting is no part of it. "
        "Where rows stand for several ranks, the one farthest off is shown."
    )
    labels = [label if _is_compared(role) else "" for role in roles]
    lead = by_role.or_nothing(roles, _is_compared, "{role} has no two ranks to compare.", _nothing_more)
    return lead + chart("heat", labels, note, _heat_controls(roles[0]["heat"]), behind)


def stragglers(entries: list[dict[str, Any]], in_all: int) -> str:
    """Their table, and how many there are that are not in it."""
    rows = (
        (named(row["stage"]), row["where"], str(row["rank"]), f"{row['first_step']} to {row['last_step']}",
         f"{100 * row['effect_ratio']:+.0f} %", duration(row["more_ns"] or 0), percent(row["confidence"]))
        for row in entries[:ROWS]
    )  # fmt: skip
    columns = ("stage", "where", "rank", "steps", "longer", "a step", "confidence")
    more = cut(in_all - ROWS, "more: <code>run.stragglers()</code>")
    return table(columns, rows, "Stragglers, by cost", 3) + more


def _nothing_more(role: dict[str, Any]) -> str:
    return ""


def _is_compared(role: dict[str, Any]) -> bool:
    return role["members"] > 1 and bool(role["heat"])


def _heat_controls(heat: list[dict[str, Any]]) -> str:
    """Which stage, and what of it. The script puts another role's stages there."""
    options = "".join(
        f'<option value="{at}">{"before " if entry["where"] == "before" else ""}{text(entry["stage"], 80)}</option>'
        for at, entry in enumerate(heat)
    )
    return (
        f'<div class="controls"><label>Stage <select id="stage">{options}</select></label>'
        '<fieldset><legend>Show</legend><label><input type="radio" name="measure" value="slower" checked> '
        'slower for its work</label><label><input type="radio" name="measure" value="waits"> waiting</label>'
        "</fieldset></div>"
    )


def late(summary: dict[str, Any], figures: dict[str, Any]) -> str:
    """Who is slow for its work, and who comes late: two rankings side by side."""
    parts = ["<h3>Slower than the others for the same work</h3>" + _slow(summary, figures["roles"])]
    if any(map(_is_late, figures["roles"])):
        parts.append("<h3>Late where all enter together</h3>" + _late(figures["roles"]))
    return f'<div class="two"><div>{"</div><div>".join(parts)}</div></div>'


def _slow(summary: dict[str, Any], roles: list[dict[str, Any]]) -> str:
    slow = summary["stragglers"]
    if not slow:
        return nothing(reasons.nobody_slow(roles, summary["judged"]))
    worst = slow[0]
    label = (
        f"Bars: time a step beyond what the work explains. Most: rank {worst['rank']} {worst['where']} "
        f"{worst['stage']}, {duration(worst['more_ns'] or 0)}."
    )
    return chart("slow", label, _note_of_slow())


def _is_late(role: dict[str, Any]) -> bool:
    return bool(role["late"])


def _late(roles: list[dict[str, Any]]) -> str:
    most = "Bars: how much later than the first each rank enters. Most: rank {rank}."
    labels = [most.format(**role["late"][0]) if role["late"] else "" for role in roles]
    note = "Mean of the steps. Whiskers: the bound of the clocks’ error. Later than that is late for sure."
    none = "No stage was seen that ranks of {role} enter together."
    lead = by_role.or_nothing(roles, _is_late, none, _nothing_more)
    return lead + chart("late", labels, note, "", by_role.parts([_late_table(role["late"]) for role in roles]))


def _late_table(entries: list[dict[str, Any]]) -> str:
    rows = (
        (str(e["rank"]), named(e["stage"]), duration(e["late_ns"]), duration(e["error_ns"]), text(e["source"]))
        for e in entries
    )
    return table(("rank", "stage", "late", "clocks’ bound", "source"), rows, "Lateness, mean of the steps", 2)


def _note_of_slow() -> str:
    return "More time a step than the work explains; those who only wait are not here."


def waiting(summary: dict[str, Any], figures: dict[str, Any]) -> str:
    """How long each rank waits, and for whom."""
    roles = figures["roles"]
    if not any(map(_has_waits, roles)):
        return nothing(reasons.nobody_waits(roles))
    labels = [
        f"Bars: how long each rank waits in a step. {_most_held_up(role)}".strip() if _has_waits(role) else ""
        for role in roles
    ]
    none = "No stage was seen in which ranks of {role} wait for each other."
    lead = by_role.or_nothing(roles, _has_waits, none, _held_up)
    note = "Time a step that a rank waits for others, by where it waits. A long bar is a rank that is not the cause."
    return lead + chart("waits", labels, note, "", by_role.parts([_gates_table(role["gates"]) for role in roles]))


def _has_waits(role: dict[str, Any]) -> bool:
    return bool(role["waits"]["places"])


def _held_up(role: dict[str, Any]) -> str:
    words = _most_held_up(role)
    return f"<p>{text(words)}</p>" if words else ""


def _most_held_up(role: dict[str, Any]) -> str:
    first = role["gates"][0] if role["gates"] else None
    return f"Most often they wait for rank {first['rank']}, late in {first['stage']}." if first else ""


def _gates_table(gates: list[dict[str, Any]]) -> str:
    rows = ((named(g["stage"]), str(g["rank"]), str(g["steps"]), duration(g["wait_ns"])) for g in gates)
    return table(("held up in", "by rank", "steps", "ranks waited, a step"), rows, "Who held up the others", 2)


def tail(summary: dict[str, Any], figures: dict[str, Any]) -> str:
    """The long tail, of generation where that has one."""
    every = [role["tails"] for role in figures["roles"] if role["tails"]]
    tails = next((tails for tails in every if tails["generates"]), every[0] if every else None)
    if tails is None:
        return nothing(text(reasons.no_tail(figures["roles"])))
    often = tails["often"][0]
    share = percent(tails["share"])
    words = (
        f"In {tails['stage']} the last rank goes on for {share} of its time after the one in the middle is done; all "
        f"ranks together wait {duration(1e9 * tails['idle_s'])} a step for it."
    )
    if tails["longer"] is not None:
        has_more = abs(tails["longer"] - 1) > _SAME_WORK
        words += (
            f" It has {tails['longer']:.2f} times the mean’s tokens."
            if has_more
            else " It has no more tokens than the mean."
        )
    rows = ((str(rank), str(count)) for rank, count in tails["often"])
    behind = table(("last rank", "in so many steps"), rows, f"Who is last, of {tails['steps']} steps", 1)
    also = f" Rank {often[0]} is last most often: in {often[1]} of {tails['steps']} steps."
    note = "Time of the rank in the middle, of nine in ten, and of the last one: what lies between is the tail."
    samples = _samples(figures["samples"])
    return f"<p>{text(words + also)}</p>" + chart("tail", words, note, "", behind) + samples


def _samples(samples: list[dict[str, Any]]) -> str:
    if not samples:
        return ""
    rows = (
        (str(s["step"]), str(s["rank"]), duration(s["duration_ns"]), duration(s["alone_ns"]), _number(s["tokens"]))
        for s in samples
    )
    return "<h3>Single samples that went on alone</h3>" + table(
        ("step", "rank", "took", "alone", "tokens"), rows, "Samples that held up a step most", 3
    )


def rate(summary: dict[str, Any], figures: dict[str, Any]) -> str:
    """Tokens a second."""
    every = [(role["role"], line) for role in figures["roles"] for line in role["rates"]]
    if not every:
        return nothing(reasons.no_rate(figures["roles"]))
    rows = (
        (named(line["stage"]), named(role), _number(line["mean"]), _number(line["step_mean"])) for role, line in every
    )
    columns = ("stage", "role", "tokens/s in the stage", "tokens/s of the step")
    behind = table(columns, rows, "Throughput, mean of all steps", 2)
    label = "; ".join(f"{line['stage']}: {_number(line['mean'])} tokens a second" for _, line in every[:4])
    call = "<code>run.throughput(flops_per_token, peak_flops)</code>"
    note = f"Tokens a second of all ranks while they are in the stage. MFU: {call}"
    more = cut(len(figures["roles_left_out"]), "more roles: <code>run.throughput()</code>")
    return chart("rate", f"Lines: {label}.", note, "", behind) + more


def saves(summary: dict[str, Any], figures: dict[str, Any]) -> str:
    """What-if."""
    entries = [row for row in figures["what_if"] if row["saved"] is not None and row["saved"] >= 0.001]
    if not entries:
        return nothing(reasons.nothing_saved(figures["roles"], figures["what_if"]))
    rows = (
        (text(row["words"]), duration(row["step"]), duration(row["without"]), f"{100 * row['saved']:.1f} %")
        for row in entries
    )
    behind = table(("if", "a step takes", "it would take", "saved"), rows, "What each would save", 3)
    best = entries[0]
    label = f"Bars: how much shorter a step would be. Most: if {best['words']}, {100 * best['saved']:.1f} %."
    note = "Each row replays the run’s own steps with one thing changed; rows overlap, they do not add up."
    return chart("saves", label, note, "", behind)


def what_if_rows(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of what-if in words, as the page's script draws them."""
    entries = []
    for row in rows:
        values = {**row, "where": _WHERE.get(row["where"] or "", "in")}
        entries.append({
            "kind": row["kind"], "words": _KINDS[row["kind"]].format(**values), "step": row["step_ns"] or 0,
            "without": row["without_ns"] or 0, "saved": row["saved_ratio"],
        })  # fmt: skip
    return entries


def profiles(summary: dict[str, Any], figures: dict[str, Any]) -> str:
    """Escalations with their profiles, and incidents."""
    parts = []
    if figures["escalations"]:
        rows = (
            (named(e["stage"]), str("–" if e["rank"] is None else e["rank"]), text(e["state"]), text(e["steps"]),
             text(e["preset"]), _link(e), text(e["reason"]))
            for e in figures["escalations"]
        )  # fmt: skip
        columns = ("stage", "rank", "state", "steps", "preset", "profile", "reason")
        parts.append(table(columns, rows, "Requests for profiles, and what was recorded"))
        parts.append(cut(figures["requests_left_out"], "older ones: <code>run.escalations()</code>"))
    else:
        parts.append(nothing("No profile was asked for."))
    if figures["incidents"]:
        rows_of_incidents = (
            (text(begun(incident_lines.sentence(entry))), text(entry["waits_for"], 160), _link(entry))
            for entry in figures["incidents"]
        )
        titles = ("what happened", "who waits", "what was seen")
        parts.append("<h3>Incidents</h3>" + table(titles, rows_of_incidents, "Hangs, deaths and the like"))
        parts.append(cut(figures["incidents_left_out"], f"earlier ones: {ALL_LISTED}"))
    return "".join(parts)


def _link(entry: dict[str, Any]) -> str:
    words = text(entry["folder"] or "–")
    size = f" ({text(entry['size'])})" if entry["size"] else ""
    return f'<a href="{text(entry["href"], 4096)}">{words}</a>{size}' if entry["href"] else words + size


def health(summary: dict[str, Any], figures: dict[str, Any]) -> str:
    """Whether what is shown is all that there was."""
    losses = summary["losses"]
    lost = sum(process["dropped"] for process in losses)
    lines = [
        f"{summary['processes']} processes: "
        + ", ".join(f"{n} {state}" for state, n in summary["states"].items())
        + "."
    ]
    lines.append("No record was dropped." if not lost else f"{lost} records were dropped.")
    if summary["own_cost"] is not None:
        cost = summary["own_cost"]
        lines.append(
            f"Recording cost {100 * cost['middle_ratio']:.2g} % of the time in the middle of the processes, "
            f"{100 * cost['own_cost_ratio']:.2g} % at most ({cost['label']})."
        )
    lines.append(
        "Everything was read." if not summary["damage"] else f"{len(summary['damage'])} places could not be read."
    )
    parts = ["<ul>", *(f"<li>{text(line)}</li>" for line in lines), "</ul>"]
    if summary["killed"]:
        rows = ((named(p["label"]), named(p["host"]), text(_inside(p))) for p in summary["killed"][:ROWS])
        parts.append("<h3>Killed</h3>" + table(("process", "host", "inside of"), rows, "Processes that were killed"))
        parts.append(_rest(summary["killed"]))
    if losses:
        rows = (
            (named(p["label"]), named(p["host"]), text(", ".join(f"{p[k]} {w}" for k, w in LOSS_WORDS.items() if p[k])))
            for p in losses[:ROWS]
        )
        parts.append("<h3>Losses</h3>" + table(("process", "host", "lost"), rows, "What was not recorded, or not kept"))
        parts.append(_rest(losses))
    if summary["damage"]:
        rows = (
            (f"<bdi>{text(d['path'], 120)}</bdi>", text(d["reason"]), str(d["offset"]))
            for d in summary["damage"][:ROWS]
        )
        parts.append("<h3>Not read</h3>" + table(("file", "why", "at byte"), rows, "What could not be read", 1))
        parts.append(_rest(summary["damage"]))
    return "".join(parts)


def _rest(entries: list[dict[str, Any]]) -> str:
    return cut(len(entries) - ROWS, f"more: {ALL_LISTED}")


def _inside(process: dict[str, Any]) -> str:
    inside = process["inside"]
    return ", ".join(str(opened["name"]) for opened in inside[:3]) if inside else "outside of any range"


def _number(value: float | None) -> str:
    return "–" if value is None or not np.isfinite(value) else f"{value:,.0f}".replace(",", " ")
