"""verl 0.5's three sections: what records, what does not, and back; and which form a version takes."""

from __future__ import annotations

from typing import Any

import pytest
from builders.any_config import refusal

from mstxkit.config import configuring, sources
from mstxkit.config.adapters import _verl_roles, verl_0_5
from mstxkit.config.configuring import Understood
from mstxkit.config.model import Config, Window
from mstxkit.errors import ConfigError

YAML = """\
trainer:
  total_epochs: 3
  profile_steps: [1, 2, 5]
  npu_profile:
    options: {level: level2, with_memory: true, with_cpu: false, analysis: false, save_path: /data}
actor_rollout_ref:
  actor: {strategy: fsdp}
  profiler: {discrete: true, ranks: [0, 3]}
"""


def understood(text: str) -> Understood:
    return configuring.understand_source(sources.from_yaml(text, "old.yaml"))


def test_steps_ranks_stages_and_depth_are_read() -> None:
    config = understood(YAML).read.config

    assert config == Config(
        enabled=True, window=Window(first_step=1, steps=2, more_steps=(5,)), ranks=(0, 3), stages=verl_0_5.STAGES,
        stage_names={"actor_generate": "rollout_generate", "reference_compute_log_prob": "ref_compute_log_prob"},
        level="level2", aic_metrics="PipeUtilization", memory=True, activities=("npu",), mstx=True, analysis="off",
        path="/data",
    )  # fmt: skip
    assert understood(YAML).read.places["window.first_step"].line == 3


def test_overrides_of_a_command_line_are_the_same(tmp_path: Any) -> None:
    words = ["trainer.profile_steps=[2]", "actor_rollout_ref.profiler.all_ranks=True", "trainer.nnodes=1"]

    found = configuring.understand_source(["python3", "-m", "verl.trainer.main_ppo", *words])

    assert (found.flavour, found.read.config.ranks, found.read.config.stages) == ("verl_0_5", "all", "all")


def test_nothing_is_recorded_without_ranks() -> None:
    found = understood("trainer: {profile_steps: [1]}\n")

    assert not found.read.config.enabled
    assert found.read.notes == ("neither all_ranks nor ranks of actor_rollout_ref.profiler: verl 0.5 records nothing",)


def test_the_critic_is_told_to_record_nothing() -> None:
    notes = understood(f"{YAML}critic: {{profiler: {{all_ranks: true}}}}\n").read.notes

    assert notes == ("critic and reward model: verl 0.5 records nothing of them on an NPU",)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("level2", "Level2", "options.level='Level2': not one of its values; did you mean level2?"),
        ("with_memory", "with_mem", "options.with_mem: unknown key; did you mean with_memory?"),
        ("with_cpu: false", "with_cpu: false, with_npu: false", "options.with_npu=False: with_cpu and with_npu are"),
        ("[1, 2, 5]", "2", "trainer.profile_steps=2: null or a list of steps is needed"),
        ("[0, 3]", "3", "actor_rollout_ref.profiler.ranks=3: a list of ranks is needed"),
        ("discrete", "discreet", "actor_rollout_ref.profiler.discreet: unknown key; did you mean discrete?"),
    ],
)  # fmt: skip
def test_a_bad_value_is_refused_with_its_line(old: str, new: str, message: str, tmp_path: Any) -> None:
    told = refusal(("old.yaml", YAML.replace(old, new)), tmp_path)

    assert told.startswith("old.yaml:")
    assert message in told


def test_what_is_read_is_written_again() -> None:
    config = understood(YAML).read.config

    written = verl_0_5.write(config)

    assert written.lost == ()
    assert understood(written.text).read.config == config


@pytest.mark.parametrize(("version", "is_there"), [("0.5.0", False), ("0.6.1", True), ("0.10.0", True), (None, True)])
def test_a_version_may_be_meant_that_is_not_installed(
    version: str | None, is_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_verl_roles, "installed_version", lambda: None)

    with _verl_roles.meant_version(version):
        assert _verl_roles.at_least(0, 6) is is_there
    assert _verl_roles.at_least(9)


def test_no_version_is_refused() -> None:
    with (
        pytest.raises(ConfigError, match="'newest': numbers are needed"),
        _verl_roles.meant_version("newest"),
    ):
        pass
