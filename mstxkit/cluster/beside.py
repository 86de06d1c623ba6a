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
from ..host import detached
from ..store import documents, judge_lock, layout
from ..store.batches import HandingProcess

_MODULE = "mstxkit.judging.judge_process"
_OF_METRICS = ("prometheus_client", "opentelemetry", "google")
# How often it is looked whether there is one, at two calls of the run folder; it may have been killed. Seconds.
_AGAIN_AFTER_S = 5.0
# A program that is over before that needs nobody beside it.
_AFTER_S = 2.0
# A judge says once a second that it is there. One that has not for so long, while this host has handed over more, is
# gone, and so may be the host that would start the next one: another one does, that of the lowest rank first. Where
# that one says nothing either, twice as long is waited for the one after it. Seconds.
_SILENT_AFTER_S, _LATER_BY_S, _RANKS_AT_MOST, _DOUBLED_AT_MOST = 12.0, 0.25, 100, 8


class Beside:
    """Starts one, from the host of rank 0, or, once that is gone, from another one; that it is alone it sees to itself.
    One thread at a time. `run`, `run_id`: the run folder, and its id. `metrics`: what it is told of where figures go.
    """

    def __init__(self, run: Path, run_id: str, metrics: str = "") -> None:
        self._run, self._run_id, self._metrics = run, run_id, metrics
        self._are_asked_for = False  # figures, where nobody but a judge opens a way
        if metrics:
            from ..store import metrics_setting

            opened = {metrics_setting.PAGE, metrics_setting.TEXTFILE, metrics_setting.OTLP}
            self._are_asked_for = any(outlet.kind in opened for outlet in metrics_setting.of_word(metrics).outlets)
        self._next_s, self._is_here = time.monotonic() + _AFTER_S, False
        self._has_started = False
        # Since when the judge says nothing new, what this host had handed over by then, and how often one was missing.
        self._state: tuple[int, ...] = ()
        self._since_s, self._batches, self._tries = 0.0, 0, 0

    def consider(self, processes: Sequence[HandingProcess], batches: int) -> None:
        """Start it where rank 0 is among these, or was, and is not alone in its job; or where the job's judge is gone.

        Who is alone has nobody to be compared with, and a judge only where figures are asked for.
        `processes`: of this host. `batches`: that this host has handed over. Raises OSError: it cannot be started.
        """
        self._is_here = self._is_here or any(of.rank == 0 and of.world_size > 1 for of in processes)
        if time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + _AGAIN_AFTER_S
        is_silent = self._is_silent([of.rank for of in processes if of.rank is not None and of.world_size > 1], batches)
        is_alone = self._are_asked_for and all(of.world_size < 2 and not of.rank for of in processes)
        is_here = self._is_here or (is_alone and bool(processes))
        is_held = judge_lock.is_held(self._run) if is_here or is_silent else True
        # Without locks nobody can tell whether the one that was started still judges, but by what it says.
        is_missing = is_here and (is_held is False or not self._has_started)
        if is_silent or (not is_held and is_missing):
            self._start_judge(is_silent)

    def _is_silent(self, ranks: Sequence[int], batches: int) -> bool:
        """Has the job had a judge, of which nothing is heard any more?"""
        state, now_s = documents.state_of(self._run / layout.VERDICTS / layout.JOB), time.monotonic()
        if state != self._state:
            self._state, self._since_s, self._batches, self._tries = state, now_s, batches, 0
        alone_s = _LATER_BY_S * min([_RANKS_AT_MOST, *ranks]) + _SILENT_AFTER_S * 2**self._tries
        if not (state and ranks and batches > self._batches and now_s - self._since_s >= alone_s):
            return False
        self._since_s, self._batches, self._tries = now_s, batches, min(self._tries + 1, _DOUBLED_AT_MOST)
        return True

    def _start_judge(self, is_silent: bool) -> None:
        self._has_started = True
        numpy = PathFinder.find_spec("numpy", sys.path)
        if numpy is None or numpy.origin is None:
            why = "the job is not judged from here, without numpy: `mstxkit top RUN --follow` judges it from elsewhere"
            faults.warn_once("cluster.beside", why)
            return
        # What sends figures, if it is asked for and there, lies most often where numpy is.
        specs = (PathFinder.find_spec(name, sys.path) for name in _OF_METRICS) if self._metrics else ()
        places = (spec.submodule_search_locations or () for spec in specs if spec is not None)
        of_metrics = {str(Path(place).parent) for of_package in places for place in of_package}
        words = [str(self._run), self._run_id, self._metrics, *["silent"] * is_silent]
        detached.start_module(_MODULE, words, [str(Path(numpy.origin).parents[1]), *of_metrics])
