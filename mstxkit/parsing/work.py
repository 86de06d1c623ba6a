"""Parses profiles, each in a process of its own, several at a time; what becomes of each is kept beside it.

A process that parses has an own group, in which it and all that it starts are killed at the time limit, at an
interrupt, and when this process is gone.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Iterator, Mapping, NamedTuple, Sequence

from ..host import detached, identity
from . import kinds, profiles, records
from .kinds import OUTPUT
from .profiles import Profile
from .records import ParseRecord

# As `python -m`, but without the current folder on the path: it may be anybody's.
_START = (
    "import sys; sys.path[:] = [place for place in sys.path if place]; sys.path.append(sys.argv.pop(1)); "
    "from mstxkit.parsing.parser_process import main; main()"
)
_LOOK_EVERY_S = 0.05
_LOADED_WITHIN_S = 300.0
_ANSWER_LIMIT_BYTES = 1 << 16
# Left by a parse that was cut off: msprof takes its own intermediate files for finished work, then fails for want of
# the rest ("Parsing Profile Data", MindStudio Profiler user guide). Source: what torch_npu 2.13.0
# (`_profiling_parser.py`) and mindspore 2.10.0 (`clean_analysis_cache`) remove themselves.
_IN_DEVICE_DATA = ("analyze", "mindstudio_profiler_log", "mindstudio_profiler_output")
_FILES = re.compile(r"msprof_\d+\.db|msprof_analysis_\d+\.log")
_PARTS = re.compile(r"host|device_\d+")
_IN_PARTS = ("sqlite", "summary", "timeline", "data/all_file.complete")


class ParsePlan(NamedTuple):
    """How to parse."""

    jobs: int  # processes at a time
    limit_s: float | None  # seconds for one profile; None: as long as it takes
    export: str  # "text", "db" or "text,db" instead of what each profile was recorded for; "" to leave that
    environment: Mapping[str, str] = {}  # of the processes that parse (`tools.make_environment`)
    msprof: str | None = None  # which one they find, for the record


def load_parser(kind: str, plan: ParsePlan) -> tuple[dict[str, str], str]:
    """Load the parser of this kind in a process that parses: its versions, and the problem or "". Costs one import of
    the framework.
    """
    with tempfile.TemporaryDirectory(prefix="mstxkit-parse-") as folder:
        child = _Child(kind, "", "", Path(folder) / "log", plan, (), folder)
        in_time = False
        try:
            deadline = time.monotonic() + _LOADED_WITHIN_S
            while not (in_time := child.has_ended()) and time.monotonic() < deadline:
                time.sleep(_LOOK_EVERY_S)
        finally:
            answer, status = child.end()
    if not in_time:
        return {}, f"it was not loaded within {_LOADED_WITHIN_S:g} s"
    silent = "" if answer["versions"] else "its process ended while it was loaded"
    return answer["versions"], answer["problem"] or _how_it_ended(status) or silent


def parse_profiles(
    run: Path, todo: Sequence[Profile], plan: ParsePlan, lock: int
) -> Iterator[tuple[Profile, ParseRecord]]:
    """Parse profiles that are ready; yields each one when it begins, with the state parsing, and when it has ended.
    The lock is that of `lock.take_lock`, handed on to the processes.
    """
    waiting = list(reversed(todo))
    running: list[_Parse] = []
    with tempfile.TemporaryDirectory(prefix="mstxkit-parse-") as folder:
        try:
            while waiting or running:
                while waiting and len(running) < plan.jobs:
                    parsing = _Parse(run, waiting.pop(), plan)
                    begun = parsing.begin(lock, folder)
                    if begun.state == records.PARSING:
                        running.append(parsing)
                    yield parsing.profile, begun
                for parsing in [parsing for parsing in running if parsing.is_over()]:
                    ended = parsing.finish()
                    running.remove(parsing)
                    yield parsing.profile, ended
                time.sleep(_LOOK_EVERY_S)
        finally:
            for parsing in running:
                parsing.interrupt()


class _Child:
    """One process of `parser_process.py`."""

    def __init__(
        self, kind: str, folder: str, export: str, log: Path, plan: ParsePlan, keep: tuple[int, ...], place: str
    ) -> None:
        self._reader, writer = os.pipe()
        os.set_blocking(self._reader, False)
        command = [sys.executable, "-c", _START, detached.ROOT, kind, str(writer), export, folder]
        try:
            with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o640), "wb") as output:
                self._process = subprocess.Popen(
                    command, env=dict(plan.environment), cwd=place, stdin=subprocess.PIPE, stdout=output,
                    stderr=subprocess.STDOUT, start_new_session=True, pass_fds=(writer, *keep),
                )  # fmt: skip
        except BaseException:
            os.close(self._reader)
            raise
        finally:
            os.close(writer)

    def has_ended(self) -> bool:
        """Has it? It is not reaped, so that its group cannot be anybody else's."""
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def end(self) -> tuple[dict[str, Any], int]:
        """Kill what is left of its group; its answer, and its exit status."""
        os.killpg(self._process.pid, signal.SIGKILL)
        status = self._process.wait()
        if self._process.stdin:
            self._process.stdin.close()
        try:
            answer = json.loads(os.read(self._reader, _ANSWER_LIMIT_BYTES))
            versions, problem = answer["versions"].items(), answer["problem"]
        except (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError):  # it was killed
            versions, problem = (), ""
        finally:
            os.close(self._reader)
        return {"versions": {str(key): str(value) for key, value in versions}, "problem": str(problem)}, status


class _Parse:
    """One profile while it is parsed."""

    def __init__(self, run: Path, profile: Profile, plan: ParsePlan) -> None:
        self.profile = profile
        self._plan, self._raw, self._kind = plan, run / profile.path, kinds.KINDS[profile.kind]
        self._export = plan.export if self._kind.picks_export else ""
        self._log = profile.record_file.with_suffix(".log")
        self._start_ns, self._began = time.time_ns(), time.monotonic()
        self._child: _Child | None = None
        self._late = False

    def begin(self, lock: int, place: str) -> ParseRecord:
        """Start the process; a record that says failed where that is impossible."""
        try:
            barred = profiles.leads_out(self._raw)
            if barred:
                return self._keep_record(records.FAILED, f"not parsed: {barred}")
            self._log.unlink(missing_ok=True)
            begun = self._keep_record(records.PARSING)
            if begun.state == records.PARSING:
                clear_leftovers(self._raw)
                raw, kind, plan = str(self._raw.resolve()), self._kind.name, self._plan
                self._child = _Child(kind, raw, self._export, self._log, plan, (lock,), place)
            return begun
        except OSError as exc:
            return self._keep_record(records.FAILED, f"not parsed: {exc}")

    def is_over(self) -> bool:
        """Has it ended, or its time?"""
        limit_s = self._plan.limit_s
        self._late = limit_s is not None and time.monotonic() - self._began > limit_s
        return self._late or self._child is None or self._child.has_ended()

    def finish(self) -> ParseRecord:
        """Look at what it left, and keep that."""
        assert self._child is not None
        is_late = self._late and not self._child.has_ended()
        answer, status = self._child.end()
        problem = answer["problem"] or _how_it_ended(status)
        if is_late:
            problem = f"stopped: not parsed within {self._plan.limit_s:g} s"
        elif not problem:
            try:
                exports = tuple(self._export.split(",")) if self._export else kinds.exports_of(self._kind, self._raw)
                problem = records.find_problem(self._kind, self._raw, exports, self._log)
            except OSError as exc:
                problem = f"its output cannot be read: {exc}"
        notes = () if problem else tuple(records.find_errors(self._log)[:3])
        return self._keep_record(records.FAILED if problem else records.PARSED, problem, notes, answer["versions"])

    def interrupt(self) -> None:
        """Stop it; it is parsed anew next time."""
        if self._child is not None:
            self._child.end()
            self._keep_record(records.INTERRUPTED)

    def _keep_record(
        self, state: str, error: str = "", notes: tuple[str, ...] = (), versions: Mapping[str, str] | None = None
    ) -> ParseRecord:
        seconds = round(time.monotonic() - self._began, 3)
        has_output = state in (records.PARSED, records.FAILED)
        outputs = records.outputs_in(self._raw / kinds.OUTPUT) if has_output else ()
        made = ParseRecord(
            state, seconds, outputs, error, notes, dict(versions or {}), identity.name_host(), self._start_ns
        )
        try:
            records.write_record(self.profile.record_file, made, profile=self.profile.path, msprof=self._plan.msprof)
        except OSError as exc:
            return made._replace(state=records.FAILED, error=error or f"its result cannot be kept: {exc}")
        return made


def _how_it_ended(status: int) -> str:
    if status >= 0:
        return f"its process ended with status {status}" if status else ""
    return f"its process was killed by signal {-status} ({signal.strsignal(-status)})"


def clear_leftovers(raw: Path) -> None:
    """Remove what earlier parses of a raw folder left. Raises: OSError where something cannot be removed."""
    for path in (raw / OUTPUT, *_find_intermediate(raw)):
        if path.is_symlink() or path.is_file():
            path.unlink()
        elif path.is_dir():
            shutil.rmtree(path)


def _find_intermediate(raw: Path) -> Iterator[Path]:
    for name in os.listdir(raw):
        folder = raw / name
        if not name.startswith("PROF_") or folder.is_symlink() or not folder.is_dir():
            continue
        yield from (folder / inner for inner in _IN_DEVICE_DATA)
        for inner in os.listdir(folder):
            if _FILES.fullmatch(inner):
                yield folder / inner
            elif _PARTS.fullmatch(inner) and not (folder / inner).is_symlink():
                yield from (folder / inner / left for left in _IN_PARTS)
