"""mstx by CANN's own C functions, for tools that a launcher attached: msprof, msOpProf, sanitizers, mspti.

torch_npu's calls do not reach those. The first call into `libms_tools_ext` looks for a tool and, finding none, is
deaf for the life of the process, for torch_npu's own mstx too. So nothing is called here unless a launcher says that
there is a tool, and the tool can be found at that moment. While a framework's profiler sends ranges itself, this way
is closed, so that no range is sent twice.

Source: mstx 7941d2d `mstx_impl.h:187-255` (how a tool is found), CANN runtime 681ef7610
    `prof_mstx_plugin.cpp:367-382` (libprofapi is one).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .. import faults
from ..engine.choose import engine

if TYPE_CHECKING:
    import ctypes

FUNCTIONS = (
    "mstxMarkA", "mstxRangeStartA", "mstxRangeEnd", "mstxDomainCreateA", "mstxDomainMarkA", "mstxDomainRangeStartA",
    "mstxDomainRangeEnd",
)  # fmt: skip
_ENTRY = "InitInjectionMstx"
_MSPROF_VARIABLES = ("PROFILER_SAMPLECONFIG", "PROFILING_MODE")

_addresses: tuple[int, ...] = ()
_why_not = "not asked for yet"
_using_their_own: set[str] = set()
_installed = False


def install_sink() -> None:
    """Open the way if a launcher attached a tool to this process. Loads a library only then."""
    global _addresses, _why_not, _installed
    if _installed:
        return
    _installed = True
    try:
        _why_not = _reason_against()
        if not _why_not:
            import ctypes

            library = _load_library()
            addresses = (ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in FUNCTIONS)
            _addresses = tuple(address or 0 for address in addresses)
            engine.set_direct(_addresses)
    except Exception as exc:
        _why_not = f"failed: {exc}"
        faults.note_fault("the sink cann", exc)


def uninstall_sink() -> None:
    """Close the way; `install_sink` may open it again."""
    global _installed
    _installed = False
    silence_sink()


def silence_sink() -> None:
    """Close the way in this process until `install_sink`: a forked child is not followed by the tool."""
    global _addresses, _why_not
    _addresses, _why_not = (), "closed in this process"
    _using_their_own.clear()
    engine.clear_direct()


def describe_state() -> str:
    """What this sink does now, in words."""
    if _using_their_own:
        return f"gives way to {', '.join(sorted(_using_their_own))}"
    return "on: a tool was attached by a launcher" if _addresses else f"off: {_why_not}"


def give_way(framework: str) -> None:
    """From now on the framework's own calls reach mstx."""
    _using_their_own.add(framework)
    engine.clear_direct()


def take_back(framework: str) -> None:
    """The framework's own calls do not reach mstx any more."""
    _using_their_own.discard(framework)
    if _addresses and not _using_their_own:
        engine.set_direct(_addresses)


def _reason_against() -> str:
    """Why the first call into mstx would be wrong now; empty if it is safe."""
    injected = os.environ.get("MSTX_INJECTION_PATH")
    if injected:
        return "" if _is_tool(injected) else f"MSTX_INJECTION_PATH={injected} is no mstx tool that can be loaded"
    if any(_is_tool(preloaded) for preloaded in os.environ.get("LD_PRELOAD", "").replace(":", " ").split()):
        return ""
    if not any(os.environ.get(variable) for variable in _MSPROF_VARIABLES):
        return "no launcher attached a tool to this process"
    return "" if _is_tool("libprofapi.so", for_everybody=True) else "started by msprof, but there is no libprofapi.so"


def _is_tool(path: str, for_everybody: bool = False) -> bool:
    """Can this library be loaded, and does it take mstx events?"""
    import ctypes

    try:
        library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL if for_everybody else ctypes.RTLD_LOCAL)
    except OSError:
        return False
    return hasattr(library, _ENTRY)


def _load_library() -> ctypes.CDLL:
    """By its name first, as torch_npu does it, so that both get the same copy."""
    import ctypes

    name = "libms_tools_ext.so"
    try:
        return ctypes.CDLL(name)
    except OSError:
        home = os.environ.get("ASCEND_HOME_PATH")
        if not home:
            raise
        return ctypes.CDLL(os.path.join(home, "lib64", name))
