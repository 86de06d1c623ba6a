"""Live tools: what hands a range to a device profiler, exactly while one listens.

Nothing polls. Each sink waits for its framework to be imported, wraps that profiler's own start and stop, and sets
and clears its place in the engine there.
"""

from __future__ import annotations

import os

from . import cann, mindspore, seams, torch, torch_npu

_in_order = {"torch_npu": torch_npu, "mindspore": mindspore, "torch": torch, "cann": cann}
_fork_hook_registered = False


def install_all() -> None:
    """Get every sink ready. Cheap, loads no framework; a second call does nothing."""
    global _fork_hook_registered
    for sink in _in_order.values():
        sink.install()
    if not _fork_hook_registered:
        _fork_hook_registered = True
        os.register_at_fork(after_in_child=silence)


def uninstall_all() -> None:
    """Put every profiler back as it was and send nothing more."""
    for sink in _in_order.values():
        sink.uninstall()
        sink.silence()
    seams.undo_all()


def silence() -> None:
    """Send nothing until a tool is started in this process: a forked child has a tool's switches, not the tool."""
    for sink in _in_order.values():
        sink.silence()


def states() -> dict[str, str]:
    """What each sink does now, in words: for `status` and `doctor`."""
    return {name: sink.state() for name, sink in _in_order.items()}
