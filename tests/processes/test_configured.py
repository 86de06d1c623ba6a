"""A training of four processes with a configuration: exactly the sessions that it names, whichever system's it is.

On the real torch_npu under the stand-in libraries, by what CANN was asked for.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any, Iterator, NamedTuple

import pytest

import mstxkit
from mstxkit.testing import CannCall, CannRun, run_under_cann

pytestmark = [
    pytest.mark.days("even"),
    pytest.mark.npu,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch_npu") is None, reason="needs torch_npu"),
]

PROGRAM = Path(__file__).resolve().parents[1] / "builders/configured_ranks.py"
LEVEL1_WITH_MSTX = 0xA7  # torch_npu `csrc/profiler/profiler_mgr.h`
LEVEL0_WITH_MSTX = 0x881
RANKS = range(4)

MINDSPEED_RL = """
profiler_config:
  integrated:
    profile: true
    mstx: true
    stage: [actor_update, actor_generate]
    profile_level: level1
    profile_step_start: 3
    profile_step_end: 6
    profile_ranks: [1, 3]
"""
_VERL_ROLE = "{enable: true, ranks: [1, 3], tool_config: {npu: {discrete: true, level: level1, contents: [npu, cpu]}}}"
VERL = f"""
global_profiler: {{tool: npu, steps: [3, 4, 5]}}
actor_rollout_ref:
  actor: {{profiler: {_VERL_ROLE}}}
  rollout: {{profiler: {_VERL_ROLE}}}
"""
OWN = """
mstxkit:
  enabled: true
  mstx: true
  stages: [actor_update, actor_generate]
  window: {first_step: 3, steps: 3}
  level: level1
  aic_metrics: PipeUtilization
  ranks: [1, 3]
"""
WHOLE_STEPS = """
mstxkit: {enabled: true, mstx: true, window: {first_step: 1, steps: 2}, ranks: [2]}
"""
CONFIGS = {"mindspeed_rl": MINDSPEED_RL, "verl": VERL, "own": OWN, "whole_steps": WHOLE_STEPS, "none": ""}


class Trained(NamedTuple):
    """One training: its place, and what its processes asked CANN for."""

    place: Path
    ranks: list[dict[str, Any]]
    cann: CannRun

    def calls(self, rank: int) -> list[CannCall]:
        return [call for call in self.cann.calls if call.pid == self.ranks[rank]["pid"]]

    def sessions(self, rank: int) -> list[list[str]]:
        """The stages inside of each session of a rank, as the device was told them; each session is closed."""
        sessions: list[list[str]] = []
        begun: dict[int | None, str] = {}
        is_open = False
        for call in self.calls(rank):
            if call.call == "aclprofStart":
                assert not is_open
                is_open = True
                sessions.append([])
            elif call.call == "aclprofStop":
                assert is_open and not begun, "a range is not inside its session"
                is_open = False
            elif call.call == "mstxRangeStartA" and call.id and str(call.message).startswith("actor_"):
                begun[call.id] = str(call.message)
                sessions[-1].append(str(call.message))
            elif call.call == "mstxRangeEnd":
                begun.pop(call.id, None)
        assert not is_open
        return sessions

    def bits(self) -> set[int | None]:
        return {call.types for rank in RANKS for call in self.calls(rank) if call.call == "aclprofStart"}

    def requests(self) -> set[tuple[Any, ...]]:
        rows = mstxkit.open_run(self.place / "run").escalations().to_dicts()
        return {(row["rank"], row["state"], row["first_step"], row["last_step"]) for row in rows}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Trained]]:
    folder = tmp_path_factory.mktemp("configured")
    for name, text in CONFIGS.items():
        (folder / f"{name}.yaml").write_text(text)
    named = [f"{name}={folder / f'{name}.yaml' if text else ''}" for name, text in CONFIGS.items()]
    place = folder / "trained"
    place.mkdir()
    cann = run_under_cann([sys.executable, str(PROGRAM), str(place), *named], start_bytes=4096, timeout_s=110)
    assert cann.returncode == 0, cann.stderr
    told = {name: [json.loads((place / name / f"rank{rank}.json").read_text()) for rank in RANKS] for name in CONFIGS}
    return {name: Trained(place / name, told[name], cann) for name in CONFIGS}


@pytest.mark.parametrize(
    ("name", "stages"),
    [
        ("mindspeed_rl", ["actor_generate", "actor_update"]),
        ("verl", ["actor_generate", "actor_compute_log_prob", "actor_update"]),  # its actor has two stages
        ("own", ["actor_generate", "actor_update"]),
    ],
)
def test_the_ranks_and_steps_that_it_names_have_a_session_of_each_stage_and_nobody_else(
    trained: dict[str, Trained], name: str, stages: list[str]
) -> None:
    sessions = {rank: trained[name].sessions(rank) for rank in RANKS}

    assert sessions == {0: [], 1: [[stage] for stage in stages] * 3, 2: [], 3: [[stage] for stage in stages] * 3}
    assert trained[name].bits() == {LEVEL1_WITH_MSTX}
    assert trained[name].requests() == {(1, "done", 3, 5), (3, "done", 3, 5)}


def test_whole_steps_are_one_session_also_from_the_first_step_on(trained: dict[str, Trained]) -> None:
    every_stage = ["actor_generate", "actor_compute_log_prob", "actor_update"]
    training = trained["whole_steps"]
    (session,) = (json.loads(file.read_text()) for file in training.place.rglob("session.json"))

    assert [training.sessions(rank) for rank in RANKS] == [[], [], [every_stage * 2], []]
    assert training.bits() == {LEVEL0_WITH_MSTX}
    assert (session["stage"], session["step"], session["steps"]) == ("all", 1, [1, 2])
    assert training.requests() == {(2, "done", 1, 2)}


def test_losses_are_bit_equal_to_those_without_a_configuration(trained: dict[str, Trained]) -> None:
    losses = {name: [rank["losses"] for rank in training.ranks] for name, training in trained.items()}

    assert all(len(set(of_rank)) > 1 for of_rank in losses["none"])
    assert losses == dict.fromkeys(CONFIGS, losses["none"])
    assert trained["none"].requests() == set()
    assert not any(trained["none"].sessions(rank) for rank in RANKS)
