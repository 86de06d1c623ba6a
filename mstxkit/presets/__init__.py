"""The presets, found by listing this folder: a file here with a `PRESET` is a preset."""

from __future__ import annotations

import difflib
import importlib
import pkgutil

from ..errors import ConfigError
from ..profiling.declare import Preset


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
