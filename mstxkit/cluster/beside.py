"""Starts the process that judges the job, beside rank 0, where there is no Ray: apart, never a thread of training.

It needs numpy, which the training process need not have loaded: only where it lies is looked up here.
"""

from __future__ import annotations

import sys
import time
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Sequence

from .. import faults
from ..host import apart
from ..store import judge_lock
from ..store.batches import HandingProcess

_MODULE = "mstxkit.judging.judge_process"
_OF_METRICS = ("prometheus_client", "opentelemetry", "google")
# How often it is looked whether there is one, at two calls of the run folder; it may have been killed. Seconds.
_AGAIN_AFTER_S = 5.0
# A program that is over before that needs nobody beside it.
_AFTER_S = 2.0


class Beside:
    """Starts one, from the host of rank 0; that it is alone it sees to itself. One thread at a time.

    Args:
        run: The run folder.
        run_id: Its id.
        metrics: What it is told of where figures go.
    """

    def __init__(self, run: Path, run_id: str, metrics: str = "") -> None:
        self._run, self._run_id, self._metrics = run, run_id, metrics
        self._next_s, self._is_here = time.monotonic() + _AFTER_S, False

    def consider(self, processes: Sequence[HandingProcess]) -> None:
        """Start it where rank 0 is among these, or was, and is not alone in its job.

        Raises:
            OSError: it cannot be started.
        """
        self._is_here = self._is_here or any(map(_is_first_of_several, processes))
        if time.monotonic() < self._next_s or not self._is_here:
            return
        self._next_s = time.monotonic() + _AGAIN_AFTER_S
        if judge_lock.is_held(self._run):
            return
        numpy = PathFinder.find_spec("numpy", sys.path)
        if numpy is None or numpy.origin is None:
            why = "the job is not judged from here, as there is no numpy: `mstxkit watch RUN` judges it from elsewhere"
            faults.warn_once("cluster.beside", why)
            return
        words = [str(self._run), self._run_id, self._metrics]
        apart.start(_MODULE, words, [str(Path(numpy.origin).parents[1]), *self._of_metrics()])

    def _of_metrics(self) -> set[str]:
        """Where what sends figures lies, if it is asked for and there: most often where numpy is."""
        specs = (PathFinder.find_spec(name, sys.path) for name in _OF_METRICS) if self._metrics else ()
        places = (spec.submodule_search_locations or () for spec in specs if spec is not None)
        return {str(Path(place).parent) for of_package in places for place in of_package}


def _is_first_of_several(process: HandingProcess) -> bool:
    return process.rank == 0 and process.world_size > 1
