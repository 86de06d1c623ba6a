"""A run in one structure of plain values: what `mstxkit report` shows, in the terminal and as JSON. Times in ns."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import polars as pl

from ...store import records, whereabouts
from ...store.incidents import HANG
from ...store.values import group_by
from .. import endings, places
from .. import judged as judging
from ..processes import LOST, RUNNING
from ..run import Run
from ..tables import findings, split, stages, stragglers, what_if
from ..tables.processes import DROPS
from . import causes, devices, gaps, measuring, step_means, step_words, waits
from .account import Account
from .choice import EVERYTHING, NOTHING_SUPPOSED, ReportChoice, Supposed
from .headline import find_possible, make_headline
from .judged_so_far import judged_so_far
from .matters import HOST_GONE
from .measuring import NAMES

SCHEMA = 10  # of the form of the summary as JSON; 9 had `killed` apart from `endings`, and no `matters`
# Hosts say every 5 s where their processes are.
_SILENT_NS = 120 * 10**9
# Who waits is seen in so many steps, the last ones.
_WAITS_OF_STEPS = 200


def summarise_run(run: Run, choice: ReportChoice = EVERYTHING, supposed: Supposed = NOTHING_SUPPOSED) -> dict[str, Any]:
    """Stages and ranges are those of the `choice`; verdicts, what ended how, what was lost and what is damaged are of
    the whole run. Raises ReadError: nothing in it answers to the choice, or to a part, or tells of what is supposed.
    """
    processes = run.processes()
    measured = measuring.measure_choice(run, processes, choice)
    judged = _add_judged(run, processes, measured.stages, choice, supposed)
    gone = _list_gone(processes, run.open_ranges(), run.files.stage_rows)
    states = processes["state"].to_list()
    summary = {
        "schema": SCHEMA, "run": run.id, "path": run.path, "processes": processes.height,
        "states": {state: states.count(state) for state in sorted(set(states))},
        "first_step": measured.first_step, "last_step": measured.last_step, "warm_up": list(run.roles.warm_up),
        "chosen": choice.as_json(), "chosen_words": str(choice),
        "supposed": {  # flops: 0 where they are not given
            "trainers": supposed.trainers, "rollouts": supposed.rollouts,
            "flops_per_token": supposed.flops.per_token, "peak_flops": supposed.flops.peak,
        },
        **judged,
        "step_time": measured.step_time, **step_means.summarise_steps(run, supposed), "stages": measured.stages,
        "ranges": measured.ranges, "devices": devices.summarise_devices(run, choice),
        "by_devices": devices.find_last(run.path, run.id),
        "waits": waits.summarise_waits(run, measured.waiting, processes.select(NAMES).to_dicts(), choice.steps),
        "own_cost": _own_cost(processes), "endings": _list_endings(gone),
        "losses": _list_losses(run, processes), "coalesced": measured.coalesced,
        "incidents": findings.describe_incidents(run.path, run.id, run.damage),
        "places": places.list_places(run.path, run.id, processes["process"]),
        "captures_failed": gaps.failed_profiles(run),
        "autopatch": gaps.patch_lines(run.patches().to_dicts()),
        "missing_ranks": gaps.list_missing(processes), "damage": [part._asdict() for part in run.damage],
    }  # fmt: skip
    return {**make_headline(_make_account(summary, gone), find_possible(run.path, run.id, gone)), **summary}


def _make_account(summary: dict[str, Any], gone: list[dict[str, Any]]) -> Account:
    has = {"ranges": summary["ranges"] or summary["stages"], "stages": summary["stages"]}
    has["steps"] = summary["first_step"] is not None
    same = summary.keys() & {*Account._fields} - {"stages", "processes"}
    steady = (step for step in count(summary["first_step"] or 0) if step not in summary["warm_up"])
    seen = whereabouts.read_seen(Path(summary["path"]), summary["run"]) if LOST in summary["states"] else ()
    newest_ns = max((where.written_ns for where in seen), default=0)
    longest = ((row["stage"], row["ratio"]) for row in summary["critical_path"] if row["where"] == "in")
    return Account(
        **{name: summary[name] for name in same}, processes=gone, has=frozenset(filter(has.get, has)),
        stages=[row["stage"] for row in summary["stages"]], longest=next(longest, None),
        steps=(next(steady), summary["last_step"]) if has["steps"] else None,
        roles=step_words.roles_of(summary), is_running=RUNNING in summary["states"],
        silent=frozenset(where.host for where in seen if newest_ns - where.written_ns > _SILENT_NS),
    )  # fmt: skip


def _add_judged(
    run: Run, processes: pl.DataFrame, entries: list[dict[str, Any]], choice: ReportChoice, supposed: Supposed
) -> dict[str, Any]:
    """`verdicts` that hold and how it was `judged`; rows of the stages say for whom they wait."""
    steps = run.roles.steps
    judged = judging.of_run(run.roles)
    wanted = [step for step in steps if choice.steps is None or choice.steps.first <= step.step <= choice.steps.last]
    waited = causes.measure_waits(run.roles.runs, frozenset(step.step for step in wanted[-_WAITS_OF_STEPS:]))
    causes.give_causes(entries, judged.blaming, waited, processes["process"].to_list())
    runs = () if judged.why_not or run.roles.steps_ringed else run.roles.runs
    hiding = sorted({stage for of_role in runs for stage in of_role.hiding_stages()})
    how: dict[str, Any] = {
        "by": judged.by, "steps": judged.steps, "why_not": judged.why_not, "hiding": hiding,
        "wants": [want._asdict() for want in judged.wants], "roles": [role._asdict() for role in judged.roles],
        "withdrawn": [verdict.plain for verdict in judged.withdrawn], "enough_steps": judging.ENOUGH_STEPS,
        "behind": judged_so_far(run.path, run.id or ""),
    }  # fmt: skip
    verdicts = [verdict.plain for verdict in judged.holding]
    asked = split.asked_for(supposed.trainers, supposed.rollouts)
    saving = what_if.table(run.roles.steady, judged.every, asked).to_dicts()
    slow = stragglers.table(run.roles.steady, judged.every).to_dicts()
    return {"verdicts": verdicts, "judged": how, "stragglers": slow, "what_if": saving}


def is_something_wrong(summary: dict[str, Any]) -> bool:
    """Was a process killed or ended by an exception, does one hang, is a host gone, a record lost, a file damaged?"""
    has_losses = any(process["dropped"] or process["faults"] for process in summary["losses"])
    has_raised = any(endings.is_wrong(ending["state"], ending["how"]) for ending in summary["endings"])
    has_stopped = any(matter["kind"] in (HANG, HOST_GONE) for matter in summary["matters"])
    return bool(has_raised or has_stopped or summary["damage"] or has_losses)


def _own_cost(processes: pl.DataFrame) -> dict[str, Any] | None:
    """What recording cost, over the time: the process that it cost most, and the one in the middle."""
    measured = processes.drop_nulls("own_cost_ratio")
    rows = measured.sort("own_cost_ratio", descending=True, maintain_order=True).to_dicts()
    if not rows:
        return None
    most = {key: rows[0][key] for key in (*NAMES, "own_cost_ratio")}
    return {**most, "middle_ratio": rows[stages.find_middle(len(rows))]["own_cost_ratio"], "processes": len(rows)}


def _list_endings(gone: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """How processes ended, where they did not just say so, those that were killed first: `state`, `how`, and
    `processes`, who was gone first before others.
    """
    unusual = (process for process in gone if process["state"] == stages.KILLED or process["how"])
    by_time = sorted(unusual, key=lambda process: process["last_seen_ns"] or 0)
    groups = group_by(by_time, lambda process: (process["state"], process["how"] or ""))
    alike = sorted(groups.items(), key=lambda group: (group[0][0] != stages.KILLED, group[0]))
    return [{"state": state, "how": how, "processes": processes} for (state, how), processes in alike]


def _list_gone(processes: pl.DataFrame, open_ranges: pl.DataFrame, stage_rows: pl.DataFrame) -> list[dict[str, Any]]:
    """Every process: how it ended, its `last_step`, and what it was inside of where it is gone without a word."""
    entered = pl.concat([rows.select("process", "step") for rows in (stage_rows, open_ranges)]).drop_nulls()
    last_steps = dict(entered.group_by("process").max().iter_rows())
    inside = stages.find_endings(processes, open_ranges).rows_by_key("row", named=True)
    return [
        {key: process[key] for key in (*NAMES, "attempt", "last_seen_ns", "state", "process")}
        | {"how": process["ending"], "inside": inside.get(row, []), "last_step": last_steps.get(row)}
        for row, process in enumerate(processes.iter_rows(named=True))
    ]


def _list_losses(run: Run, processes: pl.DataFrame) -> list[dict[str, Any]]:
    """Processes that lost anything, with their counters; of too many names also `names_by`, the module of most."""
    rows = [row for row in processes.select(*NAMES, *DROPS).to_dicts() if any(row[name] for name in DROPS)]
    makers = {}
    if any(row["names_capped"] for row in rows):  # each process leaves a mark of it, once it has too many
        marks = run.marks(attributes=("module",)).select("host", "pid", "message", "module")
        makers = {tuple(who): module for *who, message, module in marks.iter_rows() if message == records.CATCH_ALL}
    for row in rows:
        row["names_by"] = makers.get((row["host"], row["pid"])) if row["names_capped"] else None
    return rows
