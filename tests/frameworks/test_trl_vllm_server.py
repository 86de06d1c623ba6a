"""trl's GRPO with a real server of vLLM on a CPU, both recorded into one run: it learns the same as without.

By the Python that VLLM_PYTHON names, which has vLLM, trl and mstxkit: docs/internals/testing.md.
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
from typing import Any

import pytest
from builders import soak

from mstxkit import open_run

ROOT = Path(__file__).resolve().parents[2]
PYTHON = Path(os.environ.get("VLLM_PYTHON") or ROOT / ".venvs/vllm/bin/python")
HERE = Path(__file__).resolve().parent / "trl_cpu"
PROGRAM = str(HERE / "sums_grpo.py")
STEPS, STARTS_WITHIN_S = 3, 900
pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not (soak.is_soaking() and PYTHON.exists()), reason="in soak, where VLLM_PYTHON has vLLM"),
]
# Metrics with this in their names say how long something took.
MEASURED = ("time", "per_second")


def environment(folder: Path) -> dict[str, str]:
    """With what vLLM loads by itself: an entry point that lets weights come over gloo."""
    found = describe(folder, "trl_on_cpu", "1")
    (found / "entry_points.txt").write_text("[vllm.general_plugins]\ntrl_on_cpu = trl_on_cpu:register\n")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MSTXKIT_", "PYTHON"))}
    paths = [folder, HERE, HERE.parent / "verl_cpu", ROOT]
    return {
        **kept, "PYTHONPATH": os.pathsep.join(map(str, paths)), "PYTHONWARNINGS": "ignore",
        "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "WARNING", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1",
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
    }  # fmt: skip


def describe(folder: Path, package: str, version: str) -> Path:
    """What says that a package is installed."""
    found = folder / f"{package}-{version}.dist-info"
    found.mkdir(exist_ok=True)
    (found / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    return found


# `vllm serve` asks for the version of vllm, and finds none where it is called vllm-cpu.
VERSIONS = """
import trl, vllm
from importlib.metadata import packages_distributions, version
names = packages_distributions()["vllm"]
print("" if "vllm" in names else version(names[0]) + "+cpu")
"""


class Training:
    """One, with a server of its own, to its end.

    Args:
        is_recorded: Both under `mstxkit run`, into `run`.
    """

    def __init__(self, folder: Path, name: str, is_recorded: bool) -> None:
        self.run, self._environment, self._output = folder / name, environment(folder), folder / f"{name}.server"
        run = [str(PYTHON), "-m", "mstxkit", "run", "--run", str(self.run), "--"] if is_recorded else []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        serve = ["-c", "from trl.cli import main; main()", "vllm-serve", "--model", str(folder / "model")]
        options = ["--dtype", "float32", "--host", "127.0.0.1", "--max_model_len", "128", "--enforce_eager", "True"]
        options += ["--max-num-seqs", "1"]  # who meets in a batch decides the last bits
        with self._output.open("w") as output:
            command = [*run, str(PYTHON), *serve, *options, "--port", str(port)]
            self._server = subprocess.Popen(
                command, env=self._environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        try:
            self._wait_for(f"http://127.0.0.1:{port}/health")
            train = [*run, str(PYTHON), PROGRAM, str(folder / "model"), f"http://127.0.0.1:{port}"]
            done = subprocess.run(train, env=self._environment, capture_output=True, text=True, timeout=STARTS_WITHIN_S)
        finally:
            os.killpg(self._server.pid, signal.SIGINT)
            try:
                self._server.wait(120)
            finally:
                if self._server.poll() is None:
                    os.killpg(self._server.pid, signal.SIGKILL)
        assert done.returncode == 0, done.stderr[-4000:]
        self.logged: list[dict[str, Any]] = json.loads(
            next(line for line in done.stdout.splitlines() if line.startswith("[{"))
        )

    def _wait_for(self, url: str) -> None:
        deadline_s = time.monotonic() + STARTS_WITHIN_S
        while True:
            try:
                with urllib.request.urlopen(url, timeout=5):
                    return
            except OSError:
                assert self._server.poll() is None and time.monotonic() < deadline_s, self._output.read_text()[-4000:]
                time.sleep(0.5)

    def learned(self) -> list[dict[str, str]]:
        """All that trl logged but what is measured, to the last bit."""
        return [
            {name: repr(value) for name, value in step.items() if not any(part in name for part in MEASURED)}
            for step in self.logged
        ]


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Training]:
    folder = tmp_path_factory.mktemp("grpo")
    asked = subprocess.run([str(PYTHON), "-c", VERSIONS], env=environment(folder), capture_output=True, text=True)
    if asked.returncode:
        pytest.skip("VLLM_PYTHON has no trl beside vLLM")
    if version := asked.stdout.split()[-1:]:
        describe(folder, "vllm", *version)
    subprocess.run([str(PYTHON), PROGRAM, str(folder / "model")], env=environment(folder), check=True)
    return {name: Training(folder, name, name == "recorded") for name in ("plain", "recorded")}


@pytest.fixture(scope="module")
def rows(trainings: dict[str, Training]) -> list[dict[str, Any]]:
    return open_run(trainings["recorded"].run).ranges().sort("start_ns").to_dicts()


def test_it_learns_the_same_to_the_last_bit_as_without_mstxkit(trainings: dict[str, Training]) -> None:
    plain, recorded = (trainings[name].learned() for name in ("plain", "recorded"))

    assert min(step["grad_norm"] for step in trainings["plain"].logged[:STEPS]) > 0.1
    assert recorded == plain


def test_the_server_has_the_trainers_weights(trainings: dict[str, Training]) -> None:
    for training in trainings.values():
        assert max(step["sampling/sampling_logp_difference/max"] for step in training.logged[:STEPS]) < 1e-4


def test_each_update_has_its_parts_once_in_their_stages(rows: list[dict[str, Any]]) -> None:
    expected = {
        ("VLLMGeneration.sync_weights", "weight_sync"), ("VLLMGeneration.generate", "actor_generate"),
        ("GRPOTrainer._calculate_rewards", "reward"), ("GRPOTrainer.compute_loss", "actor_update"),
        ("optimizer_step", "actor_update"), ("GRPOTrainer.training_step", "train_step"),
    }  # fmt: skip
    for step in range(STEPS):
        counts = Counter((row["name"], row["stage"]) for row in rows if (row["role"], row["step"]) == ("trainer", step))

        assert {part: counts[part] for part in expected} == dict.fromkeys(expected, 1)


def test_the_server_takes_weights_of_each_update_and_generates_between(rows: list[dict[str, Any]]) -> None:
    names = [(row["name"].partition(".")[2], row["stage"]) for row in rows if row["role"] == "rollout"]
    counts = Counter(names)

    for part in ("start_weight_update", "update_weights", "finish_weight_update"):
        assert counts[part, "weight_sync"] == STEPS
    assert counts["sample_tokens", "actor_generate"] >= STEPS
    assert (
        sum(row["name"] == "Scheduler.update_from_output" for row in rows) >= counts["sample_tokens", "actor_generate"]
    )


def test_nothing_is_lost_to_a_fault(trainings: dict[str, Training], rows: list[dict[str, Any]]) -> None:
    processes = open_run(trainings["recorded"].run).processes()

    assert processes["faults"].sum() == processes["dropped"].sum() == 0
    assert not [row["name"] for row in rows if row["error"]]
