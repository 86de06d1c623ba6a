"""The agent of a host: what its processes have handed over becomes one batch, which goes on; and what comes back.

It is the host keeper's, and runs in that one's thread: nothing else waits where the run folder or Ray does not answer.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import faults
from ..errors import MstxkitError
from ..host import clock, identity, jitter
from ..recorder.background import Postponed
from ..store import batches, documents, layout
from . import batch_log, gathering
from .batch_log import BatchLog
from .gathering import Gathering

if TYPE_CHECKING:
    from ..store.settings_file import Figures

# Between two batches; a process's own hand-over comes once a second.
EVERY_S = 0.45
# Whoever reads from the middle of a file learns who is who within this many batches, or bytes of them.
_ANNOUNCED_EVERY, _ANNOUNCED_EVERY_BYTES = 64, batches.READ_AGAIN_BYTES // 4
_LOOKS_EVERY_S = 3.0
# The wall clock and that of the run folder's disk are compared so often, and again soon where that told little.
_COMPARES_EVERY_S, _COMPARES_AGAIN_S = 30.0, 2.0


class Agent:
    """What this process passes on for its host, while it is the keeper.
    `run`, `run_id`: the run folder, and its id. `folder`: the live files of this host. `judges`: may a process that
    judges the job be started from here? `metrics`: what it is told of where figures go:
    `store.metrics_setting.as_word`.

    Threads/fork: any thread; one that comes while another is at it does nothing. A forked child makes a new one.
    """

    def __init__(self, run: Path, run_id: str, folder: Path, judges: bool = True, metrics: str = "") -> None:
        self._run, self._run_id, self._folder = run, run_id, folder
        self._gathering, self._log = Gathering(folder), BatchLog(run, folder)
        self._judges = judges
        # To the job's judge, an actor of Ray's, where this process is part of a Ray job; and who starts one elsewhere.
        there = run, run_id, metrics
        self._link = Postponed(f"{__package__}.ray_link:RayLink", *there, is_wanted=lambda: "ray" in sys.modules)
        self._beside = Postponed(f"{__package__}.beside:Beside", *there)
        self._sender, self._number, self._unannounced_bytes = os.urandom(6).hex(), 0, 0
        self._next_s, self._settings, self._said_settings = 0.0, 0, 0
        self._compared_s, self._offset_ns = 0.0, 0  # the wall clock with the disk's, and with CLOCK_MONOTONIC
        self._figures: Figures | None = None
        self._looks = jitter.Every(_LOOKS_EVERY_S, "figures", time.monotonic())
        self._states: dict[Path, tuple[int, ...]] = {}
        self._working = threading.Lock()

    def turn(self) -> None:
        """About once a second: pass on what is new, if anything is. Never raises.

        *Cost*: five system calls a process in shared memory; no call that names a file of the run.
        """
        if time.monotonic() < self._next_s or not self._working.acquire(blocking=False):
            return
        try:
            self._next_s = time.monotonic() + EVERY_S
            self._pass_on(False)
            is_by_ray = (link := self._link.get()) is not None and link.is_open
            if self._gathering.has_steps and self._judges and not is_by_ray:  # else there is nothing to judge
                self._beside.ask("consider", self._gathering.processes(), self._number)
            self._look_for_answers()
        except FileNotFoundError:
            pass  # somebody has removed the run folder: the sealer puts it back
        except Exception as exc:
            faults.note_fault("cluster.agent", exc)
        finally:
            self._working.release()

    def last(self, is_alone: bool) -> None:
        """This process ends: pass on what is left. Never raises. `is_alone`: is there no other process of the run on
        this host?
        """
        if not self._working.acquire(blocking=False):
            return  # it hangs in a write: what is left lies in the rings, for the next keeper
        try:
            self._pass_on(is_alone)
            self._link.tell("close")
        except FileNotFoundError:
            pass
        except Exception as exc:
            faults.note_fault("cluster.agent", exc)
        finally:
            self._log.close()
            self._working.release()

    def _pass_on(self, is_goodbye: bool) -> None:
        handed = self._gathering.gather()
        has_begun = self._number or (self._folder / layout.READ_SO_FAR).exists()  # maybe by the keeper before
        if not (handed or (is_goodbye and has_begun) or self._settings != self._said_settings):
            self._log.append()  # what is not written yet
            return
        every = list(gathering.in_batches(handed))
        frames = [self._frame_batch(*of, is_goodbye and of is every[-1]) for of in every]
        for frame in frames if self._judges else ():  # by Ray first: the run folder may take its time
            self._link.ask("post", frame)
        self._said_settings = self._settings
        self._log.append(*frames)
        if handed and not is_goodbye:
            self._gathering.save()

    def _frame_batch(self, head: dict[str, Any], sections: list[tuple[str, int, bytes]], is_goodbye: bool) -> bytes:
        self._number += 1
        self._unannounced_bytes += sum(len(rows) for _, _, rows in sections)
        if self._number % _ANNOUNCED_EVERY == 0 or self._unannounced_bytes >= _ANNOUNCED_EVERY_BYTES:
            self._unannounced_bytes = 0
            self._gathering.announce_all()
        about = {
            "run": self._run_id, "host": identity.name_host(), "place": layout.name_of_host(self._folder, ""),
            "boot": identity.boot_id(), "sender": self._sender, "number": self._number - 1,
            "clock": self._read_clock(), "clocks": self._link.ask("take_stamps") or [],
            "is_off": self._log.ahead_ns[0] != 0, "settings": self._settings, "goodbye": is_goodbye,
            "dropped": self._log.dropped,
        }  # fmt: skip
        return batches.encode_batch({**about, **head}, sections)

    def _look_for_answers(self) -> None:
        """What comes back: by Ray, else through the run."""
        answer: Figures | None = self._link.ask("answer") if self._judges else None
        if answer is None and self._looks.is_due(time.monotonic()):
            answer = self._in_run()
        if answer is not None and answer != self._figures:
            if answer.asks and (self._figures is None or answer.asks != self._figures.asks):
                from ..store import collectives

                collectives.ask_rings(self._folder)
            self._figures = answer
            documents.replace_file(self._folder / layout.FIGURES_HERE, answer.as_json(self._run_id))
        if answer is not None:
            self._settings = max(self._settings, answer.settings)

    def _in_run(self) -> Figures | None:
        """The figures in the run folder, and the version of the settings there: a call each, unless it has changed."""
        settings, figures = self._run / layout.CONTROL / layout.SETTINGS, self._run / layout.VERDICTS / layout.FIGURES
        are_new = self._is_new(settings), self._is_new(figures)
        if not any(are_new):
            return None
        from ..store import settings_file

        if are_new[0]:
            try:
                self._settings = max(self._settings, settings_file.read_settings(self._run, self._run_id).version)
            except MstxkitError as exc:
                faults.note_fault("cluster.settings", exc)
        return settings_file.read_figures(figures, self._run_id) if are_new[1] else None

    def _is_new(self, file: Path) -> bool:
        state = documents.state_of(file)
        before, self._states[file] = self._states.get(file, ()), state
        return bool(state) and state != before

    def _read_clock(self) -> list[int]:
        """CLOCK_MONOTONIC, the wall clock as all hosts have it, half the bracket in which that was asked; ns."""
        half, mono, wall = clock.ask_both()
        is_set, self._offset_ns = abs(wall - mono - self._offset_ns) > batch_log.ALIKE_NS, wall - mono
        if is_set or time.monotonic() >= self._compared_s:
            is_vague = self._log.look_at_clock()
            self._compared_s = time.monotonic() + (_COMPARES_AGAIN_S if is_vague else _COMPARES_EVERY_S)
        ahead, error = self._log.ahead_ns
        return [mono, wall + ahead, half + error]
