"""From a request to armed: how long until every rank of a host says so in the control folder, by wall time. And what
standing by costs.

Each rank is a process of its own under `capture()` with its defaults. Requests come at random moments. `local`: the
kernel tells them of a request. `shared`: nobody does, as where another host writes. `cached`: each rank is a host of
its own besides, and what it reads of the shared folder is up to 3 seconds old, as with NFS and `acregmin=3`; the way
back is not delayed. `idle`: nothing is asked, nothing recorded; CPU time and wake-ups of all threads but the main one.
`idle_64`: of 64 processes of a host together.
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


# Until what a process has recorded is sealed and it sleeps for long, and for how long it is then measured.
SETTLES_S, MEASURED_S = 45.0, 40.0
_FEW = 4  # so many are shown by the one in the middle, more as a whole


class Setting(NamedTuple):
    """Ranks, requests, whether all ranks are on one host and its run folder is its own, and how old what they read may
    be.
    """

    ranks: int
    requests: int
    is_one_host: bool = True
    is_local: bool = True
    old_s: float = 0.0


SETTINGS = {
    "local": Setting(4, 120), "shared": Setting(4, 20, is_local=False), "cached": Setting(12, 8, False, False, OLD_S),
    "idle": Setting(4, 0), "idle_64": Setting(64, 0),
}  # fmt: skip
VARIANTS: dict[str, dict[str, str]] = {name: {} for name in SETTINGS}


def measure(variant: str) -> list[Row]:
    """Milliseconds: of all ranks together on one host, of each for itself where each is a host."""
    setting = SETTINGS[variant]
    if not setting.requests:
        return _idle(setting)
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


def _idle(setting: Setting) -> list[Row]:
    """A second of standing by: the median of the ranks, one of which is the keeper and reads for all of its host."""
    with tempfile.TemporaryDirectory() as folder, _job(Path(folder), setting) as control:
        pids = [said.document["process"]["pid"] for said in control.acknowledgements()]
        time.sleep(SETTLES_S)
        before = [spent_by_threads(pid) for pid in pids]
        time.sleep(MEASURED_S)
        after = [spent_by_threads(pid) for pid in pids]
    ms = sorted((late[0] - early[0]) / 1e6 / MEASURED_S for early, late in zip(before, after))
    if setting.ranks > _FEW:
        note = f"of a core; the keeper alone {ms[-1] / 10:.2f}, the one in the middle {statistics.median(ms):.3f} ms/s"
        return [Row(f"control.idle_{setting.ranks}_percent", sum(ms) / 10, "%", note=note)]
    wakes = sorted((late[1] - early[1]) / MEASURED_S for early, late in zip(before, after))
    note = f"of {setting.ranks} ranks on one host; the most, its keeper, "
    return [
        Row("control.idle_ms_per_s", statistics.median(ms), "ms/s", ms[-1] - ms[0], f"{note}{ms[-1]:.2f}"),
        Row("control.idle_wakes_per_s", statistics.median(wakes), "/s", wakes[-1] - wakes[0], f"{note}{wakes[-1]:.1f}"),
    ]


def spent_by_threads(pid: int) -> tuple[int, int]:
    """CPU time in ns and sleeps of a process's threads, without the main one."""
    tasks = [task for task in Path(f"/proc/{pid}/task").iterdir() if task.name != str(pid)]
    ns = sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)
    lines = [line for task in tasks for line in (task / "status").read_text().splitlines()]
    return ns, sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))


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
    command += ["local" if setting.is_local else "shared"]
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
    request = request.check_request(asked, known)
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


def _rank(run: str, host: str, old_s: float, kind: str) -> None:
    """One rank: it has entered its stage once, and waits until its standard input is closed."""
    import mstxkit
    from mstxkit.escalation.duty import mailbox
    from mstxkit.store import documents

    if old_s:
        documents.read_small = _Cached(documents.read_small, old_s, Path(run, "control"))
        documents.state_of = _Cached(documents.state_of, old_s, Path(run, "control"))
    if kind == "shared":
        mailbox.is_local = lambda folder: False
    with mstxkit.capture(run, live_folder=host):
        with mstxkit.stage(STAGE):
            pass
        sys.stdin.read()


class _Cached:
    """Reads files of one folder, and says the same for a while."""

    def __init__(self, read: Any, old_s: float, folder: Path) -> None:
        self._read, self._old_s, self._folder = read, old_s, folder
        self._kept: dict[str, tuple[float, Any]] = {}

    def __call__(self, file: Path, *how: Any, **named: Any) -> Any:
        if file.parent.resolve() != self._folder.resolve():
            return self._read(file, *how, **named)
        until, content = self._kept.get(file.name, (0.0, None))
        if time.monotonic() >= until:
            content = self._read(file, *how, **named)
            self._kept[file.name] = time.monotonic() + self._old_s, content
        return content


if __name__ == "__main__":
    _rank(sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4])
