"""Which clock the ranges of this process are stamped with, and why: TSC or cntvct where they are invariant, else
CLOCK_MONOTONIC.

Asked once, when the recorder starts; `MSTXKIT_CLOCK=tsc|cntvct|monotonic` decides instead. The choice stands in every
file.
"""

from __future__ import annotations

import os
import time
from typing import NamedTuple

from . import proc_files

MONOTONIC, TSC, CNTVCT, FAKE = 1, 2, 3, 4
_KINDS = {"monotonic": MONOTONIC, "tsc": TSC, "cntvct": CNTVCT}
# By what `uname` calls a machine.
COUNTERS = {"x86_64": TSC, "AMD64": TSC, "aarch64": CNTVCT, "arm64": CNTVCT}
_CLOCKSOURCE = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
_CPUINFO = "/proc/cpuinfo"


class Choice(NamedTuple):
    """A clock kind and the reason for it, which `mstxkit doctor` shows."""

    kind: int
    reason: str


def choose_clock(native: bool) -> Choice:
    """The clock for this process. Only the C hot path can read TSC and cntvct."""
    if not native:
        return Choice(MONOTONIC, "the Python hot path reads CLOCK_MONOTONIC")
    asked, counter = os.environ.get("MSTXKIT_CLOCK", ""), COUNTERS.get(os.uname().machine, MONOTONIC)
    if _KINDS.get(asked) in (MONOTONIC, counter):
        return Choice(_KINDS[asked], f"MSTXKIT_CLOCK={asked}")
    best = Choice(MONOTONIC, "no counter that the kernel itself trusts")
    if counter == CNTVCT:
        best = Choice(CNTVCT, "cntvct_el0 runs at one rate on every core")
    elif counter == TSC and _tsc_is_trusted():
        best = Choice(TSC, "invariant TSC, which the kernel keeps time with")
    if asked in ("", "auto"):
        return best
    return Choice(best.kind, f"MSTXKIT_CLOCK={asked} is no clock of this machine; {best.reason}")


def _tsc_is_trusted() -> bool:
    """Invariant by its flags, and the kernel's own clock source: it checks that the cores agree."""
    lines = proc_files.read_text(_CPUINFO, 1 << 16).splitlines()
    flags = next((line for line in lines if line.startswith("flags")), "")
    is_invariant = {"constant_tsc", "nonstop_tsc"} <= set(flags.split())
    return is_invariant and proc_files.read_text(_CLOCKSOURCE).strip() == "tsc"


def ask_both() -> tuple[int, int, int]:
    """Half of how long it took to ask, CLOCK_MONOTONIC and CLOCK_REALTIME at one moment, ns: of three looks the
    quickest, which is exact to a microsecond.
    """
    looks = ((time.monotonic_ns(), time.time_ns(), time.monotonic_ns()) for _ in range(3))
    return min(((after - before) // 2 + 1, (before + after) // 2, wall) for before, wall, after in looks)
