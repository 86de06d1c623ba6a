"""torch_npu's own `profile(…)` call in a Python file, which is read and never run.

Source: torch_npu 2.13.0, `profiler/profiler.py:202-218`, `profiler/experimental_config.py:86-358`, `schedule` and
`tensorboard_trace_handler` (their parameters and defaults).
"""

from __future__ import annotations

from typing import Any, Mapping

from ..model import Config
from ..sources import Source, from_python
from . import Read, Written, _python, left_out, torch_npu, usual_metrics

FLAVOUR = "torch_npu_python"
DESCRIPTION = "torch_npu: a call of torch_npu.profiler.profile in a Python file, never run"

PROFILER, MODULE = "torch_npu.profiler.profile", "torch_npu.profiler"
_IGNORED = ("execution_trace_observer", "custom_trace_id_callback", "use_cuda")
KEYS = ("activities", _python.SCHEDULE, _python.HANDLER, *torch_npu.FLAGS, _python.DEEP)
_REASONS = {**_python.REASONS, "mstx": "Level_none without mstx turns it on in torch_npu"}


def detect(source: Source) -> bool:
    """Is there such a call?"""
    return PROFILER in source.values


def read(source: Source) -> Read:
    """What the call asks for. Raises: ConfigError with all that is wrong in it, or known to the program alone."""
    reading = _python.in_the_files_words(_python.read_arguments(source, PROFILER, _IGNORED))
    reading.only(KEYS)
    activities = reading.items("activities", "activities", torch_npu.ACTIVITIES, ("cpu", "npu")) or ("cpu", "npu")
    path, analysis, extras = _python.read_handler(reading)
    fields = {**reading.flags(torch_npu.FLAGS), **torch_npu.read_depth(reading), "window": _python.read_window(reading)}
    deep = reading.values.get(_python.DEEP)
    if not isinstance(deep, Mapping) or "aic_metrics" not in deep:
        fields["aic_metrics"] = usual_metrics(str(fields["level"]))
    return reading.read(FLAVOUR, extras, **fields, enabled=True, activities=activities, path=path, analysis=analysis)


def write(config: Config) -> Written:
    """The call, as lines of Python."""
    own: dict[str, Any] = config.extras.get(FLAVOUR, {})
    call = _python.call_of(config, "torch_npu", MODULE, own, config.path or "./")
    text = f"{_python.COMMENT}import torch_npu\n\nprof = {call}"
    return Written(text, left_out(config, read(from_python(text, FLAVOUR)).config, FLAVOUR, _REASONS))
