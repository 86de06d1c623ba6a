"""MindSpeed-LLM on FSDP2: `training.profile_*` of its YAML, or `--training.profile_*`, its steps counted from 0.

Source: MindSpeed-LLM c77308a1, `fsdp2/utils/arguments.py:646-680` (fields and their checks), `:848-1077` (YAML values
become words of the command line, which are parsed again), `fsdp2/utils/profiler.py:66-88` (level, export, schedule).
Steps are those of this start of the process, whatever its help says of "global step".
"""

from __future__ import annotations

from typing import Any, Mapping

from ..model import Config, Window
from ..sources import Source, from_yaml
from . import ENDLESS_STEPS, Read, Reading, Written, left_out, mindspeed_llm, yaml_of
from ._arguments import gather_options, one_word
from .mindspeed_llm import FLAGS, OPTIONS

FLAVOUR = "mindspeed_llm_fsdp2"
DESCRIPTION = "MindSpeed-LLM on FSDP2: training.profile_* in YAML, or --training.profile_*, steps from 0"

SECTION = "training"
OWN_PATH = "./profile"
REASONS = {**mindspeed_llm.FIXED, "window.counted_from": "steps are counted from this start of the process"}
_PREFIX = f"--{SECTION}.profile"
# As the framework's own parser takes them, in any case of letters (`arguments.py`, `_string_to_bool`).
_TRUE, _FALSE = ("yes", "true", "t", "y", "1"), ("no", "false", "f", "n", "0")
# An object of its parsed arguments has these; Megatron-Core's has none of the second name.
_OWN_ALONE = ("profile_data_simplification", "gradient_accumulation_steps")


def detect(source: Source) -> bool:
    """Is there a key `training.profile*`, a word `--training.profile*`, or an object of its `TrainingArguments`?"""
    section = source.at(SECTION)
    if isinstance(section, Mapping) and any(name.startswith("profile") for name in section):
        return True
    if any(word.text.startswith(_PREFIX) for word in mindspeed_llm.words_of(source)):
        return True
    return all(name in source.values for name in _OWN_ALONE)


def read(source: Source) -> Read:
    """What the section says. Raises: ConfigError with all that is wrong in it."""
    reading = _read_words(source)
    fields = mindspeed_llm.read_options(reading, OWN_PATH)
    start = reading.number("profile_step_start", "window.first_step", 0)
    end = reading.number("profile_step_end", "window.steps", -1)
    if fields["enabled"] and start < 0:
        reading.wrong("profile_step_start", "steps are counted from 0", start)
    if fields["enabled"] and end != -1 and end <= start:
        why = f"must be above profile_step_start={start}, or -1 for the end of the run"
        reading.wrong("profile_step_end", why, end)
    start = max(start, 0)
    steps = None if end == -1 or end - start >= ENDLESS_STEPS else max(end - start, 1)
    fields["window"] = Window(first_step=start + 1, steps=steps, counted_from="process", warmup=int(start > 0))
    fields["ranks"] = mindspeed_llm.read_ranks(reading, [-1], "profile_ranks: [0, 1]")
    if fields["enabled"] and fields["ranks"] == "all" and fields["window"].steps is None:
        reading.note("every rank is recorded for the whole run, in one window: that is what profile: true alone means")
    return reading.read(FLAVOUR, **fields)


def write(config: Config) -> Written:
    """The section `training` of a YAML file, every default of it made explicit."""
    start, steps = config.window.first_step - 1, config.window.steps
    section = mindspeed_llm.values_of(config, start, -1 if steps is None else start + steps, OWN_PATH)
    text = f"# MindSpeed-LLM (FSDP2): these go into its section of this name.\n{yaml_of({SECTION: section})}"
    return Written(text, left_out(config, read(from_yaml(text, FLAVOUR)).config, FLAVOUR, REASONS))


def _read_words(source: Source) -> Reading:
    words = mindspeed_llm.words_of(source)
    if any(word.text.startswith(_PREFIX) for word in words):
        names = {f"--{SECTION}.{name}": name for name in OPTIONS}
        reading = gather_options(words, source.name, _PREFIX, names)
        values: dict[str, Any] = dict(reading.values)
        for key, behind in reading.values.items():
            if key in FLAGS:
                values[key] = _read_flag(one_word(behind or ["true"]))
            elif key != "profile_ranks":
                values[key] = one_word(behind)
        reading.values = values
        return reading
    path = () if all(name in source.values for name in _OWN_ALONE) else (SECTION,)
    reading = Reading(source, path, from_text=True)
    # As the framework sees it, which turns all into texts and parses these.
    values_given = {key: value for key, value in reading.values.items() if value is not None}
    reading.values = {key: _read_flag(value) if key in FLAGS else value for key, value in values_given.items()}
    if not isinstance(values_given.get("profile_ranks", []), list):
        reading.values["profile_ranks"] = [values_given["profile_ranks"]]
    for key in reading.values:
        if key.startswith("profile") and key not in OPTIONS:
            reading.wrong(key, "unknown key", allowed=OPTIONS)
    return reading


def _read_flag(value: Any) -> Any:
    text = str(value).lower()
    return text in _TRUE if text in (*_TRUE, *_FALSE) else value
