"""What `capture(metrics=…, flops_per_token=…, peak_flops=…)` may say: where figures go besides the run, and for MFU.

auto                      under Ray its own metrics; elsewhere nothing (the default)
off                       nothing
ray                       Ray's own metrics
textfile[:/A/FOLDER]      a file for Prometheus' node exporter, in that folder or in the run
[HOST]:PORT               a page for Prometheus; without HOST on loopback; beyond loopback with a token
targets:/A/FOLDER         where that page is, for Prometheus' file_sd, in that folder too: it may be of many jobs
otlp:http://HOST:PORT     spans of stages, verdicts and escalations

Several are separated by commas. No secret is ever in it: it stands in the command line of the process that judges.
"""

from __future__ import annotations

import ipaddress
import json
import math
import os
import re
import urllib.parse
from typing import Any, Mapping, NamedTuple, Union

from ..errors import SettingError
from .values import table_of, text_of

AUTO, OFF, RAY, TEXTFILE, PAGE, TARGETS, OTLP = "auto", "off", "ray", "textfile", "page", "targets", "otlp"
KEYS = "OTEL_EXPORTER_OTLP_HEADERS"
ByStage = Union[float, Mapping[str, float]]
_OTLP_PATH = "/v1/traces"
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[\w.-]*):(\d{1,5})", re.ASCII)
_OUTLETS_AT_MOST, _STAGES_AT_MOST, _SHOWN = 8, 256, 100
_FORM = "a number above 0 is needed, or one for each stage: actor_update=6e9,actor_generate=2e9"
_WORDS = "auto, off, ray, textfile[:/A/FOLDER], [HOST]:PORT, targets:/A/FOLDER, otlp:http://HOST:PORT"


class Address(NamedTuple):
    """Where a page is served. Port 0: any."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Can only this host reach it?"""
        try:
            return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Outlet(NamedTuple):
    """One way out: a word of the list above, and where to."""

    kind: str
    place: str = ""
    address: Address = Address("", 0)


class Flops(NamedTuple):
    """What is needed for MFU; 0, and a stage that is not there: not known."""

    per_token: ByStage = 0.0  # FLOPs that a token takes in a stage
    peak: ByStage = 0.0  # FLOPs a second that one rank's devices can do

    def mfu_ratio(self, stage: str, tokens_per_s: float, members: int) -> float | None:
        """Share of the peak of all members that the work of a stage took; None where that is not known."""
        cost, peak = _value_of(self.per_token, stage), _value_of(self.peak, stage)
        return tokens_per_s * cost / (peak * members) if cost > 0 and peak > 0 and members else None


def _value_of(values: ByStage, stage: str) -> float:
    return float(values.get(stage, 0.0)) if isinstance(values, Mapping) else float(values)


NOTHING_KNOWN = Flops()


class MetricsSetting(NamedTuple):
    """Both, checked."""

    outlets: tuple[Outlet, ...] = (Outlet(AUTO),)
    flops: Flops = NOTHING_KNOWN


def check_metrics(metrics: Any = None, flops_per_token: Any = None, peak_flops: Any = None) -> MetricsSetting:
    """What was given. Raises SettingError: one of them cannot be; the message says what can."""
    flops = Flops(by_stage(flops_per_token, "flops_per_token"), by_stage(peak_flops, "peak_flops"))
    if metrics is None or metrics == "":
        return MetricsSetting(flops=flops)
    words = [word.strip() for word in metrics.split(",")] if isinstance(metrics, str) else [repr(metrics)]
    if len(words) > _OUTLETS_AT_MOST:
        raise SettingError("metrics", repr(str(metrics)[:_SHOWN]), f"{_OUTLETS_AT_MOST} ways out are the most")
    return MetricsSetting(tuple(map(_read_outlet, words)), flops)


def _read_outlet(word: str) -> Outlet:
    kind, _, place = word.partition(":")
    if word in (AUTO, OFF, RAY, TEXTFILE):
        return Outlet(word)
    if kind in (TEXTFILE, TARGETS) and os.path.isabs(place) and place.isprintable():
        return Outlet(kind, place)
    if kind == OTLP:
        return Outlet(OTLP, _url_of(place))
    address = _ADDRESS.fullmatch(word)
    if address is not None and int(address[2]) < 1 << 16:
        return Outlet(PAGE, word, Address(address[1].strip("[]") or "127.0.0.1", int(address[2])))
    raise SettingError("metrics", repr(word[:_SHOWN]), f"one of {_WORDS} is needed")


def _url_of(text: str) -> str:
    try:
        parts = urllib.parse.urlsplit(text)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_url = False
    if not is_url or not text.isprintable() or parts.username is not None or parts.password is not None or parts.query:
        # What was given may hold a key: it is not shown.
        form = "otlp:http://HOST:PORT is needed, without user, password and query"
        raise SettingError("metrics", "otlp:…", f"{form}: a key goes into {KEYS}")
    return text if parts.path not in ("", "/") else urllib.parse.urlunsplit(parts._replace(path=_OTLP_PATH))


def by_stage(value: Any, name: str) -> ByStage:
    """Of what a user gave: a number, `stage=number,…`, or a table.
    Raises SettingError: it is none; `name` is what the message calls it.
    """
    if value in (None, "", 0):
        return 0.0
    if isinstance(value, str) and "=" in value:
        value = {stage: number for stage, _, number in (part.partition("=") for part in value.split(","))}
    if not isinstance(value, Mapping):
        return _require_positive(value, name)
    return {
        text_of(stage).strip(): _require_positive(number, name)
        for stage, number in list(value.items())[:_STAGES_AT_MOST]
    }


def _require_positive(value: Any, name: str) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise SettingError(name, repr(str(value)[:_SHOWN]), _FORM)
    return number


def as_text(value: Any) -> str:
    """One of the three as an environment variable has it."""
    return ",".join(f"{key}={number}" for key, number in value.items()) if isinstance(value, Mapping) else str(value)


def as_word(metrics: Any, flops_per_token: Any, peak_flops: Any) -> str:
    """What `of_word` reads; "" for the defaults."""
    words = {"metrics": metrics, "flops_per_token": flops_per_token, "peak_flops": peak_flops}
    kept = {key: as_text(value) for key, value in words.items() if value not in (None, "", 0)}
    return json.dumps(kept) if kept else ""


def of_word(word: str) -> MetricsSetting:
    """The setting in a word; what cannot be in it is the default."""
    try:
        fields = table_of(json.loads(word)) if word else {}
        return check_metrics(*(fields.get(key) for key in ("metrics", "flops_per_token", "peak_flops")))
    except (ValueError, SettingError):
        return MetricsSetting()
