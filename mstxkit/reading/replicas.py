"""Which server a process of a rollout replica belongs to: its own variables say the number alone, and replicas of a
teacher and of a student have the same numbers. The server is an actor of Ray's with a name, above it in the tree.
"""

from __future__ import annotations

import re
from typing import Any, Iterable, Mapping

from ..store.values import grouped, small_number, text_of, whole_number
from .processes import Process

_REPLICA = re.compile(r"replica \d{1,9}")
# From a worker of an engine to its server, over the engine's core.
_DEEP = 8
_Place = tuple[str, str, int, int]


def settle(processes: Iterable[Process]) -> None:
    """`replica 0 teacher Worker-1` for what said `replica 0 Worker-1` of itself, and is below `replica 0 teacher`."""
    processes = list(processes)
    at_place = grouped(processes, lambda process: _place_of(process.host, process.identity, process.pid))
    for process in sorted(processes, key=_start_ns):
        part = text_of(process.identity.get("part"))
        replica = _REPLICA.match(part)
        server = None if replica is None else _server_above(process, replica[0], at_place)
        if replica is not None and server is not None and not f"{part} ".startswith(f"{server} "):
            process.identity["part"] = server + part[replica.end() :]


def _server_above(process: Process, replica: str, at_place: Mapping[_Place, list[Process]]) -> str | None:
    """The part of the next above that says more of this replica than its number."""
    above = process
    for _ in range(_DEEP):
        parents = at_place.get(_place_of(above.host, above.identity, small_number(above.identity.get("ppid")) or 0), [])
        before = [parent for parent in parents if _start_ns(parent) <= _start_ns(above) and parent is not above]
        if not before:
            return None
        above = max(before, key=_start_ns)
        part = text_of(above.identity.get("part"))
        if above.is_of_ray and part.startswith(f"{replica} "):
            return part
    return None


def _place_of(host: str, identity: Mapping[str, Any], pid: int) -> _Place:
    return host, text_of(identity.get("boot")), whole_number(identity.get("pidns")), pid


def _start_ns(process: Process) -> int:
    return whole_number(process.identity.get("start_ns"))
