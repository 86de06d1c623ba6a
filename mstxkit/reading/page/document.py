"""The page's HTML. Every text of a run is escaped here, once: nothing else writes HTML.

What a chart shows stands in a table behind it too, for those who read with their ears, and for paper.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
from functools import cache
from importlib import resources
from string import Template
from typing import Any, Callable, Iterable, Mapping, Sequence, Union

from ..report.escape import for_terminal
from ..report.number_table import write_percent
from ..report.sentences import begin_sentence
from ..report.step_words import describe_waits, write_number
from ..report.units import write_duration
from .figures import ALL

TITLE_LIMIT, TEXT_LIMIT, ROWS = 160, 400, 24
ALL_LISTED = "<code>mstxkit report RUN --json</code> lists all"
# Key, title, and what it is called where there is little room.
SECTIONS = (
    ("steps", "Where the time of a step goes", "Steps"), ("saves", "What mending would save", "Savings"),
    ("who", "Who is slow or late, where, since when", "Who"), ("tail", "The long tail", "Tail"),
    ("rate", "Throughput", "Throughput"), ("devices", "What devices did in each stage", "Devices"),
    ("between", "Resharding and dispatch", "Resharding"), ("profiles", "Profiles and incidents", "Profiles"),
    ("health", "Health of the capture", "Health"),
)  # fmt: skip
Columns = Mapping[str, Union[str, Callable[[Any], str]]]
_OF_HEAD = {"Why": "why", "Profile": "profile", "Do": "advice"}


def escape_text(value: Any, limit: int = TEXT_LIMIT) -> str:
    """A text of a run, safe in HTML: what cannot be seen is written as an escape, and the rest is cut."""
    return html.escape(for_terminal("" if value is None else str(value), limit), quote=True)


def isolate_name(value: Any) -> str:
    """A name of a run that keeps its own direction of writing."""
    return f"<bdi>{escape_text(value, 80)}</bdi>"


def sign_script(script: str) -> str:
    """By which the page's policy knows a script."""
    return "'sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii") + "'"


@cache
def _read_sources() -> dict[str, str]:
    """What a page looks like and runs: our own, and `plotly.js-cartesian-dist-min` 4.1.1 of npm, compressed."""
    own = resources.files(__package__)
    plotly = (own / "plotly-cartesian.min.js.gz").read_bytes()
    page, css, script = ((own / f"page.{kind}").read_text("utf-8") for kind in ("html", "css", "js"))
    return {
        "html": page, "css": css, "script": script, "plotly": base64.b64encode(plotly).decode("ascii"),
        "scripts": f"{sign_script(gzip.decompress(plotly).decode('utf-8'))} {sign_script(script)}",
    }  # fmt: skip


def write_page(summary: dict[str, Any], scripted: dict[str, Any], bodies: Mapping[str, str]) -> str:
    """The whole page. `scripted`: plain values that its script draws; `bodies`: HTML by the keys of SECTIONS."""
    sources = _read_sources()
    policy = (
        f"default-src 'none'; script-src {sources['scripts']}; "
        "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    facts = (f"<div><dt>{key}</dt><dd>{value}<small>{of}</small></dd></div>" for key, value, of in _list_facts(summary))
    limits = f'<p class="chosen">{escape_text(summary["limits"])}</p>' if summary["limits"] else ""
    links = (
        f'<a href="{escape_text(to)}" target="_blank" rel="noopener">{words}</a>' for to, words in summary["links"]
    )
    parts = (
        f'<section id="{key}" aria-labelledby="{key}-h"><h2 id="{key}-h">{title}</h2>{bodies[key]}</section>\n'
        for key, title, _ in SECTIONS
    )
    # As JSON that can stand in a script element, whatever is in it.
    data = json.dumps(scripted, separators=(",", ":"), allow_nan=False, default=str)
    data = data.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    judges = {"job": "the job’s own judge", "tables": "this report, from the run’s own tables"}
    values = {
        "policy": html.escape(policy), "name": write_title(summary),
        "verdict": escape_text(summary["headline"]["verdict"], TITLE_LIMIT),
        "contents": "".join(f'<li><a href="#{key}">{short}</a></li>' for key, _, short in SECTIONS),
        "links": "".join(links), "first": _write_first(summary),
        "facts": f'<section class="facts" aria-label="Key figures"><dl>{"".join(facts)}</dl>{limits}</section>\n',
        "sections": "".join(parts),
        "judge": judges.get(summary["judged"]["by"], "nobody"), "run": escape_text(summary["run"]),
        "path": escape_text(summary["path"]), "data": data,
    }  # fmt: skip
    return Template(sources["html"]).substitute(sources, **values)


def write_title(summary: dict[str, Any]) -> str:
    """What a page about this run is called: HTML."""
    return escape_text(summary["path"].rstrip("/").rpartition("/")[2] or summary["path"], TITLE_LIMIT)


def _write_first(summary: dict[str, Any]) -> str:
    """What weighs most, why, what to do; what else is the matter."""
    head, others = summary["headline"], summary["matters"][1:6]
    rows = {word: escape_text(begin_sentence(head[key])) for word, key in _OF_HEAD.items()}
    copied = f'<code id="next-command">{escape_text(head["next"])}</code> <button type="button" id="copy">Copy</button>'
    rows["Next"] = copied if head["next"] else ""
    listed = "".join(f"<dt>{word}</dt><dd>{words}</dd>" for word, words in rows.items() if words)
    costs = (f": {other['cost']}" if other["cost"] else "" for other in others)
    words = (escape_text(begin_sentence(other["words"])) + escape_text(cost) for other, cost in zip(others, costs))
    items = "".join(f"<li>{each}.</li>" for each in words)
    left_out = len(summary["matters"]) - 1 - len(others)
    items += f"<li>and {left_out} more: {ALL_LISTED}</li>" if left_out > 0 else ""
    more = f'<p class="more">And:</p><ul class="more">{items}</ul>' if items else ""
    tone = "blames" if head["blames"] else "calm"
    cost_html = f'<p class="cost">{escape_text(begin_sentence(head["cost"]))}.</p>' if head["cost"] else ""
    return (
        f'<section class="first {tone}" aria-labelledby="verdict"><p class="eyebrow">Verdict</p>'
        f'<h1 id="verdict">{escape_text(head["verdict"])}</h1>{cost_html}<dl>{listed}</dl>{more}</section>\n'
    )


def _list_facts(summary: dict[str, Any]) -> Iterable[tuple[str, str, str]]:
    step, own_cost = summary["step_time"], summary["own_cost"]
    if step is not None:
        warm_up = ", without warm-up" if summary["warm_up"] else ""
        yield "A step takes", write_duration(step["step_ns"]), f"middle of {step['processes']} processes{warm_up}"
    if summary["first_step"] is not None:
        count = summary["last_step"] - summary["first_step"] + 1
        yield "Steps", f"{count:,}", f"{summary['first_step']} to {summary['last_step']}"
    if summary["wait_ratio"] is not None:
        yield "Waiting for others", describe_waits(summary), "of a rank’s time, in the mean"
    states = ", ".join(f"{count} {state}" for state, count in summary["states"].items())
    yield "Processes", f"{summary['processes']:,}", states
    if own_cost is not None:
        yield "Recording costs", f"{100 * own_cost['own_cost_ratio']:.2g} %", "of the time, at most"


def write_chart(key: str, labels: Sequence[str], note: str = "", controls: str = "", table: str = "") -> str:
    """A chart that the page's script draws, what it shows in words, and its table.

    Args:
        key: Its name in the script.
        labels: What it shows in words; of each role, where it draws one role: "" for one that has nothing to draw.
        note, controls, table: HTML below, above and behind it.
    """
    each = [for_terminal(label, TEXT_LIMIT) for label in labels]
    of_roles = f' data-labels="{html.escape(json.dumps(each))}"' if len(each) > 1 else ""
    behind = f"<details><summary>As a table</summary>{table}</details>" if table else ""
    return (
        f'<figure class="chart" data-chart="{key}"{"" if each[0] else " hidden"}>{controls}<div class="plot" '
        f'id="plot-{key}" role="img" aria-label="{escape_text(next(filter(None, each)))}"{of_roles}></div>'
        f"<figcaption>{note}</figcaption>{behind}</figure>"
    )


def write_table(entries: Sequence[Any], columns: Columns, caption: str, numbers: int = 0, at_most: int = ROWS) -> str:
    """A table of the first entries, and how many more there are; nothing of none. `columns`: by its title what stands
    there: a key, or what makes HTML of an entry; the last `numbers` of them are numbers.
    """
    if not entries:
        return ""
    classes = [""] * (len(columns) - numbers) + [' class="n"'] * numbers
    head = "".join(f'<th scope="col"{number}>{name}</th>' for number, name in zip(classes, columns))
    body = ""
    for entry in entries[:at_most]:
        values = (_write_value(entry, of) if isinstance(of, str) else of(entry) for of in columns.values())
        body += f"<tr>{''.join(f'<td{number}>{value}</td>' for number, value in zip(classes, values))}</tr>"
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape_text(caption)}"><table>'
        f"<caption>{escape_text(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        f"{write_cut(len(entries) - at_most, f'more: {ALL_LISTED}')}"
    )


def _write_value(entry: Mapping[str, Any], key: str) -> str:
    """As what its key says it is."""
    value = entry[key]
    if key in ("stage", "role", "who", "label", "host"):
        return isolate_name(value or (ALL if key == "role" else ""))
    if value is None:
        return "–" if key.endswith(("rank", "ns", "ratio")) or "tokens" in key else ""
    if key.endswith(("ns", "ratio")):
        return write_duration(value) if key.endswith("ns") else write_percent(value)
    return write_number(value) if "tokens" in key else escape_text(value)


def write_nothing(why: str) -> str:
    """A sentence where there is nothing to draw."""
    return f'<p class="nothing">{why}</p>'


def write_cut(count: int, what: str) -> str:
    """How many rows are left out of a table, if any; `what` is HTML: `more`, `older ones`."""
    return f'<p class="cut">… and {count} {what}</p>' if count > 0 else ""
