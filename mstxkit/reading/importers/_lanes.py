"""Events of a trace that is JSON, kept in 20 bytes each, a lane a process and thread, until it is known which count."""

from __future__ import annotations

import re
from array import array
from typing import Any, Iterator, NamedTuple

import numpy as np
import numpy.typing as npt

from ._json_stream import ns_of_us
from ._trace import LATEST_NS, NAME_CHARACTERS, NAMES_AT_MOST, Times

OTHER = "(one name of too many)"
COLLECTIVE = re.compile(r"nccl|hccl|hcom|gloo|xccl|^c10d|record_param_comms|^mpi:", re.IGNORECASE)


class Lane:
    """Events of one thread or stream, in the order of the file."""

    def __init__(self) -> None:
        self._starts, self._ends, self._codes = array("q"), array("q"), array("i")

    def add(self, start_ns: int, end_ns: int, code: int) -> None:
        """One event; `code` is that of its name."""
        self._starts.append(start_ns)
        self._ends.append(end_ns)
        self._codes.append(code)

    def times(self) -> tuple[Times, Times, npt.NDArray[np.int32]]:
        """Begins, ends, codes of names."""
        starts, ends = (np.frombuffer(part, dtype=np.int64) for part in (self._starts, self._ends))
        return starts, ends, np.frombuffer(self._codes, dtype=np.int32)


class EventNames:
    """A number for each name; beyond the limit all are one."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}

    def code(self, name: Any) -> int:
        """The number of a name."""
        key = name[:NAME_CHARACTERS] if isinstance(name, str) else ""
        code = self._codes.get(key)
        if code is None:
            key = key if len(self._codes) < NAMES_AT_MOST else OTHER
            code = self._codes.setdefault(key, len(self._codes))
        return code

    def matching(self, pattern: re.Pattern[str]) -> npt.NDArray[np.bool_]:
        """For each number: does its name match?"""
        return np.array([bool(pattern.search(name)) for name in self._codes], dtype=bool)

    def all(self) -> list[str]:
        """All names, by number."""
        return list(self._codes)


class EventTimes(NamedTuple):
    """Begin and end of a complete event, ns."""

    start_ns: int
    end_ns: int


def times_of(event: dict[str, Any], base_ns: int = 0) -> EventTimes | None:
    """Begin and end of a complete event; None where it has none that are usable."""
    start, length = ns_of_us(event.get("ts")), ns_of_us(event.get("dur", 0))
    if start is None or length is None or length < 0:
        return None
    start += base_ns
    return EventTimes(start, start + length) if start >= 0 and start + length < LATEST_NS else None


def key_of(value: Any) -> str | int:
    """A process or thread as a key, whatever it is in the file."""
    return value if isinstance(value, int) else value[:NAME_CHARACTERS] if isinstance(value, str) else ""


def metadata_of(event: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(what, name) of an event that names a process or thread."""
    arguments = event.get("args")
    name = arguments.get("name") if isinstance(arguments, dict) else None
    if event.get("name") in ("process_name", "thread_name") and isinstance(name, str):
        yield event["name"], name[:NAME_CHARACTERS]
