"""Requests for a deeper profile of a stage: what they may hold, read from text that nobody vouches for.

A request is data: JSON in, a frozen `Request` out, or one `ConfigError` that tells all that is wrong. Nothing in it is
evaluated, imported, unpickled or used as a path. Its id is a hash of what it asks for, so that the same call from every
rank of a program is one request (docs/control.md has the table of fields).
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass
from typing import Any, Collection, Iterator, Mapping, NamedTuple, Union

from .. import stages as stage_names
from ..errors import ConfigError, Problem, shortened

ALL, SUSPECT_AND_PEER = "all", "suspect+peer"
BOUNDARIES = ("micro_batch", "mini_batch", "decode_step")
DEFAULT_PRESET = "full"
LIVES_S, LIVES_AT_MOST_S = 3600, 7 * 86400
TEXT_BYTES_AT_MOST, WORDS_AT_MOST = 1 << 20, 500
COUNT_AT_MOST, _SECONDS_AT_MOST = 1_000_000, 1e9
_DIGITS_AT_MOST, _PROBLEMS_AT_MOST = 20, 20

# What explicit options may be, with the names and values of mstxkit.config.model: a flag, one of, some of, any names.
FLAG, NAMES = "flag", "names"
ONE_OF: Mapping[str, tuple[str, ...]] = {
    "level": ("none", "level0", "level1", "level2"),
    "export": ("text", "db", "both"),
    "aic_metrics": (
        "none", "PipeUtilization", "ArithmeticUtilization", "Memory", "MemoryL0", "MemoryUB", "ResourceConflictRatio",
        "L2Cache", "MemoryAccess",
    ),
}  # fmt: skip
FLAGS = ("mstx", "memory", "shapes", "stacks", "modules")
ACTIVITIES = ("cpu", "npu")
OPTIONS = (*ONE_OF, *FLAGS, "activities", "domains_exclude")

Ranks = Union[str, "tuple[int, ...]"]


class Known(NamedTuple):
    """What a request may name, as whoever reads it knows the run.

    Args:
        stages: Stage names of the run, canonical keys or not; aliases of them are understood.
        ranks: Global ranks of the run.
        presets: Names of presets.
    """

    stages: Collection[str]
    ranks: Collection[int]
    presets: Collection[str]


class Sample(NamedTuple):
    """Which part of each occurrence of a stage is recorded.

    Args:
        per: `micro_batch`, `mini_batch` or `decode_step`: what is counted, from 0 in each occurrence.
        skip: How many of these pass first.
        record: How many of these are recorded.
    """

    per: str
    skip: int = 0
    record: int = 1


class Limits(NamedTuple):
    """What ends one session early, at the next boundary of its thread.

    Args:
        seconds: Wall clock seconds; None: the policy's own limit.
        bytes: Bytes of raw data; None: no limit.
    """

    seconds: float | None = None
    bytes: int | None = None


_UNLIMITED = Limits()


@dataclass(frozen=True)
class Request:
    """One request: which stages of which ranks are profiled how, for how long.

    Args:
        stages: Canonical keys, sorted.
        ranks: Global ranks, sorted; or `"all"`; or `"suspect+peer"`: whom the analysis suspects, and one to compare.
        steps: Every occurrence of the stages in so many steps in a row; None where occurrences are counted.
        occurrences: The next so many occurrences of each stage; None where steps are.
        preset: A preset's name; None where `options` say it all.
        options: Explicit options by name, sorted; empty where a preset says it.
        sample: A part of each occurrence only.
        limits: What ends a session early.
        reason: In the asker's words; not part of the id.
        occasion: Which of several equal calls this is: the id's only part that no one reads. The step at which a
            program asks, the time at which a person does.
        created_ns: Wall clock of the asker, ns; not part of the id, as ranks ask at slightly different times.
        expires_ns: Wall clock, ns; no session begins after it. Not part of the id.
    """

    stages: tuple[str, ...]
    ranks: Ranks
    steps: int | None = 1
    occurrences: int | None = None
    preset: str | None = DEFAULT_PRESET
    options: tuple[tuple[str, Any], ...] = ()
    sample: Sample | None = None
    limits: Limits = _UNLIMITED
    reason: str = ""
    occasion: str = ""
    created_ns: int = 0
    expires_ns: int = LIVES_S * 10**9

    @property
    def id(self) -> str:
        """16 hexadecimal digits of what is asked for: equal content is one request, whoever asks, and when."""
        asked = self._content()
        for told in ("reason", "created_ns", "expires_ns"):
            del asked[told]
        text = json.dumps(asked, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def as_json(self) -> dict[str, Any]:
        """A plain dict for `json.dumps`; `checked` makes an equal request of it."""
        return {"id": self.id, **self._content()}

    def ranks_in(self, world_size: int, suspects: Collection[int] = ()) -> tuple[int, ...]:
        """The ranks meant, in a run of `world_size`; empty where they are suspects and there is none."""
        if self.ranks == ALL:
            return tuple(range(world_size))
        return tuple(sorted(suspects)) if isinstance(self.ranks, str) else self.ranks

    def _content(self) -> dict[str, Any]:
        return {
            "stages": list(self.stages),
            "ranks": self.ranks if isinstance(self.ranks, str) else list(self.ranks),
            "steps": self.steps,
            "occurrences": self.occurrences,
            "preset": self.preset,
            "options": {key: list(value) if isinstance(value, tuple) else value for key, value in self.options},
            "sample": None if self.sample is None else self.sample._asdict(),
            "limits": self.limits._asdict(),
            "reason": self.reason,
            "occasion": self.occasion,
            "created_ns": self.created_ns,
            "expires_ns": self.expires_ns,
        }


def parse(text: str | bytes, known: Known, source: str = "request", now_ns: int | None = None) -> Request:
    """A request from untrusted JSON text.

    Args:
        text: At most 1 MiB of JSON, UTF-8.
        known: Which stages, ranks and presets there are.
        source: What messages call the text: its file's name.
        now_ns: As `created_ns` where that is left out; default: this host's wall clock.

    Raises:
        ConfigError: it is no JSON, or anything in it is wrong, unknown or given twice.
    """
    if len(text) > TEXT_BYTES_AT_MOST:
        raise ConfigError(f"{source}: {len(text)} bytes are too many for a request; at most {TEXT_BYTES_AT_MOST}")
    try:
        told = text.decode() if isinstance(text, bytes) else text
        found = json.loads(told, object_pairs_hook=_without_doubles, parse_constant=_no_number, parse_int=_whole)
    except (ValueError, RecursionError) as exc:
        raise ConfigError(f"{source}: not a request in JSON: {exc or type(exc).__name__}") from None
    return checked(found, known, source, now_ns)


def checked(given: Any, known: Known, source: str = "request", now_ns: int | None = None) -> Request:
    """A request from a dict that came from anywhere: as `parse`, and what `escalate()` builds its request with.

    Raises:
        ConfigError: with one `Problem` for each thing that is wrong.
    """
    return _Reading(given, known, source, time.time_ns() if now_ns is None else now_ns).request()


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {shortened(next(k for k in keys if keys.count(k) > 1))} is there twice")
    return found


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")


def _whole(digits: str) -> int:
    # Python 3.9 takes seconds for a number of a million digits.
    if len(digits) > _DIGITS_AT_MOST:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


_MISSING = object()


class _Reading:
    """One reading of a dict, which gathers all of its problems."""

    def __init__(self, given: Any, known: Known, source: str, now_ns: int) -> None:
        self.given, self.known, self.source, self.now_ns = given, known, source, now_ns
        self.problems: list[Problem] = []

    def request(self) -> Request:
        if not isinstance(self.given, dict):
            raise ConfigError(f"{self.source}: a request is a JSON object, not {shortened(self.given)}")
        self._keys("", self.given, _KEYS)
        steps, occurrences = self._window()
        options = self._options()
        created_ns, expires_ns = self._times()
        made = Request(
            stages=self._stages(), ranks=self._ranks(), steps=steps, occurrences=occurrences,
            preset=self._preset(bool(options)), options=options, sample=self._sample(), limits=self._limits(),
            reason=self._text("reason"), occasion=self._text("occasion"),
            created_ns=created_ns, expires_ns=expires_ns,
        )  # fmt: skip
        named = self.given.get("id")
        if not self.problems and named is not None and named != made.id:
            self._wrong("id", named, "it is not the id of this content; leave it out, or don't edit the request")
        if self.problems:
            raise ConfigError.of(self.problems)
        return made

    def _wrong(self, key: str, value: Any, why: str, allowed: Collection[str] = ()) -> None:
        if len(self.problems) < _PROBLEMS_AT_MOST:
            self.problems.append(Problem(self.source, None, key, value, why, tuple(allowed)))

    def _keys(self, place: str, given: Mapping[Any, Any], allowed: Collection[str]) -> None:
        for key in given:
            if key not in allowed:
                self._wrong(f"{place}{_shown(key)}", None, "there is no such key", sorted(allowed))

    def _stages(self) -> tuple[str, ...]:
        if "stage" in self.given and "stages" in self.given:
            self._wrong("stages", None, "stage and stages are both given; give one")
        key = "stage" if "stage" in self.given else "stages"
        given = self.given.get(key)
        names = [given] if isinstance(given, str) else given
        if not isinstance(names, (list, tuple)) or not names:
            self._wrong(key, given, "must be a stage's name, or a list of some", self.known.stages)
            return ()
        known = {stage_names.canonical(name) for name in self.known.stages}
        for name in names:
            if not isinstance(name, str) or stage_names.canonical(name) not in known:
                self._wrong(key, name, "no stage of this run", sorted(self.known.stages))
        return tuple(sorted({stage_names.canonical(name) for name in names if isinstance(name, str)}))

    def _ranks(self) -> Ranks:
        given = self.given.get("ranks", _MISSING)
        if given is _MISSING:
            self._wrong("ranks", None, f"must be given: a list of ranks, {ALL} or {SUSPECT_AND_PEER}")
        elif isinstance(given, str) and given in (ALL, SUSPECT_AND_PEER):
            return given
        elif not isinstance(given, (list, tuple)) or not given:
            self._wrong("ranks", given, "must be a list of ranks, or a word", (ALL, SUSPECT_AND_PEER))
        else:
            return self._numbered(given)
        return ()

    def _numbered(self, given: Collection[Any]) -> tuple[int, ...]:
        for rank in given:
            if type(rank) is not int or rank not in self.known.ranks:
                self._wrong("ranks", rank, "no rank of this run", _spans(self.known.ranks))
        found = sorted({rank for rank in given if type(rank) is int})
        if not self.problems and len(found) < len(given):
            self._wrong("ranks", list(given), "a rank is given twice")
        return tuple(found)

    def _window(self) -> tuple[int | None, int | None]:
        steps, occurrences = (self._count("", self.given, key, 1) for key in ("steps", "occurrences"))
        if steps is not None and occurrences is not None:
            self._wrong("occurrences", occurrences, f"steps={steps} is given too; give one of them")
        return (1 if steps is None and occurrences is None else steps), occurrences

    def _preset(self, has_options: bool) -> str | None:
        given = self.given.get("preset")
        if given is None:
            return None if has_options else self._preset_named(DEFAULT_PRESET)
        if has_options:
            self._wrong("preset", given, "options are given too; give one of them")
        return self._preset_named(given)

    def _preset_named(self, given: Any) -> str:
        if not isinstance(given, str) or given not in self.known.presets:
            self._wrong("preset", given, "no preset", sorted(self.known.presets))
        return str(given)

    def _options(self) -> tuple[tuple[str, Any], ...]:
        given = self._table("options", OPTIONS)
        return tuple((key, self._option(key, given[key])) for key in sorted(given) if key in OPTIONS)

    def _option(self, key: str, value: Any) -> Any:
        place = f"options.{key}"
        if key in FLAGS:
            if type(value) is not bool:
                self._wrong(place, value, "must be true or false")
            return value
        if key in ONE_OF:
            if not isinstance(value, str) or value not in ONE_OF[key]:
                self._wrong(place, value, "no such value", ONE_OF[key])
            return value
        allowed = ACTIVITIES if key == "activities" else ()
        names = value if isinstance(value, (list, tuple)) else ()
        is_right = all(isinstance(one, str) and one and (not allowed or one in allowed) for one in names)
        if not is_right or (not names and (allowed or value not in ([], ()))):
            self._wrong(place, value, "must be a list of names, none of them empty", allowed)
        return tuple(sorted({one for one in names if isinstance(one, str) and _is_text(place, one, self._wrong)}))

    def _sample(self) -> Sample | None:
        given = self._table("sample", Sample._fields)
        if not given:
            return None
        per = given.get("per")
        if per not in BOUNDARIES:
            self._wrong("sample.per", per, "must say what is counted", BOUNDARIES)
        skip, record = self._count("sample.", given, "skip", 0), self._count("sample.", given, "record", 1)
        return Sample(str(per), skip or 0, 1 if record is None else record)

    def _limits(self) -> Limits:
        given = self._table("limits", Limits._fields)
        seconds = given.get("seconds")
        if seconds is not None and not _is_positive(seconds):
            self._wrong("limits.seconds", seconds, f"must be a number above 0, and below {_SECONDS_AT_MOST:g}")
            seconds = None
        return Limits(
            None if seconds is None else float(seconds), self._count("limits.", given, "bytes", 1, most=1 << 62)
        )

    def _times(self) -> tuple[int, int]:
        given_ns = self._count("", self.given, "created_ns", 0, most=1 << 62)
        created_ns = self.now_ns if given_ns is None else given_ns
        until_ns = self._count("", self.given, "expires_ns", 1, most=1 << 62)
        expires_ns = created_ns + LIVES_S * 10**9 if until_ns is None else until_ns
        if not 0 < expires_ns - created_ns <= LIVES_AT_MOST_S * 10**9:
            self._wrong("expires_ns", expires_ns, f"must be after created_ns, by at most {LIVES_AT_MOST_S} s")
        return created_ns, expires_ns

    def _table(self, key: str, allowed: Collection[str]) -> Mapping[str, Any]:
        given = self.given.get(key)
        if given is None:
            return {}
        if not isinstance(given, dict):
            self._wrong(key, given, f"must be an object of {', '.join(allowed)}")
            return {}
        self._keys(f"{key}.", given, allowed)
        return given

    def _count(
        self, place: str, given: Mapping[str, Any], key: str, least: int, most: int = COUNT_AT_MOST
    ) -> int | None:
        value = given.get(key)
        if value is None or (type(value) is int and least <= value <= most):
            return value
        self._wrong(f"{place}{key}", value, f"must be a whole number from {least} to {most}")
        return None

    def _text(self, key: str) -> str:
        value = self.given.get(key)
        if value is None:
            return ""
        return str(value) if _is_text(key, value, self._wrong) else ""


_KEYS = ("id", "stage", *Request.__dataclass_fields__)


def _is_text(key: str, value: Any, wrong: Any) -> bool:
    """Is it a text that any terminal and any file may show?"""
    if isinstance(value, str) and len(value) <= WORDS_AT_MOST and (value.isprintable() or not value):
        return True
    wrong(key, value, f"must be a text of at most {WORDS_AT_MOST} printable characters")
    return False


def _shown(key: Any) -> str:
    return key if isinstance(key, str) and key.isprintable() and len(key) < 80 else shortened(key)


def _is_positive(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value < _SECONDS_AT_MOST


def _spans(ranks: Collection[int]) -> tuple[str, ...]:
    """0, 1, 2, 5 -> `0 to 2`, `5`: a run may have thousands."""
    return tuple(_span_texts(sorted(ranks)))


def _span_texts(ranks: list[int]) -> Iterator[str]:
    start = 0
    for at, rank in enumerate(ranks):
        if at + 1 == len(ranks) or ranks[at + 1] != rank + 1:
            yield str(rank) if start == at else f"{ranks[start]} to {rank}"
            start = at + 1
