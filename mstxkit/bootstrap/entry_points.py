"""What frameworks call by their entry points: it does what MSTXKIT_AUTOPATCH says, and nothing where that is not set.

An installed mstxkit changes nothing by itself, and neither does MSTXKIT_RUN alone: it records what the program marks,
but patches no framework. Both calls may be made any number of times.

Source: vllm 0.9.1 and later `vllm/plugins/__init__.py`: called once in the API server, the engine's process and each
worker, before the worker's class is resolved; what it raises ends that process. sglang 0.5.11 and later
`sglang/srt/plugins/__init__.py`: called in the engine and in each scheduler's process; what it raises is logged.
"""

from __future__ import annotations

import os

from .. import faults


def patch_as_asked(is_named: bool = False) -> None:
    """Patch what MSTXKIT_AUTOPATCH says; every known framework if it says nothing, but this way in was named. Never
    raises.
    """
    is_set = bool(os.environ.get("MSTXKIT_AUTOPATCH"))
    try:
        if is_set or is_named:
            from . import activation

            patch = activation.autopatch_from_environment if is_set else activation.autopatch
            patch()
    except Exception as exc:
        faults.note_fault("bootstrap.entry_points", exc)


# The entry points `vllm.general_plugins` and `sglang.srt.plugins`.
vllm = sglang = patch_as_asked
