"""MindSpore's `MS_PROFILER_OPTIONS`: a JSON object in the environment, read once, when mindspore is imported.

Source: MindSpore 2.10.0, `profiler/envprofiler.py` (keys, start, the one window of the whole run) and
`profiler/common/profiler_parameters.py:36-61` (types and defaults).
"""

from __future__ import annotations

import json
import shlex
from typing import Any

from ...errors import ConfigError, Problem
from .. import documents
from ..model import Config, Window
from ..shell import require_text
from ..sources import Source, Word, from_shell
from . import Read, Reading, Written, left_out, mindspore

FLAVOUR = "mindspore_env"
DESCRIPTION = "MindSpore: the environment variable MS_PROFILER_OPTIONS, in a shell script or a process"

VARIABLE = "MS_PROFILER_OPTIONS"
OWN_PATH = "./data"
# MindSpore's alone, each with its default.
EXTRAS = {"data_process": False, "hbm_ddr": False, "pcie": False, "sync_enable": True, "start_profile": True}
KEYS = ("start", "output_path", *mindspore.SHARED, *EXTRAS)
REASONS = {
    **mindspore.SHARED_REASONS,
    "window": "the whole run is recorded, in one window",
    "analysis": "the data is parsed when the process ends, always",
}


def detect(source: Source) -> bool:
    """Is the variable there?"""
    return VARIABLE in source.variables


def read(source: Source) -> Read:
    """What the variable says. Raises: ConfigError where it is no JSON object, else with all that is wrong in it."""
    word = source.variables.get(VARIABLE, Word(""))
    reading = Reading(_open_source(word, source.name), spelled=f"{VARIABLE}.{{}}".format)
    reading.only(KEYS)
    fields, extras = mindspore.read_options(reading, mindspore.LEVELS, mindspore.METRIC_NAMES)
    start: Any = reading.get("start", "enabled", False)
    if not isinstance(start, bool):
        why = f"not a flag: MindSpore takes it for {'true' if start else 'false'}"
        reading.wrong("start", why, start, ("true", "false"))
    fields |= {
        "enabled": start is True, "window": Window(steps=None, counted_from="process"), "analysis": "sync",
        "path": mindspore.taken_path(reading, "output_path", OWN_PATH),
    }  # fmt: skip
    extras.update(reading.own_flags(EXTRAS))
    if "start_profile" in extras:
        reading.note("start_profile: false does nothing here: MindSpore starts the profiler all the same")
    return reading.read(FLAVOUR, extras, **fields)


def write(config: Config) -> Written:
    """The line of a shell script that exports the variable."""
    own = config.extras.get(FLAVOUR, {})
    values = {
        "start": config.enabled,
        "output_path": config.path if mindspore.takes_path(config.path) else OWN_PATH,
        **mindspore.values_of(config, FLAVOUR, "None"),
        **{key: bool(own.get(key, default)) for key, default in EXTRAS.items()},
    }
    held = shlex.quote(json.dumps(values, indent=2, ensure_ascii=False))
    text = f"# MindSpore reads this once, when it is imported.\nexport {VARIABLE}={held}\n"
    reasons = mindspore.explain_losses(config, REASONS)
    return Written(text, left_out(config, read(from_shell(text, FLAVOUR)).config, FLAVOUR, reasons))


def _open_source(word: Word, name: str) -> Source:
    line, text = word.line or 1, require_text(word, name)
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        values = None  # `documents.read_json` names the line, below
    if not text:  # as good as not set
        return Source(name)
    why = ""
    if isinstance(values, list):
        why = "a list makes the import of mindspore itself fail; an object is needed"
    elif values == {} or not text.strip():
        why = "MindSpore calls an empty object a decode error and profiles nothing"
    if why:
        raise ConfigError.of([Problem(name, word.line, VARIABLE, word.text, why)])
    try:
        values, lines = documents.read_json(text, name, line)
    except ConfigError as exc:
        raise ConfigError(f"{exc} (in {VARIABLE})", exc.problems) from None
    return Source(name, values, lines if word.line is not None else {})
