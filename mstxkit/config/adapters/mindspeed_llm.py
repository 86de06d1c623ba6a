"""MindSpeed-LLM on Megatron-Core: `--profile-*` among the arguments of a training script, its steps counted from 1.

Source: MindSpeed-LLM c77308a1, `features_manager/functional/profiling.py` and `training/training.py:264-333`;
Megatron-LM core_v0.12.1, `training/arguments.py:1583-1606` (`--profile`, the steps, the ranks). The same since 2.1.0;
up to 2.3.0 the legacy path took [-1] for `--profile-ranks`. What `docs/*/profiling.md` says of its defaults differs:
steps from 0, -1 for the end of the run, `./profile`.
"""

from __future__ import annotations

import re
import shlex
from typing import Any, Iterable, Mapping

from ...errors import Problem
from .. import shell
from ..model import Config, Window
from ..sources import Source, Word, from_shell
from . import ENDLESS_STEPS, Read, Reading, Written, left_out

FLAVOUR = "mindspeed_llm"
DESCRIPTION = "MindSpeed-LLM on Megatron-Core: --profile-* in a launch script or a list of arguments, steps from 1"

LEVELS: dict[Any, Any] = {"level_none": "none", "level0": "level0", "level1": "level1", "level2": "level2"}
EXPORTS: dict[Any, Any] = {"text": "text", "db": "db"}
FLAGS = (
    "profile", "profile_with_cpu", "profile_with_stack", "profile_with_memory", "profile_record_shapes",
    "profile_data_simplification",
)  # fmt: skip
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
    "window.wait": "there is one window",
    "window.repeat": "there is one window",
    "window.more_steps": "there is one window",
    "export": "one form only",
}
REASONS = {**FIXED, "window.counted_from": "a resumed run goes on counting"}


def detect(source: Source) -> bool:
    """Is there a word `--profile` or `--profile-*`, or an object of MindSpeed-LLM's parsed arguments?"""
    if any(_is_option(word.text) for word in words_of(source)):
        return True
    return all(name in source.values for name in _OWN_ALONE) and _FSDP2_ALONE not in source.values


def read(source: Source) -> Read:
    """What the arguments say.

    Raises:
        ConfigError: all that is wrong in them.
    """
    reading = _reading(source)
    fields = options(reading)
    fields["window"] = _window(reading, fields["enabled"])
    fields["ranks"] = ranks(reading, [0], "--profile-ranks 0 1")
    fields["path"] = reading.text("profile_save_path", "path", OWN_PATH)
    return reading.read(FLAVOUR, **fields)


def write(config: Config) -> Written:
    """Arguments, one a line, to be put behind the training script."""
    start = config.window.first_step
    given = {
        "profile_step_start": start,
        "profile_step_end": start + (config.window.steps or ENDLESS_STEPS),
        "profile_ranks": [-1] if config.ranks == "all" else list(config.ranks),
        "profile_save_path": config.path or OWN_PATH,
        **said(config),
    }
    lines = [_line(name, given[name]) for name in sorted(given, key=OPTIONS.index) if given[name] is not False]
    text = "\n".join(
        ("# Arguments of MindSpeed-LLM (Megatron-Core), for its training script.", " \\\n".join(lines), "")
    )
    return Written(text, left_out(config, read(from_shell(text, FLAVOUR)).config, FLAVOUR, REASONS))


def options(reading: Reading) -> dict[str, Any]:
    """Fields that both backends of MindSpeed-LLM have alike: all but the window, ranks and path."""
    level = reading.choice("profile_level", "level", LEVELS, "level0")
    if level == "none":
        reading.note("level_none is no profile switched off: torch_npu records mstx ranges and nothing else")
    return {
        "enabled": reading.flag("profile", "enabled", False),
        "level": level,
        "mstx": level == "none",
        "aic_metrics": "PipeUtilization" if level in ("level1", "level2") else "none",
        "activities": ("cpu", "npu") if reading.flag("profile_with_cpu", "activities", False) else ("npu",),
        "memory": reading.flag("profile_with_memory", "memory", False),
        "shapes": reading.flag("profile_record_shapes", "shapes", False),
        "stacks": reading.flag("profile_with_stack", "stacks", False),
        "export": reading.choice("profile_export_type", "export", EXPORTS, "text"),
        "analysis": "sync",
        "data_simplification": reading.flag("profile_data_simplification", "data_simplification", False),
    }


def said(config: Config) -> dict[str, Any]:
    """These fields under MindSpeed-LLM's names."""
    return {
        "profile": config.enabled,
        "profile_level": next(own for own, canonical in LEVELS.items() if canonical == config.level),
        "profile_with_cpu": "cpu" in config.activities,
        "profile_with_memory": config.memory,
        "profile_record_shapes": config.shapes,
        "profile_with_stack": config.stacks,
        "profile_export_type": "db" if config.export == "db" else "text",
        "profile_data_simplification": config.data_simplification,
    }


def ranks(reading: Reading, default: list[int], example: str) -> Any:
    """Which ranks; -1 stands for all of them only where nothing else is named."""
    given = reading.get("profile_ranks", "ranks", default)
    numbers = [as_rank(one) for one in given] if isinstance(given, (list, tuple)) else []
    if not numbers or any(one is None or one < -1 for one in numbers):
        reading.wrong("profile_ranks", f"whole numbers are needed, as in {example}; -1 alone for all", _one(given))
    elif numbers == [-1]:
        return "all"
    elif -1 in numbers:
        reading.wrong(
            "profile_ranks", "-1 means all ranks only where it stands alone; beside others it is no rank", given
        )
    return tuple(dict.fromkeys(one for one in numbers if one is not None and one >= 0)) or "all"


def as_rank(value: Any) -> int | None:
    """A whole number, of a text too; None for anything else."""
    if isinstance(value, str):
        return int(value) if re.fullmatch(r"-?[0-9]{1,18}", value) else None
    return value if type(value) is int else None


def words_of(source: Source) -> list[Word]:
    """Words of a script's commands; where none is an option of a profile, of what it assigns for another to use."""
    if any(_is_option(word.text) or word.text.startswith("--training.") for word in source.words):
        return list(source.words)
    scripts = [word for word in source.variables.values() if word.line is not None and "--" in word.text]
    held = [(one, shell.split(one.text)[0]) for one in scripts]
    return [Word(word.text, (one.line or 1) + (word.line or 1) - 1) for one, words in held for word in words]


def section_of_words(
    words: Iterable[Word], name: str, prefix: str, known: Mapping[str, str]
) -> tuple[Source, list[Problem]]:
    """Options among words as a mapping of each to the list of words behind it, the last of each holds.

    Args:
        words: Of a command line.
        name: Of their source.
        prefix: What an option begins with.
        known: Name of the key by the option as it is spelled.
    """
    values: dict[str, list[str]] = {}
    lines: dict[tuple[str | int, ...], int] = {}
    problems: list[Problem] = []
    behind: list[str] | None = None
    for word in words:
        option, equals, value = word.text.partition("=")
        if word.text == shell.END or word.text.startswith("--"):
            behind = None
        if option == prefix or (option.startswith(prefix) and option[len(prefix) :][:1] in "-_"):
            if option not in known:
                problems.append(Problem(name, word.line, option, None, "unknown option", tuple(known)))
                continue
            behind = values[known[option]] = [value] if equals else []
            lines.update({(known[option],): word.line} if word.line is not None else {})
        elif behind is not None:
            behind.append(word.text)
    return Source(name, values, lines), problems


def one_word(behind: list[str]) -> Any:
    """The word behind an option; None where there is none, and all of them where there are several: both are wrong."""
    return behind[0] if len(behind) == 1 else behind or None


def _reading(source: Source) -> Reading:
    words = words_of(source)
    if not any(_is_option(word.text) for word in words):
        return Reading(source)
    found, problems = section_of_words(words, source.name, "--profile", {_spelled(name): name for name in OPTIONS})
    values: dict[str, Any] = {}
    for key, behind in found.values.items():
        if key in FLAGS:
            values[key] = True
            if behind and behind[0].lower() in _AS_FLAGS:
                line = found.lines.get((key,))
                problems.append(
                    Problem(source.name, line, _spelled(key), behind[0], "takes no value: leave it out for off")
                )
        else:
            values[key] = behind if key == "profile_ranks" else one_word(behind)
    reading = Reading(Source(source.name, values, found.lines), from_text=True, spelled=_spelled)
    reading.problems += problems
    return reading


def _window(reading: Reading, enabled: bool) -> Window:
    start = reading.number("profile_step_start", "window.first_step", _DEFAULT_START)
    end = reading.number("profile_step_end", "window.steps", _DEFAULT_END)
    if start < 1:
        reading.wrong(
            "profile_step_start", "steps are counted from 1, and this is checked even without --profile", start
        )
    start = max(start, 1)
    if end <= start and enabled:
        why = f"the first step that is not recorded must be above profile_step_start={start}; one would be all the same"
        why = "-1 is not the end of the run here: one step would be recorded" if end == -1 else why
        reading.wrong("profile_step_end", why, end)
    steps = max(end - start, 1)
    return Window(first_step=start, steps=None if steps >= ENDLESS_STEPS else steps, warmup=int(start > 1))


def _is_option(text: str) -> bool:
    return text == "--profile" or text.startswith(("--profile-", "--profile_", "--profile="))


def _spelled(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _line(name: str, value: Any) -> str:
    if value is True:
        return _spelled(name)
    return " ".join(
        [_spelled(name), *(shlex.quote(str(one)) for one in (value if isinstance(value, list) else [value]))]
    )


def _one(given: Any) -> Any:
    return given[0] if isinstance(given, list) and len(given) == 1 else given
