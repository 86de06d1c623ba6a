"""What `capture` was told: limits of the recorder and settings of control, from arguments and environment.

An argument counts above the environment's MSTXKIT_<NAME>, which counts above the default.
"""

from __future__ import annotations

import os
from typing import Any, TypeVar

from ..control.standby import Settings, checked
from ..errors import CaptureError
from ..recorder.process import Limits

T = TypeVar("T", Limits, Settings)


def told(config: Any, overrides: dict[str, Any]) -> tuple[Limits, Settings]:
    """Both, from `config` and what overrides it.

    Raises:
        CaptureError, ConfigError: an unknown name, or a value that cannot be.
    """
    if config is not None and not isinstance(config, dict):
        raise CaptureError(f"config={config!r} (of capture): a dict of limits is needed")
    given = {**(config or {}), **overrides}
    known = (*Limits._fields, *Settings._fields)
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise CaptureError(f"capture() knows no {', '.join(unknown)}; it takes {', '.join(known)}")
    return _filled(Limits, given), checked(_filled(Settings, given))


def as_variables(config: Any, overrides: dict[str, Any]) -> dict[str, str]:
    """What was told of requests, as the environment of child processes: a driver says it, its workers do it."""
    given = {**(config or {}), **overrides}
    return {f"MSTXKIT_{field.upper()}": str(given[field]) for field in Settings._fields if given.get(field) is not None}


def _filled(kind: type[T], given: dict[str, Any]) -> T:
    defaults = kind()._asdict()
    variables = {field: os.environ.get(f"MSTXKIT_{field.upper()}") for field in kind._fields}
    found = {field: _parsed(field, text, defaults[field]) for field, text in variables.items() if text}
    return kind(**{**found, **{field: given[field] for field in kind._fields if field in given}})


def _parsed(field: str, text: str, default: Any) -> Any:
    kind = str if default is None else type(default)
    try:
        return kind(text)
    except ValueError as exc:
        raise CaptureError(
            f"MSTXKIT_{field.upper()}={text!r} (from the environment): {kind.__name__} is needed"
        ) from exc
