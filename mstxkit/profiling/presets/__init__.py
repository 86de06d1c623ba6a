"""The presets, found by listing this folder: a file here with a `PRESET` is a preset."""

from __future__ import annotations

import difflib
import importlib
from dataclasses import replace
from typing import Any, NamedTuple, Sequence

from ...errors import ConfigError, shorten_value
from ...host import listing
from ...store.options import METRIC_LEVELS, PRESET, list_settable
from ..declare import Preset

CUSTOM = "custom"
# Assumed, not measured: each option has its share, and those of a shipped preset add up to its own number.
_OF_LEVEL_MB = {"none": 1, "level0": 100, "level1": 300, "level2": 1500}
_OF_OPTION_MB = {"memory": 50, "shapes": 150, "modules": 1500, "stacks": 9900}
_OF_HOST_MB, _OF_METRICS_MB = 150, 300
_RANGES_ALONE: dict[str, Any] = {"activities": ("npu",), "mstx": True}  # what level none can record


def list_presets() -> list[str]:
    """Names of all presets, sorted."""
    return listing.modules_in(__path__)


def load_preset(name: str) -> Preset:
    """The preset of this name. Raises ConfigError: there is none; the message names the nearest, and all."""
    if name not in list_presets():
        near = difflib.get_close_matches(name.lower(), list_presets(), n=1, cutoff=0.5)
        advice = f"; did you mean {near[0]}?" if near else ";"
        raise ConfigError(f"no preset {name!r}{advice} known: {', '.join(list_presets())}")
    preset: Preset = importlib.import_module(f"{__name__}.{name}").PRESET
    return preset


class MadePreset(NamedTuple):
    """What a request records."""

    preset: Preset  # with every option as it comes out
    gave_way: tuple[str, ...] = ()  # options that asked for more than those over them leave room for, and why

    def described(self) -> str:
        """In one line: `full+level=level0: level level0, activities cpu and npu, …; aic_metrics is left out: …`."""
        preset, words = self.preset, []
        for option in list_settable(PRESET):
            value = getattr(preset, option.name)
            if option.is_list and value:
                words.append(f"{option.name} {' and '.join(value)}")
            elif value is True or (isinstance(value, str) and value != "none") or option.name == "level":
                words.append(option.name if value is True else f"{option.name} {value}")
        return "; ".join([f"{preset.name}: {', '.join(words)}", *self.gave_way])


def made_preset(name: str | None, options: Sequence[tuple[str, Any]]) -> MadePreset:
    """What a request asks for: a preset by its name, options over it, or one called "custom" of options alone.

    Options that are left out are as in the preset, but where these exclude that. Without a preset they
    are as in `config.model.Config`: level0 of host and device; at level none the device alone, with mstx. Data are
    exported as db.
    `name`: a preset's name; None where options say it all. `options`: by name, with the values of
    `store.options.OPTIONS`. Raises ConfigError: no such preset or option, a value that it cannot have, or options that
    exclude each other.
    """
    table, values = {option.name: option for option in list_settable(PRESET)}, dict(options)
    for key, value in values.items():
        if key not in table:
            raise ConfigError(f"no option {shorten_value(key)} of a preset; known: {', '.join(sorted(table))}")
        if not table[key].takes(value):
            raise ConfigError(f"options.{key}={shorten_value(value)} cannot be; allowed: {table[key].allowed}")
    values = {key: tuple(value) if table[key].is_list else value for key, value in values.items()}
    if name is None and not values:
        raise ConfigError("neither a preset nor options: give a preset's name, options, or both")
    if name is None:
        usual = _RANGES_ALONE if values.get("level") == "none" else {"mstx": bool(values.get("domains_exclude"))}
        return MadePreset(estimate_preset(Preset(**{"name": CUSTOM, **usual, **values})))
    return _lay_over(load_preset(name), values) if values else MadePreset(load_preset(name))


def _lay_over(base: Preset, options: dict[str, Any]) -> MadePreset:
    """The options of a preset with others over them; those of its own that they exclude give way."""
    usual = _RANGES_ALONE if options.get("level") == "none" else {}
    own = {option.name: getattr(base, option.name) for option in list_settable(PRESET)}
    fields = {**own, **usual, **options}
    gone = {}  # as `Preset` would refuse them
    if fields["aic_metrics"] != "none" and fields["level"] not in METRIC_LEVELS:
        gone["aic_metrics"] = f"there is none at {fields['level']}"
    for option in list_settable(PRESET):
        if option.needs_cpu and fields[option.name] != option.default and "cpu" not in fields["activities"]:
            gone[option.name] = "it needs the activity cpu"
    if fields["domains_exclude"] and not fields["mstx"]:
        gone["domains_exclude"] = "mstx is off"
    gone = {name: why for name, why in gone.items() if name not in options}
    fields.update({option.name: option.default for option in list_settable(PRESET) if option.name in gone})
    words = {key: "+".join(value) or "none" if isinstance(value, tuple) else value for key, value in options.items()}
    words = {key: str(value).lower() if isinstance(value, bool) else value for key, value in words.items()}
    name = f"{base.name}+{','.join(f'{key}={word}' for key, word in sorted(words.items()))}"
    made = estimate_preset(Preset(name=name, **fields, cost=base.cost))
    return MadePreset(made, tuple(f"{name} of {base.name} is left out: {why}" for name, why in gone.items()))


def estimate_preset(preset: Preset) -> Preset:
    """The same preset with the number that its options add up to: for a training step of a few seconds, one rank."""
    total = _OF_LEVEL_MB[preset.level] if "npu" in preset.activities else 1
    total += sum(share for name, share in _OF_OPTION_MB.items() if getattr(preset, name))
    total += _OF_HOST_MB if "cpu" in preset.activities else 0
    total += _OF_METRICS_MB if preset.aic_metrics != "none" else 0
    return replace(preset, est_mb_per_step=total)
