"""The section `mstxkit:` beside a framework's own, and how a source's flavour is chosen."""

from __future__ import annotations

import pytest

import mstxkit
from mstxkit.config import adapters, configuring, sources
from mstxkit.config.adapters import own
from mstxkit.config.configuring import Understood
from mstxkit.config.model import Config, ConfigLimits, Sampling, Window
from mstxkit.errors import ConfigError

RL = "profiler_config:\n  integrated:\n    profile: true\n"


def understood(text: str) -> Understood:
    return configuring.understand_source(sources.from_yaml(text, "own.yaml"))


def error(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        understood(text)
    return str(caught.value)


def test_every_canonical_field_has_its_own_name() -> None:
    found = understood("""
mstxkit:
  enabled: true
  window: {first_step: 10, steps: null, counted_from: process, warmup: 2}
  stages: [actor_update, reward]
  ranks: [0, 2]
  level: level1
  activities: [npu]
  analysis: off
  limits: {seconds: 90.5}
  sampling:
    per: micro_batch
    record: 3
""")

    assert found.read.config == Config(
        enabled=True, window=Window(first_step=10, steps=None, counted_from="process", warmup=2),
        stages=("actor_update", "reward"), ranks=(0, 2), level="level1", activities=("npu",), analysis="off",
        limits=ConfigLimits(seconds=90.5), sampling=Sampling(per="micro_batch", record=3),
    )  # fmt: skip
    assert found.read.places["sampling.record"] == ("own.yaml", 13, "mstxkit.sampling.record")


def test_a_stage_may_have_any_systems_name_and_keeps_it() -> None:
    config = mstxkit.configure({"mstxkit": {"stages": ["update_actor", "ref"]}})

    assert config.stages == ("actor_update", "reference_compute_log_prob")
    assert config.stage_names == {"actor_update": "update_actor", "reference_compute_log_prob": "ref"}
    assert mstxkit.configure({"mstxkit": {"stages": "gen"}}).stages == ("actor_generate",)


def test_a_stage_of_ones_own_is_taken_as_it_is_and_told() -> None:
    found = understood("mstxkit: {stages: [judge_answers]}")

    assert found.read.config.stages == ("judge_answers",)
    assert found.read.notes == ("no system has a stage judge_answers: it is taken for one of your own",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mstxkit:", "own.yaml:1: mstxkit: the section is empty: it needs at least enabled: true"),
        ("mstxkit: 5", "own.yaml:1: mstxkit=5: a mapping is needed"),
        ("mstxkit: {levl: level1}", "own.yaml:1: mstxkit.levl: unknown key; did you mean level? allowed: enabled,"),
        ("mstxkit:\n  level: leve1", "own.yaml:2: mstxkit.level='leve1': Input should be 'none', 'level0',"),
        ("mstxkit:\n  level: level-2", "did you mean level2? allowed: none, level0, level1, level2"),
        ("mstxkit:\n  window:\n    first: 1", "own.yaml:3: mstxkit.window.first: unknown key; did you mean first_step"),
        ("mstxkit:\n  window:\n    first_step: 0", "own.yaml:3: mstxkit.window.first_step=0: Input should be greater"),
        ("mstxkit:\n  window:\n    steps: '2'", "own.yaml:3: mstxkit.window.steps='2': Input should be a valid"),
        ("mstxkit:\n  window: 5", "own.yaml:2: mstxkit.window=5: Input should be a valid dictionary"),
        ("mstxkit:\n  ranks: [0, -1]", "own.yaml:2: mstxkit.ranks=-1: Input should be greater than or equal to 0"),
        ("mstxkit:\n  ranks: []", "own.yaml:2: mstxkit.ranks=[]: Tuple should have at least 1 item"),
        ("mstxkit:\n  ranks: al", "own.yaml:2: mstxkit.ranks='al': Input should be 'all'; did you mean all?"),
        ("mstxkit:\n  enabled: 1", "own.yaml:2: mstxkit.enabled=1: Input should be a valid boolean"),
        ("mstxkit:\n  activities: [gpu]", "own.yaml:2: mstxkit.activities='gpu': Input should be 'cpu' or 'npu'"),
        ("mstxkit:\n  activities: []", "own.yaml:2: mstxkit.activities=[]: Tuple should have at least 1 item"),
        ("mstxkit:\n  stages: []", "own.yaml:2: mstxkit.stages=[]: Tuple should have at least 1 item"),
        ("mstxkit:\n  stages: [actor_updte]", "own.yaml:2: mstxkit.stages=('actor_updte',): unknown stage actor_updte"),
        ("mstxkit:\n  analysis: on", "own.yaml:2: mstxkit.analysis=True: Input should be 'off', 'sync' or 'async'"),
        ("mstxkit:\n  limits: {bytes: 1.5}", "own.yaml:2: mstxkit.limits.bytes=1.5: Input should be a valid integer"),
        ("mstxkit:\n  sampling: {skip: 2}", "own.yaml:2: mstxkit.sampling.per: missing"),
        ("mstxkit:\n  level: none\n  enabled: true", "own.yaml: mstx=False: level none records mstx ranges and"),
    ],
)  # fmt: skip
def test_a_bad_value_is_refused_with_its_place(text: str, message: str) -> None:
    assert message in error(text)


def test_a_configuration_survives_being_written_whole() -> None:
    config = Config(
        enabled=True, window=Window(first_step=4, steps=2, more_steps=(9,)), stages=("actor_update",),
        stage_names={"actor_update": "update_policy"}, ranks=(3,), level="level2", mstx=True, domains_exclude=("a b",),
        aic_metrics="MemoryUB", analysis="async", gc_detect_threshold_ms=2.5, limits=ConfigLimits(bytes=1 << 30),
        extras={"verl": {"global_profiler.relocate_results": True}},
    )  # fmt: skip

    written = own.write(config)

    assert written.lost == ()
    assert own.read(sources.from_yaml(written.text, "again.yaml")).config == config


def test_mstxkits_section_goes_before_a_frameworks_and_both_can_be_asked_for() -> None:
    text = RL + "mstxkit: {level: level2}\n"
    source = sources.from_yaml(text, "both.yaml")

    found = configuring.understand_source(source)

    assert (found.flavour, found.read.config.level) == ("mstxkit", "level2")
    assert found.read.notes == ("the section mstxkit is read; mindspeed_rl is in it too, for the framework itself",)
    assert configuring.configure(source, "mindspeed_rl").enabled


def test_two_frameworks_in_one_file_must_be_told_apart() -> None:
    told = error(RL + "global_profiler: {tool: npu}\n")

    assert told == "own.yaml: holds several configurations (mindspeed_rl, verl): say which is meant"


def test_a_file_without_any_configuration_names_the_ones_that_are_known() -> None:
    told = error("model: {layers: 2}")

    assert told.startswith("own.yaml: no configuration is known in it; it could be one of dyno, mindspeed_llm, ")
    assert all(flavour in told for flavour in adapters.by_flavour())


def test_an_unknown_flavour_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="'mindspeed' is no flavour of configuration: did you mean mindspeed_rl"):
        configuring.write_flavour(Config(), "mindspeed")


def test_what_the_run_is_like_is_checked_where_it_is_known() -> None:
    section = {"mstxkit": {"window": {"first_step": 100}, "ranks": [8]}}

    assert mstxkit.configure(section).ranks == (8,)
    with pytest.raises(ConfigError, match="a window that can never finish: it goes to step 100, the run has 50 steps"):
        mstxkit.configure(section, total_steps=50)
    with pytest.raises(ConfigError, match="there is no such rank: ranks are 0 to 7"):
        mstxkit.configure(section, world_size=8)


def test_an_error_holds_its_problems_one_by_one() -> None:
    with pytest.raises(ConfigError) as caught:
        understood("mstxkit:\n  levl: 1\n  rank: 2\n")

    first, second = caught.value.problems
    assert (first.line, first.key, first.value) == (2, "mstxkit.levl", None)
    assert (second.line, second.key) == (3, "mstxkit.rank")
    assert "level" in first.allowed


def test_interpolations_stand_for_what_the_framework_takes_them_for() -> None:
    text = "trainer: {dir: /data/exp7, steps: 3}\nmstxkit:\n  enabled: true\n"
    found = understood(text + "  path: ${trainer.dir}/raw\n  window: {first_step: 5, steps: '${trainer.steps}'}\n")

    assert (found.read.config.path, found.read.config.window.steps) == ("/data/exp7/raw", 3)
    assert "own.yaml:4: mstxkit.path=" in error(text + "  path: ${trainer.folder}/raw\n")
    assert error("mstxkit:\n").count("the section is empty") == 1


@pytest.mark.parametrize("name", ["mstx_kit", "MstxKit", "mstxkt"])
def test_a_section_that_is_nearly_called_as_ours_is_told_of_with_its_line(name: str) -> None:
    """Beside a framework's own it was passed over in silence: nothing that it asked for was recorded."""
    wanted = f"own.yaml:4: {name}: unknown section; did you mean mstxkit? allowed: mstxkit"

    assert error(f"{RL}{name}:\n  enabled: true\n") == wanted
