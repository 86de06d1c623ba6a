"""torch_npu's `dynamic_profile`: a `profiler_config.json` that is read again while training runs.

Source: torch_npu 2.13.0, `profiler/_dynamic_profiler/_dynamic_profiler_config_context.py` (keys and defaults),
`_dynamic_profiler_monitor_shm.py:20-52` (the template), `profiler/dynamic_profile.py` (steps),
`profiler/experimental_config.py` (what is reset, with a printed warning, where it is wrong: refused here).

`step()` ends a step, and a recording begins behind the call whose number is start_step: the first recorded step is
`start_step + 1 + warmup`.
"""

from __future__ import annotations

import json
from typing import Any, Mapping

from ..model import Config, Window
from ..sources import Source, from_json
from . import ENDLESS_STEPS, EXPORTS, ONE_WINDOW, Read, Reading, Written, export_of, left_out, translate_option

FLAVOUR = "torch_npu"
DESCRIPTION = "torch_npu: profiler_config.json of dynamic_profile (active, experimental_config)"

LEVELS, ACTIVITIES, HOST_SYSTEMS = (translate_option("torch_npu", name) for name in ("level", "activities", "host_sys"))
# Names of `AiCMetrics`, and what stands behind them in CANN: both are taken.
_ACL_METRICS = {
    "PipeUtilization": "PIPE_UTILIZATION", "ArithmeticUtilization": "ARITHMETIC_UTILIZATION",
    "Memory": "MEMORY_BANDWIDTH", "MemoryL0": "L0B_AND_WIDTH", "MemoryUB": "MEMORY_UB",
    "ResourceConflictRatio": "RESOURCE_CONFLICT_RATIO", "L2Cache": "L2_CACHE", "MemoryAccess": "MEMORY_ACCESS",
}  # fmt: skip
METRICS: dict[Any, Any] = {
    **{name: name for name in _ACL_METRICS}, "AiCoreNone": "none",
    **{f"ACL_AICORE_{acl}": name for name, acl in _ACL_METRICS.items()}, "ACL_AICORE_NONE": "none",
}  # fmt: skip
NEXT_STEP, NEVER = -1, 0

_SECTION = "experimental_config"
FLAGS = {
    "record_shapes": "shapes", "profile_memory": "memory", "with_stack": "stacks", "with_flops": "flops",
    "with_modules": "modules",
}  # fmt: skip
_DEEP_FLAGS = {name: name for name in ("l2_cache", "op_attr", "record_op_args", "sys_io", "sys_interconnection")}
_DOMAINS = {"mstx_domain_include": "domains_include", "mstx_domain_exclude": "domains_exclude"}
KEYS = (
    "activities", "prof_dir", "analyse", "async_mode", *FLAGS, "active", "warmup", "start_step", "is_rank",
    "rank_list", "metadata", _SECTION,
)  # fmt: skip
DEEP_KEYS = (
    "profiler_level", "aic_metrics", "gc_detect_threshold", "data_simplification", "export_type", "mstx", "msprof_tx",
    "host_sys", *_DOMAINS, *_DEEP_FLAGS,
)  # fmt: skip
OWN_PATH = "./"
_MARKS = {"active", _SECTION, "prof_dir", "is_rank", "rank_list", "async_mode"}
REASONS = {
    "window.first_step": "a recording begins behind a call of step(), so at step 2 or later, then warms up",
    "window.counted_from": "steps are counted from this start of the process",
    **ONE_WINDOW,
    "stages": "there are no stages: whole steps are recorded",
    "analysis": "with a list of ranks, data is parsed in async mode only",
    "mstx": "Level_none without mstx turns it on in torch_npu",
}


def detect(source: Source) -> bool:
    """Is there `active`, `experimental_config`, or another key that MindSpore's file of the same name has not?"""
    return bool(_MARKS & set(source.values)) and "stop_step" not in source.values


def read(source: Source) -> Read:
    """What the file says. Raises: ConfigError with all that is wrong in it."""
    reading = Reading(source)
    misplaced = [key for key in DEEP_KEYS if key in reading.values]
    for key in misplaced:
        reading.wrong(key, f"torch_npu looks for it in {_SECTION}")
    reading.only((*KEYS, "is_valid", *misplaced))
    fields = {**reading.flags(FLAGS), **_read_window(reading)}
    activities = reading.items("activities", "activities", ACTIVITIES, ("cpu", "npu"))
    if activities == ("cpu",):
        reading.note(f"without NPU in activities torch_npu ignores {_SECTION}")
    if reading.values.get("activities") == []:
        reading.note("an empty list of activities is all of them in torch_npu")
    fields["activities"], fields["ranks"] = activities or ("cpu", "npu"), _read_ranks(reading)
    fields["analysis"] = read_analysis(
        reading, fields["ranks"], ("analyse", "async_mode"), "async_mode does nothing without analyse: true",
        "torch_npu switches analyse off where a rank_list is given, unless async_mode is true",
    )  # fmt: skip
    fields["path"] = reading.text("prof_dir", "path", OWN_PATH)
    extras: dict[str, Any] = {"start_step": NEXT_STEP} if reading.values.get("start_step") == NEXT_STEP else {}
    metadata = reading.get("metadata", "extras", {})
    if not isinstance(metadata, Mapping):
        reading.wrong("metadata", "a mapping is needed", metadata)
    elif metadata:
        extras["metadata"] = dict(metadata)
    return reading.read(FLAVOUR, extras, **fields, **read_depth(reading))


def write(config: Config) -> Written:
    """The file, with every key that torch_npu looks at."""
    window, own = config.window, config.extras.get(FLAVOUR, {})
    ranks = [] if config.ranks == "all" else list(config.ranks)
    start = window.first_step - 1 - window.warmup
    start = NEXT_STEP if start == 1 and own.get("start_step") == NEXT_STEP else max(start, 1)
    values = {
        "activities": [activity.upper() for activity in config.activities], "prof_dir": config.path or OWN_PATH,
        "analyse": config.analysis == "async" or (config.analysis == "sync" and not ranks),
        "async_mode": config.analysis == "async", **{key: getattr(config, field) for key, field in FLAGS.items()},
        "active": window.steps or ENDLESS_STEPS, "warmup": window.warmup,
        "start_step": start if config.enabled else NEVER, "is_rank": bool(ranks), "rank_list": ranks,
        **{key: own[key] for key in ("metadata",) if key in own},
        _SECTION: {
            "profiler_level": next(word for word, canonical in LEVELS.items() if canonical == config.level),
            "aic_metrics": "AiCoreNone" if config.aic_metrics == "none" else config.aic_metrics,
            **{key: getattr(config, field) for key, field in _DEEP_FLAGS.items()},
            "gc_detect_threshold": config.gc_detect_threshold_ms, "data_simplification": config.data_simplification,
            "export_type": ["text", "db"] if config.export == "both" else [config.export],
            "mstx": config.mstx or config.level == "none", "host_sys": list(config.host_sys),
            **{key: list(getattr(config, field)) for key, field in _DOMAINS.items()},
        },
    }  # fmt: skip
    text = json.dumps(values, indent=4, ensure_ascii=False) + "\n"
    return Written(text, left_out(config, read(from_json(text, FLAVOUR)).config, FLAVOUR, REASONS))


def _read_window(reading: Reading) -> dict[str, Any]:
    warmup = reading.number("warmup", "window.warmup", 0, least=0)
    active = reading.number("active", "window.steps", 1, least=1)
    start = reading.number("start_step", "window.first_step", NEVER, least=NEXT_STEP)
    if start == NEVER:
        reading.note("start_step 0 records nothing: when step() is first called, that step is over")
    if start == NEXT_STEP:
        reading.note("start_step -1 is the next step after the file is read: here, read before the first step ends")
    first_step = (1 if start == NEXT_STEP else max(start, 0)) + 1 + max(warmup, 0)
    steps = None if active >= ENDLESS_STEPS else max(active, 1)
    window = Window(first_step=first_step, steps=steps, counted_from="process", warmup=max(warmup, 0))
    return {"enabled": reading.get("start_step", "enabled", NEVER) != NEVER, "window": window}


def _read_ranks(reading: Reading) -> Any:
    chosen = reading.flag("is_rank", "ranks", False)
    listed = reading.values.get("rank_list", [])
    if chosen and listed:
        return reading.ranks("rank_list", "ranks")
    if chosen and "rank_list" in reading.values:
        reading.wrong("rank_list", "is_rank: true with no rank records nowhere", listed)
    elif chosen:
        reading.wrong("is_rank", "records nowhere without the ranks of a rank_list", True)
    elif listed:
        reading.note("rank_list does nothing without is_rank: true; every rank records")
    return "all"


def read_analysis(reading: Reading, ranks: Any, keys: tuple[str, str], idle: str, switched_off: str) -> str:
    """Whether data are parsed, and where. The last two are notes: on a second key that does nothing without the first;
    on what torch_npu does where ranks are chosen.
    """
    is_wanted, is_async = (reading.flag(key, "analysis", False) for key in keys)
    if is_async and not is_wanted:
        reading.note(idle)
    if is_wanted and not is_async and ranks != "all":
        reading.note(switched_off)
        return "off"
    return "off" if not is_wanted else "async" if is_async else "sync"


def read_depth(top: Reading) -> dict[str, Any]:
    """Fields of the section experimental_config; its problems and places become those of the whole."""
    is_empty = top.values.get(_SECTION) is None
    reading = Reading(Source(top.source.name) if is_empty else top.source, (_SECTION,))
    reading.only(DEEP_KEYS)
    level = reading.choice("profiler_level", "level", LEVELS, "level0")
    threshold = reading.get("gc_detect_threshold", "gc_detect_threshold_ms")
    if type(threshold) not in (int, float, type(None)) or (threshold or 0) < 0:
        why = "milliseconds are needed, 0 or more, or null"
        threshold = reading.refuse(None, "gc_detect_threshold", why, threshold)
    domains = {key: field for key, field in _DOMAINS.items() if reading.values.get(key, ()) is not None}
    is_old = reading.flag("msprof_tx", "mstx", False)
    has_mstx = reading.flag("mstx", "mstx", False) or is_old
    if is_old:
        reading.note("msprof_tx is the old name of mstx")
    if level == "none" and not has_mstx:
        reading.note("torch_npu turns mstx on at Level_none, which records nothing else")
    fields = {
        **reading.flags(_DEEP_FLAGS), "level": level, "mstx": has_mstx or level == "none",
        "aic_metrics": reading.choice("aic_metrics", "aic_metrics", METRICS, "none"),
        "gc_detect_threshold_ms": threshold if threshold is None else float(threshold),
        "export": export_of(reading, EXPORTS),
        "data_simplification": reading.flag("data_simplification", "data_simplification", True),
        "host_sys": reading.items("host_sys", "host_sys", HOST_SYSTEMS, ()),
        **{field: reading.texts(key, field) for key, field in domains.items()},
    }  # fmt: skip
    top.take_over(reading)
    return fields
