"""The presets, found by listing this folder: a file here with a `PRESET` is a preset."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from typing import Any, Sequence, get_args

from ..errors import ConfigError, shortened
from ..profiling.declare import Activity, Export, Level, Preset

CUSTOM = "custom"
_ONE_OF = {"level": get_args(Level), "export": get_args(Export)}
_FLAGS = ("mstx", "memory", "shapes", "stacks", "modules")
_LISTS = ("activities", "domains_exclude")
_OPTIONS = (*_ONE_OF, *_FLAGS, *_LISTS, "aic_metrics")


def known() -> list[str]:
    """Names of all presets, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


def load(name: str) -> Preset:
    """The preset of this name.

    Raises:
        ConfigError: there is none; the message names the nearest, and all.
    """
    names = known()
    if name not in names:
        near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.5)
        advice = f"; did you mean {near[0]}?" if near else ""
        raise ConfigError(f"no preset {name!r}{advice or ';'} known: {', '.join(names)}")
    preset: Preset = importlib.import_module(f"{__name__}.{name}").PRESET
    return preset


def preset_of(name: str | None, options: Sequence[tuple[str, Any]]) -> Preset:
    """What a request asks for: a preset by its name, or one called "custom" made of explicit options.

    Options that are left out are as in `config.model.Config`: level0 of host and device; at level none the device
    alone, with mstx. Data are exported as db.

    Args:
        name: A preset's name; None where options say it all.
        options: By name, with the values of `control.requests.OPTIONS`.

    Raises:
        ConfigError: no such preset or option, a value that it cannot have, or options that exclude each other.
    """
    given = dict(options)
    if (name is None) is (not given):
        raise ConfigError(f"preset={name!r} and {len(given)} options: give one of them, a preset's name or options")
    return load(name) if name is not None else _made_of(given)


def _made_of(given: dict[str, Any]) -> Preset:
    for key, value in given.items():
        _check(key, value)
    fields: dict[str, Any] = {key: tuple(value) if key in _LISTS else value for key, value in given.items()}
    level = fields.pop("level", "level0")
    only_ranges = level == "none"
    activities = fields.pop("activities", ("npu",) if only_ranges else ("cpu", "npu"))
    mstx = fields.pop("mstx", only_ranges or bool(fields.get("domains_exclude")))
    return Preset(CUSTOM, level, activities, mstx, **fields)


def _check(key: str, value: Any) -> None:
    if key not in _OPTIONS:
        raise ConfigError(f"no option {shortened(key)} of a preset; known: {', '.join(sorted(_OPTIONS))}")
    if key in _ONE_OF:
        _demand(isinstance(value, str) and value in _ONE_OF[key], key, value, ", ".join(_ONE_OF[key]))
    elif key in _FLAGS:
        _demand(type(value) is bool, key, value, "true, false")
    elif key == "activities":
        _demand(_is_list(value) and set(value) <= set(get_args(Activity)), key, value, "cpu, npu, both")
    elif key == "domains_exclude":
        _demand(_is_list(value), key, value, "a list of names")
    else:
        _demand(isinstance(value, str) and value.isidentifier(), key, value, "a name of AI Core metrics, none")


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(one, str) for one in value)


def _demand(is_right: bool, key: str, value: Any, allowed: str) -> None:
    if not is_right:
        raise ConfigError(f"options.{key}={shortened(value)} cannot be; allowed: {allowed}")
