"""`mstxkit report RUN --html FILE`: a run's page, written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

import polars as pl

from ...errors import MstxkitError
from ...stages import BY_KEY
from ...store import documents
from ..report import devices, step_words
from ..report.choice import EVERYTHING, ReportChoice
from ..report.escape import escape_name
from ..report.units import write_size
from ..run import Run
from . import document, figures, sections, zoom

# Of a page, with the charts' library in it.
BYTES_AT_MOST = 1_000_000
_INCIDENTS, _REQUESTS = 24, 96


def write_page(run: Run, summary: dict[str, Any], path: Path, choice: ReportChoice = EVERYTHING) -> None:
    """Write the page of a run in place of the file that is there. `choice`: steps of it are those that can be looked at
    closely. Raises MstxkitError: the file cannot be written.
    """
    content = make_page(run, summary, path.parent, choice).encode("utf-8", "backslashreplace")
    try:
        documents.replace_file(path, content)
    except OSError as exc:
        raise MstxkitError(f"{path} cannot be written: {exc.strerror or exc}") from exc


def make_page(
    run: Run, summary: dict[str, Any], folder: Path, choice: ReportChoice = EVERYTHING, to_perfetto: str = ""
) -> str:
    """The page. Links to profiles are relative to `folder`; one leads `to_perfetto`, where the page is served.

    It is as fine as fits into BYTES_AT_MOST, and no coarser than the coarsest of `figures.DETAILS`.
    """
    requests, path = run.escalations(), Path(run.path)
    others = {
        "escalations": _list_escalations(run, requests, None if to_perfetto else folder),
        "requests_left_out": requests.height - _REQUESTS,
        "incidents_left_out": len(summary["incidents"]) - _INCIDENTS,
        "incidents": [
            {**of, "folder": of["page"], "size": "", "href": "" if to_perfetto else _link_to(path, of["page"], folder)}
            for of in summary["incidents"][: -_INCIDENTS - 1 : -1]  # the newest first
        ],
    }
    links = [(to_perfetto, "Open in Perfetto")] if to_perfetto else []
    of_devices = devices.summarise_devices(run, EVERYTHING) if str(choice) else summary["devices"]
    whole = {**summary, "limits": _tell_limits(choice), "links": links, "devices": of_devices}
    page = ""
    for detail in figures.DETAILS:
        page = _make_page(run, whole, others, choice, detail)
        if len(page.encode("utf-8", "backslashreplace")) <= BYTES_AT_MOST:
            break
    return page


def _make_page(
    run: Run, summary: dict[str, Any], others: dict[str, Any], choice: ReportChoice, detail: figures.Detail
) -> str:
    # Who is slow, then those in which members wait for each other, then those with the most members.
    first = next((row["role"] for row in summary["stragglers"]), None)
    every = sorted(run.roles.runs, key=lambda role: (role.role != first, role.is_free, -len(role.members), role.role))
    shown, left_out = every[: figures.ROLES_AT_MOST], every[figures.ROLES_AT_MOST :]
    roles = figures.of_run(run, shown, summary, detail)
    ranks = [row["rank"] for row in summary["stragglers"] if row["rank"] is not None]
    bars = [
        {"kind": row["kind"], "words": step_words.of_role(summary, row) + step_words.describe_change(row),
         "step": row["step_ns"], "without": row["without_ns"], "saved": row["saved_ratio"]}
        for row in step_words.list_changes(summary)[: figures.BARS_OF_RANKS]
    ]  # fmt: skip
    scripted = {
        "roles": [{key: value for key, value in role.items() if key != "means"} for role in roles],
        "zoom": zoom.of_run(run, shown, choice, ranks, detail.ranges), "what_if": bars,
        "stage_keys": list(BY_KEY),
        "stragglers": [{key: row[key] for key in ("who", "stage", "where")} for row in summary["stragglers"][:1]],
    }  # fmt: skip
    names = [escape_name(role.role) or figures.ALL for role in left_out]
    drawn = {**scripted, **others, "roles": roles, "roles_left_out": names}
    bodies = {key: getattr(sections, f"show_{key}")(summary, drawn) for key, *_ in document.SECTIONS}
    return document.write_page(summary, scripted, bodies)


def _tell_limits(choice: ReportChoice) -> str:
    """What on the page is only of what was asked for, in words; "" where all is of the whole run."""
    rows, names = choice._replace(stages=None, ranges=None), choice._replace(steps=None, ranks=None)
    lines = [f"“A step takes” is of {rows} only; all else is of the whole run."] if str(rows) else []
    if str(names):
        rest = "" if lines else "; this page is of the whole run"
        lines.append(f"{names}: these choose what the report as text and as JSON shows{rest}.")
    return " ".join(lines)


def _list_escalations(run: Run, requests: pl.DataFrame, folder: Path | None) -> list[dict[str, Any]]:
    """Requests with what was recorded for them; a link where the profile lies in the run, and is there.
    `folder`: where the page will lie; None: nowhere, so that no link would lead anywhere.
    """
    sums = run.profiles().group_by("request", "stage", "rank").agg(pl.col("bytes").sum())
    sizes = {tuple(key): count for *key, count in sums.iter_rows()}
    entries, by_age = [], requests.with_columns(age=-pl.col("request").rle_id().cast(pl.Int64)).tail(_REQUESTS)
    # The newest request first; rows of one stay in their order.
    for row in by_age.sort("age", maintain_order=True).iter_rows(named=True):
        steps = "" if row["first_step"] is None else f"{row['first_step']} to {row['last_step']}"
        total = sizes.get((row["request"], row["stage"], row["rank"]), 0)
        href = "" if folder is None else _link_to(Path(run.path), row["folder"], folder)
        entries.append({**row, "steps": steps, "size": write_size(total) if total else "", "href": href})
    return entries


def _link_to(run: Path, inside: str | None, folder: Path) -> str:
    """Of a folder or file of the run, as seen from where the page lies; "" where there is none such in the run."""
    if not inside:
        return ""
    root, target = os.path.realpath(run), os.path.realpath(run / inside)
    if os.path.commonpath([root, target]) != root or not (os.path.isdir(target) or os.path.isfile(target)):
        return ""
    path = quote(os.path.relpath(target, os.path.realpath(folder)).encode("utf-8", "surrogateescape"))
    return path + "/" * os.path.isdir(target)
