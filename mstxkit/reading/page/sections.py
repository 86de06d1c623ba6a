"""What stands in each section of the page: its charts, and their tables."""

from __future__ import annotations

from typing import Any, Sequence

from ..report import devices as device_times
from ..report import gaps, step_words
from ..report.escape import escape_name
from ..report.no_verdict import is_too_short
from ..report.number_table import write_percent
from ..report.sentences import begin_sentence, of_incident
from ..report.step_words import write_number
from ..tables.processes import DROPS
from .document import ALL_LISTED, Columns, escape_text, isolate_name, write_chart, write_cut, write_nothing, write_table
from .figures import BARS_OF_RANKS

ROLES_NAMED = 24
NO_STEP = "No step was counted in which a stage has ended."
NO_PEER = "There are no two ranks to compare."
_NO_WORK = "says how much work it did (attributes tokens, responses): a tail cannot be told."


def show_steps(summary: dict[str, Any], figures: dict[str, Any]) -> str:
    """Where each step's time goes, and the ranges of some steps."""
    roles = figures["roles"]
    if not roles:
        return write_nothing(NO_STEP)
    left_out = figures["roles_left_out"]
    options = "".join(f'<option value="{at}">{isolate_name(role["role"])}</option>' for at, role in enumerate(roles))
    more = write_cut(len(left_out), f"more roles, not shown: {', '.join(map(isolate_name, left_out[:ROLES_NAMED]))}")
    select = f'<div class="controls"><label>Role <select id="role">{options}</select></label>{more}</div>'
    note = "The critical path: what a step’s time went to, across ranks."
    notes = [f"{note} {escape_text(role['per_column'])}".strip() for role in roles]
    paths = [role["means"]["critical_path"] for role in roles]
    shares = ((f"{write_percent(row['ratio'])} {step_words.name_place(row)}" for row in path[:3]) for path in paths)
    label = "Bars: the length of each step, by the stages on its critical path. In the mean"
    columns: Columns = {"stage": lambda row: isolate_name(step_words.name_place(row)), "a step": "ns", "share": "ratio"}
    first = write_chart(
        "steps", [f"{label} {', '.join(most)}." for most in shares], _by_role(notes, "span"),
        select if len(roles) > 1 else "",
        _by_role([write_table(path, columns, "Critical path, mean of all steps", 2) for path in paths]),
    )  # fmt: skip
    return first + _write_zoom(figures["zoom"])


def _write_zoom(zoom: dict[str, Any]) -> str:
    if not any(role["steps"] for role in zoom["roles"]):
        return ""
    names = (", ".join(filter(None, (f"step {of['step']}", of["why"]))) for of in zoom["roles"][0]["steps"])
    options = "".join(f'<option value="{at}">{name}</option>' for at, name in enumerate(names))
    note = "Ranges of one step on the run’s clock; drag to look closer, double-click to go back."
    some = []
    for role in zoom["roles"]:
        few = f" {role['ranks']} of {role['all_ranks']} ranks are shown." if role["ranks"] < role["all_ranks"] else ""
        if role["ranges"] < role["all_ranges"]:
            few += f" Of their ranges the {role['ranges']} longest in a step are shown."
        some.append(few)
    other = " Other steps: <code>mstxkit report RUN --html FILE --steps A:B</code>"
    controls = (
        f'<div class="controls"><label>Step <select id="zoom">{options}</select></label>'
        '<output id="zoom-note" for="zoom"></output></div>'
    )
    label = "Ranges of one step, a row for each rank, by time."
    return "<h3>A step, closely</h3>" + write_chart("zoom", [label], note + _by_role(some, "span") + other, controls)


def show_who(summary: dict[str, Any], figures: dict[str, Any]) -> str:
    """Who is slow, where, since when: the heat map of stage × rank over steps; who is late, and who is waited for."""
    roles = figures["roles"]
    are_compared = [role["members"] > 1 and bool(role["heat"]) for role in roles]
    if not any(are_compared):
        return write_nothing(not_compared(roles) or NO_PEER)
    label = "Heat map: ranks by steps, coloured by how much longer each took than the others for its work."
    note = (
        "Each cell compares a rank with the others in the same step, for the work it had: waiting is no part of it. "
        "Where rows stand for several ranks, the one farthest off is shown."
    )
    labels = [label if is_compared else "" for is_compared in are_compared]
    lead = _by_role(["" if is_compared else write_nothing(NO_PEER) for is_compared in are_compared])
    slow = summary["stragglers"]
    nobody = "There are too few steps to tell." if is_too_short(summary["judged"]) else "Nobody is, beyond chance."
    behind = show_stragglers(slow) if slow else write_nothing(nobody)
    gates: Columns = {"held up in": "stage", "by rank": "rank", "steps": "steps", "ranks waited, a step": "wait_ns"}
    late = {"rank": "rank", "stage": "stage", "source": "source", "late": "late_ns", "clocks’ bound": "error_ns"}
    of_others = _by_role([
        write_table(role["means"]["held_up_by"], gates, "Who held up the others", 2)
        + write_table(role["means"]["lateness"], late, "Lateness, mean of the steps", 2)
        for role in roles
    ])  # fmt: skip
    return lead + write_chart("heat", labels, note, _heat_controls(roles[0]["heat"])) + behind + of_others


def show_stragglers(entries: list[dict[str, Any]]) -> str:
    """Their table, and how many there are that are not in it."""
    columns: Columns = {
        "stage": "stage", "where": "where", "role": "role", "who": "who",
        "steps": lambda row: f"{row['first_step']} to {row['last_step']}",
        "longer": lambda row: f"{100 * row['effect_ratio']:+.0f} %", "a step": "more_ns",
        "confidence": lambda row: write_percent(row["confidence"]),
    }  # fmt: skip
    return write_table(entries, columns, "Stragglers, by cost", 3)


def _heat_controls(heat: list[dict[str, Any]]) -> str:
    """Which stage, and what of it. The script puts another role's stages there."""
    names = (("before " if of["where"] == "before" else "") + escape_text(of["stage"], 80) for of in heat)
    options = "".join(f'<option value="{at}">{name}</option>' for at, name in enumerate(names))
    return (
        f'<div class="controls"><label>Stage <select id="stage">{options}</select></label>'
        '<fieldset><legend>Show</legend><label><input type="radio" name="measure" value="slower" checked> '
        'slower for its work</label><label><input type="radio" name="measure" value="waits"> waiting</label>'
        "</fieldset></div>"
    )


def show_tail(summary: dict[str, Any], figures: dict[str, Any]) -> str:
    """The long tail, of generation where that has one."""
    every = [role["means"]["tails"][0] for role in figures["roles"] if role["tails"]]
    tails = next((row for row in every if row["generates"]), every[0] if every else None)
    alone, samples = summary["samples"]["longest_alone"][:8], ""
    if alone:
        figures_of = {"step": "step", "rank": "rank", "took": "duration_ns", "alone": "alone_ns", "tokens": "tokens"}
        samples = "<h3>Single samples that went on alone</h3>"
        samples += write_table(alone, figures_of, "Samples that held up a step most", 3)
        samples += write_cut(summary["samples"]["alone"] - len(alone), "more: <code>run.samples()</code>")
    if tails is None:  # why no stage goes on for one rank after the others
        of_several = (role for role in figures["roles"] if role["members"] > 1)
        stages = list(dict.fromkeys(stage for role in of_several for stage in role["works"]))
        some = "of several ranks " if any(role["works"] for role in figures["roles"]) else ""
        why = not_compared(figures["roles"]) or f"No stage {some}{_NO_WORK}"
        together = f"The ranks leave {' and '.join(stages[:3])} together: nobody goes on there after the others."
        return write_nothing(escape_text(together if stages else why)) + samples
    words = begin_sentence(step_words.describe_tail(tails)) + "."
    often = [{"rank": rank, "steps": count} for rank, count in tails["often"]]
    columns = {"last rank": "rank", "in so many steps": "steps"}
    behind = write_table(often, columns, f"Who is last, of {tails['steps']} steps", 1)
    note = "Time of the rank in the middle, of nine in ten, and of the last one: what lies between is the tail."
    return f"<p>{escape_text(words)}</p>" + write_chart("tail", [words], note, "", behind) + samples


def show_rate(summary: dict[str, Any], figures: dict[str, Any]) -> str:
    """Tokens a second."""
    every = [row for role in figures["roles"] for row in role["means"]["throughput"]]
    if not every:
        untold = "No stage says how many tokens it works on (attribute tokens)."
        return write_nothing(untold if figures["roles"] else NO_STEP)
    columns = {"stage": "stage", "role": "role", "tokens/s in the stage": "tokens_per_s"}
    columns["tokens/s of the step"] = "step_tokens_per_s"
    note = "Tokens a second of all ranks while they are in the stage."
    if any(row["mfu_ratio"] is not None for row in every):
        columns["MFU"] = "mfu_ratio"
    else:
        note += " MFU: <code>mstxkit report RUN --flops-per-token N --peak-flops N</code>"
    behind = write_table(every, columns, "Throughput, all steps together", len(columns) - 2)
    rates = (f"{escape_name(row['stage'])}: {write_number(row['tokens_per_s'])} tokens a second" for row in every[:4])
    more = write_cut(len(figures["roles_left_out"]), f"more roles: {ALL_LISTED}")
    return write_chart("rate", [f"Lines: {'; '.join(rates)}."], note, "", behind) + more


def show_devices(summary: dict[str, Any], figures: dict[str, Any]) -> str:
    """What the time of each stage went to on the device of each rank."""
    entries = summary["devices"]
    if not entries:
        nothing = "No profile of a device was recorded or imported"
        return write_nothing(f"{nothing}: <code>mstxkit import PATH… --run RUN</code>")
    titles = ("recorded", *device_times.PARTS)
    rows = [{**of, **dict(zip(titles, device_times.write_times(of, "–")))} for of in entries]
    columns = {name: name for name in ("stage", "rank", "steps", *titles)}
    lead = f"From {device_times.write_origin(entries)}. Transfer and waiting are parts of communicating."
    caption = "Time of a step on the device, mean of the steps"
    return f"<p>{escape_text(lead)}</p>" + write_table(rows, columns, caption, len(columns) - 2)


def show_between(summary: dict[str, Any], figures: dict[str, Any]) -> str:
    """What weights that change place and a controller's calls cost."""
    entries = summary["resharding"]
    if not entries:
        return write_nothing("No stage moves weights, and no controller waited for a stage.")
    columns: Columns = {
        "what": "kind", "stage": "stage", "role": "role", "steps": "steps",
        "rank in the middle": "cost_ns", "last rank": "last_ns", "of the step": "step_ratio",
    }  # fmt: skip
    lead = "Time a step of its own, without waiting, for weights that move; what a controller’s calls take beside work."
    return f"<p>{lead}</p>" + write_table(entries, columns, "Resharding and dispatch, mean of the steps", 4)


def show_saves(summary: dict[str, Any], figures: dict[str, Any]) -> str:
    """What-if."""
    entries = step_words.list_changes(summary)
    if not entries:
        why = not_compared(figures["roles"]) or ("" if summary["what_if"] else "No two ranks wait for each other.")
        in_vain = "No change of a single thing makes a step shorter by a thousandth or more."
        return write_nothing(f"There is nothing to replay. {why}" if why else in_vain)
    columns: Columns = {
        "if": lambda row: escape_text(step_words.of_role(summary, row) + step_words.describe_change(row)),
        "a step takes": "step_ns", "it would take": "without_ns",
        "saved": lambda row: f"{100 * row['saved_ratio']:.1f} %{step_words.write_error(row)}",
    }  # fmt: skip
    behind = write_table(entries, columns, "What each would save", 3)
    best = max(figures["what_if"], key=lambda row: row["saved"])
    label = f"Bars: how much shorter a step would be. Most: if {best['words']}, {100 * best['saved']:.1f} %."
    note = "Each row replays the run’s own steps with one thing changed; rows overlap, they do not add up."
    note += f" The first {BARS_OF_RANKS} of {len(entries)}." if len(entries) > BARS_OF_RANKS else ""
    return write_chart("saves", [label], note, "", behind)


def show_profiles(summary: dict[str, Any], figures: dict[str, Any]) -> str:
    """Escalations with their profiles, and incidents."""
    parts = []
    if figures["escalations"]:
        same = {name: name for name in ("stage", "rank", "state", "steps", "preset")}
        columns: Columns = {**same, "profile": _write_link, "reason": "reason"}
        caption = "Requests for profiles, and what was recorded"
        parts.append(write_table(figures["escalations"], columns, caption, at_most=len(figures["escalations"])))
        parts.append(write_cut(figures["requests_left_out"], "older ones: <code>run.escalations()</code>"))
    else:
        parts.append(write_nothing("No profile was asked for."))
    if figures["incidents"]:
        columns = {
            "what happened": lambda entry: escape_text(begin_sentence(of_incident(entry))),
            "who waits": lambda entry: escape_text(entry["waits_for"], 160), "what was seen": _write_link,
        }  # fmt: skip
        parts.append("<h3>Incidents</h3>" + write_table(figures["incidents"], columns, "Hangs, deaths and the like"))
        parts.append(write_cut(figures["incidents_left_out"], f"earlier ones: {ALL_LISTED}"))
    return "".join(parts)


def _write_link(entry: dict[str, Any]) -> str:
    words = escape_text(entry["folder"] or "–")
    size = f" ({escape_text(entry['size'])})" if entry["size"] else ""
    return f'<a href="{escape_text(entry["href"], 4096)}">{words}</a>{size}' if entry["href"] else words + size


def show_health(summary: dict[str, Any], figures: dict[str, Any]) -> str:
    """Whether what is shown is all that there was."""
    losses = summary["losses"]
    lost = sum(process["dropped"] for process in losses)
    states = ", ".join(f"{n} {state}" for state, n in summary["states"].items())
    lines = [
        f"{summary['processes']} processes: {states}.",
        f"{lost} records were dropped." if lost else "No record was dropped.",
        f"{len(summary['damage'])} places could not be read." if summary["damage"] else "Everything was read.",
        *map(str, gaps.render_gaps(summary["places"], summary["missing_ranks"])),
        *summary["autopatch"],
    ]
    if cost := summary["own_cost"]:
        most = f"{100 * cost['own_cost_ratio']:.2g} % at most ({cost['label']})"
        middle = f"{100 * cost['middle_ratio']:.2g} % of the time in the middle of the processes"
        lines.append(f"Recording cost {middle}, {most}.")
    parts = ["<ul>", *(f"<li>{escape_text(line)}</li>" for line in lines), "</ul>"]
    of_losses: Columns = {
        "process": "label", "host": "host",
        "lost": lambda row: escape_text(", ".join(f"{row[k]} {words}" for k, words in DROPS.items() if row[k])),
    }  # fmt: skip
    of_damage: Columns = {
        "file": lambda row: f"<bdi>{escape_text(row['path'], 120)}</bdi>", "why": "reason", "at byte": "offset"
    }  # fmt: skip
    if losses:
        parts.append("<h3>Losses</h3>" + write_table(losses, of_losses, "What was not recorded, or not kept"))
    if summary["damage"]:
        parts.append("<h3>Not read</h3>" + write_table(summary["damage"], of_damage, "What could not be read", 1))
    return "".join(parts)


def _by_role(of_each: Sequence[str], tag: str = "div") -> str:
    """HTML of each role: all of it is in the page, and the script hides what is not of the chosen one, the first at
    first; once where all is the same.
    """
    if len(set(of_each)) == 1:
        return of_each[0]
    bodies = (f'<{tag} data-role="{at}"{" hidden" if at else ""}>{body}</{tag}>' for at, body in enumerate(of_each))
    return "".join(bodies)


def not_compared(roles: Sequence[dict[str, Any]]) -> str:
    """Why no rank can be compared with another one; "" where some can. `roles`: as `figures.of_run` gives them."""
    if not roles:
        return NO_STEP
    return "" if any(role["members"] > 1 for role in roles) else NO_PEER
