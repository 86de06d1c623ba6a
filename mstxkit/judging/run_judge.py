"""One who judges a run, with its files: reads batches and settings, writes verdicts and figures, one at a time.

What it holds can be had again: after a restart it reads the newest batches anew, and goes on with what was judged.
"""

from __future__ import annotations

import heapq
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Callable, Iterator, Mapping

from ..errors import MstxkitError
from ..host import folders, identity
from ..store import batches, documents, job_file, layout, run_file, settings_file, verdicts
from ..store.batches import BatchFile
from ..store.job_file import SILENT_AT_MOST, JobState
from ..store.metrics_setting import NOTHING_KNOWN
from ..store.settings_file import Figures
from ..store.values import forget_oldest
from ..store.verdicts import JudgeLife, Verdict
from ..telemetry.outlets import Outlets
from .acting import Acting
from .controller import Controller, Outcome
from .directory import SendingHost
from .escalations import Escalations
from .light_steps import LightSteps
from .request_news import RequestNews
from .steps import Closing

_LISTED_EVERY_S, _FIGURES_EVERY_S, _SETTINGS_EVERY_S = 3.0, 0.5, 2.0
# Where a step was judged, and else; while much is read it is touched: that it changes tells that somebody judges.
_JOB_EVERY_S, _JOB_AT_REST_S, _JOB_WHILE_READING_S = 1.0, 3.0, 4.0
_LIFE_EVERY_S = 2.0
# So many files are asked for news in a second, and at a look: of more hosts it is each one's turn at some looks.
_FILES_PER_S, _FILES_AT_ONCE = 400, 800
_WAITING_AT_MOST = _LINES_AT_MOST = 10_000
_PAUSE_LEAST_S, _PAUSE_S, _PAUSE_AT_MOST_S = 0.05, 0.5, 2.0
# Of long steps each is looked for so often, but not less often than that.
_LOOKS_A_STEP, _PAUSE_OF_LONG_S = 5, 1.0
# Of each host it is looked so often whether its file of where processes are changes: not for so long, and it is silent.
SILENCES_EVERY_S, SILENT_AFTER_S = 30.0, 60.0


class RunJudge:
    """Where a run is judged. One thread at a time.

    Args:
        run, run_id: The run folder, resolved, and its id.
        who: Whose verdicts these are: `verdicts/<who>.<life>.jsonl`, a file of this judge alone. It leaves off writing
            once a later judge of that name has begun.
        closing: When steps are closed.
        lock: Of `alone`, held until `close`; -1: none.
        writes: False: leave nothing in the run.
        outlets: Where figures go besides the run, as long as this one writes.

    Attributes:
        outcome_steps: How many steps were judged that no judge before had judged.
        writes: Does it write into the run, still? Not once a later judge of its name has begun.
    """

    def __init__(
        self, run: Path, run_id: str, who: str, closing: Closing | None = None, lock: int = -1, writes: bool = True,
        outlets: Outlets | None = None,
    ) -> None:  # fmt: skip
        self._lock, self.writes = lock, writes
        self._run, self._run_id, self._who = run, run_id, who
        # As the judge before left it: this one goes on there.
        self._before = job_file.read_state(run, run_id) or JobState()
        self._judged_before = {role.role: role for role in self._before.roles}
        # Hangs are the watchmen's: they say themselves when one is over.
        self._lines = {verdict.id: verdict for verdict in verdicts.read_verdicts(run) if verdict.kind != verdicts.HANG}
        standing = tuple(verdict for verdict in self._lines.values() if not verdict.withdrawn)
        reference = identity.boot_id(), time.time_ns() - time.monotonic_ns()
        flops = NOTHING_KNOWN if outlets is None else outlets.setting.flops
        self._closing, self._read_s = closing or Closing(), time.monotonic()
        self.controller = Controller(str(run), standing, self._closing, reference, flops)
        self._outlets, self._silences = outlets, Silences(run)
        self._requests = RequestNews(run, run_id)
        self._files: dict[Path, BatchFile] = {}
        self._light_steps, self._escalations = LightSteps(run, run_id), Escalations(run, run_id, self._lines.values())
        self._listed_s = self._figures_s = self._settings_s = self._life_s = 0.0
        self._settings_state, self._run_state = tuple[int, ...](), tuple[int, ...]()
        self._waiting: dict[str, Verdict] = {}
        self._life: JudgeLife | None = None
        self._figures, self._job_s, self._is_job_as_shown, self._shown_s = Figures(), 0.0, False, self._read_s
        self.outcome_steps, self._has_read = 0, False

    def look(self, reads: bool = True, at_last: bool = False) -> list[Verdict]:
        """Take what has come through the run (`reads`), judge what is due, and write what is new: verdicts that are new
        or have changed. What the run folder does not take now is written later. `at_last`: ask all hosts, as at first,
        and not only those whose turn it is.
        """
        now_s = time.time()
        self._look_at_settings(now_s)
        self._has_read &= not at_last
        # What was taken otherwise than through the run has no turns.
        self.controller.closing = self.controller.closing._replace(settle_s=self._closing.settle_s)
        changed = [verdict for outcome in self._read(now_s) for verdict in outcome.verdicts] if reads else []
        changed += self.judge(now_s)
        changed += self._act()
        self._write()
        return changed

    @property
    def pause_s(self) -> float:
        """Until it is worth a look again, as each asks a shared file system once a host: when a step is settled."""
        least_s = max(_PAUSE_LEAST_S, min(len(self._files), _FILES_AT_ONCE) / _FILES_PER_S)
        usual_s = max(_PAUSE_S, min(_PAUSE_OF_LONG_S, self.controller.pace_s / _LOOKS_A_STEP))
        return max(least_s, min(usual_s, self.controller.settled_s - time.time()))

    def judge(self, now_s: float, at_once: bool = False) -> list[Verdict]:
        """Judge what is due of what was taken."""
        return list(self._kept(self.controller.work(now_s, at_once)).verdicts)

    def verdicts(self) -> list[Verdict]:
        """All as they were said last, withdrawn ones too, oldest first; hangs as the run has them by now."""
        every = [*self._lines.values(), *verdicts.read_verdicts(self._run, by=verdicts.BY_WATCHMEN)]
        return sorted(every, key=lambda verdict: (verdict.time_ns, verdict.id))

    def hold(self, lock: int | None) -> None:
        """Write into the run if this is its judge's lock, and only then; None: another one holds it."""
        self.writes = lock is not None
        self._lock = -1 if lock is None else lock

    def close(self) -> None:
        """Leave off: all that there was is judged."""
        self.controller.figures = self.controller.figures._replace(is_final=True, written_ns=time.time_ns())
        self._figures_s = self._job_s = 0.0
        self._write()
        if self._outlets is not None:
            self._outlets.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _read(self, now_s: float) -> Iterator[Outcome]:
        """Batches of all hosts in the order in which they were made. How long ago those were made that were there at
        the first look, their hosts' clocks say; others come now, whatever clocks say.
        """
        files = [file.read() for file in self._in_turn(now_s)]
        for batch in heapq.merge(*files, key=lambda batch: batch.time_s):
            made_s = now_s if self._has_read else min(now_s, batch.time_s or now_s)
            if self.controller.is_due(made_s):
                yield self._kept(self.controller.work(made_s))
            self.controller.take(batch, made_s)
            self._show()
        self._has_read = True

    def _show(self) -> None:
        """That it gets on, while it reads what took others long to write."""
        now_s = time.monotonic()
        if self.writes and now_s - max(self._job_s, self._shown_s) >= _JOB_WHILE_READING_S and self._is_still_there():
            self._shown_s = now_s
            with suppress(OSError):
                job_file.show_life(self._run, self._run_id)

    def _kept(self, outcome: Outcome) -> Outcome:
        # What the judge before has judged is gone through once more, so that it is known what is usual.
        pairs = ((role, self._judged_before.get(role.role)) for role in outcome.figures)
        new = [of for of, was in pairs if was is None or of.step > was.step or of.begin_ns >= was.end_ns]
        self.outcome_steps += len(new)
        self._is_job_as_shown &= not (outcome.figures or outcome.verdicts)
        outcome = outcome._replace(verdicts=tuple(map(self._said, outcome.verdicts)))
        if self.writes and self._outlets is not None:
            self._outlets.judged(new, outcome.verdicts)
        if self.writes and new:
            self._light_steps.consider(outcome.wants, time.monotonic())
        return outcome

    def _said(self, verdict: Verdict) -> Verdict:
        """A verdict as it is written down, if that is news."""
        verdict = self._escalations.noted(verdict)
        before = self._lines.pop(verdict.id, None)
        self._lines[verdict.id] = verdict
        if before is None or before._replace(time_ns=verdict.time_ns) != verdict:
            self._waiting[verdict.id] = verdict
        forget_oldest(self._waiting, _WAITING_AT_MOST)
        forget_oldest(self._lines, _LINES_AT_MOST)
        return verdict

    def _act(self) -> list[Verdict]:
        """Let verdicts that hold ask for profiles, where the job lets them."""
        if not self.writes:
            return []
        judge = self.controller.judge
        asked = self._escalations.consider(judge.standing(), judge.settings.of(Acting), time.time_ns())
        changed = list(map(self._said, asked))
        if self._outlets is not None:
            self._outlets.judged((), changed)
            if self._outlets.has_otlp:
                self._outlets.escalated(self._requests.look(time.time_ns()))
        return changed

    def _in_turn(self, now_s: float) -> list[BatchFile]:
        """New ones first, then whose turn it is. No step is settled before all were asked."""
        if abs(now_s - self._listed_s) >= _LISTED_EVERY_S:
            self._listed_s = now_s
            new = [path for path in batches.files_in(self._run) if path not in self._files]
            began = {path: BatchFile(path, self._run_id, self._before.read.get(path.name)) for path in new}
            self._files = {**began, **self._files}
        before_s, self._read_s = self._read_s, time.monotonic()
        later_s = (len(self._files) - 1) // _FILES_AT_ONCE * max(_PAUSE_AT_MOST_S, self._read_s - before_s)
        self.controller.closing = Closing(*(usual_s + later_s for usual_s in self._closing))
        turn = list(self._files)[: _FILES_AT_ONCE if self._has_read else None]
        asked = {path: self._files.pop(path) for path in turn}
        self._files.update(asked)
        return list(asked.values())

    def _look_at_settings(self, now_s: float) -> None:
        if abs(now_s - self._settings_s) < _SETTINGS_EVERY_S:
            return
        before, state = self._settings_state, documents.state_of(self._run / layout.CONTROL / layout.SETTINGS)
        self._settings_s, self._settings_state = now_s, state
        if state != before:
            with suppress(MstxkitError):  # those that are in force stay so
                self.controller.apply(settings_file.read_settings(self._run, self._run_id))

    def state(self) -> JobState:
        """The job as it is seen from here."""
        silent = self._silences.silent(time.monotonic(), self.controller.hosts)
        notes = () if self._outlets is None else self._outlets.notes()
        state = self.controller.state(time.time_ns())
        read = {path.name: file.position for path, file in self._files.items()}
        return state._replace(silences=len(silent), silent=tuple(silent[:SILENT_AT_MOST]), notes=notes, read=read)

    def _write(self) -> None:
        try:
            if self.writes and self._is_replaced():
                self.writes = False
            now_s = time.monotonic()
            has_figures = now_s - self._figures_s >= _FIGURES_EVERY_S and self.controller.figures != self._figures
            is_due = now_s >= self._job_s + (_JOB_AT_REST_S if self._is_job_as_shown else _JOB_EVERY_S)
            if not self.writes or not (self._waiting or has_figures or is_due):
                return
            state = self._shown() if is_due else None
            if self._is_still_there():
                folders.make_folder(self._run / layout.VERDICTS)
                if self._waiting and self._life is not None:
                    self._life.append(self._waiting.values())
                    self._waiting.clear()
                if has_figures:
                    figures, self._figures_s = self.controller.figures, time.monotonic()
                    file = self._run / layout.VERDICTS / layout.FIGURES
                    documents.replace_file(file, figures.as_json(self._run_id))
                    self._figures = figures
                if state is not None:
                    job_file.write_state(self._run, self._run_id, state)
        except (OSError, MstxkitError):
            pass  # a full disk, or a run that somebody removes: again at the next look

    def _shown(self) -> JobState:
        self._job_s, self._is_job_as_shown = time.monotonic(), True
        state = self.state()
        if self._outlets is not None:
            standing = [self._lines.get(verdict.id, verdict) for verdict in self.controller.judge.standing()]
            hangs = verdicts.read_verdicts(self._run, by=verdicts.BY_WATCHMEN)
            standing += (hang for hang in hangs if not hang.withdrawn)
            self._outlets.show(state, standing)
        return state

    def _is_replaced(self) -> bool:
        """Has another one begun to judge in its place, as where this one was cut off? This one's life begins here."""
        if self._life is None and self._is_still_there():
            self._life, self._life_s = JudgeLife(self._run, self._who), time.monotonic()
        if self._life is None or time.monotonic() - self._life_s < _LIFE_EVERY_S:
            return False
        self._life_s = time.monotonic()
        return self._life.is_over()

    def _is_still_there(self) -> bool:
        """Is this the run? What somebody has removed is not made anew. *Cost*: one call, where nothing has changed."""
        state = documents.state_of(self._run / layout.RUN_FILE)
        if not state or state != self._run_state:
            self._run_state = state if run_file.id_of(self._run) == self._run_id else ()
        return bool(self._run_state)


class Silences:
    """Hosts of a run of which nothing comes any more: their keepers say every few seconds where processes are, and then
    do not. By whether their files change, on the clock of who looks: no clocks of two hosts are compared, and a stage
    that lasts for an hour is no silence.
    """

    def __init__(self, run: Path) -> None:
        self._folder = run / layout.NOW
        self._seen: dict[str, tuple[tuple[int, ...], float]] = {}
        self._hosts: Mapping[str, SendingHost] = {}
        self._due_s = float("-inf")

    def silent(self, now_s: float, hosts: Callable[[], Mapping[str, SendingHost]]) -> list[str]:
        """Names of hosts that have handed something over, have said no goodbye, and are silent. `now_s`: of one clock
        that is never set. `hosts`: gives them by the names of their files; called where it is time to look.
        """
        if now_s >= self._due_s:
            self._due_s, self._hosts = now_s + SILENCES_EVERY_S, hosts()
            for place, host in self._hosts.items():
                if "/" in place or "\0" in place:
                    continue  # a name that somebody made up
                state = () if host.has_ended else documents.state_of(self._folder / f"{place}{layout.NOW_SUFFIX}")
                if state and self._seen.get(place, ((), 0.0))[0] != state:
                    self._seen[place] = state, now_s
        since_s = {place: now_s - self._seen.get(place, ((), now_s))[1] for place in self._hosts}
        return [of.host for place, of in self._hosts.items() if since_s[place] > SILENT_AFTER_S and not of.has_ended]
