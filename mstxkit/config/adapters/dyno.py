"""msMonitor's `dyno`: the commands `dyno nputrace` and `dyno npu-monitor` of a shell script.

Source: msMonitor master of 2026-08, dynolog_npu/cli/src/main.rs (options, defaults, values), docs/en/user_guide/
nputrace_instruct.md and npumonitor_instruct.md; torch_npu 2.13.0, `_dynamic_profiler_config_context.py:59-254`, which
takes what nputrace sends. `-1` and the steps mean what they mean in `torch_npu`'s own file.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

from ...errors import ConfigError
from ..model import Config, Window
from ..shell import Word
from ..sources import Path, Source, from_shell
from . import ENDLESS_STEPS, ONE_WINDOW, Read, Reading, Written, left_out, torch_npu
from ._arguments import amount, commands_of, is_of, reading_of_command
from ._npu_monitor import COMMAND as MONITOR
from ._npu_monitor import for_the_daemon, read_monitor, write_monitor

FLAVOUR = "dyno"
DESCRIPTION = "msMonitor: a command dyno nputrace or dyno npu-monitor in a shell script"

PROGRAM, TRACE = "dyno", "nputrace"
OWN_PATH = "./nputrace"
_FLAGS = {
    "record-shapes": "shapes", "profile-memory": "memory", "with-stack": "stacks", "with-flops": "flops",
    "with-modules": "modules", "l2-cache": "l2_cache", "op-attr": "op_attr", "sys-io": "sys_io",
    "sys-interconnection": "sys_interconnection", "msprof-tx": "mstx",
}  # fmt: skip
# Of dynolog itself, which torch_npu does not look at.
_EXTRAS = ("hostname", "port", "certs-dir", "job-id", "pids", "duration-ms", "profile-start-time", "process-limit")
_LISTS = {"mstx-domain-include": "domains_include", "mstx-domain-exclude": "domains_exclude"}
_ACTIONS = (*_FLAGS, "analyse", "async-mode")
OPTIONS = (
    "start-step", "iterations", "log-file", "activities", "profiler-level", "aic-metrics", *_ACTIONS,
    "gc-detect-threshold", "data-simplification", "export-type", "host-sys", *_LISTS, "rank-list", *_EXTRAS,
)  # fmt: skip
METRICS = {name: ours for name, ours in torch_npu.METRICS.items() if not str(name).startswith("ACL_")}
_THRESHOLD = "milliseconds are needed, 0 or more"
HOST_SYSTEMS = {name: name for name in torch_npu.HOST_SYSTEMS.values() if name != "numa"}
_REASONS = {
    **torch_npu.REASONS,
    "window.warmup": "dyno has no option for it",
    "enabled": "a command starts a recording: to have none, leave it out",
    "window.first_step": "a recording begins behind a call of step(), so at step 2 or later",
    "export": "text or db, not both",
    "host_sys": f"one of {', '.join(HOST_SYSTEMS)}",
    **ONE_WINDOW,
}


def detect(source: Source) -> bool:
    """Is there a command `dyno nputrace` or `dyno npu-monitor`?"""
    return bool(_commands(source))


def read(source: Source) -> Read:
    """What the command asks for. Raises: ConfigError with all that is wrong in it, or where there are several."""
    commands = _commands(source)
    if len(commands) > 1:
        lines = ", ".join(str(words[0].line) for words in commands)
        raise ConfigError(f"{source.name}: several commands of dyno, in lines {lines}: keep the one that is meant")
    words = commands[0] if commands else []
    if any(word.text == MONITOR for word in words):
        return read_monitor(words, source.name, FLAVOUR)
    return _read_trace(words, source.name)


def _commands(source: Source) -> list[list[Word]]:
    begun = [words for words in commands_of(source.words) if is_of(PROGRAM, words)]
    return [words for words in begun if any(word.text in (TRACE, MONITOR) for word in words)]


def _read_trace(words: list[Word], name: str) -> Read:
    reading = _reading(words, name)
    level = reading.choice("profiler-level", "level", torch_npu.LEVELS, "level0")
    ranks = reading.ranks("rank-list", "ranks") if "rank-list" in reading.values else "all"
    fields = {
        "enabled": True, "window": _window(reading), "level": level, **reading.flags(_FLAGS), "ranks": ranks,
        "analysis": _analysis(reading, ranks), "path": reading.text("log-file", "path", OWN_PATH),
        "activities": reading.items("activities", "activities", torch_npu.ACTIVITIES, ("cpu", "npu")),
        "aic_metrics": reading.choice("aic-metrics", "aic_metrics", METRICS, "none"),
        "export": reading.choice("export-type", "export", {"Text": "text", "Db": "db"}, "text"),
        "data_simplification": reading.flag("data-simplification", "data_simplification", True),
        "host_sys": reading.items("host-sys", "host_sys", HOST_SYSTEMS, ()),
        "gc_detect_threshold_ms": amount(reading, "gc-detect-threshold", "gc_detect_threshold_ms", None, _THRESHOLD),
        **{field: reading.texts(key, field) for key, field in _LISTS.items()},
    }  # fmt: skip
    if level == "none" and not fields["mstx"]:
        reading.note("torch_npu turns mstx on at Level_none, which records nothing else")
        fields["mstx"] = True
    for key in [key for key in ("start-step", "iterations", "log-file") if key not in reading.values]:
        reading.wrong(key, "missing: dyno refuses the command without it")
    extras = {key: reading.values[key] for key in _EXTRAS if key in reading.values}
    return reading.read(FLAVOUR, extras, **fields)


def _reading(words: list[Word], name: str) -> Reading:
    lists = ("activities", "host-sys", "rank-list", *_LISTS)
    reading = reading_of_command(words, name, TRACE, OPTIONS, _ACTIONS, lists)
    reading.values = {key: value for key, value in reading.values.items() if (key, value) != ("host-sys", ["None"])}
    if words and words[0].line is not None:
        of_missing: dict[Path, int] = {(key,): words[0].line for key in OPTIONS}
        reading.source = replace(reading.source, lines={**of_missing, **reading.source.lines})
    return reading


def _window(reading: Reading) -> Window:
    start = reading.number("start-step", "window.first_step", 1, least=torch_npu.NEXT_STEP)
    steps = reading.number("iterations", "window.steps", 1, least=1)
    if start == torch_npu.NEXT_STEP:
        reading.note("--start-step -1 is the step after the command: here, given before the first step ends")
    elif start == 0:
        reading.wrong("start-step", "step 0 is over when step() is first called: nothing would be recorded", 0)
    if "duration-ms" in reading.values:
        reading.note("--iterations takes precedence over --duration-ms")
    first = (1 if start == torch_npu.NEXT_STEP else max(start, 1)) + 1
    return Window(first_step=first, steps=None if steps >= ENDLESS_STEPS else max(steps, 1), counted_from="process")


def _analysis(reading: Reading, ranks: Any) -> str:
    is_wanted, is_async = ("analyse" in reading.values, "async-mode" in reading.values)
    for key in [key for key in ("analyse", "async-mode") if key in reading.values]:
        reading.places["analysis"] = reading.place(key)
    if is_async and not is_wanted:
        reading.note("--async-mode does nothing without --analyse")
    if is_wanted and not is_async and ranks != "all":
        reading.note("torch_npu switches --analyse off where a --rank-list is given, unless there is --async-mode")
        return "off"
    return "off" if not is_wanted else "async" if is_async else "sync"


def write(config: Config) -> Written:
    """The command."""
    own = config.extras.get(FLAVOUR, {})
    words = write_monitor(config, own) if own.get("command") == MONITOR else _trace_words(config, own)
    text = "# msMonitor; its daemon dynolog must run, and the training with MSMONITOR_USE_DAEMON=1.\n"
    text += " ".join(shlex.quote(word) for word in words) + "\n"
    return Written(text, left_out(config, read(from_shell(text, FLAVOUR)).config, FLAVOUR, _REASONS))


def _trace_words(config: Config, own: dict[str, Any]) -> list[str]:
    values: dict[str, Any] = {
        **{key: own[key] for key in _EXTRAS if key in own}, "start-step": max(config.window.first_step - 1, 1),
        "iterations": config.window.steps or ENDLESS_STEPS, "log-file": config.path or OWN_PATH,
        "activities": ",".join(activity.upper() for activity in config.activities),
        "profiler-level": next(own for own, ours in torch_npu.LEVELS.items() if ours == config.level),
        "aic-metrics": next(own for own, ours in METRICS.items() if ours == config.aic_metrics),
        **{key: True for key, field in _FLAGS.items() if getattr(config, field)},
        **({"analyse": True} if config.analysis != "off" else {}),
        **({"async-mode": True} if config.analysis == "async" else {}),
        "gc-detect-threshold": config.gc_detect_threshold_ms,
        "data-simplification": str(config.data_simplification).lower(),
        "export-type": "Db" if config.export == "db" else "Text",
        "host-sys": ",".join(system for system in config.host_sys if system in HOST_SYSTEMS),
        **{key: ",".join(getattr(config, field)) for key, field in _LISTS.items()},
        "rank-list": "" if config.ranks == "all" else ",".join(map(str, config.ranks)),
    }  # fmt: skip
    top = for_the_daemon(values)
    named = {key: value for key, value in values.items() if value is not None and value != ""}
    options = [f"--{key}" if value is True else f"--{key}={value}" for key, value in named.items()]
    return [PROGRAM, *top, TRACE, *options]
