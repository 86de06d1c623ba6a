"""The way to the controller where Ray is: one named actor a job, made by whichever host's agent sees Ray first.

Nothing here runs on a training thread, and nothing waits: a call is sent, and its answer is picked up at a later turn.
Nothing of Ray is called where its core worker does not run: Ray would end the process (seen with 2.42.1 and 2.60.0).

Source: Ray 2.60.0, `ray/actor.py` (`options`: `get_if_exists`, `lifetime`, `max_restarts`, `num_cpus`).
"""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator, Mapping

from .. import faults
from ..host import environment
from ..store import settings_file
from ..store.documents import document_in
from ..store.settings_file import Figures
from .clocks import Exchanges, Stamps
from .ray_actor import JobController

NAMESPACE = "mstxkit"
# Batches that wait for an answer to the call before; older ones are in the run.
_WAITING_AT_MOST, _WAITING_BYTES = 256, 4 << 20
# After a failure, and for an answer that never comes. Seconds.
_AGAIN_AFTER_S, _ANSWERS_WITHIN_S = 5.0, 60.0
# What the last batch waits for the one before it, and a call of the controller's clock for its answer. Seconds.
_LEAVES_WITHIN_S, _CLOCK_WITHIN_S = 0.05, 0.04
# What the end of Ray in this process waits at most for a call of ours that is under way: one that finds Ray's worker
# gone would end the whole process, with status 1 (core_worker_process.cc of Ray 2.60). Calls take a few milliseconds.
_ENDS_WITHIN_S = 2.0
# An answer is of the moment before: so long after a batch it is asked once more what has come of it. Seconds.
_ASKS_AFTER_S = 1.5
# Held around each call of Ray's, and while Ray is being shut down.
_calling = threading.Lock()
# Ray is being shut down: whoever holds the lock makes no further call.
_ending = threading.Event()
# The interpreter ends: nothing of Ray's is called any more.
_is_over = threading.Event()


@contextmanager
def keep_quiet() -> Iterator[None]:
    """Nothing of Ray's is called from here while Ray is shut down; waits for the call that is under way."""
    _ending.set()
    is_quiet = _calling.acquire(timeout=_ENDS_WITHIN_S)
    try:
        yield
    finally:
        _ending.clear()
        if is_quiet:
            _calling.release()


def end_link() -> None:
    """Call nothing of Ray's any more. To be called at the end of the interpreter, before Ray's own handler: who becomes
    this host's agent as the others end would begin to call Ray while it is shut down.
    """
    _is_over.set()  # also for a call under way that is not waited for any longer: no other follows it
    with keep_quiet():
        pass


def name_of(run_id: str) -> str:
    """Of the actor of a run, in the namespace `mstxkit`."""
    return f"mstxkit-{run_id}"


class RayLink:
    """This host's way to it. One thread at a time. `run`, `run_id`: the run folder, and its id. `metrics`: what the
    actor is told of where figures go.
    """

    def __init__(self, run: Path, run_id: str, metrics: str = "") -> None:
        self._run, self._run_id, self._metrics = run, run_id, metrics
        self._pid = os.getpid()
        self._actor: Any = None
        self._call: Any = None
        self._called_s = self._next_s = 0.0
        self._waiting: list[bytes] = []
        self._sent: list[bytes] = []
        self._answer: Figures | None = None
        self._is_left, self._asks = False, False
        self._exchanges, self._stamps = Exchanges(), list[Stamps]()

    @property
    def is_open(self) -> bool:
        """Is the job judged by an actor, or will it be?"""
        return self._actor is not None or _is_connected()

    def post(self, frame: bytes) -> None:
        """Send a batch, with those that wait; without Ray nothing is kept. Never raises."""
        if not self.is_open:
            return
        self._waiting.append(frame)
        while len(self._waiting) > _WAITING_AT_MOST or sum(map(len, self._waiting)) > _WAITING_BYTES:
            del self._waiting[0]
        self._take_turn()

    def answer(self) -> Figures | None:
        """What was answered last; None where nothing was. Never raises."""
        self._take_turn()
        return self._answer

    def take_stamps(self) -> list[Stamps]:
        """Time stamps that were exchanged with the controller since the last call."""
        stamps, self._stamps = self._stamps, []
        return stamps

    def close(self) -> None:
        """Send what is left; nothing is sent after that. Never raises."""
        if self._waiting and self._call is not None:
            time.sleep(_LEAVES_WITHIN_S)
        self._take_turn()
        with keep_quiet():
            self._is_left = True

    def _take_turn(self) -> None:
        if os.getpid() != self._pid or time.monotonic() < self._next_s or not _calling.acquire(blocking=False):
            return
        try:
            if not (self._is_left or _is_over.is_set()) and _is_connected():
                self._hear_answer()
                if _may_call():
                    self._send_waiting()
                if self._actor is not None and _may_call() and self._exchanges.is_due():
                    self._stamps = self._exchanges.burst(self._clock_there)
            elif self._actor is not None:  # Ray was shut down here; another one may be started
                self._actor = self._call = None
        except Exception as exc:
            faults.note_fault("cluster.ray", exc)
            self._begin_anew()
        finally:
            _calling.release()

    def _hear_answer(self) -> None:
        if self._call is None:
            return
        ray = sys.modules["ray"]
        ready, _ = ray.wait([self._call], timeout=0)
        if ready:
            call, self._call = self._call, None
            try:
                answer = ray.get(call, timeout=1)
                if isinstance(answer, bytes) and answer:
                    self._answer = settings_file.figures_of(document_in(answer, Path("answer"), self._run_id))
                self._sent = []
            except ray.exceptions.RayError:  # it is being started again, or gone
                self._begin_anew()
        elif time.monotonic() - self._called_s > _ANSWERS_WITHIN_S:
            self._begin_anew()

    def _send_waiting(self) -> None:
        is_asked = self._asks and time.monotonic() - self._called_s > _ASKS_AFTER_S
        if self._call is None and (self._waiting or is_asked):
            actor = self._actor or self._make_actor()
            self._sent, self._waiting, self._asks = self._waiting, [], bool(self._waiting)
            self._call, self._called_s = actor.take.remote(b"".join(self._sent)), time.monotonic()

    def _clock_there(self) -> Mapping[str, Any] | None:
        """What the controller's clock says; None where it does not say so at once."""
        if not _may_call():
            return None
        ray = sys.modules["ray"]
        call = self._actor.clock.remote()
        try:
            ready, _rest = ray.wait([call], timeout=_CLOCK_WITHIN_S)
            return ray.get(call, timeout=_CLOCK_WITHIN_S) if ready else None
        except ray.exceptions.RayError:  # it is being started again, or gone: the next batch sees to that
            return None

    def _begin_anew(self) -> None:
        """Begin anew, with what was not answered: a batch that comes twice counts once."""
        self._waiting, self._sent = [*self._sent, *self._waiting], []
        self._actor = self._call = None
        self._next_s = time.monotonic() + _AGAIN_AFTER_S

    def _make_actor(self) -> Any:
        """The actor, made if it is not there: it takes nothing of what the job may use, and outlives its driver."""
        ray = sys.modules["ray"]
        options = {
            "name": name_of(self._run_id), "namespace": NAMESPACE, "get_if_exists": True, "lifetime": "detached",
            "num_cpus": 0, "max_restarts": -1, "max_concurrency": 4,
            "runtime_env": {"env_vars": {environment.OFF: "1"}},
        }  # fmt: skip
        self._actor = ray.remote(JobController).options(**options).remote(str(self._run), self._run_id, self._metrics)
        return self._actor


def _may_call() -> bool:
    return not (_ending.is_set() or _is_over.is_set())


def _is_connected() -> bool:
    """Is this process part of a Ray job, with a core worker of its own? Asks nothing that could wait."""
    ray, worker = sys.modules.get("ray"), sys.modules.get("ray._private.worker")
    is_initialized = getattr(ray, "is_initialized", None)
    connected = getattr(getattr(worker, "global_worker", None), "connected", False)
    return is_initialized is not None and connected is True and bool(is_initialized())
