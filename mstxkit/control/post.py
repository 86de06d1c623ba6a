"""Which rank of which run this process is on duty for, by what is known of it now."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

from .. import identity
from .files import ControlFolder


class Post(NamedTuple):
    """Which rank of which run is on duty.

    Args:
        run: The run folder, resolved.
        run_id: Its id.
        host_folder: The run's folder on this host, for what its processes pass on to each other.
        rank, world_size, role: Of this process; the role is empty where none is known.
        is_assumed: Nothing says its rank yet: it is taken for the only one.
    """

    run: Path
    run_id: str
    host_folder: Path
    rank: int
    world_size: int
    role: str
    is_assumed: bool = False


def post_here(run: Path, run_id: str, host_folder: Path) -> Post | None:
    """The post of this process by what is known of its rank now; None where it has none.

    A process without a rank is the only one, unless Ray is up: then it is the driver, whose stages are only waiting for
    those of its workers. Where another living process has the same rank and role, this one's role gets its pid.
    """
    rank, who = own_rank(), identity.current()
    if rank is None:
        return None
    role = _free_role(ControlFolder(run, run_id), rank, who["role"] or "")
    return Post(run, run_id, host_folder, rank, max(who["world_size"] or 1, rank + 1), role, who["rank"] is None)


def own_rank() -> int | None:
    """This process's rank. One without a rank is the only one, 0, unless Ray is up: then it is a driver or a worker."""
    rank: int | None = identity.current()["rank"]
    return 0 if rank is None and not _is_ray_up() else rank


def _is_ray_up() -> bool:
    is_initialized: Any = getattr(sys.modules.get("ray"), "is_initialized", None)
    return is_initialized is not None and bool(is_initialized())


def _free_role(control: ControlFolder, rank: int, role: str) -> str:
    last = control.acknowledgement(rank, role)
    pid = os.getpid()
    is_taken = last is not None and last.host == identity.host() and last.pid != pid
    if is_taken and last is not None and identity.is_alive(last.document.get("process") or {}):
        return f"{role or 'process'}_{pid}"
    return role
