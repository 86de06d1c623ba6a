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

from ..profiling.declare import Options, Preset

NOT_IMPORTED = "not imported in this process"


class Surface(NamedTuple):
    """The parameters of an imported profiler with their defaults, and its levels.

    Attributes:
        profile, config, handler: Parameters of `profile`, `_ExperimentalConfig`, `tensorboard_trace_handler`.
        levels: Names of its levels.
        metrics: Names of its AI Core metrics.
        no_metrics: The value that means no AI Core metrics.
    """

    profile: Mapping[str, Any]
    config: Mapping[str, Any]
    handler: Mapping[str, Any]
    levels: frozenset[str]
    metrics: frozenset[str]
    no_metrics: Any

    @classmethod
    @functools.lru_cache(maxsize=8)
    def of(cls, module: Any, metrics: str) -> Surface:
        """That of a `profiler` module; `metrics` is the name of its enumeration of AI Core metrics.

        Cost: milliseconds, once for each module.
        """
        return cls(
            _parameters(module.profile),
            _parameters(module._ExperimentalConfig),
            _parameters(module.tensorboard_trace_handler),
            _members(module.ProfilerLevel),
            _members(getattr(module, metrics)),
            getattr(module, metrics).AiCoreNone,
        )


def _parameters(function: Any) -> dict[str, Any]:
    return {name: one.default for name, one in inspect.signature(function).parameters.items()}


def _members(enumeration: Any) -> frozenset[str]:
    return frozenset(name for name in dir(enumeration) if not name.startswith("__"))


def fitted(wanted: Options, taken: Mapping[str, Any]) -> tuple[Options, list[str]]:
    """The options that a version takes, and a note on each that it does not and that asks for something."""
    kept = {name: value for name, value in wanted.items() if name in taken}
    lost = [name for name in wanted if name not in taken and wanted[name] not in (None, False, [], "AiCoreNone")]
    return kept, [f"{name}={wanted[name]!r} is left out: this version has no such option" for name in lost]


def impossible(preset: Preset, surface: Surface | None, level: str) -> str | None:
    """Why a version cannot record this preset without something heavier in its place; None if it can."""
    if surface is None:
        return None
    if level not in surface.levels:
        return f"this version has no level {level}, and would record more than {preset.name} asks for"
    if preset.aic_metrics not in ("none", *surface.metrics):
        return f"this version has no aic_metrics {preset.aic_metrics!r}; it has {', '.join(sorted(surface.metrics))}"
    if preset.level == "none" and not {"mstx", "msprof_tx"} & surface.config.keys():
        return "this version cannot record mstx ranges, and level none records nothing else"
    if "analyse_flag" not in surface.handler:
        return "this version always parses what it recorded, in the training process, while peers wait"
    return None


def launcher() -> str | None:
    """Why a profiler from outside makes the framework's own one deaf; None if none does. Who else: `profiling.others`.

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


def on_host(preset: Preset) -> Options:
    """What is called the same by torch, torch_npu and, but for `with_modules`, MindSpore."""
    return {
        "record_shapes": preset.shapes,
        "profile_memory": preset.memory,
        "with_stack": preset.stacks,
        "with_modules": preset.modules,
    }
