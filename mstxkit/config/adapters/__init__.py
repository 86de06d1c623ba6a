"""Adapters: one module per flavour of configuration in this folder, found by listing it.

An adapter module defines:

    FLAVOUR: str                                what `--to` calls it
    DESCRIPTION: str                            one line: which file of which system
    def detect(source: Source) -> bool          is there something of this flavour in it? Looks at keys, never raises
    def read(source: Source) -> Read            what it says; every mistake of the source in one ConfigError
    def write(config: Config) -> Written        the text of such a file, and what it cannot say

`read` resolves the framework's own defaults: the Config it returns is what that system would really do, not what its
documents say. `write` never repairs: what the flavour cannot express is in `lost`, each with its reason.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
from typing import Any, Iterable, Mapping, NamedTuple, Protocol, TypeVar, cast

from ...errors import ConfigError, Problem
from ..model import Config
from ..sources import Place, Source

T = TypeVar("T")
# What stands for "to the end of the run" where a system wants a number of steps (MindSpeed-LLM's own).
ENDLESS_STEPS = 1_000_000
_MISSING = object()
_QUOTED = re.compile(r"'([^']*)'")
_TRUE, _FALSE = ("true", "True"), ("false", "False")


class Read(NamedTuple):
    """What a source says.

    Args:
        config: Canonical, every default made explicit.
        places: Where a field was given, by its name (`window.first_step`); fields that were not given are not here.
        notes: What a reader should know: a default that surprises, a value the system reads in its own way.
    """

    config: Config
    places: dict[str, Place]
    notes: tuple[str, ...] = ()


class Lost(NamedTuple):
    """A field that a flavour cannot express.

    Args:
        field: Canonical name: `window.warmup`.
        value: What it is in the configuration.
        why: What the flavour does instead.
    """

    field: str
    value: Any
    why: str


class Written(NamedTuple):
    """A configuration in one flavour: the text of a file (YAML, JSON, shell), and what it leaves out."""

    text: str
    lost: tuple[Lost, ...] = ()


class Adapter(Protocol):
    """What a module in this folder provides."""

    FLAVOUR: str
    DESCRIPTION: str

    def detect(self, source: Source) -> bool:
        """Is there something of this flavour in it?"""

    def read(self, source: Source) -> Read:
        """What it says.

        Raises:
            ConfigError: all that is wrong in it.
        """

    def write(self, config: Config) -> Written:
        """The text of such a file, and what it cannot say."""


def known() -> dict[str, Adapter]:
    """Every adapter by its flavour, in alphabetical order."""
    names = [module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")]
    found = [cast(Adapter, importlib.import_module(f"{__name__}.{name}")) for name in names]
    return {adapter.FLAVOUR: adapter for adapter in sorted(found, key=lambda adapter: adapter.FLAVOUR)}


class Reading:
    """Takes typed values out of one section of a source; what is wrong is gathered and raised by `read` at once.

    Every getter takes the key's name in the section, the canonical field it becomes (its place is kept), and the
    system's own default, which is also what a wrong value yields until the error is raised.

    Args:
        source: Where the section is.
        section: Keys that lead to it; none for the top.
        from_text: Are all values texts (a command line), so that "5" is a number and "true" a flag?
        spelled: How a key is written in messages, where it is not the dotted path: `"--{}".format`.
    """

    def __init__(self, source: Source, section: tuple[str, ...] = (), from_text: bool = False, spelled: Any = None):
        self.source, self.section, self.from_text, self._spelled = source, section, from_text, spelled
        found = source.at(*section)
        self.values: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
        self.places: dict[str, Place] = {}
        self.problems: list[Problem] = []
        self.notes: list[str] = []
        if found is not None and not isinstance(found, Mapping):
            self.wrong("", "a mapping is needed", value=found)

    def has(self, key: str) -> bool:
        """Is the key there, even with null?"""
        return key in self.values

    def get(self, key: str, field: str, default: Any = None) -> Any:
        """The value as it is."""
        if key not in self.values:
            return default
        self.places[field] = self.place(key)
        return self.values[key]

    def place(self, key: str) -> Place:
        """Where a key of the section stands."""
        path = (*self.section, key) if key else self.section
        place = self.source.place(*path)
        return place._replace(key=self._spelled(key)) if self._spelled and key else place

    def wrong(self, key: str, why: str, value: Any = None, allowed: Iterable[Any] = ()) -> None:
        """Note a problem at a key. `allowed` are the values or names it may have: the nearest one is suggested."""
        place = self.place(key)
        self.problems.append(Problem(place.file, place.line, place.key, value, why, tuple(str(one) for one in allowed)))

    def note(self, text: str) -> None:
        """Tell the reader something that is not wrong."""
        self.notes.append(text)

    def only(self, allowed: Iterable[str]) -> None:
        """Note every key of the section that is none of these."""
        names = list(allowed)
        for key in [key for key in self.values if key not in names]:
            self.wrong(str(key), "unknown key", allowed=names)

    def flag(self, key: str, field: str, default: bool) -> bool:
        """True or false."""
        value = self.get(key, field, default)
        if self.from_text and isinstance(value, str) and value in (*_TRUE, *_FALSE):
            return value in _TRUE
        if not isinstance(value, bool):
            self.wrong(key, "not a flag", value, ("true", "false"))
            return default
        return value

    def number(self, key: str, field: str, default: int, least: int | None = None) -> int:
        """A whole number, at least `least`."""
        value = self.get(key, field, default)
        number = _whole(value, self.from_text)
        if number is None:
            self.wrong(key, "not a whole number", value)
            return default
        if least is not None and number < least:
            self.wrong(key, f"must be {least} or more", value)
            return default
        return number

    def choice(self, key: str, field: str, table: Mapping[Any, T], default: T) -> T:
        """One of the values that the system has for it, as its canonical value. Keys: the system's, exactly."""
        value = self.get(key, field, _MISSING)
        if value is _MISSING:
            return default
        for own, canonical in table.items():
            if type(own) is type(value) and own == value:
                return canonical
        self.wrong(key, "not one of its values", value, table)
        return default

    def text(self, key: str, field: str, default: str) -> str:
        """A text."""
        value = self.get(key, field, default)
        if not isinstance(value, str):
            self.wrong(key, "not a text", value)
            return default
        return value

    def items(self, key: str, field: str, table: Mapping[Any, T], default: tuple[T, ...]) -> tuple[T, ...]:
        """A list of such values, each as its canonical one, doubles dropped."""
        value = self.get(key, field, _MISSING)
        if value is _MISSING:
            return default
        if not isinstance(value, (list, tuple)):
            self.wrong(key, "a list is needed", value, table)
            return default
        for one in [one for one in value if not isinstance(one, (str, int)) or one not in table]:
            self.wrong(key, "not one of its values", one, table)
        return tuple(dict.fromkeys(table[one] for one in value if isinstance(one, (str, int)) and one in table))

    def texts(self, key: str, field: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        """A list of texts."""
        value = self.get(key, field, list(default))
        if not isinstance(value, (list, tuple)) or not all(isinstance(one, str) and one for one in value):
            self.wrong(key, "a list of texts is needed", value)
            return default
        return tuple(value)

    def ranks(self, key: str, field: str, default: Any = "all") -> Any:
        """A list of ranks (whole numbers from 0, without doubles, not empty)."""
        value = self.get(key, field, _MISSING)
        if value is _MISSING:
            return default
        numbers = [_whole(one, self.from_text) for one in value] if isinstance(value, (list, tuple)) else [None]
        if not numbers or any(one is None or one < 0 for one in numbers):
            self.wrong(key, "a list of ranks is needed, whole numbers from 0", value)
            return default
        return tuple(dict.fromkeys(numbers))

    def read(self, flavour: str, extras: Mapping[str, Any] | None = None, **fields: Any) -> Read:
        """The canonical configuration of these fields (`window` as a dict or Window).

        Raises:
            ConfigError: all problems noted so far, or what the model itself refuses.
        """
        self.stop_if_wrong()
        if extras:
            fields["extras"] = {flavour: dict(extras)}
        return Read(built(self.source, self.places, fields), dict(self.places), tuple(self.notes))

    def stop_if_wrong(self) -> None:
        """Raise every problem noted so far."""
        if self.problems:
            raise ConfigError.of(self.problems)


def left_out(config: Config, said: Config, flavour: str, reasons: Mapping[str, str]) -> tuple[Lost, ...]:
    """What is lost between a configuration and what its written text reads as, field by field, found by comparing.

    Args:
        config: What was to be written.
        said: `read` of what was written.
        flavour: Extras of others are lost as well.
        reasons: Why, by field (`window.warmup`) or by its first part; else the value it becomes is told.
    """
    wanted, got = flat(config), flat(said)
    fields = [name for name in wanted if name.partition(".")[0] not in ("extras", "stage_names")]
    lost = []
    for name in (name for name in fields if wanted[name] != got.get(name) and (name, wanted[name]) != ("path", "")):
        why = reasons.get(name) or reasons.get(name.partition(".")[0]) or f"{flavour} cannot say this"
        lost.append(Lost(name, wanted[name], f"{why}; it becomes {json.dumps(got.get(name), default=str)}"))
    for other, extras in config.extras.items():
        lost += [
            Lost(f"extras.{other}.{name}", extras[name], f"{other} alone has it") for name in extras if other != flavour
        ]
    return tuple(lost)


def flat(config: Config) -> dict[str, Any]:
    """Every field by its full name, `window.first_step` too."""
    found: dict[str, Any] = {}
    for name, value in config:
        if name in ("window", "sampling", "limits") and value is not None:
            found.update({f"{name}.{below}": one for below, one in value})
        else:
            found[name] = value
    return found


def built(source: Source, places: Mapping[str, Place], fields: Mapping[str, Any]) -> Config:
    """A Config of these fields; what pydantic refuses becomes a ConfigError at the place each field came from."""
    from pydantic import ValidationError

    try:
        return Config.model_validate(fields)
    except ValidationError as exc:
        problems: dict[str, tuple[int, Problem]] = {}
        for error in exc.errors():
            field = _field([str(part) for part in error["loc"]])
            depth, problem = len(error["loc"]), _problem(source, places, field, error)
            told = problems.get(field)
            # Of a union's branches the deepest tells most, then the last; of a text the first: the words it may be.
            if told is None or depth > told[0] or (depth == told[0] and not isinstance(error["input"], str)):
                problems[field] = depth, problem
        raise ConfigError.of(problem for _, problem in problems.values()) from None


def _problem(source: Source, places: Mapping[str, Place], field: str, error: Any) -> Problem:
    group, _, below = field.partition(".")
    place = places.get(field) or places.get(group) or Place(source.name, None, group)
    key = f"{place.key}.{below}" if below and field not in places else place.key
    allowed = tuple(_QUOTED.findall(str(error.get("ctx", {}).get("expected", ""))))
    if error["type"] == "missing":
        return Problem(place.file, place.line, key, None, "missing", allowed)
    return Problem(place.file, place.line, key, error["input"], error["msg"], allowed)


def _field(location: list[str]) -> str:
    """A canonical field's name by pydantic's location of an error, which may lead into the branches of a union."""
    return ".".join(location[: 2 if location[0] in ("window", "sampling", "limits") else 1])


def _whole(value: Any, from_text: bool) -> int | None:
    if from_text and isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}", value):
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
