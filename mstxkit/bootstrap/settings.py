"""What `capture` is called with: limits of the recorder and settings of control, from arguments and environment.

An argument counts above the environment's MSTXKIT_<NAME>, which counts above the default.
"""

from __future__ import annotations

import os
from typing import Any, Mapping, TypeVar

from ..errors import CaptureError, MstxkitError, Problem, SettingError
from ..escalation.duty import settings as of_duty
from ..escalation.duty.settings import DutySettings
from ..recorder import process
from ..recorder.process import OF_ALL_PROCESSES, RecorderLimits

T = TypeVar("T", RecorderLimits, DutySettings)
# What `capture` takes beside its folder; each also as MSTXKIT_<NAME>.
DEFAULTS: dict[str, Any] = {**RecorderLimits()._asdict(), **DutySettings()._asdict()}


def resolve_settings(config: Any, overrides: Mapping[str, Any]) -> tuple[RecorderLimits, DutySettings]:
    """Both, from `config` and what overrides it. Raises CaptureError, ConfigError: an unknown name or value."""
    settings = {**(config or {}), **overrides}
    unknown = sorted(set(settings) - set(DEFAULTS))
    if unknown:
        why = "it knows no such setting"
        problems = [Problem("capture()", None, name, None, why, tuple(DEFAULTS)) for name in unknown]
        raise CaptureError("\n".join(map(str, problems)))
    limits, of_requests = _fill_settings(RecorderLimits, settings), _fill_settings(DutySettings, settings)
    return process.check_limits(limits), of_duty.check_settings(of_requests)


def problem_with(field: str, text: str) -> str:
    """Why `capture` refuses this text as MSTXKIT_<FIELD>, in words; "" where it does not."""
    try:
        value = _parse_field(field, text)
        if field in RecorderLimits._fields:
            process.check_limits(RecorderLimits(**{field: value}))
        else:
            of_duty.check_settings(DutySettings(**{field: value}))
    except MstxkitError as exc:
        return str(exc)
    return ""


def as_variables(config: Any, overrides: Mapping[str, Any]) -> dict[str, str]:
    """Settings of requests, and limits of a host or a run, as variables of workers.

    What is False is left out where the default is none: no text of a child's says that.
    """
    asked, variables = {**(config or {}), **overrides}, {}
    for name in (*DutySettings._fields, *OF_ALL_PROCESSES):
        value, default = asked.get(name), DEFAULTS[name]
        if value is None or (value is False and default is None):
            continue
        if isinstance(value, Mapping):
            from ..store import metrics_setting

            value = metrics_setting.as_text(value)
        elif isinstance(value, bool) or (isinstance(value, float) and isinstance(default, int)):
            value = int(value)  # a switch is 0 or 1, and a size that was given as 2e11 a whole number
        variables[f"MSTXKIT_{name.upper()}"] = str(value)
    return variables


def _fill_settings(kind: type[T], settings: dict[str, Any]) -> T:
    variables = {field: os.environ.get(f"MSTXKIT_{field.upper()}") for field in kind._fields}
    defined = {field: _parse_field(field, text) for field, text in variables.items() if text}
    return kind(**{**defined, **{field: settings[field] for field in kind._fields if field in settings}})


def _parse_field(field: str, text: str) -> Any:
    kind = str if DEFAULTS[field] is None else type(DEFAULTS[field])
    try:
        return kind(text)
    except ValueError as exc:
        wanted = "a whole number is needed" if kind is int else "a number is needed"
        raise SettingError(field, repr(text), wanted, f"MSTXKIT_{field.upper()}") from exc
