"""Any configuration, written in any flavour, reads the same again but for what is listed as lost."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from typing import Any, Callable

import pytest
from builders import soak
from builders.any_config import configs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mstxkit.config import adapters, configuring, sources, validate
from mstxkit.config.adapters import Adapter, _verl_roles, flatten_config, verl
from mstxkit.config.model import Config
from mstxkit.config.sources import Source
from mstxkit.errors import ConfigError

pytestmark = pytest.mark.days("even")

FLAVOURS = sorted(adapters.by_flavour())
READERS: tuple[Callable[[str, str], Source], ...] = (
    sources.from_json, sources.from_yaml, sources.from_python, sources.from_shell,
)  # fmt: skip


def source_of(adapter: Adapter, text: str) -> Source:
    """A text of the adapter's, whichever kind of file it is."""
    for reader in READERS:
        with contextlib.suppress(ConfigError):
            source = reader(text, "again")
            if adapter.detect(source):
                return source
    raise AssertionError(f"{adapter.FLAVOUR} does not know what it wrote:\n{text}")


def read_again(adapter: Adapter, text: str) -> Config:
    return adapter.read(source_of(adapter, text)).config


def difference(config: Config, said: Config) -> set[str]:
    wanted, got = flatten_config(config), flatten_config(said)
    named = [name for name in wanted if name not in ("extras", "stage_names")]
    if not config.path:  # the system's own default: that is what is written
        named.remove("path")
    return {name for name in named if wanted[name] != got.get(name)}


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_what_is_not_said_again_is_listed_and_nothing_else(flavour: str) -> None:
    adapter = adapters.by_flavour()[flavour]

    @settings(max_examples=soak.rounds(500, 15), deadline=None, suppress_health_check=list(HealthCheck))
    @given(configs(is_full=True))
    def check(config: Config) -> None:
        written = adapter.write(config)

        assert {one.field for one in written.lost} == difference(config, read_again(adapter, written.text))
        assert all(one.why for one in written.lost)

    check()


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_what_a_file_says_comes_back_from_its_own_flavour_and_from_another_but_for_what_is_listed(flavour: str) -> None:
    own = adapters.by_flavour()[flavour]

    @settings(max_examples=soak.rounds(500, 15), deadline=None, suppress_health_check=list(HealthCheck))
    @given(configs(is_full=True), st.sampled_from(sorted(set(FLAVOURS) - {flavour})))
    def check(config: Config, other_flavour: str) -> None:
        said = read_again(own, own.write(config).text)
        other = adapters.by_flavour()[other_flavour]

        again, elsewhere = own.write(said), other.write(said)

        assert again.lost == ()
        assert read_again(own, again.text) == said
        extras = {f"extras.{name}.{key}" for name, kept in said.extras.items() for key in kept}
        told = {one.field for one in elsewhere.lost}
        assert told - extras == difference(said, read_again(other, elsewhere.text))
        assert extras <= told or other_flavour == configuring.OWN

    check()


@pytest.mark.parametrize("version", ["0.6.1", "0.7.0", "0.9.0", "0.9.1"])
def test_every_version_of_verl_lists_what_it_does_not_say_again(version: str) -> None:
    @settings(max_examples=soak.rounds(500, 15), deadline=None, suppress_health_check=list(HealthCheck))
    @given(configs(is_full=True))
    def check(config: Config) -> None:
        with _verl_roles.meant_version(version):
            written = verl.write(config)
            said = read_again(verl, written.text)

            assert {one.field for one in written.lost} == difference(config, said)
            assert verl.write(said).lost == ()

    check()


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_what_is_written_breaks_no_rule(flavour: str) -> None:
    """A conversion is something that can be run."""
    full = Config(
        enabled=True, stages=("actor_update", "actor_generate"), level="level2", mstx=True, memory=True, shapes=True,
        stacks=True, aic_metrics="MemoryUB", export="both", ranks=(0, 5),
    )  # fmt: skip

    config = read_again(adapters.by_flavour()[flavour], configuring.write_flavour(full, flavour).text)

    assert validate.check_config(config).problems == ()


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_what_only_another_system_has_is_lost(flavour: str) -> None:
    config = Config(extras={"elsewhere": {"some.option": 5}})

    lost = {one.field: one for one in configuring.write_flavour(config, flavour).lost}

    assert ("extras.elsewhere.some.option" in lost) is (flavour != configuring.OWN)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_flavour_describes_itself_in_a_line(flavour: str) -> None:
    adapter = adapters.by_flavour()[flavour]

    assert adapter.DESCRIPTION
    assert "\n" not in adapter.DESCRIPTION
    assert not adapter.detect(Source("empty"))


junk = st.recursive(
    st.sampled_from([None, True, False, "all", "${a}", "-1", "Level1", "level_none", "db", "\u0661", "9" * 5000])
    | st.integers()
    | st.floats()
    | st.text(max_size=5),
    lambda one: st.lists(one, max_size=2) | st.dictionaries(st.text(max_size=3), one, max_size=2),
    max_leaves=4,
)


def paths(values: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in nested values."""
    items = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    return [*([path] if path else []), *(below for key, one in items for below in paths(one, (*path, key)))]


def replaced(values: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    changed = dict(values) if isinstance(values, dict) else list(values)
    changed[path[0]] = replaced(values[path[0]], path[1:], value)
    return changed


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_whatever_stands_in_a_source_it_is_read_or_refused_and_what_is_read_can_be_written(flavour: str) -> None:
    """Nothing else may be raised: a worker that fails in another way than its peers leaves them waiting."""
    adapter = adapters.by_flavour()[flavour]
    full = Config(
        enabled=True, stages=("actor_generate",), ranks=(1,), level="level2", mstx=True, domains_include=("a",),
        host_sys=("cpu",), sampling={"per": "decode_step"}, export="both", gc_detect_threshold_ms=1.0,
    )  # fmt: skip
    source = source_of(adapter, adapter.write(full).text)

    @settings(max_examples=soak.rounds(500, 15), deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def check(data: st.DataObject) -> None:
        changed = source
        if source.values:
            path = data.draw(st.sampled_from(paths(source.values)))
            changed = dataclasses.replace(changed, values=replaced(source.values, path, data.draw(junk)))
        if source.words:
            words = list(source.words)
            words[data.draw(st.integers(0, len(words) - 1))] = sources.Word(data.draw(st.text(max_size=6)), 1)
            changed = dataclasses.replace(changed, words=tuple(words))
        if source.variables:
            text = data.draw(st.text(max_size=6) | junk.map(json.dumps))
            changed = dataclasses.replace(changed, variables={name: sources.Word(text) for name in source.variables})

        with contextlib.suppress(ConfigError):
            assert adapter.write(configuring.understand_source(changed, flavour).read.config).lost == ()

    check()
