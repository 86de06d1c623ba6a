"""The numbers that a verdict rests on, each by its name and with its unit. Every name is escaped."""

from __future__ import annotations

import math
from typing import Any, Callable, Mapping

from .escape import for_terminal, shown
from .number_table import percent
from .units import duration, size

_BY_ENDING: dict[str, Callable[[float], str]] = {
    "_ns": duration,
    "_us": lambda us: duration(1e3 * us),
    "_ms": lambda ms: duration(1e6 * ms),
    "_s": lambda seconds: duration(1e9 * seconds),
    "_ratio": percent,
    "_bytes": size,
}


def evidence(numbers: Mapping[str, Any]) -> str:
    """`excess 99 %, lost 20.3 ms, members 2, host node3`; "" where there is none."""
    return ", ".join(_in_words(name, value) for name, value in numbers.items() if value not in (None, ""))


def _in_words(name: str, value: Any) -> str:
    words = shown(name).replace("_", " ")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return f"{words} {for_terminal(str(value), 100)}"
    for ending, written in _BY_ENDING.items():
        if name.endswith(ending):
            return f"{words[: -len(ending)]} {written(value)}"
    return f"{words} {value:g}" if isinstance(value, int) else f"{words} {value:.3g}"
