"""The panels of the dashboard, once: `grafana.json` is made of them, and a test asks a real Prometheus each query.

    PYTHONPATH=tests python -m builders.panels > mstxkit/telemetry/grafana.json

Ray puts `ray_` before each name; the queries take both.

Source: Grafana 10 to 13, dashboard JSON with schemaVersion 39.
"""

from __future__ import annotations

import json
import sys
from typing import Any, NamedTuple

UID, SCHEMA = "mstxkit-job", 39
_COLUMNS, _WIDTH, _HEIGHT = 24, 12, 8
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


class Panel(NamedTuple):
    """One panel.

    Args:
        kind: stat, timeseries or table.
        unit: Grafana's word.
        query: PromQL; `of("step")` for the metrics of one name and the chosen run.
        legend: Of each series; "" for a table.
        meaning: What to conclude from it.
        width: Of 24 columns.
    """

    title: str
    kind: str
    unit: str
    query: str
    legend: str
    meaning: str
    width: int = _WIDTH


def of(name: str) -> str:
    """Series of the chosen runs, as mstxkit or Ray calls them."""
    return f'{{__name__=~"(ray_)?mstxkit_{name}",run=~"$run"}}'


_STAGE, _ROLE = "{{role}} {{stage}}", "{{role}}"
PANELS = (
    Panel("Step", "stat", "none", f"max by (run, role) ({of('step')})", _ROLE,
          "The step that was judged last, of each role.", 6),
    Panel("Verdicts that hold", "stat", "none", f"sum by (run) ({of('verdicts')})", "verdicts",
          "More than 0: somebody makes the others wait, or nobody can tell. The table says who.", 6),
    Panel("Hosts", "stat", "none", f"sum by (run, state) ({of('hosts')})", "{{state}}",
          "Silent: nothing has come of them for a minute, and they have said no goodbye.", 6),
    Panel("Age of these figures", "stat", "s", f"time() - max by (run) ({of('judged_timestamp_seconds')})", "age",
          "More than a minute: nobody judges the job any more, and nothing on this page is of now.", 6),
    Panel("Who makes the others wait", "table", "percentunit",
          f"sort_desc(max by (run, kind, role, stage, rank) ({of('verdict_impact_ratio')}))", "",
          "The cause, never the victim, and which share of each step is lost by it."),
    Panel("Who is late", "table", "s", f"sort_desc(max by (run, role, stage, rank, host) ({of('late_seconds')}))", "",
          "Entered a stage so much later than half of the others did, in the last step."),
    Panel("Length of a step", "timeseries", "s", f"max by (run, role) ({of('step_seconds')})", _ROLE,
          "From the first begin to the last end."),
    Panel("Steps a minute", "timeseries", "none", f"clamp_min(60 * deriv({of('step')}[5m]), 0)", _ROLE,
          "Over the last five minutes."),
    Panel("Time in stages, median", "timeseries", "s", f"max by (run, role, stage) ({of('stage_seconds_median')})",
          _STAGE, "Of the member in the middle."),
    Panel("Time in stages, longest", "timeseries", "s", f"max by (run, role, stage) ({of('stage_seconds_max')})",
          _STAGE, "Of the member with the longest: it may be one that waits for another."),
    Panel("Longest over median", "timeseries", "percentunit",
          f"max by (run, role, stage) ({of('stage_seconds_max')}) / "
          f"max by (run, role, stage) ({of('stage_seconds_median')}) - 1", _STAGE,
          "How unequal the members are in a stage."),
    Panel("Waiting", "timeseries", "percentunit", f"max by (run, role) ({of('wait_ratio')})", _ROLE,
          "Which share of the step a member waits for the last to come."),
    Panel("Slowest rank", "timeseries", "none", f"max by (run, role, stage) ({of('stage_slowest_rank')})", _STAGE,
          "A line that stays where it is: the same rank in each step. Where ranks wait for each other: for whom."),
    Panel("Verdicts by kind", "timeseries", "none", f"sum by (run, kind) ({of('verdicts')})", "{{kind}}",
          "What kind of trouble, and since when."),
    Panel("Tokens a second", "timeseries", "none", f"max by (run, role, stage) ({of('stage_tokens_per_second')})",
          _STAGE, "Of all members together; empty where no tokens are counted."),
    Panel("MFU", "timeseries", "percentunit", f"max by (run, role, stage) ({of('stage_mfu_ratio')})", _STAGE,
          "Share of the peak; empty without flops_per_token and peak_flops."),
    Panel("Members", "timeseries", "none", f"max by (run, role) ({of('members')})", _ROLE,
          "Processes that took part in the last step."),
    Panel("Profiles that verdicts asked for", "timeseries", "none", f"max by (run) ({of('escalations')})", "profiles",
          "Verdicts that hold and have led to one."),
    Panel("Sums that never came", "timeseries", "none", f"max by (run) ({of('rows_missed')})", "sums",
          "Lost figures, never lost training: a host too busy to hand them over."),
    Panel("Batches that the run folder did not take", "timeseries", "none",
          f"max by (run) ({of('batches_dropped')})", "batches", "A full or a slow disk."),
    Panel("Samples that were too many", "timeseries", "none", f"max by (run) ({of('series_left_out')})", "samples",
          "More than 2,000 are never shown."),
)  # fmt: skip


def dashboard() -> dict[str, Any]:
    """The whole dashboard, as Grafana imports it."""
    return {
        "uid": UID, "title": "mstxkit: a job", "schemaVersion": SCHEMA, "version": 1, "editable": True, "id": None,
        "description": "Steps, stages, who is late and why, of jobs that mstxkit judges.", "tags": ["mstxkit"],
        "refresh": "10s", "time": {"from": "now-1h", "to": "now"}, "timezone": "", "annotations": {"list": []},
        "templating": {"list": _variables()}, "panels": list(_placed()),
    }  # fmt: skip


def _variables() -> list[dict[str, Any]]:
    query = 'label_values({__name__=~"(ray_)?mstxkit_step"}, run)'
    return [
        {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
        {"name": "run", "label": "Run", "type": "query", "datasource": _SOURCE, "definition": query,
         "query": {"query": query, "refId": "run"}, "refresh": 2, "multi": True, "includeAll": True, "sort": 2},
    ]  # fmt: skip


def _placed() -> list[dict[str, Any]]:
    made, x, y = [], 0, 0
    for number, panel in enumerate(PANELS, 1):
        if x + panel.width > _COLUMNS:
            x, y = 0, y + _HEIGHT
        made.append(_as_json(panel, number, x, y))
        x += panel.width
    return made


def _as_json(panel: Panel, number: int, x: int, y: int) -> dict[str, Any]:
    is_table = panel.kind == "table"
    target = {
        "refId": "A", "expr": panel.query, "legendFormat": panel.legend, "datasource": _SOURCE,
        "instant": panel.kind != "timeseries", "range": panel.kind == "timeseries",
        "format": "table" if is_table else "time_series",
    }  # fmt: skip
    return {
        "id": number, "title": panel.title, "type": panel.kind, "description": panel.meaning, "datasource": _SOURCE,
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": _HEIGHT}, "targets": [target],
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []}, "options": {},
        **({"transformations": [{"id": "organize", "options": {"excludeByName": {"Time": True}}}]} if is_table else {}),
    }  # fmt: skip


def as_text() -> str:
    """`grafana.json`."""
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    sys.stdout.write(as_text())
