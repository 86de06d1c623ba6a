"""A range sent to mstx by C function addresses, over a stub library that only counts; nothing records."""

from __future__ import annotations

import ctypes
import tempfile
from pathlib import Path

from .harness import HERE, NATIVE, Rounds, Row, compile_shared

PROCESSES = 3
VARIANTS = {"native": NATIVE}
FUNCTIONS = (
    "mstxMarkA",
    "mstxRangeStartA",
    "mstxRangeEnd",
    "mstxDomainCreateA",
    "mstxDomainMarkA",
    "mstxDomainRangeStartA",
    "mstxDomainRangeEnd",
)


def measure(variant: str) -> list[Row]:
    """In units of `with` over a C object that does nothing."""
    from mstxkit import mstx_range
    from mstxkit.engine.choose import engine

    assert engine.NATIVE
    library = load_stub()
    engine.set_direct(addresses(library))
    rounds = Rounds()
    names = {"mstx_range": mstx_range}
    default = rounds.add("default", 'with mstx_range("x"): pass', names)
    domain = rounds.add("domain", 'with mstx_range("y", domain="d"): pass', names)
    rounds.run()
    engine.clear_direct()
    assert library.stub_begun() == library.stub_ended() == default.done + domain.done
    return [
        rounds.row(f"direct_sink.{variant}", "default"),
        rounds.row(f"direct_sink.{variant}_domain", "domain"),
    ]


def load_stub() -> ctypes.CDLL:
    """Build and load the stub library."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "libstub_mstx.so"
        compile_shared(HERE / "stub_mstx.c", target)
        library = ctypes.CDLL(str(target))
    library.stub_begun.restype = library.stub_ended.restype = ctypes.c_uint64
    return library


def addresses(library: ctypes.CDLL) -> tuple[int, ...]:
    """The functions in the order that `engine.set_direct` takes them."""
    return tuple(ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 for name in FUNCTIONS)
