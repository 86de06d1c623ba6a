"""What stands in each section of the page: its charts, and their tables."""

from __future__ import annotations

from typing import Any, Sequence

from ..report import devices as device_times
from ..report import elsewhere, step_words
from ..report.escape import shown
from ..report.number_table import percent
from ..report.sentences import begun, of_incident
from ..report.step_words import number
from ..report.text import LOSS_WORDS
from ..report.units import duration
from ..tables.resharding import DISPATCH, WEIGHTS
from . import reasons
from .document import ALL_LISTED, chart, cut, named, nothing, table, text
from .figures import ALL, BARS_OF_RANKS

ROWS = 24
_KINDS = {WEIGHTS: "weights", DISPATCH: "dispatch"}


def steps(summary: dict[str, Any], figures: dict[str, Any]) -> str:
    """Where each step's time goes, and the ranges of some steps."""
    roles = figures["roles"]
    if not roles:
        return nothing(reasons.NO_STEP)
    select = _role_select(roles, figures["roles_left_out"])
    note = "The critical path: what a step’s time went to, across ranks."
    notes = [f"{note} {text(role['per_column'])}".strip() for role in roles]
    first = chart(
        "steps", list(map(_label_of_steps, roles)), _by_role(notes, "span"),
        f'<div class="controls">{select}</div>' if select else "", _by_role(list(map(_table_of_steps, roles))),
    )  # fmt: skip
    return first + _zoom(figures["zoom"])


def _label_of_steps(role: dict[str, Any]) -> str:
    rows = role["means"]["critical_path"][:3]
    words = ", ".join(f"{percent(row['ratio'])} {step_words.place(row)}" for row in rows)
    return f"Bars: the length of each step, by the stages on its critical path. In the mean {words}."


def _table_of_steps(role: dict[str, Any]) -> str:
    path = role["means"]["critical_path"]
    rows = ((named(step_words.place(row)), duration(row["ns"]), percent(row["ratio"])) for row in path[:ROWS])
    return table(("stage", "a step", "share"), rows, "Critical path, mean of all steps", 2) + _rest(path)


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
    some = _by_role(list(map(_shown_of_zoom, zoom["roles"])), "span")
    other = " Other steps: <code>mstxkit report RUN --html FILE --steps A:B</code>"
    controls = (
        f'<div class="controls"><label>Step <select id="zoom">{options}</select></label>'
        '<output id="zoom-note" for="zoom"></output></div>'
    )
    label = "Ranges of one step, a row for each rank, by time."
    return "<h3>A step, closely</h3>" + chart("zoom", label, note + some + other, controls)


def _shown_of_zoom(role: dict[str, Any]) -> str:
    ranks = "" if role["ranks"] >= role["all_ranks"] else f" {role['ranks']} of {role['all_ranks']} ranks are shown."
    is_whole = role["ranges"] >= role["all_ranges"]
    return ranks + ("" if is_whole else f" Of their ranges the {role['ranges']} longest in a step are shown.")


def who(summary: dict[str, Any], figures: dict[str, Any]) -> str:
    """Who is slow, where, since when: the heat map of stage × rank over steps; who is late, and who is waited for."""
    roles = figures["roles"]
    if not any(map(_is_compared, roles)):
        return nothing(reasons.not_compared(roles) or reasons.NO_PEER)
    label = "Heat map: ranks by steps, coloured by how much longer each took than the others for its work."
    note = (
        "Each cell compares a rank with the others in the same step, for the work it had: waiting is no part of it. "
        "Where rows stand for several ranks, the one farthest off is shown."
    )
    labels = [label if _is_compared(role) else "" for role in roles]
    lead = _by_role(["" if _is_compared(role) else nothing(reasons.NO_PEER) for role in roles])
    slow = summary["stragglers"]
    behind = stragglers(slow) if slow else nothing(reasons.nobody_slow(roles, summary["judged"]))
    of_others = _by_role([_gates_table(role["means"]) + _late_table(role["means"]) for role in roles])
    return lead + chart("heat", labels, note, _heat_controls(roles[0]["heat"])) + behind + of_others


def stragglers(entries: list[dict[str, Any]]) -> str:
    """Their table, and how many there are that are not in it."""
    rows = (
        (named(row["stage"]), row["where"], named(row["role"] or ALL), named(row["who"]),
         f"{row['first_step']} to {row['last_step']}", f"{100 * row['effect_ratio']:+.0f} %",
         duration(row["more_ns"] or 0), percent(row["confidence"]))
        for row in entries[:ROWS]
    )  # fmt: skip
    columns = ("stage", "where", "role", "who", "steps", "longer", "a step", "confidence")
    return table(columns, rows, "Stragglers, by cost", 3) + _rest(entries)


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


def _late_table(means: dict[str, Any]) -> str:
    entries = means["lateness"]
    rows = (
        (str(e["rank"]), named(e["stage"]), text(e["source"]), duration(e["late_ns"]), duration(e["error_ns"]))
        for e in entries[:ROWS]
    )
    columns = ("rank", "stage", "source", "late", "clocks’ bound")
    return table(columns, rows, "Lateness, mean of the steps", 2) + _rest(entries) if entries else ""


def _gates_table(means: dict[str, Any]) -> str:
    gates = means["held_up_by"]
    rows = ((named(g["stage"]), str(g["rank"]), str(g["steps"]), duration(g["wait_ns"])) for g in gates[:ROWS])
    columns = ("held up in", "by rank", "steps", "ranks waited, a step")
    return table(columns, rows, "Who held up the others", 2) + _rest(gates) if gates else ""


def tail(summary: dict[str, Any], figures: dict[str, Any]) -> str:
    """The long tail, of generation where that has one."""
    every = [role["means"]["tails"][0] for role in figures["roles"] if role["tails"]]
    tails = next((row for row in every if row["generates"]), every[0] if every else None)
    samples = _samples(summary["samples"])
    if tails is None:
        return nothing(text(reasons.no_tail(figures["roles"]))) + samples
    words = begun(step_words.tail(tails)) + "."
    rows = ((str(rank), str(count)) for rank, count in tails["often"][:ROWS])
    behind = table(("last rank", "in so many steps"), rows, f"Who is last, of {tails['steps']} steps", 1)
    behind += _rest(tails["often"])
    note = "Time of the rank in the middle, of nine in ten, and of the last one: what lies between is the tail."
    return f"<p>{text(words)}</p>" + chart("tail", words, note, "", behind) + samples


def _samples(samples: dict[str, Any]) -> str:
    alone = samples["longest_alone"][:8]
    if not alone:
        return ""
    rows = (
        (str(s["step"]), str(s["rank"]), duration(s["duration_ns"]), duration(s["alone_ns"]), number(s["tokens"]))
        for s in alone
    )
    columns = ("step", "rank", "took", "alone", "tokens")
    listed = table(columns, rows, "Samples that held up a step most", 3)
    more = cut(samples["alone"] - len(alone), "more: <code>run.samples()</code>")
    return f"<h3>Single samples that went on alone</h3>{listed}{more}"


def rate(summary: dict[str, Any], figures: dict[str, Any]) -> str:
    """Tokens a second."""
    every = [row for role in figures["roles"] for row in role["means"]["throughput"]]
    if not every:
        return nothing(reasons.no_rate(figures["roles"]))
    has_mfu = any(row["mfu_ratio"] is not None for row in every)
    rows = (
        (named(row["stage"]), named(row["role"] or ALL), number(row["tokens_per_s"]), number(row["step_tokens_per_s"]),
         *([percent(row["mfu_ratio"])] if has_mfu else []))
        for row in every[:ROWS]
    )  # fmt: skip
    columns = ("stage", "role", "tokens/s in the stage", "tokens/s of the step", *(["MFU"] if has_mfu else []))
    behind = table(columns, rows, "Throughput, all steps together", len(columns) - 2) + _rest(every)
    label = "; ".join(f"{shown(row['stage'])}: {number(row['tokens_per_s'])} tokens a second" for row in every[:4])
    call = "MFU: <code>mstxkit report RUN --flops-per-token N --peak-flops N</code>"
    note = f"Tokens a second of all ranks while they are in the stage. {'' if has_mfu else call}".strip()
    more = cut(len(figures["roles_left_out"]), f"more roles: {ALL_LISTED}")
    return chart("rate", f"Lines: {label}.", note, "", behind) + more


def devices(summary: dict[str, Any], figures: dict[str, Any]) -> str:
    """What the time of each stage went to on the device of each rank."""
    entries = summary["devices"]
    if not entries:
        return nothing("No profile of a device was recorded or imported: <code>mstxkit import PATH… --run RUN</code>")
    rows = (
        (named(e["stage"]), str("–" if e["rank"] is None else e["rank"]), str(e["steps"]),
         *device_times.texts(e, "–"))
        for e in entries[:ROWS]
    )  # fmt: skip
    columns = ("stage", "rank", "steps", "recorded", *device_times.PARTS)
    lead = f"From {device_times.origin(entries)}. Transfer and waiting are parts of communicating."
    behind = table(columns, rows, "Time of a step on the device, mean of the steps", len(columns) - 2)
    return f"<p>{text(lead)}</p>{behind}{_rest(entries)}"


def between(summary: dict[str, Any], figures: dict[str, Any]) -> str:
    """What weights that change place and a controller's calls cost."""
    entries = summary["resharding"]
    if not entries:
        return nothing("No stage moves weights, and no controller waited for a stage.")
    rows = (
        (_KINDS[e["kind"]], named(e["stage"]), named(e["role"] or ALL), str(e["steps"]), duration(e["cost_ns"]),
         duration(e["last_ns"]), percent(e["step_ratio"]))
        for e in entries[:ROWS]
    )  # fmt: skip
    columns = ("what", "stage", "role", "steps", "rank in the middle", "last rank", "of the step")
    lead = "Time a step of its own, without waiting, for weights that move; what a controller’s calls take beside work."
    return f"<p>{lead}</p>" + table(columns, rows, "Resharding and dispatch, mean of the steps", 4) + _rest(entries)


def saves(summary: dict[str, Any], figures: dict[str, Any]) -> str:
    """What-if."""
    entries = step_words.ifs(summary)
    if not entries:
        return nothing(reasons.nothing_saved(figures["roles"], summary["what_if"]))
    rows = (
        (text(step_words.of_role(summary, row) + step_words.supposed(row)), duration(row["step_ns"]),
         duration(row["without_ns"]), f"{100 * row['saved_ratio']:.1f} %{step_words.error(row)}")
        for row in entries[:ROWS]
    )  # fmt: skip
    behind = table(("if", "a step takes", "it would take", "saved"), rows, "What each would save", 3) + _rest(entries)
    best = max(figures["what_if"], key=lambda row: row["saved"])
    label = f"Bars: how much shorter a step would be. Most: if {best['words']}, {100 * best['saved']:.1f} %."
    note = "Each row replays the run’s own steps with one thing changed; rows overlap, they do not add up."
    note += f" The first {BARS_OF_RANKS} of {len(entries)}." if len(entries) > BARS_OF_RANKS else ""
    return chart("saves", label, note, "", behind)


def what_if_bars(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """The first rows of what-if in words, as the page's script draws them."""
    return [
        {"kind": row["kind"], "words": step_words.of_role(summary, row) + step_words.supposed(row),
         "step": row["step_ns"], "without": row["without_ns"], "saved": row["saved_ratio"]}
        for row in step_words.ifs(summary)[:BARS_OF_RANKS]
    ]  # fmt: skip


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
            (text(begun(of_incident(entry))), text(entry["waits_for"], 160), _link(entry))
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
    states = ", ".join(f"{n} {state}" for state, n in summary["states"].items())
    lines = [
        f"{summary['processes']} processes: {states}.",
        f"{lost} records were dropped." if lost else "No record was dropped.",
        f"{len(summary['damage'])} places could not be read." if summary["damage"] else "Everything was read.",
        *map(str, elsewhere.lines(summary["places"], summary["missing_ranks"])),
        *summary["autopatch"],
    ]
    if cost := summary["own_cost"]:
        lines.append(
            f"Recording cost {100 * cost['middle_ratio']:.2g} % of the time in the middle of the processes, "
            f"{100 * cost['own_cost_ratio']:.2g} % at most ({cost['label']})."
        )
    parts = ["<ul>", *(f"<li>{text(line)}</li>" for line in lines), "</ul>"]
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


def _by_role(of_each: Sequence[str], tag: str = "div") -> str:
    """HTML of each role: all of it is in the page, and the script hides what is not of the chosen one, the first at
    first; once where all is the same.
    """
    if len(set(of_each)) == 1:
        return of_each[0]
    return "".join(
        f'<{tag} data-role="{at}"{" hidden" if at else ""}>{body}</{tag}>' for at, body in enumerate(of_each)
    )
