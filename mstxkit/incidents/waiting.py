"""What a thread waits in, by the names of its innermost calls: a collective, another process, a lock, a debugger.

Names of files and functions only: frameworks are never imported.

Source: torch 2.13 `distributed/distributed_c10d.py`, Ray 2.42 and 2.60 `_private/worker.py`, CPython 3.9 to 3.13
`threading.py`, `queue.py`, `selectors.py`, `asyncio/base_events.py`, `concurrent/futures/_base.py`,
`multiprocessing/connection.py`, `pdb.py`, `bdb.py`; debugpy 1.8 `_pydevd_bundle`; compilers: torch 2.13
`_dynamo/convert_frame.py`, `_dynamo/eval_frame.py`, `_inductor/compile_fx.py`; MindSpore 2.10 `graph/api.py`.
"""

from __future__ import annotations

import itertools
from typing import Sequence

from ..store.stacks import StackFrame

COLLECTIVE, OTHERS, LOCK, DEBUGGER, OWN = "collective", "others", "lock", "debugger", "own"
# So many of the innermost calls are looked at: wrappers lie between.
_CALLS = 8
_DEBUGGERS = (
    "/pdb.py", "/bdb.py", "/ipdb/", "/pudb/", "_pydevd_bundle", "/debugpy/", "pydevd.py", "/IPython/core/debugger.py",
)  # fmt: skip
_COLLECTIVES = ("/torch/distributed/", "/torch_npu/distributed/", "/mindspore/communication/", "/mindspore/mint/distr")
_OTHERS = (
    "/ray/_private/", "/ray/util/", "/ray/experimental/", "/ray/actor.py", "/ray/remote_function.py", "/queue.py",
    "/selectors.py", "/concurrent/futures/", "/multiprocessing/", "/socket.py", "/ssl.py", "/subprocess.py", "/grpc/",
    "/zmq/", "/http/client.py", "/socketserver.py", "/asyncio/", "/uvloop/",
)  # fmt: skip
_LOCKS = ("/threading.py",)
_COMPILERS = (
    "/torch/_dynamo/", "/torch/_inductor/", "/triton/", "/torchair/", "/mindspore/graph/", "/mindspore/common/",
)  # fmt: skip
# `compile_wrapper` of dynamo runs what was compiled, and whatever is `compiled` is.
_RUNS = ("wrapper", "compiled")
_LIBRARIES = ("site-packages", "dist-packages", "/lib/python3", "/mstxkit/")


def of_stack(frames: Sequence[StackFrame]) -> str:
    """COLLECTIVE, OTHERS, LOCK, DEBUGGER, or OWN for all that is none of these."""
    # The calls into libraries, up to the innermost one of the program's own.
    inner = list(itertools.takewhile(lambda frame: not is_own(frame.file), frames[:_CALLS]))
    for kind, places in ((DEBUGGER, _DEBUGGERS), (COLLECTIVE, _COLLECTIVES), (OTHERS, _OTHERS), (LOCK, _LOCKS)):
        if any(place in frame.file for frame in inner for place in places):
            return kind
    return OWN


def is_compiling(frames: Sequence[StackFrame]) -> bool:
    """Is a graph or a kernel just being compiled?"""
    names = [frame.function for frame in frames if any(place in frame.file for place in _COMPILERS)]
    return any("compile" in name and not any(word in name for word in _RUNS) for name in names)


def is_own(file: str) -> bool:
    """Is it of the program, and of no library?"""
    return not any(place in file for place in _LIBRARIES) and not file.startswith("<")
