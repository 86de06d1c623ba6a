"""Compacting where files lie: a task of Ray's on each node, each for the sealed files of its own host.

Source: ray 2.42 to 2.60, `ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...errors import MissingPackageError, MstxkitError
from ...host import identity
from . import compacting
from .compacting import Compacted

_MINUTES = 60


def compact_nodes(run: Path, remove: bool = False) -> Compacted:
    """Compact on all nodes of the Ray that runs here, side by side: each turns the files of its own host.
    Raises MstxkitError: there is no Ray here, or it cannot be done on a node.
    """
    try:
        import ray
    except ImportError:
        raise MissingPackageError("ray", "--ray") from None
    was_connected = ray.is_initialized()
    if not was_connected:
        try:
            ray.init(address="auto", log_to_driver=False, configure_logging=False)
        except ConnectionError:
            raise MstxkitError("--ray: no Ray runs here; start it, or run this on each host without --ray") from None
    try:
        return _on_nodes(ray, run, remove)
    finally:
        if not was_connected:
            ray.shutdown()


def _on_nodes(ray: Any, run: Path, remove: bool) -> Compacted:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = ray.remote(num_cpus=0, max_retries=0)(of_this_host)
    tasks = {}
    for node in sorted({node["NodeID"] for node in ray.nodes() if node["Alive"]}):
        task = here.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False))
        tasks[node] = task.remote(str(run), remove)
    done = Compacted()
    for node, task in tasks.items():
        try:
            done = done.plus(ray.get(task, timeout=_MINUTES * 60))
        except ray.exceptions.RayError as exc:
            raise MstxkitError(f"--ray: it cannot be done on node {node[:12]}: {exc}") from exc
    return done


def of_this_host(run: str, remove: bool) -> Compacted:
    """What a task does: the sealed files of this host, in the run and on its own disk."""
    # A host may have several nodes: the first one does it, and the others find it done.
    return compacting.compact_files(Path(run), [identity.name_host()], remove, wait_s=60 * _MINUTES)
