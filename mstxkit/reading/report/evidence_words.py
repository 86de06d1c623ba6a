"""The numbers that a verdict rests on, in words. Every name is escaped."""

from __future__ import annotations

import math
from typing import Any, Callable, Mapping

from .escape import for_terminal, shown
from .number_table import percent
from .units import duration, size

# What names of the evidence mean, where all of a line are there. Those that are in no line stand behind these.
_WORDS = {
    ("excess_ratio",): "it takes {} longer than expected",
    ("lost_s", "step_s"): "{} of a step of {}",
    ("collectives_s", "usual_s"): "its collectives take {}, usually {}",
    ("usual_s",): "usually {}",
    ("slow_groups", "groups"): "{} of {} groups are slow",
    ("ranks",): "ranks {} are in slow groups only",
    ("stalls",): "{} stalls",
    ("longest_s",): "the longest of {}",
    ("cpu_wait_ratio",): "it waits for a processor in {} of a step",
    ("steps",): "seen in {} steps",
    ("members",): "{} ranks were compared",
    ("host",): "on host {}",
    ("score", "threshold"): "the test stands at {}, where {} is enough",
    ("range",): "the open range is {}",
    ("reason",): "{}",
    ("missing",): "{}",
}
_MORE = 8


def evidence(numbers: Mapping[str, Any]) -> str:
    """Clauses, beginning small; "" where there is none."""
    rest = {name: value for name, value in numbers.items() if name != "where"}
    clauses = []
    for names, words in _WORDS.items():
        if all(rest.get(name) not in (None, "") for name in names):
            clauses.append(words.format(*(with_unit(name, rest.pop(name)) for name in names)))
    more = ", ".join(f"{shown(name)} {with_unit(name, value)}" for name, value in list(rest.items())[:_MORE])
    return "; ".join(filter(None, [*clauses, more]))


def with_unit(name: str, value: Any) -> str:
    """A number with its unit, by the end of its name."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return for_terminal(str(value), 100)
    for ending, written in _BY_ENDING.items():
        if name.endswith(ending):
            return written(value)
    return f"{value:g}" if isinstance(value, int) else f"{value:.3g}"


_BY_ENDING: dict[str, Callable[[float], str]] = {
    "_ns": duration,
    "_us": lambda us: duration(1e3 * us),
    "_ms": lambda ms: duration(1e6 * ms),
    "_s": lambda seconds: duration(1e9 * seconds),
    "_ratio": percent,
    "_bytes": size,
}
