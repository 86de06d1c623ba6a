"""msMonitor's `dyno`: the commands `dyno nputrace` and `dyno npu-monitor` of a shell script.

Source: msMonitor master of 2026-08, dynolog_npu/cli/src/main.rs (options, defaults, values), docs/en/user_guide/
nputrace_instruct.md and npumonitor_instruct.md; torch_npu 2.13.0, `_dynamic_profiler_config_context.py:59-254`, which
takes what nputrace sends. `-1` and the steps mean what they mean in `torch_npu`'s own file.

`npu-monitor` monitors without a profiler until it is stopped. Its activities have no levels: the level is the lowest at
which the profiler has them too, and the kinds are kept.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any, Container, Iterable

from ...errors import ConfigError
from ...store.options import find_option
from ..model import Config, Window
from ..shell import Word
from ..sources import Path, Source, from_shell
from . import ENDLESS_STEPS, ONE_WINDOW, Read, Reading, Written, left_out, torch_npu
from ._arguments import commands_of, gather_options, one_word

FLAVOUR = "dyno"
DESCRIPTION = "msMonitor: a command dyno nputrace or dyno npu-monitor in a shell script"

PROGRAM, TRACE, MONITOR = "dyno", "nputrace", "npu-monitor"
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
# What `npu-monitor` reports, by kind.
_KINDS = {
    "Marker": "none", "Kernel": "level0", "Communication": "level0", "Hccl": "level0", "Memory": "level0",
    "MemSet": "level0", "MemCpy": "level0", "API": "level1", "AclAPI": "level1", "NodeAPI": "level1",
    "RuntimeAPI": "level2",
}  # fmt: skip
_SECONDS = "seconds are needed, 0 or more; 0 for no limit"
_SWITCHES = ("npu-monitor-start", "npu-monitor-stop")
_KEPT = (
    "hostname", "port", "certs-dir", "report-interval-s", "json-rotate-log-lines", "json-rotate-log-files", "filter",
)  # fmt: skip
MONITOR_OPTIONS = (*_SWITCHES, "duration", "mspti-activity-kind", "log-file", "export-type", *_KEPT)


def detect(source: Source) -> bool:
    """Is there a command `dyno nputrace` or `dyno npu-monitor`?"""
    return bool(_find_commands(source))


def read(source: Source) -> Read:
    """What the command asks for. Raises: ConfigError with all that is wrong in it, or where there are several."""
    commands = _find_commands(source)
    if len(commands) > 1:
        lines = ", ".join(str(words[0].line) for words in commands)
        raise ConfigError(f"{source.name}: several commands of dyno, in lines {lines}: keep the one that is meant")
    words = commands[0] if commands else []
    if any(word.text == MONITOR for word in words):
        return _read_monitor(words, source.name)
    return _read_trace(words, source.name)


def _find_commands(source: Source) -> list[list[Word]]:
    begun = commands_of(PROGRAM, source.words)
    return [words for words in begun if any(word.text in (TRACE, MONITOR) for word in words)]


def _read_trace(words: list[Word], name: str) -> Read:
    reading = _read_words(words, name)
    level = reading.choice("profiler-level", "level", torch_npu.LEVELS, "level0")
    ranks = reading.ranks("rank-list", "ranks") if "rank-list" in reading.values else "all"
    analysis = torch_npu.read_analysis(
        reading, ranks, ("analyse", "async-mode"), "--async-mode does nothing without --analyse",
        "torch_npu switches --analyse off where a --rank-list is given, unless there is --async-mode",
    )  # fmt: skip
    fields = {
        "enabled": True, "window": _read_window(reading), "level": level, **reading.flags(_FLAGS), "ranks": ranks,
        "analysis": analysis, "path": reading.text("log-file", "path", OWN_PATH),
        "activities": reading.items("activities", "activities", torch_npu.ACTIVITIES, ("cpu", "npu")),
        "aic_metrics": reading.choice("aic-metrics", "aic_metrics", METRICS, "none"),
        "export": reading.choice("export-type", "export", {"Text": "text", "Db": "db"}, "text"),
        "data_simplification": reading.flag("data-simplification", "data_simplification", True),
        "host_sys": reading.items("host-sys", "host_sys", HOST_SYSTEMS, ()),
        "gc_detect_threshold_ms": _read_amount(
            reading, "gc-detect-threshold", "gc_detect_threshold_ms", None, "milliseconds are needed, 0 or more"
        ),
        **{field: reading.texts(key, field) for key, field in _LISTS.items()},
    }  # fmt: skip
    if level == "none" and not fields["mstx"]:
        reading.note("torch_npu turns mstx on at Level_none, which records nothing else")
        fields["mstx"] = True
    for key in [key for key in ("start-step", "iterations", "log-file") if key not in reading.values]:
        reading.wrong(key, "missing: dyno refuses the command without it")
    extras = {key: reading.values[key] for key in _EXTRAS if key in reading.values}
    return reading.read(FLAVOUR, extras, **fields)


def _read_words(words: list[Word], name: str) -> Reading:
    lists = ("activities", "host-sys", "rank-list", *_LISTS)
    reading = _reading_of(words, name, TRACE, OPTIONS, _ACTIONS, lists)
    reading.values = {key: value for key, value in reading.values.items() if (key, value) != ("host-sys", ["None"])}
    if words and words[0].line is not None:
        of_missing: dict[Path, int] = {(key,): words[0].line for key in OPTIONS}
        reading.source = replace(reading.source, lines={**of_missing, **reading.source.lines})
    return reading


def _read_window(reading: Reading) -> Window:
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


def _read_monitor(words: list[Word], name: str) -> Read:
    reading = _reading_of(words, name, MONITOR, MONITOR_OPTIONS, _SWITCHES, ("mspti-activity-kind",))
    kinds = reading.items("mspti-activity-kind", "level", {kind: kind for kind in _KINDS}, ("Marker",)) or ("Marker",)
    is_on = "npu-monitor-start" in reading.values and "npu-monitor-stop" not in reading.values
    if not is_on:
        reading.note("without --npu-monitor-start nothing is switched on; a monitor that runs is changed")
    if "log-file" not in reading.values:
        reading.note("without --log-file nothing is kept; TensorBoard alone shows it")
    export = reading.choice("export-type", "export", {"DB": "db", "Jsonl": "text"}, "db")
    seconds = _read_amount(reading, "duration", "limits.seconds", 0.0, _SECONDS)
    extras = {"command": MONITOR, "mspti-activity-kind": ",".join(kinds)}
    extras.update({key: reading.values[key] for key in _KEPT if key in reading.values})
    return reading.read(
        FLAVOUR, extras, enabled=is_on, window=Window(steps=None, counted_from="process"), activities=("npu",),
        level=max((_KINDS[kind] for kind in kinds), key=find_option("level").values.index), mstx="Marker" in kinds,
        domains_exclude=("communication",) if "Marker" in kinds else (), export=export,
        path=reading.text("log-file", "path", ""), limits={"seconds": seconds} if seconds else None,
    )  # fmt: skip


def _monitor_values(config: Config, own: dict[str, Any]) -> dict[str, Any]:
    """The options of the command, for a configuration that was read from one."""
    values: dict[str, Any] = {"npu-monitor-start" if config.enabled else "npu-monitor-stop": True}
    values.update({key: own[key] for key in ("mspti-activity-kind", *_KEPT) if key in own})
    if config.limits is not None and config.limits.seconds is not None:
        values["duration"] = config.limits.seconds
    values.update({"log-file": config.path} if config.path else {})
    values["export-type"] = "Jsonl" if config.export == "text" else "DB"
    return values


def _reading_of(
    words: list[Word], name: str, command: str, options: Iterable[str], flags: Container[str], lists: Container[str]
) -> Reading:
    """The options of a command, to be read: `flags` take no value, `lists` several with commas between."""
    reading = gather_options(words, name, "--", {f"--{key}": key for key in options}, flags)
    values: dict[str, Any] = {}
    for key, behind in reading.values.items():
        values[key] = True if key in flags else one_word([word for word in behind if word != command])
        if key in lists and isinstance(values[key], str):
            values[key] = [part.strip() for part in values[key].split(",")]
    reading.values = values
    return reading


def _read_amount(reading: Reading, key: str, field: str, default: float | None, needed: str) -> float | None:
    """A number of 0 or more, written as text; else a problem that says what is `needed`, and the default."""
    text = reading.get(key, field, default)
    if text == default:
        return default
    try:
        number = float(text)
    except (TypeError, ValueError):
        number = -1
    return number if 0 <= number < float("inf") else reading.refuse(default, key, needed, text)


def write(config: Config) -> Written:
    """The command."""
    own = config.extras.get(FLAVOUR, {})
    command = MONITOR if own.get("command") == MONITOR else TRACE
    values = _monitor_values(config, own) if command == MONITOR else _trace_values(config, own)
    # Before the command stands where the daemon is.
    top = [f"--{key}={values.pop(key)}" for key in ("hostname", "port", "certs-dir") if key in values]
    shown = {key: value for key, value in values.items() if command == MONITOR or value not in (None, "")}
    options = [f"--{key}" if value is True else f"--{key}={value}" for key, value in shown.items()]
    text = "# msMonitor; its daemon dynolog must run, and the training with MSMONITOR_USE_DAEMON=1.\n"
    text += shlex.join([PROGRAM, *top, command, *options]) + "\n"
    return Written(text, left_out(config, read(from_shell(text, FLAVOUR)).config, FLAVOUR, _REASONS))


def _trace_values(config: Config, own: dict[str, Any]) -> dict[str, Any]:
    return {
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
