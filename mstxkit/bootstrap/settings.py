"""What `capture` is called with: limits of the recorder and settings of control, from arguments and environment.

An argument counts above the environment's MSTXKIT_<NAME>, which counts above the default.
"""

from __future__ import annotations

import os
from typing import Any, TypeVar

from ..errors import CaptureError, MstxkitError, SettingError
from ..escalation.duty import settings as of_duty
from ..escalation.duty.settings import DutySettings
from ..recorder import process
from ..recorder.process import OF_ALL_PROCESSES, RecorderLimits
from ..store import metrics_setting

T = TypeVar("T", RecorderLimits, DutySettings)


def names() -> tuple[str, ...]:
    """What `capture` takes beside its folder; each also as MSTXKIT_<NAME>."""
    return (*RecorderLimits._fields, *DutySettings._fields)


def are_limits(config: Any) -> bool:
    """Is this no configuration of any system, but limits by name?"""
    return isinstance(config, dict) and set(config) <= set(names())


def resolved(config: Any, overrides: dict[str, Any]) -> tuple[RecorderLimits, DutySettings]:
    """Both, from `config` and what overrides it.

    Raises:
        CaptureError, ConfigError: an unknown name, or a value that cannot be.
    """
    settings = {**(config or {}), **overrides}
    unknown = sorted(set(settings) - set(names()))
    if unknown:
        raise CaptureError(f"capture() knows no {', '.join(unknown)}; it takes {', '.join(names())}")
    return process.checked(_filled(RecorderLimits, settings)), of_duty.checked(_filled(DutySettings, settings))


def problem_with(field: str, text: str) -> str:
    """Why `capture` refuses this text as MSTXKIT_<FIELD>, in words; "" where it does not."""
    defaults = {**RecorderLimits()._asdict(), **DutySettings()._asdict()}
    try:
        value = _parsed(field, text, defaults[field])
        if field in RecorderLimits._fields:
            process.checked(RecorderLimits(**{field: value}))
        else:
            of_duty.checked(DutySettings(**{field: value}))
    except MstxkitError as exc:
        return str(exc)
    return ""


def as_variables(config: Any, overrides: dict[str, Any]) -> dict[str, str]:
    """Settings of requests, and limits of a host or a run, as environment variables: a driver hands them on to its
    workers.
    """
    asked = {**(config or {}), **overrides}
    passed_on = (*DutySettings._fields, *OF_ALL_PROCESSES)
    kept = {name: asked[name] for name in passed_on if asked.get(name) is not None}
    return {
        f"MSTXKIT_{name.upper()}": metrics_setting.as_text(int(v) if isinstance(v, bool) else v)
        for name, v in kept.items()
    }


def _filled(kind: type[T], settings: dict[str, Any]) -> T:
    defaults = kind()._asdict()
    variables = {field: os.environ.get(f"MSTXKIT_{field.upper()}") for field in kind._fields}
    defined = {field: _parsed(field, text, defaults[field]) for field, text in variables.items() if text}
    return kind(**{**defined, **{field: settings[field] for field in kind._fields if field in settings}})


def _parsed(field: str, text: str, default: Any) -> Any:
    kind = str if default is None else type(default)
    try:
        return kind(text)
    except ValueError as exc:
        wanted = "a whole number is needed" if kind is int else "a number is needed"
        raise SettingError(field, repr(text), wanted, f"MSTXKIT_{field.upper()}") from exc
