"""Names by which MindStudio Insight's RL tab knows the stages of a step, and its table for all others.

The tab opens where a range has exactly one of these names. So the four stages that its built-in table has are called
as verl calls them, or as MindSpeed-RL does; other stages keep their names, and `RLMstxConfig.json` lists them all: put
beside Insight's server, as `configs/RLMstxConfig.json`, it takes the place of the built-in table.

Source: msinsight 4e16fca1f, the RL module's table; verl `DistProfiler.annotate`, MindSpeed-RL `mstx_timer_decorator`.
"""

from __future__ import annotations

import json
from typing import Iterable, NamedTuple

from ... import stages

CONFIG = "RLMstxConfig.json"
# Ranges of micro-batches inside of a task, as Megatron's are called, and forward or backward.
_MEGATRON = (("TransformerBlock", "FP"), ("TransformerLayer", "BP"))


class TabTask(NamedTuple):
    """A row of the table: a stage of ours, the role that the tab shows, the name of the range, its micro-batches."""

    stage: str
    role: str
    name: str
    micro_batches: tuple[tuple[str, str], ...] = _MEGATRON


VERL = (
    TabTask("actor_generate", "ActorRollout", "generate_sequences", ()),
    TabTask("actor_compute_log_prob", "Reward", "compute_log_prob"),
    TabTask("reference_compute_log_prob", "Reference", "compute_ref_log_prob"),
    TabTask("actor_update", "Actor", "update_actor"),
)
MINDSPEED_RL = (
    TabTask("actor_generate", "ActorRollout", "ActorHybridWorkerBase.generate_sequences"),
    TabTask("reward", "Reward", "Reward.compute_rm_score"),
    TabTask("reference_compute_log_prob", "Reference", "IntegratedWorker.compute_ref_log_prob"),
    TabTask("actor_update", "Actor", "ActorRolloutHybrid.update_actor"),
)
TABLES = {"verl": VERL, "MindSpeed-RL": MINDSPEED_RL}
# Algorithm, as Insight shows it, is free text.
_ALGORITHM = "GRPO"


def names_of(frameworks: Iterable[str]) -> dict[str, str]:
    """Stage to name: MindSpeed-RL's where a run was patched for it, else verl's."""
    table = MINDSPEED_RL if "mindspeed_rl" in set(frameworks) else VERL
    return {task.stage: task.name for task in table}


def write_config(shown: Iterable[tuple[str, str]]) -> str:
    """The whole table as JSON: Insight's own, and before it one with the other stages of a run where it has any.

    Insight takes the first table of which a profile has all tasks, else any that has one of them. So that of a run has
    the tasks of the built-in one beside its own: who has no more than the built-in one gets that. `shown`: a run's
    stages and what their ranges are called in the export.
    """
    built_in = {task.name for table in TABLES.values() for task in table}
    names = {name: stage for stage, name in shown}
    roles = {stage: (stages.role_of(stages.canonical_key(stage)) or "stage").title() for stage in names.values()}
    own = [TabTask(stage, roles[stage], name, ()) for name, stage in names.items() if name not in built_in]
    same = [task for table in TABLES.values() if any(task.name in names for task in table) for task in table]
    tables = {"mstxkit": (*own, *same), **TABLES} if own else TABLES
    rows = [
        {"framework": framework, "algorithm": _ALGORITHM, "tasks": [
            {"roleName": task.role, "taskName": task.name,
             "microBatches": [{"name": name, "type": kind} for name, kind in task.micro_batches]}
            for task in tasks
        ]}
        for framework, tasks in tables.items()
    ]  # fmt: skip
    return json.dumps({"config": rows}, indent=2) + "\n"
