"""Run a script under the stand-in CANN libraries, and get its mstx and profiler calls as data."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping, NamedTuple, Sequence, Union

from ..errors import StandInError
from ..host import detached
from .stand_in import Fail, StandIn

Script = Union[str, Path, Sequence[str]]

_STARTS = ("mstxRangeStartA", "mstxDomainRangeStartA")
_ENDS = ("mstxRangeEnd", "mstxDomainRangeEnd")
_MARKS = ("mstxMarkA", "mstxDomainMarkA")


class CannCall(NamedTuple):
    """One call that reached the stand-in. What a call does not have is None.

    Args:
        call: Name of the C function.
        t_ns: When, CLOCK_MONOTONIC.
        pid, tid: Which process and OS thread.
        message: Of a range start or mark.
        domain: Of an mstx call; "default" where it names none.
        stream: Was a stream passed?
        id: Of a range; 0 means that nobody listened.
        types: The data types that aclprofCreateConfig or aclprofStart asked for, as bits; 0x80 is mstx.
        path: Of aclprofInit the result folder, of aclprofStart and aclprofStop the `PROF_*` folder.
        code: What an aclprof call returned; 0 is success.

    Example:
        >>> from mstxkit.testing import CannCall, CannRun
        >>> run = CannRun(0, "", "", (CannCall("mstxMarkA", 1_000, 1, 1, "scored", "default", False),))
        >>> [call.message for call in run.marks()]
        ['scored']
    """

    call: str
    t_ns: int
    pid: int
    tid: int
    message: str | None = None
    domain: str | None = None
    stream: bool | None = None
    id: int | None = None
    types: int | None = None
    path: Path | None = None
    code: int | None = None


class CannRange(NamedTuple):
    """A start and its end; what is missing is None: `end_ns` and `end_tid`, or `start_ns` and `tid`.

    Args:
        message: As it was marked.
        domain, stream, id, pid: As in `CannCall`.
        tid, end_tid: The OS threads on which it started and ended.
        start_ns, end_ns: CLOCK_MONOTONIC, in ns.

    Example:
        >>> from mstxkit.testing import CannRange
        >>> CannRange("decode", "engine", False, 1, 77, 77, 1_000, None, None).balanced
        False
    """

    message: str | None
    domain: str
    stream: bool
    id: int
    pid: int
    tid: int | None
    start_ns: int | None
    end_tid: int | None
    end_ns: int | None

    @property
    def balanced(self) -> bool:
        """Was it started and ended?"""
        return self.start_ns is not None and self.end_ns is not None


@dataclass(frozen=True)
class CannRun:
    """What a script did under the stand-in.

    Args:
        returncode: Its exit status, negative where a signal ended it.
        stdout, stderr: What it printed.
        calls: All its calls of mstx and of the profiler, in order.

    Example:
        >>> from mstxkit.testing import run_under_cann
        >>> run = run_under_cann("print('trained')")
        >>> run.returncode, run.stdout, run.ranges()
        (0, 'trained\\n', [])
    """

    returncode: int
    stdout: str
    stderr: str
    calls: tuple[CannCall, ...]

    def ranges(self) -> list[CannRange]:
        """Every mstx range that somebody listened to, by its start, the open ones too; then ends that have no start.

        An end belongs to the start of the same process, id and domain; an end with id 0 ends nothing.
        """
        started: dict[tuple[int, int | None, str | None], CannRange] = {}
        stray: list[CannRange] = []
        for call in self.calls:
            key = (call.pid, call.id, call.domain)
            domain, number, stream = call.domain or "default", call.id or 0, bool(call.stream)
            if call.call in _STARTS and number:
                begun = (stream, number, call.pid, call.tid, call.t_ns)
                started[key] = CannRange(call.message, domain, *begun, None, None)
            elif call.call in _ENDS and key in started and started[key].end_ns is None:
                started[key] = started[key]._replace(end_tid=call.tid, end_ns=call.t_ns)
            elif call.call in _ENDS and number:
                stray.append(CannRange(None, domain, False, number, call.pid, None, None, call.tid, call.t_ns))
        return [*started.values(), *stray]

    def unbalanced(self) -> list[CannRange]:
        """The ranges that lack a start or an end."""
        return [span for span in self.ranges() if not span.balanced]

    def marks(self) -> list[CannCall]:
        """Every mstx mark, in order."""
        return [call for call in self.calls if call.call in _MARKS]

    def named(self, *names: str) -> list[CannCall]:
        """The calls of these C functions, in order.

        Args:
            names: Those of the functions, `aclprofStart` say.
        """
        return [call for call in self.calls if call.call in names]

    @property
    def prof_folders(self) -> list[Path]:
        """The `PROF_*` folders that profiler sessions wrote, in the order of their starts, each once."""
        folders = [call.path for call in self.named("aclprofStart") if call.code == 0 and call.path is not None]
        return list(dict.fromkeys(folders))


def run_under_cann(
    script: Script, *, env: Mapping[str, str] | None = None, timeout_s: float = 120.0, fail: Sequence[Fail] = (),
    rate: float = 0, start_bytes: int = 4096, mstx: str = "profiler", cwd: Path | None = None,
    python: str | None = None,
) -> CannRun:  # fmt: skip
    """Run a script, with the real torch_npu if it uses that, on stand-in CANN libraries.

    Args:
        script: Python source as a str, a file as a Path, or a whole command as a sequence.
        env: Environment variables on top of this process's own.
        timeout_s: After this the script and its children are killed.
        fail, rate, start_bytes, mstx: As in `StandIn.environment`.
        cwd: Where it runs; default the current folder.
        python: The interpreter; default the one that runs this.

    Raises:
        StandInError: the stand-in could not be built, or the time was over. A script that fails is no error: see
            `returncode`.

    Example:
        >>> from mstxkit.testing import run_under_cann
        >>> run_under_cann("raise SystemExit(3)").returncode
        3
    """
    with tempfile.TemporaryDirectory(prefix="mstxkit-cann-") as folder:
        log = Path(folder) / "calls.jsonl"
        settings = StandIn.build().environment(log=log, mstx=mstx, rate=rate, start_bytes=start_bytes, fail=fail)
        # Without the switch that keeps `import torch` from loading torch_npu, which is wanted here.
        inherited = {name: text for name, text in os.environ.items() if name != "TORCH_DEVICE_BACKEND_AUTOLOAD"}
        environment = {**inherited, **settings, **(env or {})}
        if python is None:  # the script finds the same mstxkit as this process
            paths = filter(None, [detached.ROOT, environment.get("PYTHONPATH")])
            environment["PYTHONPATH"] = os.pathsep.join(paths)
        interpreter = python or sys.executable
        if isinstance(script, str):
            command = [interpreter, "-c", script]
        elif isinstance(script, Path):
            command = [interpreter, str(script)]
        else:
            command = list(script)
        return CannRun(*_run(command, environment, timeout_s, cwd), read_calls(log))


def read_calls(log: Path) -> tuple[CannCall, ...]:
    """The calls in a log that `StandIn.environment(log=…)` asked for; none if it was never written."""
    if not log.exists():
        return ()
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    calls = []
    for line in (line for line in lines if line.endswith("}")):
        fields = {name: value for name, value in json.loads(line).items() if name in CannCall._fields}
        if fields["call"] in _STARTS + _ENDS + _MARKS:
            fields.setdefault("domain", "default")
        if "stream" in fields:
            fields["stream"] = bool(fields["stream"])
        calls.append(CannCall(**{**fields, "path": Path(fields["path"]) if fields.get("path") else None}))
    return tuple(calls)


def _run(command: list[str], environment: dict[str, str], timeout_s: float, cwd: Path | None) -> tuple[int, str, str]:
    child = subprocess.Popen(
        command, env=environment, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, errors="replace", start_new_session=True,
    )  # fmt: skip
    try:
        stdout, stderr = child.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired as exc:
        _kill_session(child.pid)
        _, stderr = child.communicate()
        raise StandInError(f"the script did not end within {timeout_s} s; its last errors: {stderr[-500:]}") from exc
    _kill_session(child.pid)
    return child.returncode, stdout, stderr


def _kill_session(leader: int) -> None:
    """The script and every process it left behind."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
