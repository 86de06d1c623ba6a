"""The actor of Ray's that judges a job: `judging/run_judge.py` behind one method. Nothing else is imported where it is
made.

Its process runs with MSTXKIT_OFF=1: it is no process of the run. It works in a thread of its own, so that a host that
calls is answered at once, and ends by itself.
"""

from __future__ import annotations

import threading
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from . import clocks

WHO = "controller"
_LOOKS_EVERY_S = 0.25
# What came by message is in the run as well: that is looked at for what was missed.
_READS_EVERY_S = 3.0
_FRAMES_AT_MOST = 20_000
GOODBYE_S, SILENCE_S = 60.0, 900.0


class JobController:
    """Judges one job. Made by `ray_link`, as a named actor.
    `run`, `run_id`: the run folder, and its id. `metrics`: where figures go: `store.metrics_setting.as_word`.
    `goodbye_s`: it ends so long after all hosts have said goodbye. `silence_s`: it ends after so long without a word.
    """

    def __init__(
        self, run: str, run_id: str, metrics: str = "", goodbye_s: float = GOODBYE_S, silence_s: float = SILENCE_S
    ) -> None:
        self._run, self._run_id, self._metrics = Path(run), run_id, metrics
        self._goodbye_s, self._silence_s = goodbye_s, silence_s
        self._frames: list[bytes] = []
        self._heard_s = time.monotonic()
        self._answer = b""
        self._lock = threading.Lock()
        threading.Thread(target=self._work, name="mstxkit-judge", daemon=True).start()

    def take(self, frames: bytes) -> bytes:
        """Batches of a host, whole ones; what is answered is the newest word for all hosts, as the JSON of a file."""
        self._heard_s = time.monotonic()
        with self._lock:
            if len(self._frames) < _FRAMES_AT_MOST:
                self._frames.append(frames)
        return self._answer

    def clock(self) -> dict[str, Any]:
        """What its clock says: half of an exchange (`clocks.py`)."""
        return clocks.answer_exchange()

    def _work(self) -> None:
        batches, lock_of = import_module("mstxkit.store.batches"), import_module("mstxkit.store.judge_lock")
        setting = import_module("mstxkit.store.metrics_setting").of_word(self._metrics)
        outlets = import_module("mstxkit.telemetry.outlets").Outlets(self._run, self._run_id, setting, True)
        run_judge = import_module("mstxkit.judging.run_judge").RunJudge(self._run, self._run_id, WHO, outlets=outlets)
        reads_s, lock = 0.0, None
        while True:
            try:
                if time.monotonic() >= reads_s:
                    if lock is None and self._run.is_dir():
                        lock = lock_of.take_lock(self._run)
                        run_judge.hold(lock)
                    run_judge.look()
                    reads_s = time.monotonic() + _READS_EVERY_S
                self._take_all(run_judge, batches)
                run_judge.look(reads=False)
                self._answer = run_judge.controller.figures.as_json(self._run_id)
                silent_s = time.monotonic() - self._heard_s
                directory = run_judge.controller.directory
                has_ended = bool(directory.hosts) and directory.have_all_ended
                if silent_s > self._silence_s or (has_ended and silent_s > self._goodbye_s):
                    run_judge.judge(time.time(), at_once=True)
                    run_judge.close()
                    _end_actor()
            except Exception:  # one bad batch, or a disk, is no end of judging
                time.sleep(1.0)
            time.sleep(_LOOKS_EVERY_S)

    def _take_all(self, run_judge: Any, batches: Any) -> None:
        with self._lock:
            frames, self._frames = self._frames, []
        now_s = time.time()
        controller = run_judge.controller
        for batch in batches.decode_batches(b"".join(frames), self._run_id).batches:
            if controller.directory.knows(batch):  # else its host's file tells of whom it is, from its beginning
                controller.take(batch, now_s)


def _end_actor() -> None:
    """End this actor for good: Ray would start one again that just exits."""
    ray: Any = import_module("ray")
    ray.kill(ray.get_runtime_context().current_actor, no_restart=True)
