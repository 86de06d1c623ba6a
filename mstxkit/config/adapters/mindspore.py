"""MindSpore's `DynamicProfilerMonitor`: a `profiler_config.json` that is read again while training runs.

Source: MindSpore 2.10.0, `profiler/dynamic_profile/dynamic_profiler_config_context.py` (keys, types, what replaces a
wrong one), `profiler/dynamic_profiler.py:140-220, 460-500` (steps), `profiler/common/profiler_parameters.py:235-285`
(what goes together), `profiler/common/path_manager.py` `_input_path_common_check`; r2.5.0 for `aicore_metrics`.
MindSpore warns and goes on where something is wrong, and mostly with more than was asked for; here it is refused.
"""

from __future__ import annotations

import json
import re
from typing import Any, Mapping

from ...store.options import METRIC_LEVELS, find_option
from ..model import Config, Window
from ..sources import Source, from_json
from . import ENDLESS_STEPS, ONE_WINDOW, Read, Reading, Written, export_of, left_out, translate_option

FLAVOUR = "mindspore"
DESCRIPTION = "MindSpore: profiler_config.json of DynamicProfilerMonitor (start_step, stop_step)"

LEVELS, ACTIVITIES, HOST_SYSTEMS = (translate_option("mindspore", name) for name in ("level", "activities", "host_sys"))
AIC_METRICS = tuple(name for name in find_option("aic_metrics").values if name != "none")
# By the numbers that older files have.
LEVEL_CODES: dict[Any, Any] = {-1: "none", 0: "level0", 1: "level1", 2: "level2"}
ACTIVITY_CODES: dict[Any, Any] = {0: ("cpu", "npu"), 1: ("cpu",), 2: ("npu",)}
EXPORT_CODES: dict[Any, Any] = {0: "text", 1: "db", 2: "both"}
METRIC_NAMES: dict[Any, Any] = {**{name: name for name in AIC_METRICS}, "None": "none"}
METRICS: dict[Any, Any] = {**METRIC_NAMES, "AiCoreNone": "none", **dict(enumerate(AIC_METRICS))}
OLD_METRICS: dict[Any, Any] = {**METRICS, "AicoreNone": "none", -1: "none"}
ANALYSE_MODES: dict[Any, Any] = {-1: "sync", 0: "sync", 1: "async"}

# Keys that are a flag each, and a field of ours.
FLAGS = {
    "mstx": "mstx", "profile_memory": "memory", "with_stack": "stacks", "record_shapes": "shapes",
    "l2_cache": "l2_cache", "sys_io": "sys_io", "sys_interconnection": "sys_interconnection",
}  # fmt: skip
SHARED = (
    "profiler_level", "activities", "aic_metrics", "aicore_metrics", "export_type", *FLAGS, "mstx_domain_include",
    "mstx_domain_exclude", "host_sys", "data_simplification", "parallel_strategy",
)  # fmt: skip
KEYS = ("start_step", "stop_step", *SHARED, "analyse", "analyse_mode", "prof_path")
# Stands for the folder that the program gave as output_path.
OWN_PATH = "./"
_MARKS = {"stop_step", "analyse_mode", "prof_path", "parallel_strategy", "profiler_level", "aicore_metrics"}
_TORCH_NPU_MARKS = ("active", "experimental_config")
_TAKEN_PATH = re.compile(r"[./_~\s0-9a-zA-Z\u4e00-\u9fa5-]+")
_LONGEST_NAME = 255
PATH_RULE = (
    "MindSpore takes a path of letters, digits, Chinese characters, spaces and . / _ - ~ with names of at most "
    f"{_LONGEST_NAME}; for any other it logs an error and records elsewhere, such as ./data"
)

SHARED_REASONS = {
    "window.counted_from": "steps are counted from this start of the process",
    "stages": "there are no stages: whole steps are recorded",
    "ranks": "every rank records; a choice is to be made in the program",
    "aic_metrics": "PipeUtilization at level1 and level2 where none is named, none below",
    "host_sys": "one of cpu, mem, disk, network, osrt",
    "mstx": "LevelNone without mstx becomes Level0 in MindSpore",
}
REASONS = {
    **SHARED_REASONS,
    **ONE_WINDOW,
    **dict.fromkeys(("window.first_step", "window.steps"), "start_step -1 switches it off"),
    "window.warmup": "the schedule is fixed, without a warm-up",
    "path": "./ stands for the folder that the program gives",
}


def detect(source: Source) -> bool:
    """Is there `stop_step`, or another key that this file has and torch_npu's of the same name has not?"""
    own, foreign = _MARKS & set(source.values), {*_TORCH_NPU_MARKS, "start"} & set(source.values)
    return "stop_step" in own or (bool(own) and not foreign)


def read(source: Source) -> Read:
    """What the file says. Raises: ConfigError with all that is wrong in it."""
    reading = Reading(source)
    foreign = [key for key in _TORCH_NPU_MARKS if key in reading.values]
    for key in foreign:
        reading.wrong(key, "a key of torch_npu's file of the same name, beside stop_step, which is MindSpore's")
    reading.only((*KEYS, "is_valid", *foreign))
    fields, extras = read_options(reading, {**LEVELS, **LEVEL_CODES}, METRICS)
    start = reading.number("start_step", "window.first_step", -1)
    fields["enabled"] = reading.get("start_step", "enabled", -1) != -1
    fields["window"] = _read_window(reading, start)
    mode = str(reading.choice("analyse_mode", "analysis", ANALYSE_MODES, "sync"))
    fields["analysis"] = mode if reading.flag("analyse", "analysis", False) else "off"
    if fields["analysis"] == "off" and reading.values.get("analyse_mode", -1) != -1:
        reading.note("analyse_mode does nothing without analyse: true")
    path = taken_path(reading, "prof_path", OWN_PATH)
    fields["path"] = "" if path == OWN_PATH else path
    return reading.read(FLAVOUR, extras, **fields)


def write(config: Config) -> Written:
    """The file, with every key that MindSpore 2.10 looks at."""
    start = config.window.first_step
    last = start + (config.window.steps or ENDLESS_STEPS) - 1
    values = {
        "start_step": start if config.enabled else -1, "stop_step": last if config.enabled else -1,
        **values_of(config, FLAVOUR, "AiCoreNone"), "analyse": config.analysis != "off",
        "analyse_mode": {"off": -1, "sync": 0, "async": 1}[config.analysis],
        "prof_path": config.path if takes_path(config.path) else OWN_PATH,
    }  # fmt: skip
    text = json.dumps(values, indent=4, ensure_ascii=False) + "\n"
    lost = left_out(config, read(from_json(text, FLAVOUR)).config, FLAVOUR, explain_losses(config, REASONS))
    # What to change where the program counts steps in MindSpore's other way: see `_read_window`.
    meant = "start_step and stop_step are for DynamicProfilerMonitor as a callback, or step() at the start of the loop"
    instead = f"write {start - 1} and {last - 1}" if start > 1 else "step 1 cannot be recorded, 2 is the first"
    note = f"{meant}; with step() at its end, as in MindSpore's examples, {instead}"
    return Written(text, lost, (note,) if config.enabled else ())


def read_options(
    reading: Reading, levels: Mapping[Any, Any], metrics: Mapping[Any, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Fields that MindSpore's file and its environment variable have alike, and what is MindSpore's alone.

    `levels` and `metrics` are the names of these, and numbers where these are taken.
    """
    level = reading.choice("profiler_level", "level", levels, "level0")
    fields: dict[str, Any] = {
        "level": level, "activities": _read_activities(reading, any(type(key) is int for key in levels)),
        "export": export_of(reading, EXPORT_CODES),
        "domains_include": reading.texts("mstx_domain_include", "domains_include"),
        "domains_exclude": reading.texts("mstx_domain_exclude", "domains_exclude"),
        "host_sys": reading.items("host_sys", "host_sys", HOST_SYSTEMS, ()),
        "data_simplification": reading.flag("data_simplification", "data_simplification", True),
        **reading.flags(FLAGS),
    }  # fmt: skip
    usual = "none"
    if "aicore_metrics" in reading.values:
        usual = reading.choice("aicore_metrics", "aic_metrics", OLD_METRICS, "none")
        reading.note("aicore_metrics is what MindSpore up to 2.5 calls aic_metrics; 2.10 ignores it")
    fields["aic_metrics"] = str(reading.choice("aic_metrics", "aic_metrics", metrics, usual))
    if fields["aic_metrics"] == "none" and level in METRIC_LEVELS:
        reading.note(f"MindSpore records PipeUtilization at {level} where no other metric is named")
        fields["aic_metrics"] = "PipeUtilization"
    if level == "none" and not fields["mstx"]:
        reading.wrong("profiler_level", "MindSpore takes Level0, which is heavier, where mstx is not true", "LevelNone")
    return fields, reading.own_flags({"parallel_strategy": False})


def values_of(config: Config, flavour: str, no_metrics: str) -> dict[str, Any]:
    """These fields under MindSpore's names."""
    return {
        "profiler_level": next(own for own, canonical in LEVELS.items() if canonical == config.level),
        "activities": [activity.upper() for activity in config.activities],
        "export_type": ["text", "db"] if config.export == "both" else [config.export],
        **{key: getattr(config, field) for key, field in FLAGS.items()}, "mstx": config.mstx or config.level == "none",
        "mstx_domain_include": list(config.domains_include), "mstx_domain_exclude": list(config.domains_exclude),
        "host_sys": [system for system in config.host_sys if system in HOST_SYSTEMS],
        "data_simplification": config.data_simplification,
        "parallel_strategy": bool(config.extras.get(flavour, {}).get("parallel_strategy", False)),
        "aic_metrics": no_metrics if config.aic_metrics == "none" else config.aic_metrics,
    }  # fmt: skip


def takes_path(path: str) -> bool:
    """Does MindSpore record into a folder of this name?"""
    return bool(_TAKEN_PATH.fullmatch(path)) and all(len(name) <= _LONGEST_NAME for name in path.split("/"))


def taken_path(reading: Reading, key: str, default: str) -> str:
    """A folder that MindSpore records into."""
    path = reading.text(key, "path", default)
    if not takes_path(path):
        reading.wrong(key, PATH_RULE if path else f"an empty text is no folder; {default} stands for the default", path)
    return path


def explain_losses(config: Config, usual: Mapping[str, str]) -> Mapping[str, str]:
    """Why a field is lost, in this configuration."""
    return usual if not config.path or takes_path(config.path) else {**usual, "path": PATH_RULE}


def _read_activities(reading: Reading, numbers_too: bool) -> tuple[str, ...]:
    listed = reading.values.get("activities")
    if numbers_too and type(listed) is int:
        return tuple(reading.choice("activities", "activities", ACTIVITY_CODES, ("cpu", "npu")))
    activities = reading.items("activities", "activities", ACTIVITIES, ("cpu", "npu"))
    if listed == []:
        why = "MindSpore records nothing at all with an empty list; leave it out for both"
        reading.wrong("activities", why, listed)
    return activities or ("cpu", "npu")


def _read_window(reading: Reading, start: int) -> Window:
    problems_before = len(reading.problems)
    stop = reading.number("stop_step", "window.steps", -1)
    if start == -1:
        return Window(counted_from="process")
    if start < 1:
        reading.wrong("start_step", "steps are counted from 1; -1 switches profiling off", start)
    elif stop < start and len(reading.problems) == problems_before:
        why = f"the last recorded step is before start_step={start}: nothing would be recorded"
        reading.wrong("stop_step", why, stop)
    reading.note(
        "steps are those of the callback, counted from 1; DynamicProfilerMonitor.step() at the end of a loop, as in "
        "MindSpore's examples, records one step later"
    )
    steps = max(stop - start + 1, 1)
    return Window(first_step=max(start, 1), steps=None if steps >= ENDLESS_STEPS else steps, counted_from="process")
