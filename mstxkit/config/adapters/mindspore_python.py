"""MindSpore's own `profile(…)` call in a Python file, or its older `Profiler(…)`, which are read and never run.

Source: MindSpore 2.10.0, `profiler/profiler.py:819-832` (parameters), `:124-286` (the older one),
`profiler/common/profiler_parameters.py` (defaults, and what replaces a value of a wrong type: refused here).
"""

from __future__ import annotations

from typing import Any, Mapping

from ..model import Config
from ..python_calls import Member
from ..sources import Source, from_python
from . import Read, Reading, Written, _python, left_out, mindspore, mindspore_env

FLAVOUR = "mindspore_python"
DESCRIPTION = "MindSpore: a call of mindspore.profiler.profile in a Python file, never run"

PROFILER, OLDER, MODULE = "mindspore.profiler.profile", "mindspore.profiler.Profiler", "mindspore.profiler"
OWN_PATH = "./data"
_ENUMERATIONS = ("profiler_level", "activities", "aic_metrics", "export_type", "host_sys")
_ONE_MEMBER = "a member of its enumeration is needed: MindSpore takes its default for a text, which may be heavier"
_KEYS = (*mindspore.SHARED, *mindspore_env.EXTRAS, _python.SCHEDULE, _python.HANDLER)
_REASONS = {**mindspore.SHARED_REASONS, **_python.REASONS}


def detect(source: Source) -> bool:
    """Is there such a call?"""
    return PROFILER in source.values or OLDER in source.values


def read(source: Source) -> Read:
    """What the call asks for. Raises: ConfigError with all that is wrong in it, or known to the program alone."""
    is_older = PROFILER not in source.values
    reading = _flatten_reading(_python.read_arguments(source, OLDER if is_older else PROFILER))
    reading.only((*_KEYS, "output_path") if is_older else _KEYS)
    fields, extras = mindspore.read_options(reading, mindspore.LEVELS, mindspore.METRICS)
    own = reading.text("output_path", "path", OWN_PATH)
    path, analysis, more = _python.read_handler(reading, own)
    if not mindspore.takes_path(path):
        reading.wrong(_python.HANDLER, mindspore.PATH_RULE, path)
    extras.update(reading.own_flags(mindspore_env.EXTRAS))
    fields.update(enabled=True, window=_python.read_window(reading), analysis=analysis, path=path)
    return reading.read(FLAVOUR, {**extras, **more}, **fields)


def _flatten_reading(reading: Reading) -> Reading:
    """The same with what `_ExperimentalConfig` is given beside the rest, as in MindSpore's file."""
    deep = reading.values.get(_python.DEEP)
    inner = dict(deep) if isinstance(deep, Mapping) else {}
    values = {**{key: value for key, value in reading.values.items() if key != _python.DEEP}, **inner}
    lines = {(path[1:] if path[:1] == (_python.DEEP,) else path): line for path, line in reading.source.lines.items()}
    whole = Reading(Source(reading.source.name, values, lines), problems=reading.problems)
    whole.notes += reading.notes
    for key in _ENUMERATIONS:
        value = values.get(key)
        for own in value if isinstance(value, list) else [value]:
            if isinstance(own, str) and not isinstance(own, Member):
                whole.wrong(key, _ONE_MEMBER, own)
    if deep is not None and not isinstance(deep, Mapping):
        whole.wrong(_python.DEEP, "a call of _ExperimentalConfig is needed", deep)
    return _python.in_the_files_words(whole)


def write(config: Config) -> Written:
    """The call, as lines of Python."""
    own: dict[str, Any] = config.extras.get(FLAVOUR, {})
    path = config.path if mindspore.takes_path(config.path) else OWN_PATH
    mstx = {"mstx": config.mstx or config.level == "none"}
    systems = [f"{MODULE}.HostSystem.{name.upper()}" for name in config.host_sys if name in mindspore.HOST_SYSTEMS]
    more = {"host_sys": f"[{', '.join(systems)}]"}
    call = _python.call_of(config.model_copy(update=mstx), "mindspore", MODULE, own, path, more)
    text = f"{_python.COMMENT}import mindspore\n\nprof = {call}"
    reasons = mindspore.explain_losses(config, _REASONS)
    return Written(text, left_out(config, read(from_python(text, FLAVOUR)).config, FLAVOUR, reasons))
