"""What verl does with its roles it does again after a conversion, and what another does otherwise is listed by role."""

from __future__ import annotations

import contextlib
from typing import Any, Callable

import pytest
from builders import soak, verl_meaning
from builders.verl_meaning import DoneInVerl
from hypothesis import HealthCheck, given, settings

from mstxkit.config import adapters, configuring, sources
from mstxkit.config.adapters import Written, _verl_roles, verl
from mstxkit.config.model import Config
from mstxkit.config.sources import Source
from mstxkit.errors import ConfigError

WHOLE = "extras.verl.global_profiler."
OTHERS = sorted(set(adapters.by_flavour()) - {"verl"})
READERS: tuple[Callable[[str, str], Source], ...] = (
    sources.from_json, sources.from_yaml, sources.from_python, sources.from_shell,
)  # fmt: skip
slowly = settings(max_examples=soak.rounds(200, 25), deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The version that `verl_meaning` knows."""
    monkeypatch.setattr(_verl_roles, "installed_version", lambda: "0.9.1")


def read(tree: dict[str, Any]) -> Config:
    return configuring.understand_source(sources.from_mapping(tree, "verl"), "verl").read.config


def read_again(flavour: str, text: str) -> Config:
    adapter = adapters.by_flavour()[flavour]
    for reader in READERS:
        with contextlib.suppress(ConfigError):
            source = reader(text, "again")
            if adapter.detect(source):
                return adapter.read(source).config
    raise AssertionError(f"{flavour} does not know what it wrote:\n{text}")


@slowly
@given(verl_meaning.roles, verl_meaning.whole)
def check_verl(chosen: dict[str, Any], top: dict[str, Any]) -> None:
    tree = verl_meaning.tree_of(chosen, top)

    written = verl.write(read(tree))

    assert written.lost == ()
    assert verl_meaning.done(dict(sources.from_yaml(written.text, "again").values)) == verl_meaning.done(tree)


def test_verl_does_the_same_again_with_what_was_written() -> None:
    check_verl()


def untold(role: str, done: DoneInVerl, config: Config, told: set[str]) -> set[str]:
    """What this role does in verl, and another system does otherwise without a word."""
    own = f"extras.verl.{'.'.join((*verl_meaning.ROLES[role], 'profiler'))}."
    if f"{own}enable" in told:  # nothing is said of this role
        return set()
    stages: Any = config.stages
    does = {
        ("discrete", "stages"): verl_meaning.STAGES[role] <= set(stages) if done.discrete else stages == "all",
        ("ranks", "replicas" if role == "rollout" else "ranks"): done.ranks == _ranks(config, role),
        ("level", "level"): done.level == config.level,
        ("contents", "activities"): done.sides == config.activities,
        ("contents", "memory"): done.memory == config.memory,
        ("analysis", "analysis"): done.analysis == (config.analysis != "off"),
        ("save_path", "path"): done.path == config.path,
    }
    spoken = {name.removeprefix(own).rpartition(".")[2] for name in told if name.startswith(own)}
    spoken |= {"ranks"} if "all_ranks" in spoken else set()
    unlike = [names for names, is_so in does.items() if not is_so]
    return {f"{role}: {field}" for key, field in unlike if not {key, field} & (told | spoken)}


def _ranks(config: Config, role: str) -> Any:
    return config.replicas if role == "rollout" and config.replicas is not None else config.ranks


@pytest.mark.parametrize("flavour", OTHERS)
def test_another_system_does_what_verl_did_or_it_is_listed_for_each_role(flavour: str) -> None:
    @slowly
    @given(verl_meaning.roles, verl_meaning.whole)
    def check(chosen: dict[str, Any], top: dict[str, Any]) -> None:
        tree = verl_meaning.tree_of(chosen, top)
        written = configuring.write_flavour(read(tree), flavour)
        config, told = read_again(flavour, written.text), {one.field for one in written.lost}
        told |= {f"extras.verl.{name}" for name in config.extras.get("verl", {})}  # mstxkit's own form keeps them
        told |= {"path"} & {name.rpartition(".")[2].removeprefix("save_") for name in told if name.startswith(WHOLE)}
        roles = verl_meaning.done(tree)

        assert bool(roles) == config.enabled or "enabled" in told
        assert set() == {one for role, done in roles.items() for one in untold(role, done, config, told)}
        assert set() == {field for field, why in lost(written).items() if is_called_verls_alone(field, why)}

    check()


def is_called_verls_alone(field: str, why: str) -> bool:
    """Every system knows a reference model: what it cannot say is that one role is set apart."""
    is_of_a_role = field.startswith(("extras.verl.actor_rollout_ref.", "extras.verl.critic."))
    return is_of_a_role and why == "verl alone has it"


def lost(written: Written) -> dict[str, str]:
    return {one.field: one.why for one in written.lost}


ROLES_OF_THE_REVIEW = """
global_profiler: {tool: npu, steps: [5]}
actor_rollout_ref:
  actor:
    profiler: {enable: true, all_ranks: true, tool_config: {npu: {discrete: true}}}
  ref:
    profiler: {enable: true, all_ranks: true}
"""


def test_a_reference_without_a_tool_config_stays_on() -> None:
    config = configuring.configure(sources.from_yaml(ROLES_OF_THE_REVIEW, "roles.yaml"))

    again = sources.from_yaml(configuring.write_flavour(config, "verl").text, "again.yaml")

    ref = again.at("actor_rollout_ref", "ref", "profiler")
    assert (ref["enable"], ref["tool_config"]["npu"]["discrete"]) == (True, False)


def test_whole_steps_of_one_role_beside_stages_of_another_are_told_where_they_cannot_be_said() -> None:
    found = configuring.understand_source(sources.from_yaml(ROLES_OF_THE_REVIEW, "roles.yaml"))

    told = lost(configuring.write_flavour(found.read.config, "mindspeed_rl"))

    why = told["extras.verl.actor_rollout_ref.ref.profiler.enable"]
    assert "verl also records ref" in why and "reference_compute_log_prob" in why
    assert any(note.startswith("ref: discrete is false, so whole steps") for note in found.read.notes)


def test_a_changed_configuration_keeps_the_roles_that_have_nothing_to_do_with_the_change() -> None:
    config = configuring.configure(sources.from_yaml(ROLES_OF_THE_REVIEW, "roles.yaml"))

    written = configuring.write_flavour(config.model_copy(update={"level": "level1", "ranks": (2,)}), "verl")

    again = sources.from_yaml(written.text, "again.yaml")
    assert again.at("actor_rollout_ref", "ref", "profiler", "enable") is True
    assert again.at("actor_rollout_ref", "actor", "profiler", "ranks") == [2]
