"""Which clock the ranges of this process are stamped with, and why: TSC or cntvct where they are invariant, else
CLOCK_MONOTONIC.

Asked once, when the recorder starts; `MSTXKIT_CLOCK=tsc|cntvct|monotonic` decides instead. The choice stands in every
file.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from . import proc_files

MONOTONIC, TSC, CNTVCT, FAKE = 1, 2, 3, 4
_KINDS = {"monotonic": MONOTONIC, "tsc": TSC, "cntvct": CNTVCT}
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
    asked, best = os.environ.get("MSTXKIT_CLOCK", ""), _choose_best()
    if asked in ("", "auto"):
        return best
    if _KINDS.get(asked) in (MONOTONIC, _of_machine()):
        return Choice(_KINDS[asked], f"MSTXKIT_CLOCK={asked}")
    return Choice(best.kind, f"MSTXKIT_CLOCK={asked} is no clock of this machine; {best.reason}")


def _of_machine() -> int:
    machine = os.uname().machine
    return TSC if machine in ("x86_64", "AMD64") else CNTVCT if machine in ("aarch64", "arm64") else MONOTONIC


def _choose_best() -> Choice:
    kind = _of_machine()
    if kind == CNTVCT:
        return Choice(CNTVCT, "cntvct_el0 runs at one rate on every core")
    if kind == TSC and _tsc_is_trusted():
        return Choice(TSC, "invariant TSC, which the kernel keeps time with")
    return Choice(MONOTONIC, "no counter that the kernel itself trusts")


def _tsc_is_trusted() -> bool:
    """Invariant by its flags, and the kernel's own clock source: it checks that the cores agree."""
    try:
        if proc_files.read_text(_CLOCKSOURCE).strip() != "tsc":
            return False
        flags = next(
            (line for line in proc_files.read_text(_CPUINFO, 1 << 16).splitlines() if line.startswith("flags")), ""
        )
    except OSError:
        return False
    return {"constant_tsc", "nonstop_tsc"} <= set(flags.split())
