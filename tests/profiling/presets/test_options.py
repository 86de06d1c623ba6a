"""Presets that a request makes of explicit options."""

from __future__ import annotations

from typing import Any

import pytest

from mstxkit.config import model
from mstxkit.errors import ConfigError
from mstxkit.profiling import presets
from mstxkit.profiling.declare import Preset
from mstxkit.profiling.presets import estimate_preset, made_preset
from mstxkit.store import options


def test_a_name_is_that_preset() -> None:
    assert made_preset("full", ()).preset is presets.load_preset("full")


def test_options_make_a_preset_of_their_own() -> None:
    made = made_preset(None, [("level", "level1"), ("aic_metrics", "Memory"), ("activities", ["npu"]), ("mstx", True)])

    assert made.preset == Preset("custom", "level1", ("npu",), aic_metrics="Memory", est_mb_per_step=600)


def test_what_is_left_out_is_as_in_a_configuration() -> None:
    made, plain = made_preset(None, [("shapes", True)]).preset, model.Config()

    for name in ("level", "activities", "mstx", "memory", "stacks", "modules", "domains_exclude", "aic_metrics"):
        assert getattr(made, name) == getattr(plain, name), name


def test_level_none_records_ranges_of_the_device_side() -> None:
    made = made_preset(None, [("level", "none")]).preset

    assert (made.activities, made.mstx) == (("npu",), True)


def test_domains_ask_for_ranges() -> None:
    assert made_preset(None, [("domains_exclude", ("communication",))]).preset.mstx is True


def test_every_option_of_a_request_is_one_of_a_preset() -> None:
    for name in (option.name for option in options.list_settable(options.REQUEST)):
        with pytest.raises(ConfigError, match=f"options.{name}=7 cannot be; allowed: "):
            made_preset(None, [(name, 7)])


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
        made_preset(None, options)

    assert message in str(caught.value)


def test_a_name_or_options_are_given() -> None:
    with pytest.raises(ConfigError, match="neither a preset nor options"):
        made_preset(None, [])


def test_options_are_laid_over_a_preset() -> None:
    full, made = presets.load_preset("full"), made_preset("full", [("memory", True), ("level", "level2")]).preset

    assert (made.name, made.level, made.memory) == ("full+level=level2,memory=true", "level2", True)
    assert (made.shapes, made.aic_metrics, made.activities) == (full.shapes, full.aic_metrics, full.activities)
    assert made.est_mb_per_step == 1500 + 150 + 150 + 300 + 50


@pytest.mark.parametrize(
    ("name", "options", "gone"),
    [
        ("full", [("level", "level0")], {"aic_metrics": "none"}),
        ("full", [("activities", ["npu"])], {"shapes": False}),
        ("deep", [("level", "none")], {"shapes": False, "stacks": False, "aic_metrics": "none"}),
        ("full", [("mstx", False)], {"domains_exclude": ()}),
    ],
)
def test_what_of_a_preset_the_options_exclude_gives_way_and_is_told(
    name: str, options: list[tuple[str, Any]], gone: dict[str, Any]
) -> None:
    made = made_preset(name, options)

    assert {key: getattr(made.preset, key) for key in gone} == gone
    assert {words.split()[0] for words in made.gave_way} == set(gone)
    assert "is left out" in made.described()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("kernels", [("shapes", True)]),
        ("kernels", [("aic_metrics", "Memory")]),
        ("full", [("level", "level0"), ("aic_metrics", "Memory")]),
        ("light", [("mstx", False)]),
    ],
)
def test_two_wishes_that_exclude_each_other_are_refused(name: str, options: list[tuple[str, Any]]) -> None:
    with pytest.raises(ConfigError, match=f"preset '{name}[+]"):
        made_preset(name, options)


@pytest.mark.parametrize("name", presets.list_presets())
def test_the_shares_of_options_add_up_to_what_shipped_presets_say(name: str) -> None:
    assert estimate_preset(presets.load_preset(name)) == presets.load_preset(name)


def test_an_outcome_is_told_in_one_line() -> None:
    words = "full+level=level0: level level0, activities cpu and npu, mstx, domains_exclude communication, shapes"

    told = made_preset("full", [("level", "level0")]).described()
    assert told == f"{words}, export db; aic_metrics of full is left out: there is none at level0"
