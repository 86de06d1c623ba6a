"""`configure`: whatever a user configures with becomes one canonical, checked configuration.

Nothing is started and nothing is changed here.
"""

from __future__ import annotations

import contextlib
import difflib
from typing import Any, NamedTuple

from ..errors import ConfigError, Problem
from . import adapters, sources, validate
from .adapters import Adapter, Read, Written, own
from .adapters.own import FLAVOUR as OWN
from .model import Config
from .sources import Source


class Understood(NamedTuple):
    """A source, read and checked: whose configuration it is, what it says, and what its author may not have meant."""

    flavour: str
    source: Source
    read: Read
    warnings: tuple[str, ...]


def configure(
    source: Any, flavour: str | None = None, *, total_steps: int | None = None, world_size: int | None = None
) -> Config:
    """The canonical configuration of a source.

    Args:
        source: A YAML, JSON, shell or Python file; a folder that holds a `profiler_config.json`; a mapping; a list of
            arguments; `os.environ`; a framework's own configuration object.
        flavour: Whose it is, where a source holds several: a key of `adapters.by_flavour()`.
        total_steps: Steps of the run: a window that can never finish is then refused.
        world_size: Number of ranks: a rank that does not exist is then refused.

    Raises:
        ConfigError: nothing in it is known, or something is wrong: all of that at once, each with file, line, key,
            value, and what is allowed. The same on every rank.

    Example:
        >>> import mstxkit
        >>> config = mstxkit.configure({"mstxkit": {"enabled": True, "stages": ["reward"]}}, total_steps=100)
        >>> config.enabled
        True
    """
    return understand_source(source, flavour, total_steps=total_steps, world_size=world_size).read.config


def understand_source(
    source: Any, flavour: str | None = None, *, total_steps: int | None = None, world_size: int | None = None
) -> Understood:
    """The same, with the place of each field, notes and warnings."""
    opened = sources.read_source(source)
    adapter, note = _choose_adapter(opened, flavour)
    read = adapter.read(opened)
    if adapter.FLAVOUR != OWN and own.is_manner_alone(opened):
        manner = own.read(opened)
        fields = {name: getattr(manner.config, name) for name in own.MANNER}
        read = Read(read.config.model_copy(update=fields), {**read.places, **manner.places}, read.notes)
    # The frameworks that carry out what is in this source by themselves, wherever they run.
    owners = [adapter.FLAVOUR] if adapter.FLAVOUR != OWN and read.config.enabled else []
    for name, other in adapters.by_flavour().items() if adapter.FLAVOUR == OWN else ():
        with contextlib.suppress(ConfigError):  # its framework says what is wrong with it
            owners += [name] if name != OWN and other.detect(opened) and other.read(opened).config.enabled else []
    read.config._own_of = tuple(owners)
    checked = validate.check_config(read.config, read.places, opened.name, total_steps, world_size)
    if checked.problems:
        raise ConfigError.of(checked.problems)
    return Understood(adapter.FLAVOUR, opened, read._replace(notes=(*note, *read.notes)), checked.warnings)


def write_flavour(config: Config, flavour: str) -> Written:
    """A configuration in one flavour: its text, and what that cannot say. Raises: ConfigError for an unknown one."""
    return _find_adapter(flavour).write(config)


def _find_adapter(flavour: str) -> Adapter:
    choices = adapters.by_flavour()
    if flavour not in choices:
        near = difflib.get_close_matches(flavour, choices, n=1)
        advice = f" did you mean {near[0]}?" if near else ""
        raise ConfigError(f"{flavour!r} is no flavour of configuration:{advice} choose one of {', '.join(choices)}")
    return choices[flavour]


def _choose_adapter(source: Source, flavour: str | None) -> tuple[Adapter, tuple[str, ...]]:
    if flavour is not None:
        return _find_adapter(flavour), ()
    for key in source.values:  # a misspelt section of ours beside a framework's would be passed over
        if key != OWN and difflib.get_close_matches(str(key).lower(), [OWN], cutoff=0.8):
            raise ConfigError.of([Problem(*source.place(key), None, "unknown section", (OWN,))])
    detected = {name: adapter for name, adapter in adapters.by_flavour().items() if adapter.detect(source)}
    if OWN in detected and len(detected) > 1 and own.is_manner_alone(source):
        del detected[OWN]
    elif OWN in detected and len(detected) > 1:
        others = ", ".join(name for name in detected if name != OWN)
        return detected[OWN], (f"the section mstxkit is read; {others} is in it too, for the framework itself",)
    if len(detected) == 1:
        return next(iter(detected.values())), ()
    choices = ", ".join(adapters.by_flavour())
    if detected:
        raise ConfigError(f"{source.name}: holds several configurations ({', '.join(detected)}): say which is meant")
    raise ConfigError(f"{source.name}: no configuration is known in it; it could be one of {choices}")
