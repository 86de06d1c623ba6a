"""`dyno npu-monitor`: msMonitor's monitoring without a profiler, which goes on until it is stopped.

Source: msMonitor master of 2026-08, dynolog_npu/cli/src/main.rs and docs/en/user_guide/npumonitor_instruct.md. Which
activities it reports has no levels: the level is the lowest at which the profiler has them too, and the kinds are kept.
"""

from __future__ import annotations

from typing import Any

from ...store.options import named
from ..model import Config, Window
from ..shell import Word
from . import Read
from ._arguments import amount, reading_of_command

COMMAND = "npu-monitor"
KINDS = {
    "Marker": "none", "Kernel": "level0", "Communication": "level0", "Hccl": "level0", "Memory": "level0",
    "MemSet": "level0", "MemCpy": "level0", "API": "level1", "AclAPI": "level1", "NodeAPI": "level1",
    "RuntimeAPI": "level2",
}  # fmt: skip
LEVELS = named("level").values
_SECONDS = "seconds are needed, 0 or more; 0 for no limit"
_ACTIONS = ("npu-monitor-start", "npu-monitor-stop")
_KEPT = (
    "hostname", "port", "certs-dir", "report-interval-s", "json-rotate-log-lines", "json-rotate-log-files", "filter",
)  # fmt: skip
OPTIONS = (*_ACTIONS, "duration", "mspti-activity-kind", "log-file", "export-type", *_KEPT)


def read_monitor(words: list[Word], name: str, flavour: str) -> Read:
    """What the command asks for. Raises: ConfigError with all that is wrong in it."""
    reading = reading_of_command(words, name, COMMAND, OPTIONS, _ACTIONS, ("mspti-activity-kind",))
    kinds = reading.items("mspti-activity-kind", "level", {kind: kind for kind in KINDS}, ("Marker",)) or ("Marker",)
    is_on = "npu-monitor-start" in reading.values and "npu-monitor-stop" not in reading.values
    if not is_on:
        reading.note("without --npu-monitor-start nothing is switched on; a monitor that runs is changed")
    if "log-file" not in reading.values:
        reading.note("without --log-file nothing is kept; TensorBoard alone shows it")
    export = reading.choice("export-type", "export", {"DB": "db", "Jsonl": "text"}, "db")
    seconds = amount(reading, "duration", "limits.seconds", 0.0, _SECONDS)
    extras = {"command": COMMAND, "mspti-activity-kind": ",".join(kinds)}
    extras.update({key: reading.values[key] for key in _KEPT if key in reading.values})
    return reading.read(
        flavour, extras, enabled=is_on, window=Window(steps=None, counted_from="process"), activities=("npu",),
        level=max((KINDS[kind] for kind in kinds), key=LEVELS.index), mstx="Marker" in kinds,
        domains_exclude=("communication",) if "Marker" in kinds else (), export=export,
        path=reading.text("log-file", "path", ""), limits={"seconds": seconds} if seconds else None,
    )  # fmt: skip


def for_the_daemon(values: dict[str, Any]) -> list[str]:
    """Take out what stands before the command: where the daemon is."""
    return [f"--{key}={values.pop(key)}" for key in ("hostname", "port", "certs-dir") if key in values]


def write_monitor(config: Config, own: dict[str, Any]) -> list[str]:
    """The words of the command, for a configuration that was read from one."""
    values = {key: own[key] for key in ("mspti-activity-kind", *_KEPT) if key in own}
    top = for_the_daemon(values)
    if config.limits is not None and config.limits.seconds is not None:
        values["duration"] = config.limits.seconds
    values.update({"log-file": config.path} if config.path else {})
    values["export-type"] = "Jsonl" if config.export == "text" else "DB"
    switch = "npu-monitor-start" if config.enabled else "npu-monitor-stop"
    return ["dyno", *top, COMMAND, f"--{switch}", *(f"--{key}={value}" for key, value in values.items())]
