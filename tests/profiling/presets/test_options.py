"""Presets that a request makes of explicit options."""

from __future__ import annotations

from typing import Any

import pytest

from mstxkit.config import model
from mstxkit.errors import ConfigError
from mstxkit.profiling import presets
from mstxkit.profiling.declare import Preset
from mstxkit.profiling.presets import preset_of
from mstxkit.store import options


def test_a_name_is_that_preset() -> None:
    assert preset_of("full", ()) is presets.load("full")


def test_options_make_a_preset_of_their_own() -> None:
    made = preset_of(None, [("level", "level1"), ("aic_metrics", "Memory"), ("activities", ["npu"]), ("mstx", True)])

    assert made == Preset("custom", "level1", ("npu",), aic_metrics="Memory")


def test_what_is_left_out_is_as_in_a_configuration() -> None:
    made, plain = preset_of(None, [("shapes", True)]), model.Config()

    for name in ("level", "activities", "mstx", "memory", "stacks", "modules", "domains_exclude", "aic_metrics"):
        assert getattr(made, name) == getattr(plain, name), name


def test_level_none_records_ranges_of_the_device_side() -> None:
    made = preset_of(None, [("level", "none")])

    assert (made.activities, made.mstx) == (("npu",), True)


def test_domains_ask_for_ranges() -> None:
    assert preset_of(None, [("domains_exclude", ("communication",))]).mstx is True


def test_every_option_of_a_request_is_one_of_a_preset() -> None:
    for name in (option.name for option in options.settable(options.REQUEST)):
        with pytest.raises(ConfigError, match=f"options.{name}=7 cannot be; allowed: "):
            preset_of(None, [(name, 7)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([("flops", True)], "no option 'flops' of a preset; known: activities, aic_metrics, domains_exclude, export"),
        ([("level", "level9")], "options.level='level9' cannot be; allowed: none, level0, level1, level2"),
        ([("mstx", 1)], "options.mstx=1 cannot be; allowed: true, false"),
        ([("activities", [])], "preset 'custom': activities is empty"),
        ([("activities", "cpu")], "options.activities='cpu' cannot be; allowed: cpu, npu, both"),
        ([("activities", ["gpu"])], "options.activities=['gpu'] cannot be; allowed: cpu, npu, both"),
        ([("domains_exclude", [3])], "options.domains_exclude=[3] cannot be; allowed: a list of names"),
        ([("aic_metrics", "__class__.x")], "options.aic_metrics='__class__.x' cannot be"),
        ([("level", "none"), ("mstx", False)], "preset 'custom': level none records mstx ranges alone"),
        ([("level", "none"), ("shapes", True)], "they need the activity cpu"),
        ([("aic_metrics", "Memory")], "aic_metrics='Memory' needs level1 or level2, not level0"),
    ],
)
def test_what_cannot_be_is_refused(options: list[tuple[str, Any]], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        preset_of(None, options)

    assert message in str(caught.value)


@pytest.mark.parametrize(("name", "options"), [(None, []), ("full", [("mstx", True)])])
def test_either_a_name_or_options_are_given(name: str | None, options: list[tuple[str, Any]]) -> None:
    with pytest.raises(ConfigError, match="give one of them, a preset's name or options"):
        preset_of(name, options)
