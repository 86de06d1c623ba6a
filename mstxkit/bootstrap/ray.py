"""The set-up hook of Ray's workers: `worker_process_setup_hook="mstxkit.bootstrap.ray.setup"`."""

from __future__ import annotations

import os
import sys

from .. import faults
from ..marking import ranges
from . import activation, capture, ray_job
from .ray_environment import NEXT_HOOK


def setup() -> None:
    """What Ray runs in each worker before its first task: capture, patch, then the hook that was there before ours.

    May be called earlier as well: the other hook waits for the worker to be connected. Ours never raises; the
    other's failure is Ray's to judge, as without us: it ends the worker.
    """
    try:
        if not ranges.is_off:
            capture.start_from_environment()
            ray_job.arrange_ray("worker")
            activation.autopatch_from_environment()
    except Exception as exc:
        faults.note_fault("setting up a Ray worker", exc)
    worker = getattr(sys.modules.get("ray._private.worker"), "global_worker", None)
    if NEXT_HOOK in os.environ and getattr(worker, "connected", False):
        from ray._private.runtime_env.setup_hook import load_and_execute_setup_hook

        # By its path, or by the reference under which Ray has stored a function.
        error = load_and_execute_setup_hook(os.environ.pop(NEXT_HOOK))
        if error is not None:
            raise RuntimeError(error)
