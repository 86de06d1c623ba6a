"""MindSpeed-LLM on Megatron-Core: `--profile-*` among the arguments of a training script, its steps counted from 1.

Source: MindSpeed-LLM c77308a1, `features_manager/functional/profiling.py` and `training/training.py:264-333`;
Megatron-LM core_v0.12.1, `training/arguments.py:1583-1606` (`--profile`, the steps, the ranks). The same since 2.1.0;
up to 2.3.0 the legacy path took [-1] for `--profile-ranks`. What `docs/*/profiling.md` says of its defaults differs:
steps from 0, -1 for the end of the run, `./profile`.
"""

from __future__ import annotations

import shlex
from typing import Any

from .. import shell
from ..model import Config, Window
from ..sources import Source, Word, from_shell
from . import ENDLESS_STEPS, EXPORTS, LEVELS, ONE_WINDOW, Read, Reading, Written, left_out, read_whole, usual_metrics
from ._arguments import commands_of, gather_options, one_word

FLAVOUR = "mindspeed_llm"
DESCRIPTION = "MindSpeed-LLM on Megatron-Core: --profile-* in a launch script or a list of arguments, steps from 1"

# Keys that are a flag each, and a field of ours.
_FIELDS = {
    "profile": "enabled", "profile_with_stack": "stacks", "profile_with_memory": "memory",
    "profile_record_shapes": "shapes", "profile_data_simplification": "data_simplification",
}  # fmt: skip
FLAGS = ("profile", "profile_with_cpu", *list(_FIELDS)[1:])
OPTIONS = (
    "profile", "profile_step_start", "profile_step_end", "profile_ranks", "profile_level", "profile_export_type",
    *FLAGS[1:], "profile_save_path",
)  # fmt: skip
OWN_PATH = "./profile_dir"
_DEFAULT_START, _DEFAULT_END = 10, 12
_AS_FLAGS = ("true", "false", "yes", "no", "on", "off", "1", "0")
# An object of parsed arguments has all of these; MindSpeed-RL has keys of other of these names.
_OWN_ALONE = ("profile_data_simplification", "profile_with_stack")
_FSDP2_ALONE = "gradient_accumulation_steps"

FIXED = {
    "mstx": "mstx ranges are recorded at level_none, and at no other level",
    "aic_metrics": "PipeUtilization at level1 and level2, none below",
    "activities": "the NPU is always recorded",
    "analysis": "each rank parses its data right after recording",
    "stages": "there are no stages: whole steps are recorded",
    "window.warmup": "one step of warm-up, none where the first step of all is recorded",
    **ONE_WINDOW,
    "export": "one form only",
}
REASONS = {**FIXED, "window.counted_from": "a resumed run goes on counting"}


def detect(source: Source) -> bool:
    """Is there a word `--profile` or `--profile-*`, or an object of MindSpeed-LLM's parsed arguments?"""
    if any(_is_option(word.text) for word in words_of(source)):
        return True
    return all(name in source.values for name in _OWN_ALONE) and _FSDP2_ALONE not in source.values


def read(source: Source) -> Read:
    """What the arguments say. Raises: ConfigError with all that is wrong in them."""
    reading = _read_words(source)
    fields = read_options(reading, OWN_PATH)
    start = reading.number("profile_step_start", "window.first_step", _DEFAULT_START)
    end = reading.number("profile_step_end", "window.steps", _DEFAULT_END)
    if start < 1:
        why = "steps are counted from 1, and this is checked even without --profile"
        reading.wrong("profile_step_start", why, start)
    start = max(start, 1)
    if end <= start and fields["enabled"]:
        why = f"the first step that is not recorded must be above profile_step_start={start}; one would be all the same"
        why = "-1 is not the end of the run here: one step would be recorded" if end == -1 else why
        reading.wrong("profile_step_end", why, end)
    steps = max(end - start, 1)
    steps_at_most = None if steps >= ENDLESS_STEPS else steps
    fields["window"] = Window(first_step=start, steps=steps_at_most, warmup=int(start > 1))
    fields["ranks"] = read_ranks(reading, [0], "--profile-ranks 0 1")
    return reading.read(FLAVOUR, **fields)


def write(config: Config) -> Written:
    """Arguments, one a line, to be put behind the training script."""
    start = config.window.first_step
    values = values_of(config, start, start + (config.window.steps or ENDLESS_STEPS), OWN_PATH)
    lines = []
    for name, value in values.items():
        if value is not False:
            words = [] if value is True else value if isinstance(value, list) else [value]
            lines.append(" ".join([_spell_flag(name), *(shlex.quote(str(word)) for word in words)]))
    text = "# Arguments of MindSpeed-LLM (Megatron-Core), for its training script.\n" + " \\\n".join(lines) + "\n"
    return Written(text, left_out(config, read(from_shell(text, FLAVOUR)).config, FLAVOUR, REASONS))


def read_options(reading: Reading, own_path: str) -> dict[str, Any]:
    """Fields that both backends of MindSpeed-LLM have alike: all but the window and ranks."""
    level = reading.choice("profile_level", "level", LEVELS, "level0")
    if level == "none":
        reading.note("level_none is no profile switched off: torch_npu records mstx ranges and nothing else")
    return {
        **reading.flags(_FIELDS), "level": level, "mstx": level == "none", "aic_metrics": usual_metrics(level),
        "activities": ("cpu", "npu") if reading.flag("profile_with_cpu", "activities", False) else ("npu",),
        "export": reading.choice("profile_export_type", "export", EXPORTS, "text"), "analysis": "sync",
        "path": reading.text("profile_save_path", "path", own_path),
    }  # fmt: skip


def values_of(config: Config, start: int, end: int, own_path: str) -> dict[str, Any]:
    """A configuration under MindSpeed-LLM's names, in the order of its options."""
    values = {
        **{key: getattr(config, field) for key, field in _FIELDS.items()},
        "profile_step_start": start, "profile_step_end": end, "profile_save_path": config.path or own_path,
        "profile_ranks": [-1] if config.ranks == "all" else list(config.ranks),
        "profile_level": next(own for own, canonical in LEVELS.items() if canonical == config.level),
        "profile_with_cpu": "cpu" in config.activities,
        "profile_export_type": "db" if config.export == "db" else "text",
    }  # fmt: skip
    return {name: values[name] for name in OPTIONS}


def read_ranks(reading: Reading, default: list[int], example: str) -> Any:
    """Which ranks; -1 stands for all of them only where nothing else is named."""
    listed = reading.get("profile_ranks", "ranks", default)
    numbers = [read_whole(number, from_text=True) for number in listed] if isinstance(listed, (list, tuple)) else []
    if not numbers or any(number is None or number < -1 for number in numbers):
        shown = listed[0] if isinstance(listed, list) and len(listed) == 1 else listed
        reading.wrong("profile_ranks", f"whole numbers are needed, as in {example}; -1 alone for all", shown)
    elif numbers == [-1]:
        return "all"
    elif -1 in numbers:
        why = "-1 means all ranks only where it stands alone; beside others it is no rank"
        reading.wrong("profile_ranks", why, listed)
    return tuple(dict.fromkeys(number for number in numbers if number is not None and number >= 0)) or "all"


def words_of(source: Source) -> list[Word]:
    """Words of a script's commands; where none is an option of a profile, of what it assigns for another to use."""
    # msMonitor's command line tool has options of such names too.
    others = {id(word) for words in commands_of("dyno", source.words) for word in words}
    own = [word for word in source.words if id(word) not in others]
    if any(_is_option(word.text) or word.text.startswith("--training.") for word in own):
        return own
    scripts = [word for word in source.variables.values() if word.line is not None and "--" in word.text]
    held = [(script, shell.split_commands(script.text, line=script.line or 1)[0]) for script in scripts]
    return [word._replace(doubts=(*script.doubts, *word.doubts)) for script, words in held for word in words]


def _read_words(source: Source) -> Reading:
    words = words_of(source)
    if not any(_is_option(word.text) for word in words):
        return Reading(source)
    names = {_spell_flag(name): name for name in OPTIONS}
    reading = gather_options(words, source.name, "--profile", names, flags=FLAGS)
    values: dict[str, Any] = {}
    for key, behind in reading.values.items():
        if key in FLAGS:
            values[key] = True
            if behind and behind[0].lower() in _AS_FLAGS:
                reading.wrong(key, "takes no value: leave it out for off", behind[0])
        else:
            values[key] = behind if key == "profile_ranks" else one_word(behind)
    reading.values = values
    return reading


def _is_option(text: str) -> bool:
    return text == "--profile" or text.startswith(("--profile-", "--profile_", "--profile="))


def _spell_flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
