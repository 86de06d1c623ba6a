"""The presets: found, consistent with configuration, and described as they are."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import pytest
from builders import presets_page

from mstxkit.config import model, validate
from mstxkit.errors import ConfigError
from mstxkit.profiling import presets
from mstxkit.profiling.declare import Preset

every_preset = pytest.mark.parametrize("name", presets.list_presets())


def test_the_presets_are_the_files() -> None:
    assert presets.list_presets() == ["comm", "deep", "full", "kernels", "light", "memory"]


@every_preset
def test_a_preset_is_called_as_its_file_and_says_what_it_costs(name: str) -> None:
    preset = presets.load_preset(name)

    assert preset.name == name
    assert preset.cost.endswith(".")
    assert preset.est_mb_per_step > 0


@every_preset
def test_a_preset_is_a_valid_configuration_of_the_size_that_it_claims(name: str) -> None:
    preset = presets.load_preset(name)
    fields = {key: value for key, value in dataclasses.asdict(preset).items() if key in model.Config.model_fields}
    config = model.Config(enabled=True, **fields)

    assert validate.check_config(config).problems == ()
    assert validate.expected_bytes(config) == preset.est_mb_per_step << 20
    assert set(dataclasses.asdict(preset)) - set(fields) == {"name", "est_mb_per_step", "cost"}


def test_light_records_ranges_of_the_device_side_and_nothing_else() -> None:
    light = presets.load_preset("light")

    assert (light.level, light.activities, light.mstx, light.domains_exclude) == ("none", ("npu",), True, ())
    assert not (light.memory or light.shapes or light.stacks or light.modules)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ful", "no preset 'ful'; did you mean full? known: comm, deep, full, kernels, light, memory"),
        ("FULL", "did you mean full?"),
        ("qqq", "no preset 'qqq'; known: comm"),
        ("", "no preset ''; known: comm"),
        ("../light", "no preset '../light'"),
    ],
)
def test_an_unknown_preset_is_refused_with_the_known_ones(name: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        presets.load_preset(name)

    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"activities": ()}, "activities is empty: name cpu, npu or both"),
        ({"level": "none", "mstx": False}, "level none records mstx ranges alone, and mstx is off"),
        ({"aic_metrics": "L2Cache"}, "aic_metrics='L2Cache' needs level1 or level2, not level0"),
        ({"stacks": True}, "they need the activity cpu"),
        ({"mstx": False, "domains_exclude": ("mine",)}, "domains_exclude leaves out mstx domains, and mstx is off"),
    ],
)
def test_a_preset_that_would_be_silently_replaced_cannot_be_made(changes: dict[str, Any], problem: str) -> None:
    given: dict[str, Any] = {"level": "level0", "activities": ("npu",), **changes}

    with pytest.raises(ConfigError) as raised:
        Preset("mine", **given)

    assert str(raised.value).startswith("preset 'mine': ")
    assert problem in str(raised.value)


def test_the_page_is_what_the_presets_are(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [one for one in sys.modules if one.split(".")[0] in ("torch", "torch_npu", "mindspore")]:
        monkeypatch.delitem(sys.modules, name)
    text = presets_page.PAGE.read_text(encoding="utf-8")

    assert presets_page.written(text) == text, "run: PYTHONPATH=. python tests/builders/presets_page.py"
    assert all(f"<!-- {name} -->\n|" in text for name in presets_page.parts())


@every_preset
def test_every_preset_file_can_be_read_alone(name: str) -> None:
    """Nothing of a framework, so that it can be shown anywhere."""
    text = (Path(presets.__path__[0]) / f"{name}.py").read_text(encoding="utf-8")

    assert [line for line in text.splitlines() if line.startswith(("import", "from"))] == [
        "from __future__ import annotations",
        "from ..declare import Preset",
    ]
