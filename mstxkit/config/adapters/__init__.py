"""Adapters: one module per flavour of configuration in this folder, found by listing it. Each provides an `Adapter`.

`read` resolves the framework's own defaults: the Config it returns is what that system would really do, not what its
documents say. `write` never repairs: what the flavour cannot express is in `lost`, each with its reason.
"""

from __future__ import annotations

import importlib
import json
import re
from functools import partialmethod
from typing import Any, Callable, Iterable, Mapping, NamedTuple, Protocol, TypeVar, cast

from ...errors import ConfigError, Problem
from ...host import listing
from ...store.options import METRIC_LEVELS, find_option, list_terms
from ..model import Budgets, Config, ConfigLimits, Sampling, Window
from ..sources import Source, SourcePlace

T = TypeVar("T")
# What stands for "to the end of the run" where a system wants a number of steps (MindSpeed-LLM's own).
ENDLESS_STEPS = 1_000_000
# How MindSpeed-RL, MindSpeed-LLM and verl spell the levels, and what an export is where there is only one at a time.
LEVELS: dict[Any, Any] = {name if name != "none" else "level_none": name for name in find_option("level").values}
EXPORTS: dict[Any, Any] = {name: name for name in find_option("export").values if name != "both"}
_MISSING = object()
_QUOTED = re.compile(r"'([^']*)'")
_TRUE, _FALSE = ("true", "True"), ("false", "False")
GROUPS: Mapping[str, Any] = {"window": Window, "sampling": Sampling, "limits": ConfigLimits, "budgets": Budgets}
# Why fields of a window are lost where a system has no schedule.
ONE_WINDOW = dict.fromkeys(("window.wait", "window.repeat", "window.more_steps"), "there is one window")

# Why fields are lost where each worker of a trainer makes torch_npu's profiler by a few settings.
IN_WORKERS = {
    "replicas": "the inference engine is in the worker's own process: ranks choose it",
    **dict.fromkeys(("domains_include", "domains_exclude"), "mstx domains cannot be chosen"),
    "aic_metrics": "always PipeUtilization, which level1 and level2 record",
    "analysis": "off or sync",
    "data_simplification": "always on",
    "sampling": "a stage is recorded whole",
    "limits": "a recording has no limits",
}


def translate_option(profiler: str, option: str) -> dict[Any, Any]:
    """A profiler's words for the values of an option, each with ours."""
    return {own: ours for ours, own in list_terms(profiler)[option].words.items()}


def usual_metrics(level: str) -> str:
    """What a system records that leaves AI Core metrics to torch_npu, whose own default since 26.0 is this."""
    return "PipeUtilization" if level in METRIC_LEVELS else "none"


def yaml_of(values: Mapping[str, Any]) -> str:
    """A mapping as YAML, keys in the order given, lists in one line."""
    import yaml

    class Dumper(yaml.SafeDumper):  # type: ignore[misc]
        represent_sequence = partialmethod(yaml.SafeDumper.represent_sequence, flow_style=True)

    return str(yaml.dump(dict(values), Dumper=Dumper, sort_keys=False, allow_unicode=True, width=118))


class Read(NamedTuple):
    """What a source says: the configuration with every default made explicit; the place of each field that was given,
    by its name (`window.first_step`); notes on defaults that surprise, and values that the system reads in its own way.
    """

    config: Config
    places: dict[str, SourcePlace]
    notes: tuple[str, ...] = ()


class Lost(NamedTuple):
    """A field that a flavour cannot express: `window.warmup`, its value, and what the flavour does instead."""

    field: str
    value: Any
    why: str


class Written(NamedTuple):
    """A configuration in one flavour: the text of a file (YAML, JSON, shell, Python), what it leaves out, and notes on
    what its user must know or do besides.
    """

    text: str
    lost: tuple[Lost, ...] = ()
    notes: tuple[str, ...] = ()


class Adapter(Protocol):
    """What a module in this folder provides."""

    FLAVOUR: str  # what `--to` calls it
    DESCRIPTION: str  # which file it is
    detect: Callable[[Source], bool]  # Is there something of this flavour in it? Looks at keys, never raises.
    read: Callable[[Source], Read]  # What it says. Raises: ConfigError with all that is wrong in it.
    write: Callable[[Config], Written]  # the text of such a file, and what it cannot say


def by_flavour() -> dict[str, Adapter]:
    """Every adapter by its flavour, in alphabetical order."""
    names = listing.modules_in(__path__)
    modules = [cast(Adapter, importlib.import_module(f"{__name__}.{name}")) for name in names]
    return {adapter.FLAVOUR: adapter for adapter in sorted(modules, key=lambda adapter: adapter.FLAVOUR)}


class Reading:
    """Takes typed values out of one section of a source; what is wrong is gathered and raised by `read` at once.

    Every getter takes the key's name in the section, the canonical field it becomes (its place is kept), and the
    system's own default, which is also what a wrong value yields until the error is raised.
    `source`: where the section is. `section`: keys that lead to it; none for the top. `from_text`: are all values texts
    (a command line), so that "5" is a number and "true" a flag? `spelled`: how a key is written in messages, where it
    is not the dotted path: `"--{}".format`. `problems`: those that were met on the way to the section.
    """

    def __init__(
        self, source: Source, section: tuple[str, ...] = (), from_text: bool = False, spelled: Any = None,
        problems: Iterable[Problem] = (),
    ) -> None:  # fmt: skip
        self.source, self.section, self.from_text, self._spelled = source, section, from_text, spelled
        content = source.at(*section)
        self.values: Mapping[str, Any] = content if isinstance(content, Mapping) else {}
        self.places: dict[str, SourcePlace] = {}
        self.problems, self.notes = list(problems), list[str]()
        if content is not None and not isinstance(content, Mapping):
            self.wrong("", "a mapping is needed", value=content)

    def get(self, key: str, field: str, default: Any = None) -> Any:
        """The value as it is."""
        if key not in self.values:
            return default
        self.places[field] = self.place(key)
        return self.values[key]

    def place(self, key: str) -> SourcePlace:
        """Where a key of the section stands."""
        path = (*self.section, key) if key else self.section
        place = self.source.place(*path)
        return place._replace(key=self._spelled(key)) if self._spelled and key else place

    def wrong(self, key: str, why: str, value: Any = None, allowed: Iterable[Any] = ()) -> None:
        """Note a problem at a key. `allowed` are the values or names it may have: the nearest one is suggested."""
        self.problems.append(Problem(*self.place(key), value, why, tuple(map(str, allowed))))

    def refuse(self, default: T, key: str, why: str, value: Any, allowed: Iterable[Any] = ()) -> T:
        """Note a problem at a key, and go on with its default."""
        self.wrong(key, why, value, allowed)
        return default

    def note(self, text: str) -> None:
        """Add what the reader should know although it is not wrong."""
        self.notes.append(text)

    def take_over(self, *others: Reading) -> None:
        """Add the problems, notes and places of others: where both have a place, theirs holds."""
        for other in others:
            self.problems += other.problems
            self.notes += other.notes
            self.places.update(other.places)

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
        return value if isinstance(value, bool) else self.refuse(default, key, "not a flag", value, ("true", "false"))

    def flags(self, table: Mapping[str, str]) -> dict[str, Any]:
        """Flags that are off by default: the fields by their names. Keys of the table: the system's."""
        return {field: self.flag(key, field, False) for key, field in table.items()}

    def own_flags(self, defaults: Mapping[str, bool]) -> dict[str, Any]:
        """Flags that this system alone has, each with its default: those that differ from it."""
        flags = {key: self.flag(key, "extras", default) for key, default in defaults.items()}
        return {key: flag for key, flag in flags.items() if flag is not defaults[key]}

    def number(self, key: str, field: str, default: int, least: int | None = None) -> int:
        """A whole number, at least `least`."""
        value = self.get(key, field, default)
        number = read_whole(value, self.from_text)
        if number is None:
            return self.refuse(default, key, "not a whole number", value)
        if least is not None and number < least:
            return self.refuse(default, key, f"must be {least} or more", value)
        return number

    def choice(self, key: str, field: str, table: Mapping[Any, T], default: T) -> T:
        """One of the values that the system has for it, as its canonical value. Keys: the system's, exactly."""
        value = self.get(key, field, _MISSING)
        if value is _MISSING:
            return default
        matches = [canonical for own, canonical in table.items() if type(own) is type(value) and own == value]
        return matches[0] if matches else self.refuse(default, key, "not one of its values", value, table)

    def text(self, key: str, field: str, default: str) -> str:
        """A text."""
        value = self.get(key, field, default)
        return value if isinstance(value, str) else self.refuse(default, key, "not a text", value)

    def items(self, key: str, field: str, table: Mapping[Any, T], default: tuple[T, ...]) -> tuple[T, ...]:
        """A list of such values, each as its canonical one, doubles dropped."""
        value = self.get(key, field, _MISSING)
        if value is _MISSING:
            return default
        if not isinstance(value, (list, tuple)):
            return self.refuse(default, key, "a list is needed", value, table)
        for own in [own for own in value if not isinstance(own, (str, int)) or own not in table]:
            self.wrong(key, "not one of its values", own, table)
        return tuple(dict.fromkeys(table[own] for own in value if isinstance(own, (str, int)) and own in table))

    def texts(self, key: str, field: str) -> tuple[str, ...]:
        """A list of texts; by default an empty one."""
        value = self.get(key, field, ())
        if not isinstance(value, (list, tuple)) or not all(isinstance(text, str) and text for text in value):
            return self.refuse((), key, "a list of texts is needed", value)
        return tuple(value)

    def ranks(self, key: str, field: str, default: Any = "all") -> Any:
        """A list of ranks (whole numbers from 0, without doubles, not empty)."""
        value = self.get(key, field, _MISSING)
        if value is _MISSING:
            return default
        listed = value if isinstance(value, (list, tuple)) else [None]
        numbers = [read_whole(number, self.from_text) for number in listed]
        if not numbers or any(number is None or number < 0 for number in numbers):
            return self.refuse(default, key, "a list of ranks is needed, whole numbers from 0", value)
        return tuple(dict.fromkeys(numbers))

    def read(self, flavour: str, extras: Mapping[str, Any] | None = None, **fields: Any) -> Read:
        """The configuration of these fields. Raises: ConfigError for all that is wrong, or that the model refuses."""
        self.stop_if_wrong()
        if extras:
            fields["extras"] = {flavour: dict(extras)}
        return Read(build_config(self.source, self.places, fields), dict(self.places), tuple(self.notes))

    def stop_if_wrong(self) -> None:
        """Raise every problem noted so far."""
        if self.problems:
            raise ConfigError.of(self.problems)


def sides_of(reading: Reading, prefix: str) -> tuple[str, ...]:
    """The activities, by a flag for each, which is on by default: `<prefix>_cpu` and `<prefix>_npu`."""
    keys = (f"{prefix}_cpu", f"{prefix}_npu")
    sides = tuple(key[-3:] for key in keys if reading.flag(key, "activities", True))
    if not sides:
        why = f"{keys[0]} and {keys[1]} are both off, which torch_npu takes for both on"
        return reading.refuse(("cpu", "npu"), keys[1], why, False)
    return sides


def export_of(reading: Reading, alone: Mapping[Any, Any]) -> str:
    """`export_type` of torch_npu and MindSpore: a list of forms, or one value of `alone`."""
    listed = reading.values.get("export_type")
    if type(listed) in map(type, alone):
        return str(reading.choice("export_type", "export", alone, "text"))
    forms = reading.items("export_type", "export", EXPORTS, ("text",))
    if listed == []:
        reading.wrong("export_type", "an empty list says nothing", listed, EXPORTS)
    return "both" if len(forms) > 1 else next(iter(forms), "text")


def left_out(config: Config, read_back: Config, flavour: str, reasons: Mapping[str, str]) -> tuple[Lost, ...]:
    """The fields in which a configuration differs from what its written text reads as, and extras of other flavours.

    `reasons` say why, by field (`window.warmup`) or by its first part.
    """
    wanted, got = flatten_config(config), flatten_config(read_back)
    fields = [name for name in wanted if name.partition(".")[0] not in ("extras", "stage_names")]
    lost = []
    for name in (name for name in fields if wanted[name] != got.get(name) and (name, wanted[name]) != ("path", "")):
        why = reasons.get(name) or reasons.get(name.partition(".")[0]) or f"{flavour} cannot say this"
        lost.append(Lost(name, wanted[name], f"{why}; it becomes {json.dumps(got.get(name), default=str)}"))
    for other, extras in config.extras.items():
        why_lost = getattr(by_flavour().get(other), "why_lost", None)  # knows best, where an adapter has one
        for name, value in () if other == flavour else extras.items():
            why = str(why_lost(name, value)) if why_lost else f"{other} alone has it"
            lost.append(Lost(f"extras.{other}.{name}", value, why))
    return tuple(lost)


def flatten_config(config: Config) -> dict[str, Any]:
    """Every field by its full name, `window.first_step` too."""
    fields: dict[str, Any] = {}
    for name, value in config:
        if name in GROUPS and value is not None:
            fields.update({f"{name}.{below}": inner for below, inner in value})
        else:
            fields[name] = value
    return fields


def build_config(source: Source, places: Mapping[str, SourcePlace], fields: Mapping[str, Any]) -> Config:
    """A Config of these fields; what pydantic refuses becomes a ConfigError at the place each field came from."""
    from pydantic import ValidationError

    try:
        return Config.model_validate(fields)
    except ValidationError as exc:
        problems: dict[str, tuple[int, Problem]] = {}
        for error in exc.errors():
            # The location may lead into the branches of a union: of these the deepest tells most, then the last; of a
            # text the first: the words it may be.
            field = ".".join(map(str, error["loc"][: 2 if error["loc"][0] in GROUPS else 1]))
            depth, deepest = len(error["loc"]), problems[field][0] if field in problems else 0
            if depth > deepest or (depth == deepest and not isinstance(error["input"], str)):
                group, _, below = field.partition(".")
                place = places.get(field) or places.get(group) or SourcePlace(source.name, None, group)
                key = f"{place.key}.{below}" if below and field not in places else place.key
                allowed = tuple(_QUOTED.findall(str(error.get("ctx", {}).get("expected", ""))))
                value, why = (None, "missing") if error["type"] == "missing" else (error["input"], error["msg"])
                problems[field] = depth, Problem(place.file, place.line, key, value, why, allowed)
        raise ConfigError.of(problem for _, problem in problems.values()) from None


def read_whole(value: Any, from_text: bool) -> int | None:
    """A whole number, also of a text where it may come as one; None for anything else."""
    if from_text and isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}", value):
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
