"""Which job this process belongs to, by its launcher: so that hosts which share no folder agree on one run, and the
starts of a job can be told apart.

What a launcher says is hashed and never shown, nor part of a path: it may be of any length and hold anything.

Source of the variables:
- torch 2.13.0 `distributed/elastic/agent/server/local_elastic_agent.py`, `_start_workers`: TORCHELASTIC_RUN_ID (what
  `--rdzv-id` says, "none" where it says nothing), MASTER_ADDR, MASTER_PORT.
- Slurm 24.11 `srun(1)`, "OUTPUT ENVIRONMENT VARIABLES": SLURM_JOB_ID (of a heterogeneous job SLURM_HET_JOB_ID),
  SLURM_CLUSTER_NAME, SLURM_STEP_ID; SLURM_RESTART_COUNT after a requeue, which keeps the job's id.
- Ray 2.42.1 `_private/node.py` (`Node.gcs_address`) and `_private/worker.py` (`_global_node`); RAY_ADDRESS;
  `src/ray/raylet/worker_pool.cc`: RAY_JOB_ID, all f in a worker that was started before its job.
- OpenPMIx 5.0 `include/pmix_common.h`: PMIX_NAMESPACE, with the pid of `mpirun` in it; Open MPI 4.1
  `orte/mca/schizo/ompi`: OMPI_MCA_ess_base_jobid.
- msrun of MindSpore 2.10 `parallel/cluster/process_entity/_api.py`: MS_SCHED_HOST, MS_SCHED_PORT.
"""

from __future__ import annotations

import os
import sys
from typing import Iterator

from . import environment

# The outermost of those that are there: a torchrun under Slurm has both, what starts it only Slurm's.
_SLURM_JOB = ("SLURM_HET_JOB_ID", "SLURM_JOB_ID", "SLURM_JOBID")
_NO_RUN_ID, _NO_JOB_OF_RAY = ("", "none"), "f" * 8
_LOOPBACK = ("localhost", "127.", "::1", "0.0.0.0")
# A token that we draw begins with this: it says nothing to other hosts.
DRAWN = "~"


def run_id(folder: str) -> str | None:
    """The id of the run that this process's job keeps in a folder: 32 hex digits, the same on all of its hosts. None
    where no launcher says which job this is.
    `folder`: as it was asked for, absolute, links not followed: another one is another run.
    """
    job = next(_list_jobs(), None)
    return None if job is None else _digest_parts((*job, folder), 16)


def start_id() -> str | None:
    """The start of the job that this process belongs to: 16 hex digits, the same on all hosts of a start; None where no
    launcher says so. A launcher may use it for a later start as well.
    """
    jobs = list(_list_jobs())
    finer = tuple(_read_value(name) for name in ("SLURM_STEP_ID", "SLURM_RESTART_COUNT"))
    of_ray = _read_value("RAY_JOB_ID")
    of_ray = "" if of_ray == _NO_JOB_OF_RAY else of_ray
    return _digest_parts((*(part for job in jobs for part in job), *finer, of_ray), 8) if jobs else None


def _digest_parts(parts: tuple[str, ...], size: int) -> str:
    import hashlib

    text = "\0".join(parts)
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=size).hexdigest()


def _list_jobs() -> Iterator[tuple[str, ...]]:
    """What each launcher says that has a hand in it, the outermost first."""
    # Asks nothing of Ray's: what is loaded by now says the address of its control store, or nothing does.
    node = getattr(sys.modules.get("ray._private.worker"), "_global_node", None)
    address = getattr(node, "gcs_address", None)
    cluster = address if type(address) is str else _read_value("RAY_ADDRESS")
    named = _read_value(environment.JOB)
    if named and not named.startswith(DRAWN):
        yield "named", named
    if slurm := next(filter(None, map(_read_value, _SLURM_JOB)), ""):
        yield "slurm", _read_value("SLURM_CLUSTER_NAME"), slurm
    elif cluster:
        yield "ray", cluster
    elif mpi := _read_value("PMIX_NAMESPACE") or _read_value("OMPI_MCA_ess_base_jobid"):
        yield "mpi", mpi
    if (elastic := _read_value("TORCHELASTIC_RUN_ID")) not in _NO_RUN_ID:
        yield "torchrun", elastic
        return
    # Where its processes meet; a host's name for itself says nothing to the others.
    for kind, host, port in (("msrun", "MS_SCHED_HOST", "MS_SCHED_PORT"), ("torch", "MASTER_ADDR", "MASTER_PORT")):
        if _read_value(host) and _read_value(port) and not _read_value(host).startswith(_LOOPBACK):
            yield kind, _read_value(host), _read_value(port)


def _read_value(name: str) -> str:
    return os.environ.get(name, "")
