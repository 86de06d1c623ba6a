"""What an imported profiler takes, read from its signatures, and options fitted to that.

torch_npu and MindSpore use the same names for the same things: `profile`, `_ExperimentalConfig`,
`tensorboard_trace_handler`, `ProfilerLevel`.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from typing import Any, Mapping, NamedTuple

from ...store.options import DEEP, PRESET, PROFILE, Term, list_settable, list_terms
from ..declare import Options, Preset


class Surface(NamedTuple):
    """The parameters of an imported profiler with their defaults, its levels and its AI Core metrics."""

    profile: Mapping[str, Any]
    config: Mapping[str, Any]  # of `_ExperimentalConfig`
    handler: Mapping[str, Any]  # of `tensorboard_trace_handler`
    levels: frozenset[str]
    metrics: frozenset[str]
    no_metrics: Any  # the value that means no AI Core metrics

    @classmethod
    @functools.lru_cache(maxsize=8)
    def of(cls, module: Any, profiler: str) -> Surface:
        """That of the `profiler` module of `torch_npu` or `mindspore`. Cost: milliseconds, once for each module."""
        calls = (module.profile, module._ExperimentalConfig, module.tensorboard_trace_handler)
        profile, config, handler = (
            {name: parameter.default for name, parameter in inspect.signature(call).parameters.items()}
            for call in calls
        )
        enums = [getattr(module, list_terms(profiler)[name].enum) for name in ("level", "aic_metrics")]
        levels, metrics = (frozenset(name for name in dir(enum) if not name.startswith("__")) for enum in enums)
        return cls(profile, config, handler, levels, metrics, enums[1].AiCoreNone)


def translate_preset(preset: Preset, profiler: str) -> tuple[Options, Options, dict[str, str]]:
    """A preset in a profiler's words: options of `profile`, of `_ExperimentalConfig`, and a note on each it lacks."""
    calls: dict[str, Options] = {PROFILE: {}, DEEP: {}}
    notes = {}
    for option in list_settable(PRESET):
        value, term = getattr(preset, option.name), getattr(option, profiler)
        if isinstance(term, Term):
            calls[term.call][term.name] = term.translated(value)
        elif term.why and (term.always or value != option.default):
            shown = list(value) if option.is_list else value
            notes[option.name] = f"{term.name or option.name}={shown!r} is left out: {term.why}"
    return calls[PROFILE], calls[DEEP], notes


def with_members(options: Options, module: Any, profiler: str, call: str) -> Options:
    """These options of one call, with members of the profiler's enumerations for words that stand for such."""
    enums = {term.name: term.enum for term in list_terms(profiler).values() if term.call == call and term.enum}

    def member(enum: str, value: Any) -> Any:
        kinds = getattr(module, enum)
        return [getattr(kinds, word) for word in value] if isinstance(value, list) else getattr(kinds, value)

    return {name: member(enums[name], value) if name in enums else value for name, value in options.items()}


def fit_options(wanted: Options, taken: Mapping[str, Any]) -> tuple[Options, list[str]]:
    """The options that a version takes, and a note on each that it does not and that asks for something."""
    kept = {name: value for name, value in wanted.items() if name in taken}
    lost = [name for name in wanted if name not in taken and wanted[name] not in (None, False, [], "AiCoreNone")]
    return kept, [f"{name}={wanted[name]!r} is left out: this version has no such option" for name in lost]


def explain_impossible(preset: Preset, profiler: str, surface: Surface | None) -> str | None:
    """Why a version cannot record this preset without something heavier in its place; None if it can."""
    if surface is None:
        return None
    term = list_terms(profiler)
    level, ranges = term["level"].translated(preset.level), {term["mstx"].name, term["mstx"].before}
    if level not in surface.levels:
        return f"this version has no level {level}, and would record more than {preset.name} asks for"
    if preset.aic_metrics not in ("none", *surface.metrics):
        return f"this version has no aic_metrics {preset.aic_metrics!r}; it has {', '.join(sorted(surface.metrics))}"
    if preset.level == "none" and not ranges & surface.config.keys():
        return "this version cannot record mstx ranges, and level none records nothing else"
    if "analyse_flag" not in surface.handler:
        return "this version always parses what it recorded, in the training process, while peers wait"
    return None


def explain_launcher() -> str | None:
    """Why a profiler from outside makes the framework's own one deaf; None if none does.

    Source: torch_npu 2.13.0 `profiler/analysis/prof_common_func/_utils.py` check_msprof_env; mindspore 2.10.0
    `profiler/platform/npu_profiler.py`, which looks whether PROFILING_MODE is set at all.
    """
    if os.environ.get("PROFILER_SAMPLECONFIG"):
        return "msprof has the profiler: PROFILER_SAMPLECONFIG is set"
    if "PROFILING_MODE" in os.environ:
        return "msprof has the profiler: PROFILING_MODE is set"
    return None


def torch_records() -> bool | None:
    """True while a profiler of torch or torch_npu records on this thread; None where this torch cannot tell.

    Source: torch 2.13.0 `torch._C._autograd._profiler_enabled`, which torch_npu's profilers set too.
    """
    enabled = getattr(sys.modules["torch"]._C._autograd, "_profiler_enabled", None)
    return None if enabled is None else bool(enabled())
