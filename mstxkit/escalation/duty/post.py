"""Which rank of which run this process is on duty for, by what is known of it now."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

from ...host import identity, life, parts
from ...store.control_folder import ControlFolder


class Post(NamedTuple):
    """Which rank of which run is on duty."""

    run: Path  # the run folder, resolved
    run_id: str  # its id
    host_folder: Path  # the run's folder on this host, for what its processes pass on to each other
    rank: int
    world_size: int
    role: str  # empty where none is known
    is_assumed: bool = False  # nothing says its rank yet: it is taken for the only one
    is_second: bool = False  # another living process speaks as this rank in this role


def post_here(run: Path, run_id: str, host_folder: Path) -> Post | None:
    """The post of this process by what is known of its rank now; None where it has none.

    A process without a rank is the only one, unless Ray is up: then it is the driver, whose stages are only waiting for
    those of its workers. Where another living process has the same rank and role, this one's role gets its pid.
    """
    rank, who = own_rank(), identity.read_current()
    if rank is None:
        return None
    role, pid = who["role"] or "", os.getpid()
    last = ControlFolder(run, run_id).acknowledgement(rank, role)
    is_second = last is not None and last.host == identity.name_host() and last.pid != pid
    is_second = is_second and last is not None and bool(life.is_alive(last.document.get("process") or {}))
    role = f"{role or 'process'}_{pid}" if is_second else role
    size = max(who["world_size"] or 1, rank + 1)
    return Post(run, run_id, host_folder, rank, size, role, who["rank"] is None, is_second)


def own_rank() -> int | None:
    """This process's rank. One without a rank is the only one, 0, unless it is or was a driver or a worker of Ray."""
    rank: int | None = identity.read_current()["rank"]
    is_ray_up: Any = getattr(sys.modules.get("ray"), "is_initialized", bool)
    is_of_ray = identity.read_current()["under"] in (parts.RAY, parts.RAY_DRIVER)  # also once Ray is shut down
    return 0 if rank is None and not is_of_ray and not is_ray_up() else rank
