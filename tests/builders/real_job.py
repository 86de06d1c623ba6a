"""A training of a real system, started as a user starts it: what it prints, and waiting for what it does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence, TypeVar

from mstxkit.escalation import asking
from mstxkit.store import fate

T = TypeVar("T")


def listening(run: Path, stage: str) -> set[int]:
    """Ranks that can be asked for the stage: a second after they have entered it first."""
    if not (run / "run.json").exists():
        return set()
    return {one.rank for one in fate.read_heard(asking.control_of(run)) if stage in one.standing.stages}


def progress(run: Path, id: str) -> fate.Progress:
    """How a request stands."""
    control = asking.control_of(run)
    return asking.fates_of(control).progress(asking.find_request(control, id))


def sessions(run: Path, stage: str) -> list[tuple[dict[str, Any], Counter[str]]]:
    """What was recorded of the stage on each rank, and the names in its trace of torch's profiler."""
    found = []
    for file in sorted(run.glob(f"profiles/{stage}/*/*/*/session.json")):
        session = json.loads(file.read_text())
        events = json.loads((file.parent / session["output"]).read_text(encoding="utf-8"))["traceEvents"]
        found.append((session, Counter(event["name"] for event in events if event.get("ph") == "X")))
    return found


class RealJob:
    """One, from its start on; its output goes to a file of its folder, which is there.

    Attributes:
        ENDS_WITHIN_S: It, and each thing that is waited for.
    """

    ENDS_WITHIN_S = 600.0

    def __init__(self, folder: Path, command: Sequence[str], environment: Mapping[str, str], within: Path) -> None:
        self.folder, self.run = folder, folder / "run"
        with (folder / "output").open("w") as output:
            self._process = subprocess.Popen(
                command, env=environment, cwd=within, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )

    @property
    def output(self) -> str:
        """All that it printed so far, its workers' included."""
        return (self.folder / "output").read_text(encoding="utf-8", errors="replace")

    def until(self, found: Callable[[], T]) -> T:
        """What it gives once that is true. A job that ends before is an error at once."""
        deadline_s = time.monotonic() + self.ENDS_WITHIN_S
        while time.monotonic() < deadline_s:
            value = found()
            if value:
                return value
            assert self._process.poll() is None, self.output[-4000:]
            time.sleep(0.1)
        raise AssertionError(f"not within {self.ENDS_WITHIN_S:.0f} s: {self.output[-4000:]}")

    def ask(self, **fields: Any) -> str:
        """A request, while the job stands still: its id, once each rank that is asked is ready."""
        id = asking.ask_ranks(self.run, fields, source="a test").id
        self.until(lambda: progress(self.run, id).counts().keys() == {"armed"})
        return id

    def go(self) -> None:
        """What waits for this file goes on."""
        (self.folder / "go").touch()

    def end(self) -> int:
        """Its exit code, once it has one."""
        return self._process.wait(self.ENDS_WITHIN_S)

    def clear(self) -> None:
        """Nothing of it runs any more."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
