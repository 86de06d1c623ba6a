"""From a request to armed: how long until every rank of a host says so in the control folder, by wall time.

Each rank is a process of its own under `capture()` with its defaults: it looks every quarter of a second. Requests come
at random moments. The second variant stands in for a shared file system: each rank is a host of its own, and what it
reads of the shared folder is up to 3 seconds old, as with NFS and `acregmin=3`; the way back is not delayed.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Iterator, NamedTuple

from .harness import HERE, Row, spread

STAGE, OLD_S, LOOKS_EVERY_S, WITHIN_S = "actor_update", 3.0, 0.005, 60.0
ENDED = ("cancelled", "failed", "refused", "expired", "done")


class Setting(NamedTuple):
    """Ranks, requests, whether all ranks are on one host, and how old what they read may be."""

    ranks: int
    requests: int
    is_one_host: bool = True
    old_s: float = 0.0


SETTINGS = {"local": Setting(4, 120), "cached": Setting(12, 8, False, OLD_S)}
VARIANTS: dict[str, dict[str, str]] = {name: {} for name in SETTINGS}


def measure(variant: str) -> list[Row]:
    """Milliseconds: of all ranks together on one host, of each for itself where each is a host."""
    setting = SETTINGS[variant]
    with tempfile.TemporaryDirectory() as folder, _job(Path(folder), setting) as control:
        chance = random.Random(1)
        taken = [_one_request(control, setting, str(number), chance) for number in range(setting.requests)]
    samples = [max(one) for one in taken] if setting.is_one_host else [ms for one in taken for ms in one]
    what = f"{setting.ranks} ranks" if setting.is_one_host else f"each of {setting.ranks} hosts"
    note = f"{what}, {setting.requests} requests, longest {max(samples):.0f} ms"
    middle, late = statistics.median(samples), statistics.quantiles(samples, n=100, method="inclusive")[98]
    return [
        Row(f"control.{variant}_armed_p50_ms", middle, "ms", spread(samples), note),
        Row(f"control.{variant}_armed_p99_ms", late, "ms", spread(samples), note),
    ]


@contextmanager
def _job(folder: Path, setting: Setting) -> Iterator[Any]:
    """Its control folder, once all ranks are on duty."""
    from mstxkit.store import run_file
    from mstxkit.store.control_folder import ControlFolder

    control = ControlFolder(*run_file.open_run_folder(folder / "run"))
    with ExitStack() as stack:
        for rank in range(setting.ranks):
            stack.enter_context(_process(folder, setting, rank))
        _wait(lambda: len(control.acknowledgements()) == setting.ranks)
        yield control


@contextmanager
def _process(folder: Path, setting: Setting, rank: int) -> Iterator[None]:
    host = folder / ("host" if setting.is_one_host else f"host{rank}")
    host.mkdir(mode=0o700, exist_ok=True)
    command = [sys.executable, "-m", "benchmarks.bench_control", str(folder / "run"), str(host), str(setting.old_s)]
    env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(setting.ranks)}
    with subprocess.Popen(command, env=env, cwd=HERE.parent, stdin=subprocess.PIPE) as process:
        try:
            yield
        finally:
            process.communicate()


def _one_request(control: Any, setting: Setting, occasion: str, chance: random.Random) -> list[float]:
    """Milliseconds until each rank says that it is armed; then it is cancelled."""
    from mstxkit.store import messages, request

    known = request.Known((STAGE,), range(setting.ranks), ("full",))
    asked = {"stage": STAGE, "ranks": "all", "occurrences": 1, "preset": "full", "occasion": occasion}
    time.sleep(chance.uniform(0, max(setting.old_s, 0.5)))
    began = time.perf_counter()
    request = request.checked(asked, known)
    control.send(messages.of_request(request))
    taken: dict[int, float] = {}
    _wait(lambda: len(_armed(control, setting, request.id, taken, began)) == setting.ranks)
    control.send(messages.of_cancel(request.id))
    _wait(lambda: all(_state(control, rank, request.id) in ENDED for rank in range(setting.ranks)))
    return list(taken.values())


def _armed(control: Any, setting: Setting, id: str, taken: dict[int, float], began: float) -> dict[int, float]:
    """`taken`, with the ranks that have said so since the last look."""
    for rank in set(range(setting.ranks)).difference(taken):
        state = _state(control, rank, id)
        assert state not in ENDED, f"rank {rank}: {state}"
        if state == "armed":
            taken[rank] = (time.perf_counter() - began) * 1e3
    return taken


def _state(control: Any, rank: int, id: str) -> str | None:
    said = control.acknowledgement(rank)
    states = [one["state"] for one in said.document["reports"] if (one["id"], one["rank"]) == (id, rank)]
    return states[-1] if states else None


def _wait(is_so: Any) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not is_so():
        assert time.monotonic() < deadline, f"not within {WITHIN_S:.0f} s"
        time.sleep(LOOKS_EVERY_S)


def _rank(run: str, host: str, old_s: float) -> None:
    """One rank: it has entered its stage once, and waits until its standard input is closed."""
    import mstxkit
    from mstxkit.store import documents

    if old_s:
        documents.read = _Cached(documents.read, old_s, Path(run, "control"))
    with mstxkit.capture(run, live_folder=host):
        with mstxkit.stage(STAGE):
            pass
        sys.stdin.read()


class _Cached:
    """Reads files of one folder, and says the same for a while."""

    def __init__(self, read: Any, old_s: float, folder: Path) -> None:
        self._read, self._old_s, self._folder = read, old_s, folder
        self._kept: dict[str, tuple[float, bytes | None]] = {}

    def __call__(self, file: Path, *how: Any, **named: Any) -> bytes | None:
        if file.parent.resolve() != self._folder.resolve():
            found: bytes | None = self._read(file, *how, **named)
            return found
        until, content = self._kept.get(file.name, (0.0, None))
        if time.monotonic() >= until:
            content = self._read(file, *how, **named)
            self._kept[file.name] = time.monotonic() + self._old_s, content
        return content


if __name__ == "__main__":
    _rank(sys.argv[1], sys.argv[2], float(sys.argv[3]))
