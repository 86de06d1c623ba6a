"""vLLM on Ascend: `--profiler-config`, as JSON, by dotted options, or in the YAML that `vllm serve --config` takes.

Source: vLLM main of 2026-08, vllm/config/profiler.py (keys, defaults, what goes together; since 0.13). What is recorded
is fixed in vllm-ascend 0.9.1 to 0.23: Level1, text, both sides, no mstx. vLLM records between `start_profile` and
`stop_profile`, whoever calls these, and counts iterations of its engine from there.
"""

from __future__ import annotations

import json
import shlex
from typing import Any, Mapping

from ...errors import Problem
from .. import shell
from ..documents import read_scalar
from ..model import Config
from ..sources import Source, from_shell
from . import Read, Reading, Written, left_out

FLAVOUR = "vllm"
DESCRIPTION = "vLLM on Ascend: --profiler-config, as JSON or by dotted options, or in its YAML"

KEY = "profiler-config"
OWN_PATH = "./vllm_profile"
_SPELLINGS = (KEY, "profiler_config")
_PREFIX = "torch_profiler_"
_FLAGS = {
    f"{_PREFIX}with_stack": ("stacks", True), f"{_PREFIX}with_flops": ("flops", False),
    f"{_PREFIX}record_shapes": ("shapes", False), f"{_PREFIX}with_memory": ("memory", False),
}  # fmt: skip
# vLLM's alone, each with its default.
_EXTRAS = {
    f"{_PREFIX}use_gzip": True, f"{_PREFIX}dump_cuda_time_total": True, "capture_torch_profiler": False,
    "detailed_trace_annotation": False, "ignore_frontend": False,
}  # fmt: skip
_COUNTS = {
    "delay_iterations": 0, "max_iterations": 0, "warmup_iterations": 0, "active_iterations": 5, "wait_iterations": 0,
}  # fmt: skip
KEYS = ("profiler", f"{_PREFIX}dir", *_FLAGS, *_EXTRAS, *_COUNTS)
_FIXED = "vllm-ascend fixes it"
_REASONS = {
    "window": "it records from start_profile to stop_profile, whoever calls these: there are no training steps",
    "stages": "the inference engine alone records, which is actor_generate",
    "sampling": "a number of the engine's iterations is recorded, after a number that are not",
    "path": "a folder is given with profiler: torch only",
    **dict.fromkeys(("ranks", "replicas"), "every worker of the engine records"),
    **dict.fromkeys(("level", "export", "activities", "mstx", "aic_metrics", "data_simplification"), _FIXED),
    "analysis": "its workers are daemons, in which torch_npu parses nothing",
}


def detect(source: Source) -> bool:
    """Is there a word `--profiler-config`, or a mapping of that name with its keys?"""
    return any(_is_option(word.text) for word in source.words) or _section_in(source) is not None


def _is_option(text: str) -> bool:
    name = text.partition("=")[0].partition(".")[0]
    return name.startswith("--") and name[2:] in _SPELLINGS


def _section_in(source: Source) -> str | None:
    for name in _SPELLINGS:
        section = source.at(name)
        if isinstance(section, Mapping) and not {"profiler", f"{_PREFIX}dir"}.isdisjoint(section):
            return name
    return None


def read(source: Source) -> Read:
    """What vLLM would do. Raises: ConfigError with all that is wrong in it."""
    reading = _read_words(source)
    reading.only(KEYS)
    profiler = reading.choice("profiler", "enabled", {"torch": "torch", "cuda": "cuda", None: None}, None)
    path = reading.text(f"{_PREFIX}dir", "path", "")
    if path and profiler != "torch":
        reading.wrong(f"{_PREFIX}dir", "vLLM takes it with profiler: torch only", path)
    elif profiler == "torch" and not path:
        reading.wrong(f"{_PREFIX}dir", "vLLM needs a folder where profiler is torch")
    if profiler == "cuda":
        reading.note("profiler is cuda: only torch is read here")
    counts = {key: reading.number(key, "sampling", default, least=int(default > 0)) for key, default in _COUNTS.items()}
    flags = {field: reading.flag(key, field, default) for key, (field, default) in _FLAGS.items()}
    extras = reading.own_flags(_EXTRAS)
    if counts["warmup_iterations"] or not counts["max_iterations"]:  # more than a sample can say
        extras.update({key: count for key, count in counts.items() if count != _COUNTS[key]})
    reading.note("vLLM records between start_profile and stop_profile only: in which steps is for whoever calls these")
    return reading.read(
        FLAVOUR, extras, **flags, enabled=profiler == "torch", path=path, sampling=_read_sampling(counts),
        level="level1",
        window={"steps": None, "counted_from": "process"}, stages=("actor_generate",), export="text",
    )  # fmt: skip


def _read_sampling(counts: Mapping[str, int]) -> dict[str, Any] | None:
    skip, record = counts["delay_iterations"], counts["max_iterations"]
    if counts["warmup_iterations"]:
        skip, record = skip + counts["wait_iterations"] + counts["warmup_iterations"], counts["active_iterations"]
    return {"per": "decode_step", "skip": skip, "record": record} if record else None


def write(config: Config) -> Written:
    """The option as words of a command line."""
    own = config.extras.get(FLAVOUR, {})
    values: dict[str, Any] = {"profiler": "torch" if config.enabled else None}
    values.update({f"{_PREFIX}dir": config.path or OWN_PATH} if config.enabled else {})
    values.update({key: getattr(config, field) for key, (field, _) in _FLAGS.items()})
    values.update({key: own.get(key, default) for key, default in _EXTRAS.items()})
    counts = {key: own.get(key, default) for key, default in _COUNTS.items()}
    sampling = config.sampling.model_dump() if config.sampling is not None else None
    if sampling == _read_sampling(counts):  # those that were read still say what is recorded
        values.update({key: count for key, count in counts.items() if count != _COUNTS[key]})
    elif sampling is not None and sampling["per"] == "decode_step":
        values.update({"delay_iterations": sampling["skip"], "max_iterations": sampling["record"]})
    text = f"# An option of vLLM's server.\n--{KEY} {shlex.quote(json.dumps(values, ensure_ascii=False))}\n"
    return Written(text, left_out(config, read(from_shell(text, FLAVOUR)).config, FLAVOUR, _REASONS))


def _read_words(source: Source) -> Reading:
    words = [(number, word) for number, word in enumerate(source.words) if _is_option(word.text)]
    if not words:
        return Reading(source, (_section_in(source) or KEY,))
    values: dict[str, Any] = {}
    lines: dict[tuple[str | int, ...], int] = {}
    problems: list[Problem] = []
    for number, word in words:
        option, equals, value = word.text.partition("=")
        behind = word._replace(text=value) if equals else (*source.words[number + 1 :], shell.Word(""))[0]
        problems += shell.list_unknown(word if equals else behind, source.name)
        key = option.partition(".")[2].replace("-", "_")
        taken: Any = {key: read_scalar(behind.text)}
        if not key:
            try:
                taken = {str(name).replace("-", "_"): inner for name, inner in json.loads(behind.text).items()}
            except (ValueError, RecursionError, AttributeError):  # no JSON, or no object
                taken, why = {}, "a JSON object is needed"
                problems += [] if behind.doubts else [Problem(source.name, behind.line, option, behind.text, why)]
        values.update(taken)
        lines.update({(KEY, name): word.line for name in taken if word.line is not None})
    spelled = f"--{KEY}.{{}}".format
    return Reading(Source(source.name, {KEY: values}, lines), (KEY,), spelled=spelled, problems=problems)
