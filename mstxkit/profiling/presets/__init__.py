"""The presets, found by listing this folder: a file here with a `PRESET` is a preset."""

from __future__ import annotations

import difflib
import importlib
from typing import Any, Sequence

from ...errors import ConfigError, shortened
from ...host import listing
from ...store.options import PRESET, settable
from ..declare import Preset

CUSTOM = "custom"


def names() -> list[str]:
    """Names of all presets, sorted."""
    return listing.modules_in(__path__)


def load(name: str) -> Preset:
    """The preset of this name. Raises ConfigError: there is none; the message names the nearest, and all."""
    if name not in names():
        near = difflib.get_close_matches(name.lower(), names(), n=1, cutoff=0.5)
        advice = f"; did you mean {near[0]}?" if near else ";"
        raise ConfigError(f"no preset {name!r}{advice} known: {', '.join(names())}")
    preset: Preset = importlib.import_module(f"{__name__}.{name}").PRESET
    return preset


def preset_of(name: str | None, options: Sequence[tuple[str, Any]]) -> Preset:
    """What a request asks for: a preset by its name, or one called "custom" made of explicit options.

    Options that are left out are as in `config.model.Config`: level0 of host and device; at level none the device
    alone, with mstx. Data are exported as db.

    Args:
        name: A preset's name; None where options say it all.
        options: By name, with the values of `store.options.OPTIONS`.

    Raises:
        ConfigError: no such preset or option, a value that it cannot have, or options that exclude each other.
    """
    values = dict(options)
    if (name is None) is (not values):
        raise ConfigError(f"preset={name!r} and {len(values)} options: give one of them, a preset's name or options")
    return load(name) if name is not None else _made_of(values)


def _made_of(values: dict[str, Any]) -> Preset:
    table = {option.name: option for option in settable(PRESET)}
    for key, value in values.items():
        if key not in table:
            raise ConfigError(f"no option {shortened(key)} of a preset; known: {', '.join(sorted(table))}")
        if not table[key].takes(value):
            raise ConfigError(f"options.{key}={shortened(value)} cannot be; allowed: {table[key].allowed}")
    fields = {key: tuple(value) if table[key].is_list else value for key, value in values.items()}
    only_ranges = fields.get("level") == "none"
    usual = {"activities": ("npu",)} if only_ranges else {}
    return Preset(**{"name": CUSTOM, "mstx": only_ranges or bool(fields.get("domains_exclude")), **usual, **fields})
