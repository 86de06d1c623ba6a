"""Every setting of the judge by its name, `slow_rank.effect`: what it is, what it may be, and changing it."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any, Iterator, Mapping, NamedTuple, TypeVar

from .. import triggers
from ..errors import MstxkitError
from .acting import Acting
from .gates import Gates

T = TypeVar("T")


@dataclass(frozen=True)
class JudgeSettings:
    """The settings of every trigger, of the gates and of acting, by name: made by `defaults()`."""

    parts: Mapping[str, Any]

    def of(self, kind: type[T]) -> T:
        """The settings of one kind: `settings.of(SlowRank).effect`."""
        return next(part for part in self.parts.values() if isinstance(part, kind))

    def as_json(self) -> dict[str, int | float]:
        """Name to value: what `of_json` reads."""
        parts = self.parts.items()
        return {f"{name}.{field.name}": getattr(part, field.name) for name, part in parts for field in fields(part)}


class JudgeSetting(NamedTuple):
    """One setting, described."""

    name: str
    default: int | float
    least: float
    most: float
    meaning: str


def default_settings() -> JudgeSettings:
    """As they are unless somebody changes them."""
    parts = {name: trigger() for name, trigger in triggers.load_triggers().items()}
    return JudgeSettings({**parts, "gates": Gates(), "acting": Acting()})


def describe_settings() -> Iterator[JudgeSetting]:
    """All settings there are, with what each means."""
    for name, part in default_settings().parts.items():
        for field in fields(part):
            least, most, meaning = (field.metadata[key] for key in ("least", "most", "meaning"))
            yield JudgeSetting(f"{name}.{field.name}", getattr(part, field.name), least, most, meaning)


def change_setting(settings: JudgeSettings, name: str, text: str) -> JudgeSettings:
    """The settings with one of them (`slow_rank.effect`) changed. Raises MstxkitError: there is no such setting, or the
    value is not allowed; the message says what is.
    """
    by_name = {setting.name: setting for setting in describe_settings()}
    if name not in by_name:
        raise MstxkitError(f"no setting {name!r}; there are {', '.join(sorted(by_name))}")
    part, _, field = name.partition(".")
    value = _read_value(by_name[name], text)
    return JudgeSettings({**settings.parts, part: replace(settings.parts[part], **{field: value})})


def of_json(values: Mapping[str, Any]) -> JudgeSettings:
    """The defaults with what is allowed of these; anything else is left out: they come from a file or a message."""
    settings = default_settings()
    for name, value in values.items():
        with suppress(MstxkitError):
            settings = change_setting(settings, str(name), str(value))
    return settings


def _read_value(setting: JudgeSetting, text: str) -> int | float:
    is_whole = isinstance(setting.default, int)
    try:
        value = int(text) if is_whole else float(text)
    except (ValueError, OverflowError):
        value = math.nan
    if not (math.isfinite(value) and setting.least <= value <= setting.most):
        kind = "a whole number" if is_whole else "a number"
        needed = f"{kind} from {setting.least:g} to {setting.most:g} is needed. {setting.meaning}"
        raise MstxkitError(f"{setting.name}={text[:40]!r}: {needed}")
    return value
