"""What a configuration should come to in MindSpore's own `ProfilerParameters`, by its names, and what it came to."""

from __future__ import annotations

import json
import warnings
from typing import Any, Mapping

from mstxkit.config.model import Config

LEVELS = {"none": "LevelNone", "level0": "Level0", "level1": "Level1", "level2": "Level2"}
_SETS = ("activities", "export_type", "host_sys", "mstx_domain_include", "mstx_domain_exclude")


def meant(config: Config) -> dict[str, Any]:
    """As `ProfilerParameters.original_params`, without its path, schedule, and what no configuration of ours has."""
    return {
        "profiler_level": LEVELS[config.level],
        "aic_metrics": _metrics(config),
        "activities": {one.upper() for one in config.activities},
        "export_type": {"text", "db"} if config.export == "both" else {config.export},
        "host_sys": set(config.host_sys) - {"numa"},
        "mstx": config.mstx,
        "mstx_domain_include": set(config.domains_include),
        "mstx_domain_exclude": set(config.domains_exclude),
        "profile_memory": config.memory,
        "with_stack": config.stacks,
        "record_shapes": config.shapes,
        "l2_cache": config.l2_cache,
        "sys_io": config.sys_io,
        "sys_interconnection": config.sys_interconnection,
        "data_simplification": config.data_simplification,
    }


def _metrics(config: Config) -> str:
    if config.aic_metrics == "none":
        return "PipeUtilization" if config.level in ("level1", "level2") else "None"
    return config.aic_metrics


def came_to(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The same fields of `ProfilerParameters.original_params`."""
    return {name: set(parameters[name]) if name in _SETS else parameters[name] for name in meant(Config())}


def of_file(values: Mapping[str, Any]) -> dict[str, Any]:
    """What MindSpore makes of the values of a `profiler_config.json`, all its replacements done; and of its steps."""
    from mindspore.profiler.dynamic_profile.dynamic_profiler_config_context import DynamicProfilerConfigContext

    read = DynamicProfilerConfigContext(dict(values))
    steps = {"start_step": read.start_step, "stop_step": read.stop_step, "prof_path": read.prof_path}
    return {**_parameters(read.args), **steps, "analyse": read.analyse, "analyse_mode": read.analyse_mode}


def of_variable(text: str) -> dict[str, Any]:
    """What MindSpore makes of the text of `MS_PROFILER_OPTIONS`, all its replacements done."""
    from mindspore.profiler.envprofiler import EnvProfiler

    read = EnvProfiler._convert_options_to_profiler_params(json.loads(text))
    return {**_parameters(read), "start": read["start"]}


def _parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    from mindspore.profiler.common.profiler_parameters import ProfilerParameters

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # with one it replaces what does not go together
        known = {name: value for name, value in given.items() if name in ProfilerParameters.PARAMS}
        return dict(ProfilerParameters(**known).original_params)
