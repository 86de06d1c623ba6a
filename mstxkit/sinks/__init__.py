"""Live tools: what hands a range to a device profiler, exactly while one listens.

Nothing polls. Each sink waits for its framework to be imported, wraps that profiler's own start and stop, and sets
and clears its place in the engine there. A sink's module is loaded only with its framework.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from ..host import imports
from . import cann

if TYPE_CHECKING:
    from types import ModuleType

# Which import brings a framework's profiler; the sink has the framework's name.
_PROFILERS = {
    "torch_npu": "torch_npu.profiler.profiler_interface",
    "mindspore": "mindspore.profiler.platform.npu_profiler",
    "torch": "torch.autograd.profiler",
}


def _listen_to(name: str, profiler: ModuleType) -> None:
    from importlib import import_module

    import_module(f"{__name__}.{name}").listen_to(profiler)


_hooks = {name: partial(_listen_to, name) for name in _PROFILERS}


def install_all() -> None:
    """Get every sink ready. Cheap, loads no framework; a second call does nothing."""
    for name, module in _PROFILERS.items():
        imports.when_imported(module, _hooks[name])
    cann.install_sink()


def uninstall_all() -> None:
    """Put every profiler back as it was and send nothing more."""
    for name, module in _PROFILERS.items():
        imports.forget_hook(module, _hooks[name])
    cann.uninstall_sink()
    silence_all()
    seams = sys.modules.get(f"{__name__}.seams")
    if seams is not None:
        seams.undo_all()


def silence_all() -> None:
    """Send nothing until a tool is started in this process: a forked child has a tool's switches, not the tool."""
    for sink in (*_loaded_sinks().values(), cann):
        sink.silence_sink()


os.register_at_fork(after_in_child=silence_all)


def describe_all() -> dict[str, str]:
    """What each sink does now, in words: for `status` and `doctor`."""
    loaded = _loaded_sinks()
    answers = {name: loaded[name].describe_state() if name in loaded else f"waiting for {name}" for name in _PROFILERS}
    return {**answers, "cann": cann.describe_state()}


def _loaded_sinks() -> dict[str, Any]:
    """The sinks whose framework is there."""
    modules = {name: sys.modules.get(f"{__name__}.{name}") for name, of in _PROFILERS.items() if of in sys.modules}
    return {name: module for name, module in modules.items() if module is not None}
