"""What calls of a profiler in Python have alike in torch_npu and MindSpore: arguments, schedule, handler, and back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Mapping

from ...errors import Problem
from ...store.options import PROFILE, list_terms
from ..model import Config, Window
from ..python_calls import CALL, NotKnown
from ..sources import Source
from . import ENDLESS_STEPS, ONE_WINDOW, Reading

SCHEDULE, HANDLER, DEEP = "schedule", "on_trace_ready", "experimental_config"
COMMENT = "# start() before the loop, step() at the end of each step, stop() behind it.\n"
_CALLED = {SCHEDULE: "schedule", HANDLER: "tensorboard_trace_handler", DEEP: "_ExperimentalConfig"}
_OWN_HANDLER = f"{HANDLER} is the program's own: where the data goes, and what becomes of it, is not known here"
_IN_LOWER_CASE = ("export_type", "host_sys")
_COUNTS = ("wait", "active", "warmup", "repeat", "skip_first", "skip_first_wait")
REASONS = {
    "enabled": "a call is there, or it is not",
    "window.counted_from": "steps are those of the profiler's own step()",
    "window.more_steps": ONE_WINDOW["window.more_steps"],
    "stages": "there are no stages: whole steps are recorded",
    **dict.fromkeys(("ranks", "replicas"), "the program decides which ranks make the call"),
    "sampling": "whole steps are recorded",
    "limits": "a recording has no limits",
}


def read_arguments(source: Source, profiler: str, ignored: tuple[str, ...] = ()) -> Reading:
    """The arguments of the call, at the top of a source of their own; what only the program knows is a problem, but
    for a handler of its own and for arguments that say nothing here.
    """
    content = source.values.get(profiler)
    lines = {path[1:]: line for path, line in source.lines.items() if path[:1] == (profiler,) and len(path) > 1}
    if not isinstance(content, Mapping):
        reading = Reading(Source(source.name))
        reading.wrong("", "the arguments of a call are needed", content)
        return reading
    values = {key: value for key, value in content.items() if key not in ignored}
    notes = [] if not isinstance(values.get(HANDLER), NotKnown) else [_OWN_HANDLER]
    values = {key: value for key, value in values.items() if key != HANDLER or not notes}
    problems: list[Problem] = []
    plain = _keep_plain(values, (), Source(source.name, values, lines), problems)
    reading = Reading(Source(source.name, plain, lines), problems=problems)
    reading.notes += notes
    return reading


def _keep_plain(values: Any, path: tuple[str, ...], source: Source, problems: list[Problem]) -> Any:
    """The same without what is not known, and without what is called."""
    if isinstance(values, Mapping):
        wanted = _CALLED.get(path[-1]) if path else None
        called = values.get(CALL)
        if wanted is not None and called is not None and str(called).rpartition(".")[2] != wanted:
            problems.append(Problem(*source.place(*path), str(called), f"a call of {wanted} is needed"))
        inner = {
            key: _keep_plain(value, (*path, str(key)), source, problems) for key, value in values.items() if key != CALL
        }
        return {key: value for key, value in inner.items() if not isinstance(value, NotKnown)}
    if isinstance(values, list):
        inner_list = [_keep_plain(value, path, source, problems) for value in values]
        return [value for value in inner_list if not isinstance(value, NotKnown)]
    if isinstance(values, NotKnown):
        problems.append(Problem(source.name, values.line, ".".join(path), values.text, values.why))
    return values


def read_window(reading: Reading) -> Window:
    """The steps of `schedule(…)`, where `start()` is before the loop and `step()` at the end of each step."""
    if reading.values.get(SCHEDULE) is None:
        reading.note("without a schedule it records from start() to stop(), whatever steps these are")
        return Window(steps=None, counted_from="process")
    own = Reading(reading.source, (SCHEDULE,))
    own.only(_COUNTS)
    wait, warmup, repeat, skip = (
        own.number(key, f"window.{field}", 0, least=0)
        for key, field in (("wait", "wait"), ("warmup", "warmup"), ("repeat", "repeat"), ("skip_first", "first_step"))
    )
    active = own.number("active", "window.steps", 1, least=1)
    if own.number("skip_first_wait", "window.wait", 0) != 0:
        own.wrong("skip_first_wait", "a first window without its wait cannot be said here: give skip_first for it", 1)
    reading.take_over(own)
    steps = None if active >= ENDLESS_STEPS else max(active, 1)
    first = max(skip, 0) + max(wait, 0) + max(warmup, 0) + 1
    return Window(
        first_step=first, steps=steps, counted_from="process", warmup=max(warmup, 0), wait=max(wait, 0),
        repeat=1 if steps is None else max(repeat, 0),
    )  # fmt: skip


def read_handler(reading: Reading, default: str = "") -> tuple[str, str, dict[str, Any]]:
    """The folder and the analysis of `tensorboard_trace_handler(…)`, and what else it is given."""
    if reading.values.get(HANDLER) is None:
        return default, "off", {}
    own = Reading(reading.source, (HANDLER,))
    own.only(("dir_name", "worker_name", "analyse_flag", "async_mode"))
    path = "" if own.values.get("dir_name") is None else own.text("dir_name", "path", "")
    worker = None if own.values.get("worker_name") is None else own.text("worker_name", "extras", "")
    wanted, later = own.flag("analyse_flag", "analysis", True), own.flag("async_mode", "analysis", False)
    reading.take_over(own)
    analysis = "off" if not wanted else "async" if later else "sync"
    return path or default, analysis, {} if worker is None else {"worker_name": worker}


def in_the_files_words(reading: Reading) -> Reading:
    """The same in the words of the profiler's own file, which knows no enumerations. Problems and notes stay."""
    words = {key: _in_words(value, key) for key, value in reading.values.items() if value is not None}
    again = Reading(replace(reading.source, values=words), problems=reading.problems)
    again.notes += reading.notes
    return again


def _in_words(value: Any, key: str) -> Any:
    if isinstance(value, Mapping):
        return {name: _in_words(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        is_lower = key in _IN_LOWER_CASE
        return [inner.lower() if is_lower and isinstance(inner, str) else _in_words(inner, "") for inner in value]
    if isinstance(value, str):
        word = value.lower() if key in _IN_LOWER_CASE else str(value)
        return [word] if key == "export_type" else word
    return value


def call_of(
    config: Config, profiler: str, module: str, extras: Mapping[str, Any], path: str, more: Mapping[str, str] = {}
) -> str:
    """The call, as lines of Python; `profiler` is its column in the table of options, `more` the code of arguments that
    are other in a call.
    """
    arguments: dict[str, str] = {}
    deep: dict[str, str] = {}
    for name, term in list_terms(profiler).items():
        own = term.translated(getattr(config, name))
        prefix, members = f"{module}.{term.enum}.", own if isinstance(own, list) else [own]
        written = [f"{prefix}{member}" if term.enum else repr(member) for member in members]
        code = f"[{', '.join(written)}]" if isinstance(own, list) else written[0]
        (arguments if term.call == PROFILE else deep)[term.name] = code
    if config.window.steps is not None or config.window.first_step > 1:
        counts = {
            "wait": config.window.wait, "warmup": config.window.warmup, "active": config.window.steps or ENDLESS_STEPS,
            "repeat": config.window.repeat, "skip_first": max(config.window.skip_first, 0),
        }  # fmt: skip
        listed = ", ".join(f"{name}={count}" for name, count in counts.items())
        arguments[SCHEDULE] = f"{module}.schedule({listed})"
    worker = f"{extras['worker_name']!r}, " if "worker_name" in extras else ""
    flags = f"analyse_flag={config.analysis != 'off'}, async_mode={config.analysis == 'async'}"
    named = f"worker_name={worker}{flags}" if worker else flags
    arguments[HANDLER] = f"{module}.tensorboard_trace_handler({path!r}, {named})"
    deep.update(more)
    arguments[DEEP] = f"{module}._ExperimentalConfig(\n{_write_lines(deep, 8)}    )"
    arguments.update({name: repr(value) for name, value in extras.items() if name != "worker_name"})
    return f"{module}.profile(\n{_write_lines(arguments, 4)})\n"


def _write_lines(arguments: Mapping[str, str], indent: int) -> str:
    return "".join(f"{' ' * indent}{name}={code},\n" for name, code in arguments.items())
