"""Profilers that are not ours: where they are made, started and stopped we look on, and before they record we give way.

Entry points are wrapped once their module is imported, from `watch_profilers` to its undo, by plain functions which
pass on what they are given and let no exception of ours out. A profiler that started earlier is seen at its next step.

Source: torch 2.13.0 `profiler/profiler.py`, `autograd/profiler.py`: all profilers go through `_prepare_trace` or
`_run_on_profiler_start`. torch_npu 2.7.1 and 2.13.0 `profiler/profiler_interface.py`: all go through
`ProfPathCreator.create_prof_dir`, and look it up when they start. mindspore 2.10.0 `profiler/profiler.py`: all go
through `ProfilerActionController.transit_action`; `ProfilerContext` holds the options of the last one made.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import weakref
from types import FrameType, ModuleType
from typing import Any, Callable, Iterator, NamedTuple

from .. import faults
from ..host import imports
from ..sinks import seams

TORCH, TORCH_NPU, MINDSPORE, DYNAMIC, MSMONITOR = (
    "torch", "torch_npu", "MindSpore", "torch_npu dynamic_profile", "msMonitor",
)  # fmt: skip
_FRAMES = 40
_OWNERS = {
    "verl": "verl", "mindspeed_rl": "MindSpeed-RL", "mindspeed_llm": "MindSpeed-LLM", "mindspeed_mm": "MindSpeed-MM",
    "vllm": "vLLM", "sglang": "SGLang",
}  # fmt: skip
_DYNAMIC_MODULE = "torch_npu.profiler.dynamic_profile"


class Theirs(NamedTuple):
    """One of their profilers that exists."""

    profiler: weakref.ref[Any]
    who: str
    thread: int  # that made it, and later that started it
    since_ns: int  # wall clock
    is_started: bool


live: dict[int, Theirs] = {}  # those of this process, oldest first; one that is gone may still be there
_monitors: weakref.WeakSet[Any] = weakref.WeakSet()
_give_way: list[Callable[[str], object]] = []
_undo: list[Callable[[], None]] = []
_here = threading.local()


@contextlib.contextmanager
def mark_ours() -> Iterator[None]:
    """What is started and stopped on this thread meanwhile is mstxkit's own."""
    before, _here.is_ours = getattr(_here, "is_ours", False), True
    try:
        yield
    finally:
        _here.is_ours = before


def mindspore_monitor_exists() -> bool:
    """Has this process a `DynamicProfilerMonitor`? It carries out `profiler_config.json` by itself."""
    return bool(_monitors)


def before_they_start(give_way: Callable[[str], object]) -> Callable[[], None]:
    """Have this called with a name before one of theirs begins, on the thread that begins it, until the undo."""
    _give_way.append(give_way)

    def undo() -> None:
        with contextlib.suppress(ValueError):
            _give_way.remove(give_way)

    return undo


def watch_profilers() -> Callable[[], None]:
    """Look on from now on, until the undo. Imports nothing."""
    for module, hook in _HOOKS.items():
        imports.when_imported(module, hook)
    return _look_away


def _look_away() -> None:
    for module, hook in _HOOKS.items():
        imports.forget_hook(module, hook)
    while _undo:
        _undo.pop()()
    live.clear()
    _monitors.clear()


# A forked child has none of its parent's profilers.
os.register_at_fork(after_in_child=live.clear)
os.register_at_fork(after_in_child=_give_way.clear)


def _listen_to(owner: Any, name: str, **listeners: Any) -> None:
    if hasattr(owner, name):
        _undo.append(seams.listen_at(owner, name, **listeners))


def _follow_class(kind: Any, framework: str) -> None:
    """Look on at a class of profilers."""
    _listen_to(kind, "__init__", after=lambda profiler, *_: _note_seen(profiler, framework, False))
    for name in ("start", "step"):
        _listen_to(kind, name, before=lambda profiler, *_: _note_seen(profiler, framework, True))
    _listen_to(kind, "stop", after=lambda profiler, *_: live.pop(id(profiler), None))


def _note_seen(profiler: Any, framework: str, is_started: bool) -> None:
    key, before = id(profiler), live.get(id(profiler))
    is_news = before is None or before.profiler() is not profiler or (is_started and not before.is_started)
    if is_news and not getattr(_here, "is_ours", False):
        mark = weakref.ref(profiler, lambda _: live.pop(key, None))
        live[key] = Theirs(mark, _find_owner(framework), threading.get_ident(), time.time_ns(), is_started)


def _note_begin(framework: str) -> None:
    """One of theirs is about to record, or to warm up."""
    if getattr(_here, "is_ours", False) or not _give_way:
        return
    who = _find_owner(framework)
    for give_way in tuple(_give_way):
        try:
            give_way(who)
        except Exception as exc:
            faults.note_fault("theirs.give_way", exc)


def _find_owner(framework: str) -> str:
    """Whose code is calling: a framework's that is known, else the profiler's own name."""
    frame: FrameType | None = sys._getframe(1)
    left = _FRAMES
    while frame is not None and left:
        module = str(frame.f_globals.get("__name__", ""))
        if module == _DYNAMIC_MODULE:
            return dynamic_name()
        owner = _OWNERS.get(module.partition(".")[0])
        if owner is not None:
            return owner
        frame, left = frame.f_back, left - 1
    return framework


def dynamic_name() -> str:
    """Who tells torch_npu's dynamic profiler what to record."""
    utils = getattr(sys.modules.get(_DYNAMIC_MODULE), "DynamicProfilerUtils", None)
    is_dyno = getattr(utils, "is_dyno_model", None)
    return MSMONITOR if is_dyno is not None and is_dyno() else DYNAMIC


def _note_begins_in(framework: str, *entry_points: tuple[Any, str]) -> None:
    """Any call of one of these begins a recording of the framework."""
    for owner, name in entry_points:
        _listen_to(owner, name, before=lambda *_: _note_begin(framework))


def _on_mindspore(profiler: ModuleType) -> None:
    for kind in filter(None, (getattr(profiler, name, None) for name in ("Profile", "Profiler"))):
        _note_begins_in(MINDSPORE, (kind, "__init__"))  # making one sets options of all
        _follow_class(kind, MINDSPORE)


def _on_mindspore_actions(controller: ModuleType) -> None:
    def transit(_: Any, before: Any, after: Any) -> None:
        if getattr(before, "name", "") == "NONE" and getattr(after, "name", "NONE") != "NONE":
            _note_begin(MINDSPORE)

    _listen_to(controller.ProfilerActionController, "transit_action", before=transit)


def _on_mindspore_monitor(dynamic: ModuleType) -> None:
    for name in ("__init__", "step", "step_begin"):
        _listen_to(dynamic.DynamicProfilerMonitorBase, name, after=lambda monitor, *_: _monitors.add(monitor))


_HOOKS: dict[str, imports.Hook] = {
    "torch.profiler.profiler": lambda profiler: _follow_class(profiler.profile, TORCH),
    "torch.autograd.profiler": lambda profiler: _note_begins_in(
        TORCH, (profiler.profile, "_prepare_trace"), (profiler, "_run_on_profiler_start")
    ),
    "torch_npu.profiler.profiler": lambda profiler: _follow_class(profiler.profile, TORCH_NPU),
    "torch_npu.profiler.profiler_interface": lambda interface: _note_begins_in(
        TORCH_NPU, (getattr(interface.ProfPathCreator, "_cls", interface.ProfPathCreator), "create_prof_dir")
    ),
    "mindspore.profiler.profiler": _on_mindspore,
    "mindspore.profiler.profiler_action_controller": _on_mindspore_actions,
    "mindspore.profiler.dynamic_profiler": _on_mindspore_monitor,
}
