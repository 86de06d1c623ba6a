"""MindSpeed-RL's three functions of its own profiler, as in 2.0.0 to master 05a90d7, utils/utils.py:518-638,
and a worker that has them by name.
"""

from __future__ import annotations

from pathlib import Path

UTILS = """
made = []
profiler_of = None


def get_grpo_profiler(profiler_config, role=None):
    if not profiler_config or not profiler_config.profile:
        return None
    first, last = profiler_config.profile_step_start, profiler_config.profile_step_end
    skip, active = (first - 1, last - first) if profiler_config.stage == "all" else (0, 1)
    made.append(role)
    return profiler_of(skip, active, role)


def profiler_start(profiler_config, role="profiler_data", profiler_iteration=None):
    if not profiler_config:
        return None
    if profiler_iteration is not None and not (
        profiler_config.profile_step_start <= profiler_iteration < profiler_config.profile_step_end
    ):
        return None
    if role != (profiler_config.role if profiler_config.stage == "all" else profiler_config.stage):
        return None
    profiler = get_grpo_profiler(profiler_config, role)
    if not profiler:
        return None
    profiler.start()
    return profiler


def profiler_step(profiler):
    if profiler:
        profiler.step()
"""
WORKER = "from mindspeed_rl.utils.utils import profiler_start, profiler_step\n"


def package(folder: Path) -> Path:
    """A folder for `sys.path` with the package in it."""
    where = folder / "mindspeed_rl"
    (where / "utils").mkdir(parents=True)
    for name, text in (("__init__", ""), ("utils/__init__", ""), ("utils/utils", UTILS), ("worker", WORKER)):
        (where / f"{name}.py").write_text(text)
    return folder
