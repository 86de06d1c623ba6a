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


class TabTask(NamedTuple):
    """A row of the table: a stage of ours, the role that the tab shows, the name of the range."""

    stage: str
    role: str
    name: str


VERL = (
    TabTask("actor_generate", "ActorRollout", "generate_sequences"),
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


def config(shown: Iterable[tuple[str, str]]) -> str:
    """The whole table as JSON: the stages of a run, and what the built-in tables have beside them.

    Args:
        shown: A run's stages and what their ranges are called in the export.
    """
    own = [TabTask(stage, (stages.role_of(stages.canonical(stage)) or "stage").title(), name) for stage, name in shown]
    taken = {task.name for task in own}  # one name, one task
    others = {name: tuple(task for task in table if task.name not in taken) for name, table in TABLES.items()}
    tables = {"mstxkit": tuple(own), **others}
    rows = [
        {
            "framework": framework,
            "algorithm": _ALGORITHM,
            "tasks": [{"roleName": task.role, "taskName": task.name, "microBatches": []} for task in tasks],
        }
        for framework, tasks in tables.items()
        if tasks
    ]
    return json.dumps({"config": rows}, indent=2) + "\n"
