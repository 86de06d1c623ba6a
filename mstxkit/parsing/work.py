"""Parses profiles, each in a process of its own, several at a time; what becomes of each is kept beside it.

A process that parses has an own group, in which it and all that it starts are killed at the time limit, at an
interrupt, and when this process is gone.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Iterator, Mapping, NamedTuple, Sequence

from .. import identity
from . import kinds, leftovers, outcome, profiles, record
from .profiles import Profile
from .record import Record

_PACKAGE_ROOT = str(Path(__file__).resolve().parents[2])
# As `python -m`, but without the current folder on the path: it may be anybody's.
_START = (
    "import sys; sys.path[:] = [place for place in sys.path if place]; sys.path.append(sys.argv.pop(1)); "
    "from mstxkit.parsing.one import main; main()"
)
_LOOK_EVERY_S = 0.05
_LOADED_WITHIN_S = 300.0
_TOLD_LIMIT = 1 << 16


class Plan(NamedTuple):
    """How to parse.

    Args:
        jobs: Processes at a time.
        limit_s: Seconds for one profile; None: as long as it takes.
        export: "text", "db" or "text,db" instead of what each profile was recorded for; "" to leave that.
        environment: Of the processes that parse (`tools.environment`).
        msprof: Which one they find, for the record.
    """

    jobs: int
    limit_s: float | None
    export: str
    environment: Mapping[str, str]
    msprof: str | None = None


class Loaded(NamedTuple):
    """What came of loading a parser: its versions, or the problem."""

    versions: dict[str, str]
    problem: str


def load(kind: str, plan: Plan) -> Loaded:
    """Can the parser of this kind be loaded in a process that parses? Costs one import of the framework."""
    with tempfile.TemporaryDirectory(prefix="mstxkit-parse-") as folder:
        child = _Child(kind, "", "", Path(folder) / "log", plan, (), folder)
        in_time = False
        try:
            deadline = time.monotonic() + _LOADED_WITHIN_S
            while not (in_time := child.has_ended()) and time.monotonic() < deadline:
                time.sleep(_LOOK_EVERY_S)
        finally:
            told, status = child.end()
    if not in_time:
        return Loaded({}, f"it was not loaded within {_LOADED_WITHIN_S:g} s")
    silent = "" if told["versions"] else "its process ended while it was loaded"
    return Loaded(told["versions"], told["problem"] or _how_it_ended(status) or silent)


def parse(run: Path, todo: Sequence[Profile], plan: Plan, lock: int) -> Iterator[tuple[Profile, Record]]:
    """Parse profiles; each one is given when it begins, with the state parsing, and when it ended.

    Args:
        run: The run's folder.
        todo: Profiles that are ready.
        plan: How.
        lock: Of `lock.take`, handed on to the processes.
    """
    waiting = list(reversed(todo))
    running: list[_Parse] = []
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="mstxkit-parse-"))
        stack.callback(_interrupt, running)
        while waiting or running:
            while waiting and len(running) < plan.jobs:
                one = _Parse(run, waiting.pop(), plan)
                begun = one.begin(lock, folder)
                if begun.state == record.PARSING:
                    running.append(one)
                yield one.profile, begun
            for one in [one for one in running if one.is_over()]:
                ended = one.finish()
                running.remove(one)
                yield one.profile, ended
            time.sleep(_LOOK_EVERY_S)


def _interrupt(running: list[_Parse]) -> None:
    for one in running:
        one.interrupt()


class _Child:
    """One process of `one.py`."""

    def __init__(
        self, kind: str, folder: str, export: str, log: Path, plan: Plan, keep: tuple[int, ...], place: str
    ) -> None:
        self._told, told = os.pipe()
        os.set_blocking(self._told, False)
        command = [sys.executable, "-c", _START, _PACKAGE_ROOT, kind, str(told), export, folder]
        try:
            with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o640), "wb") as output:
                self._process = subprocess.Popen(
                    command, env=dict(plan.environment), cwd=place, stdin=subprocess.PIPE, stdout=output,
                    stderr=subprocess.STDOUT, start_new_session=True, pass_fds=(told, *keep),
                )  # fmt: skip
        except BaseException:
            os.close(self._told)
            raise
        finally:
            os.close(told)

    @property
    def pid(self) -> int:
        return self._process.pid

    def has_ended(self) -> bool:
        """Has it? It is not reaped, so that its group cannot be anybody else's."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def end(self) -> tuple[dict[str, Any], int]:
        """Kill what is left of its group; what it told, and its exit status."""
        os.killpg(self.pid, signal.SIGKILL)
        status = self._process.wait()
        if self._process.stdin:
            self._process.stdin.close()
        return self._heard(), status

    def _heard(self) -> dict[str, Any]:
        try:
            told = json.loads(os.read(self._told, _TOLD_LIMIT))
        except (OSError, ValueError, RecursionError):
            told = {}
        finally:
            os.close(self._told)
        versions = told.get("versions") if isinstance(told, dict) else None
        problem = told.get("problem") if isinstance(told, dict) else None
        said = {str(key): str(value) for key, value in versions.items()} if isinstance(versions, dict) else {}
        return {"versions": said, "problem": problem if isinstance(problem, str) else ""}


class _Parse:
    """One profile while it is parsed."""

    def __init__(self, run: Path, profile: Profile, plan: Plan) -> None:
        self.profile = profile
        self._plan, self._raw, self._kind = plan, run / profile.path, kinds.KINDS[profile.kind]
        self._log = profile.record_file.with_suffix(".log")
        self._start_ns, self._began = time.time_ns(), time.monotonic()
        self._child: _Child | None = None
        self._late = False

    def begin(self, lock: int, place: str) -> Record:
        """Start the process; a record that says failed where that is impossible."""
        try:
            barred = profiles.leads_out(self._raw)
            if barred:
                return self._kept(record.FAILED, f"not parsed: {barred}")
            self._log.unlink(missing_ok=True)
            begun = self._kept(record.PARSING)
            if begun.state == record.PARSING:
                leftovers.clear(self._raw)
                self._child = self._started(lock, place)
            return begun
        except OSError as exc:
            return self._kept(record.FAILED, f"not parsed: {exc}")

    def _started(self, lock: int, place: str) -> _Child:
        export = self._plan.export if self._kind.picks_export else ""
        return _Child(self._kind.name, str(self._raw.resolve()), export, self._log, self._plan, (lock,), place)

    def is_over(self) -> bool:
        """Has it ended, or its time?"""
        limit_s = self._plan.limit_s
        self._late = limit_s is not None and time.monotonic() - self._began > limit_s
        return self._late or self._child is None or self._child.has_ended()

    def finish(self) -> Record:
        """Look at what it left, and keep that."""
        assert self._child is not None
        is_late = self._late and not self._child.has_ended()
        told, status = self._child.end()
        if is_late:
            problem = f"stopped: not parsed within {self._plan.limit_s:g} s"
        else:
            problem = told["problem"] or _how_it_ended(status) or self._lacking()
        notes = () if problem else tuple(outcome.errors(self._log)[:3])
        return self._kept(record.FAILED if problem else record.PARSED, problem, notes, told["versions"])

    def _lacking(self) -> str:
        try:
            wanted = self._plan.export.split(",") if self._plan.export and self._kind.picks_export else None
            exports = tuple(wanted or kinds.exports(self._kind, kinds.info_of(self._raw)))
            return outcome.problem(self._kind, self._raw, exports, self._log)
        except OSError as exc:
            return f"its output cannot be read: {exc}"

    def interrupt(self) -> None:
        """Stop it; it is parsed anew next time."""
        if self._child is not None:
            self._child.end()
            self._kept(record.INTERRUPTED)

    def _kept(
        self, state: str, error: str = "", notes: tuple[str, ...] = (), versions: Mapping[str, str] | None = None
    ) -> Record:
        seconds = round(time.monotonic() - self._began, 3)
        has_output = state in (record.PARSED, record.FAILED)
        outputs = record.outputs_in(self._raw / kinds.OUTPUT) if has_output else ()
        made = Record(state, seconds, outputs, error, notes, dict(versions or {}), identity.host(), self._start_ns)
        try:
            record.write(self.profile.record_file, made, profile=self.profile.path, msprof=self._plan.msprof)
        except OSError as exc:
            return made._replace(state=record.FAILED, error=error or f"its result cannot be kept: {exc}")
        return made


def _how_it_ended(status: int) -> str:
    if status >= 0:
        return f"its process ended with status {status}" if status else ""
    return f"its process was killed by signal {-status} ({signal.strsignal(-status)})"
