"""verl's `global_profiler` and role blocks: e2e and discrete, followed defaults, versions, overrides, and back."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mstxkit import stages
from mstxkit.config import configuring, sources
from mstxkit.config.adapters import _verl_roles, verl
from mstxkit.config.configuring import Understood
from mstxkit.config.model import Config, Sampling, Window
from mstxkit.errors import ConfigError

ACTOR = "actor_rollout_ref.actor.profiler"
ROLLOUT = "actor_rollout_ref.rollout.profiler"
REF = "actor_rollout_ref.ref.profiler"
ON = ("global_profiler.tool=npu", "global_profiler.steps=[2]", f"{ACTOR}.enable=True")
ACTOR_NPU, ROLLOUT_NPU = f"{ACTOR}.tool_config.npu", f"{ROLLOUT}.tool_config.npu"


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is installed here decides nothing but where a test says so."""
    monkeypatch.setattr(_verl_roles, "installed_version", lambda: "0.9.1")


def overridden(*words: str) -> Understood:
    return configuring.understand_source(list(words))


def read(*words: str) -> Config:
    return overridden(*words).read.config


def error(*words: str) -> str:
    with pytest.raises(ConfigError) as caught:
        overridden(*words)
    return str(caught.value)


def from_yaml(text: str) -> Understood:
    return configuring.understand_source(sources.from_yaml(text, "verl.yaml"))


def test_end_to_end_is_one_recording_through_the_whole_step() -> None:
    config = read(*ON, f"{ACTOR}.all_ranks=True", f"{ACTOR_NPU}.contents=[npu,cpu]", f"{ACTOR_NPU}.discrete=False")

    assert config.model_copy(update={"extras": {}}) == Config(
        enabled=True, window=Window(first_step=2), stages="all", ranks="all", level="level0", mstx=True,
        domains_exclude=("communication",), export="db", analysis="sync", path="outputs/profile",
    )  # fmt: skip


def test_discrete_mode_is_one_recording_per_stage_of_every_enabled_role() -> None:
    config = read(
        *ON, f"{ACTOR_NPU}.discrete=True", f"{REF}.enable=True", f"{REF}.tool_config.npu.discrete=True",
        "critic.profiler.enable=True", "critic.profiler.tool_config.npu.discrete=True", f"{ROLLOUT}.enable=False",
    )  # fmt: skip

    assert config.stages == (
        "actor_compute_log_prob", "actor_update", "reference_compute_log_prob", "critic_compute_values",
        "critic_update",
    )  # fmt: skip
    assert config.stage_names["reference_compute_log_prob"] == "ref_compute_log_prob"


def test_the_rollout_follows_the_actor_and_the_reference_does_not() -> None:
    found = overridden(*ON, f"{ACTOR_NPU}.discrete=True", f"{ACTOR_NPU}.level=level1", f"{ACTOR}.ranks=[0]")

    assert found.read.config.stages == ("actor_compute_log_prob", "actor_update", "actor_generate")
    assert found.read.config.replicas == (0,)
    assert "ref does not follow the actor: its enable is false unless it is set" in found.read.notes


def test_the_rollouts_own_ranks_are_replicas() -> None:
    config = read(*ON, f"{ACTOR}.all_ranks=True", f"{ACTOR_NPU}.discrete=True", f"{ROLLOUT}.all_ranks=False",
                  f"{ROLLOUT}.ranks=[1]")  # fmt: skip

    assert (config.ranks, config.replicas) == ("all", (1,))


def test_the_engine_is_not_profiled_end_to_end() -> None:
    notes = overridden(*ON).read.notes

    assert "rollout: the inference engine is profiled with discrete: true only (Agent Loop)" in notes


@pytest.mark.parametrize(
    ("steps", "window"),
    [
        ("[2]", Window(first_step=2)),
        ("[4,2,3]", Window(first_step=2, steps=3)),
        ("[1,2,5,7]", Window(first_step=1, steps=2, more_steps=(5, 7))),
    ],
)
def test_steps_are_a_window_and_single_steps_after_it(steps: str, window: Window) -> None:
    assert read(*ON, f"global_profiler.steps={steps}").window == window


@pytest.mark.parametrize(
    "words", [("global_profiler.steps=null",), ("global_profiler.steps=[]",), (f"{ACTOR}.enable=False",)]
)
def test_nothing_is_profiled_without_steps_or_a_role(words: tuple[str, ...]) -> None:
    assert not read(*ON, *words).enabled


def test_without_a_tool_nothing_is_profiled_though_its_guide_leaves_it_out() -> None:
    found = overridden(*ON[1:])

    assert not found.read.config.enabled
    assert "global_profiler.tool is not set: verl profiles nothing; it needs tool: npu" in found.read.notes


def test_another_tool_is_not_the_npus() -> None:
    found = overridden(*ON, "global_profiler.tool=nsys")

    assert not found.read.config.enabled
    assert "global_profiler.tool is nsys: only npu is read here" in found.read.notes


def test_an_enabled_role_without_ranks_is_rank_0_though_the_documents_say_none() -> None:
    found = overridden(*ON)

    assert found.read.config.ranks == (0,)
    assert any("rank 0 is profiled" in note for note in found.read.notes)


@pytest.mark.parametrize(
    ("version", "contents", "activities"),
    [
        ("0.9.1", "[]", ("cpu",)),
        ("0.9.1", "[npu]", ("cpu", "npu")),
        ("0.9.1", "[memory]", ("cpu",)),
        ("0.10.0.dev1", "[]", ("cpu",)),
        ("0.9.0", "[]", ("cpu", "npu")),
        ("0.9.0", "[npu]", ("npu",)),
        ("0.6.1", "[memory]", ("cpu", "npu")),
    ],
)
def test_what_empty_contents_and_npu_alone_mean_depends_on_the_version(
    version: str, contents: str, activities: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_verl_roles, "installed_version", lambda: version)

    assert read(*ON, f"{ACTOR_NPU}.contents={contents}").activities == activities


def test_verl_0_6_had_other_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_verl_roles, "installed_version", lambda: "0.6.1")

    config = read(*ON)

    assert (config.level, config.export, config.domains_exclude) == ("level1", "text", ())


def test_the_reward_model_of_verl_0_7_is_read_and_written_for_none_that_lacks_it() -> None:
    words = ("reward_model.profiler.enable=True", "reward_model.profiler.tool_config.npu.discrete=True")
    config = read(*ON, f"{ACTOR_NPU}.discrete=True", *words)

    assert config.stages[-1] == "reward"
    assert "reward_model:" in verl.write(config).text
    assert "reward_model:" not in verl.write(Config(enabled=True, stages=("actor_update", "reward"))).text


def test_the_newest_is_meant_where_verl_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_verl_roles, "installed_version", lambda: None)

    assert read(*ON, f"{ACTOR_NPU}.contents=[npu]").activities == ("cpu", "npu")


def test_contents_level_and_analysis_are_the_actors() -> None:
    config = read(*ON, f"{ACTOR_NPU}.contents=[npu,cpu,memory,shapes,module,stack]", f"{ACTOR_NPU}.level=level_none",
                  f"{ACTOR_NPU}.analysis=False")  # fmt: skip

    assert (config.memory, config.shapes, config.modules, config.stacks) == (True, True, True, True)
    assert (config.level, config.analysis, config.aic_metrics) == ("none", "off", "none")


def test_response_tokens_are_a_sample_of_decode_steps() -> None:
    config = read(*ON, f"{ACTOR_NPU}.discrete=True", f"{ROLLOUT_NPU}.profile_token_start=30",
                  f"{ROLLOUT_NPU}.profile_token_end=40")  # fmt: skip

    assert config.sampling == Sampling(per="decode_step", skip=30, record=10)


def test_interpolations_are_followed_to_the_line_of_who_uses_them() -> None:
    found = from_yaml("""
global_profiler: {tool: npu, steps: [3], save_path: /data}
actor_rollout_ref:
  actor:
    profiler:
      enable: True
      save_path: ${oc.select:global_profiler.save_path,null}
      tool_config:
        npu: {discrete: True, level: level1, contents: [npu]}
  rollout:
    profiler:
      enable: ${oc.select:actor_rollout_ref.actor.profiler.enable,false}
      ranks: ${oc.select:actor_rollout_ref.actor.profiler.ranks,[]}
      tool_config:
        npu:
          discrete: ${oc.select:actor_rollout_ref.actor.profiler.tool_config.npu.discrete,false}
""")

    assert found.read.config.path == "/data"
    assert found.read.config.stages[-1] == "actor_generate"
    assert found.read.places["window.first_step"].line == 2


def test_vllm_reads_its_own_variables_which_are_kept() -> None:
    script = "export VLLM_TORCH_PROFILER_DIR=/traces\nexport VLLM_TORCH_PROFILER_WITH_STACK=0\nmain " + " ".join(
        [*ON, f"{ACTOR_NPU}.discrete=True"]
    )
    found = configuring.understand_source(sources.from_shell(script, "run.sh"))

    written = verl.write(found.read.config)

    assert found.read.config.extras["verl"]["VLLM_TORCH_PROFILER_DIR"] == "/traces"
    assert "#   export VLLM_TORCH_PROFILER_DIR=/traces\n" in written.text


def test_roles_with_other_settings_are_kept_and_told() -> None:
    found = overridden(*ON, f"{REF}.enable=True", f"{REF}.tool_config.npu.level=level2")

    again = verl.read(sources.from_yaml(verl.write(found.read.config).text, "again.yaml"))

    assert found.read.config.level == "level0"
    assert any(note.startswith("ref: other settings than actor") for note in found.read.notes)
    assert "actor_rollout_ref.ref.profiler.tool_config.npu.level" in again.config.extras["verl"]


def test_hydras_composition_is_not_done_and_said() -> None:
    found = from_yaml("defaults: [actor@actor_rollout_ref.actor: dp_actor]\nglobal_profiler: {tool: npu, steps: [1]}\n")

    assert "Hydra composes `defaults:`, which is not done here" in found.read.notes[0]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("global_profiler.tool=nup", "global_profiler.tool='nup': not one of its values; did you mean npu?"),
        ("global_profiler.step=[1]", "global_profiler.step: unknown key; did you mean steps?"),
        ("global_profiler.steps=2", "global_profiler.steps=2: null or a list of steps is needed, counted from 1"),
        ("global_profiler.steps=[0]", "global_profiler.steps=[0]: null or a list of steps is needed, counted from 1"),
        ("global_profiler.steps=['1']", "global_profiler.steps=['1']: null or a list of steps"),
        ("global_profiler.steps=all", "global_profiler.steps='all': null or a list of steps"),
        ("global_profiler.save_path=null", "global_profiler.save_path: not a text"),
        (f"{ACTOR}.enable=yes_please", f"{ACTOR}.enable='yes_please': not a flag; allowed: true, false"),
        (f"{ACTOR}.enabled=True", f"{ACTOR}.enabled: unknown key; did you mean enable?"),
        (f"{ACTOR}.ranks=0", f"{ACTOR}.ranks=0: a list of ranks is needed, whole numbers from 0"),
        (f"{ACTOR}.ranks=[-1]", f"{ACTOR}.ranks=[-1]: a list of ranks is needed"),
        (f"{ACTOR}.ranks=all", f"{ACTOR}.ranks='all': a list of ranks is needed"),
        (f"{ACTOR}.all_ranks=1", f"{ACTOR}.all_ranks=1: not a flag"),
        (f"{ACTOR}.tool_config.nup.level=level0", f"{ACTOR}.tool_config.nup: unknown key; did you mean npu?"),
        (f"{ACTOR_NPU}.levels=level0", f"{ACTOR_NPU}.levels: unknown key; did you mean level?"),
        (f"{ACTOR_NPU}.level=Level1", f"{ACTOR_NPU}.level='Level1': not one of its values; did you mean level1?"),
        (f"{ACTOR_NPU}.contents=npu", f"{ACTOR_NPU}.contents='npu': a list is needed; allowed: npu, cpu,"),
        (f"{ACTOR_NPU}.contents=[npu,cuda]", f"{ACTOR_NPU}.contents='cuda': not one of its values"),
        (f"{ACTOR_NPU}.contents=[modules]", f"{ACTOR_NPU}.contents='modules': not one of its values; did you mean"),
        (f"{ACTOR_NPU}.discrete=1", f"{ACTOR_NPU}.discrete=1: not a flag"),
        (f"{ACTOR_NPU}.analysis='later'", f"{ACTOR_NPU}.analysis='later': not a flag"),
        (f"{ROLLOUT_NPU}.profile_token_start=-1", f"{ROLLOUT_NPU}.profile_token_start=-1: must be 0 or more"),
        (f"{REF}.tool_config.npu.level=9", f"{REF}.tool_config.npu.level=9: not one of its values"),
        ("critic.profiler.enable=2", "critic.profiler.enable=2: not a flag"),
        (f"{ACTOR}.save_path=${{nowhere.near}}", f"{ACTOR}.save_path='${{nowhere.near}}': there is no nowhere.near"),
    ],
)  # fmt: skip
def test_a_bad_value_is_refused_with_its_key(word: str, message: str) -> None:
    assert error(*ON, word).startswith(f"<arguments>: {message}")


def test_a_token_window_that_ends_before_it_starts_is_refused() -> None:
    told = error(*ON, f"{ROLLOUT_NPU}.profile_token_start=9", f"{ROLLOUT_NPU}.profile_token_end=9")

    assert "profile_token_end=9: must be more than profile_token_start, 9" in told


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("VLLM_TORCH_PROFILER_WITH_STACKS=1", "VLLM_TORCH_PROFILER_WITH_STACKS: unknown variable; did you mean"),
        ("VLLM_TORCH_PROFILER_WITH_STACK=yes", "VLLM_TORCH_PROFILER_WITH_STACK='yes': not a flag; allowed: 0, 1"),
    ],
)
def test_a_bad_variable_of_vllm_is_refused_with_its_line(line: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        configuring.understand_source(sources.from_shell(f"\nexport {line}\nmain {' '.join(ON)}\n", "run.sh"))

    assert str(caught.value).startswith(f"run.sh:2: {message}")


def test_a_role_that_is_off_is_checked_too() -> None:
    """Every rank must refuse alike, whoever it is."""
    assert "critic.profiler.tool_config.npu.level='deep'" in error(*ON, "critic.profiler.tool_config.npu.level=deep")


def test_what_it_cannot_say_is_listed() -> None:
    config = Config(
        enabled=True, stages=("actor_update",), window=Window(first_step=3, steps=None, warmup=1), mstx=True,
        domains_exclude=("communication",), export="text", ranks=(0,),
    )  # fmt: skip

    lost = {one.field: one.why for one in verl.write(config).lost}

    assert set(lost) == {"window.steps", "window.warmup", "stages", "export"}
    assert lost["export"] == 'always db (verl 0.6.1: text); it becomes "db"'


@pytest.mark.parametrize(
    "words",
    [
        ON,
        (*ON, f"{ACTOR}.all_ranks=True", f"{ACTOR_NPU}.contents=[npu,cpu]", "global_profiler.steps=[1,2,5]"),
        (*ON, f"{ACTOR_NPU}.discrete=True", f"{ROLLOUT}.ranks=[1]", f"{ACTOR_NPU}.contents=[npu,stack]"),
        (*ON, "global_profiler.profile_continuous_steps=True", "global_profiler.tool=null"),
        (*ON, f"{REF}.enable=True", f"{REF}.ranks=[7]", "global_profiler.finish_hook_cmd='echo done'"),
        ("global_profiler.steps=null",),
    ],
)  # fmt: skip
def test_what_is_read_and_written_reads_the_same_again(words: tuple[str, ...]) -> None:
    config = read(*words)

    written = verl.write(config)

    assert written.lost == ()
    again = verl.read(sources.from_yaml(written.text, "again.yaml")).config
    assert again.model_copy(update={"extras": config.extras}) == config


def test_a_configuration_that_was_changed_after_reading_is_written_as_it_is_now() -> None:
    config = read("global_profiler.steps=null", f"{ACTOR}.ranks=[]", "global_profiler.profile_continuous_steps=True")

    written = verl.write(config.model_copy(update={"enabled": True, "ranks": (4,)}))

    again = verl.read(sources.from_yaml(written.text, "again.yaml")).config
    assert written.lost == ()
    assert (again.enabled, again.ranks) == (True, (4,))
    assert "profile_continuous_steps: true" in written.text


def test_its_stages_are_those_of_the_one_table() -> None:
    named = [stage for _, own in verl.ROLES.values() for stage in own]

    assert set(named) <= set(stages.BY_KEY)
    assert {stages.canonical_key(name): name for name in verl.STAGE_NAMES.values()} == verl.STAGE_NAMES


def wheels_config(name: str) -> Path:
    spec = importlib.util.find_spec("verl")
    assert spec is not None and spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / "trainer" / "config" / name


@pytest.mark.frameworks
def test_the_configuration_in_the_real_wheel_is_read_as_omegaconf_resolves_it() -> None:
    from omegaconf import OmegaConf

    path = wheels_config("_generated_ppo_trainer.yaml")
    real: Any = OmegaConf.load(path)
    for word in (*ON, f"{ACTOR_NPU}.discrete=True", f"{ACTOR_NPU}.level=level1", f"{ACTOR}.ranks=[0,1]"):
        key, _, value = word.partition("=")
        OmegaConf.update(real, key, OmegaConf.create(f"x: {value}").x)

    config = configuring.configure(real)

    rollout = OmegaConf.to_container(real.actor_rollout_ref.rollout.profiler, resolve=True)
    assert rollout["enable"] and rollout["tool_config"]["npu"]["discrete"]
    assert (config.enabled, config.level, config.ranks, config.replicas) == (True, "level1", (0, 1), (0, 1))
    assert config.stages == ("actor_compute_log_prob", "actor_update", "actor_generate")
    assert not configuring.configure(str(path)).enabled
    again = verl.read(sources.from_yaml(verl.write(config).text, "again.yaml")).config
    assert again == config


@pytest.mark.frameworks
def test_a_configuration_that_the_real_hydra_composed_is_read() -> None:
    """As a worker or the driver has it: an object, interpolations unresolved."""
    from hydra import compose, initialize_config_dir

    words = [*ON, f"{ACTOR}.all_ranks=True", f"{ACTOR_NPU}.discrete=True", "global_profiler.steps=[1,2,5]"]
    with initialize_config_dir(str(wheels_config("")), version_base=None):
        composed = compose("ppo_trainer", overrides=words)

    config = configuring.configure(composed)

    assert (config.enabled, config.ranks, config.window.more_steps) == (True, "all", (5,))
    assert config.stages == ("actor_compute_log_prob", "actor_update", "actor_generate")


IN_VERL = """
import sys
from omegaconf import OmegaConf
from verl.utils.profiler.config import NPUToolConfig, ProfilerConfig

tree = OmegaConf.to_container(OmegaConf.create(sys.stdin.read()))
for role in ("actor", "ref", "rollout"):
    block = tree["actor_rollout_ref"][role]["profiler"]
    tool = NPUToolConfig(**block.pop("tool_config")["npu"])
    print(role, ProfilerConfig(**block).enable, tool.discrete, tool.level, tool.profile_token_end)
"""


@pytest.mark.frameworks
def test_what_is_written_makes_the_real_wheels_dataclasses() -> None:
    config = read(*ON, f"{ACTOR_NPU}.discrete=True", f"{ROLLOUT_NPU}.profile_token_end=5", f"{ACTOR}.ranks=[0]")

    made = subprocess.run(
        [sys.executable, "-c", IN_VERL], input=verl.write(config).text, capture_output=True, text=True, timeout=100
    )

    assert made.stdout.splitlines()[-3:] == [
        "actor True True level0 None",
        "ref False True level0 None",
        "rollout True True level0 5",
    ], made.stderr
