"""Requests for a deeper profile of a stage: what they may hold, read from text that nobody vouches for.

A request is data: JSON in, a frozen `Request` out, or one `ConfigError` that tells all that is wrong. Nothing in it is
evaluated, imported, unpickled or used as a path. Its id is a hash of what it asks for, so that the same call from every
rank of a program is one request (docs/internals/control.md has the table of fields).
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass
from typing import Any, Collection, Mapping, NamedTuple, Union

from .. import stages as stage_names
from ..errors import ConfigError, Problem, shorten_value
from . import groups, layout, limits
from .limits import SessionLimits
from .options import FLAG, NAMES, NUMBER, ONE_OF, REQUEST, SOME_OF, Option, list_settable
from .records import STEP_MAX
from .values import write_spans

ALL, SUSPECT_AND_PEER = "all", "suspect+peer"
# Instead of a stage: the steps themselves, in one session from the first of them to the end of the last.
WHOLE_STEPS = "all"
COUNTED_FROM = ("training", "process")
BOUNDARIES = ("micro_batch", "mini_batch", "decode_step")
DEFAULT_PRESET = "full"
LIVES_S, LIVES_AT_MOST_S = 3600, 7 * 86400
WORDS_AT_MOST = 500
COUNT_AT_MOST = 1_000_000
_PROBLEMS_AT_MOST = 20

Ranks = Union[str, "tuple[int, ...]"]


class Known(NamedTuple):
    """What a request may name, as whoever reads it knows the run: stages (keys or aliases), global ranks, presets."""

    stages: Collection[str]
    ranks: Collection[int]
    presets: Collection[str]


class Sample(NamedTuple):
    """Which part of each occurrence of a stage is recorded."""

    per: str  # `micro_batch`, `mini_batch` or `decode_step`: what is counted, from 0 in each occurrence
    # skip, record: how many of these pass first, and how many are recorded then
    skip: int = 0
    record: int = 1


class Planned(NamedTuple):
    """When a window begins that a configuration names: every rank knows it from the start."""

    first_step: int  # as the configuration counts it, from 1
    # What step 1 is: `training`, the first step ever; `process`, the first one after this start.
    counted_from: str = "training"
    # Whose own section it is from: where that carries it out itself, the request is refused. "": nobody's.
    framework: str = ""


_UNLIMITED = SessionLimits()


@dataclass(frozen=True)
class Request:
    """One request: which stages of which ranks are profiled how, for how long."""

    stages: tuple[str, ...]  # canonical keys, sorted
    # Global ranks, sorted; or `"all"`; or `"suspect+peer"`: whom the analysis suspects, and one to compare; or
    # groups, `"dp:3,host:node7"` (groups.py). Whom words mean goes with the message that asks.
    ranks: Ranks
    # Every occurrence of the stages in so many steps in a row; None where occurrences are counted.
    steps: int | None = 1
    occurrences: int | None = None  # the next so many occurrences of each stage; None where steps are
    # preset, options: a preset's name, and options over it by name, sorted; without a preset these say it all
    preset: str | None = DEFAULT_PRESET
    options: tuple[tuple[str, Any], ...] = ()
    sample: Sample | None = None  # a part of each occurrence only
    limits: SessionLimits = _UNLIMITED  # what ends a session early
    reason: str = ""  # in the asker's words; not part of the id
    # Which of several equal calls this is: the id's only part that no one reads. The step at which a program
    # asks, the time at which a person does.
    occasion: str = ""
    # The step at which its window begins, where a configuration says so; None: as soon as it may.
    planned: Planned | None = None
    # created_ns, expires_ns: wall clock of the asker, as ranks ask at slightly different times, and after which
    # no session begins; not part of the id
    created_ns: int = 0
    expires_ns: int = LIVES_S * 10**9
    force: bool = False  # let sessions take what they may, however long other ranks wait for these
    role: str = ""  # for processes of this role alone, where several roles have these ranks; "": of any

    @property
    def id(self) -> str:
        """16 hexadecimal digits of what is asked for: equal content is one request, whoever asks, and when."""
        asked = {key: v for key, v in self._as_content().items() if key not in ("reason", "created_ns", "expires_ns")}
        text = json.dumps(asked, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def is_for_one_window(self) -> bool:
        """Is it for one step, or one occurrence, of one stage?"""
        return len(self.stages) == 1 and 1 in (self.steps, self.occurrences) and self.sample is None

    def as_json(self) -> dict[str, Any]:
        """A plain dict for `json.dumps`; `check_request` makes an equal request of it."""
        return {"id": self.id, **self._as_content()}

    def ranks_in(self, world_size: int, suspects: Collection[int] = ()) -> tuple[int, ...]:
        """The ranks meant, in a run of `world_size`; `suspects`: those that words stand for, other than "all"."""
        if self.ranks == ALL:
            return tuple(range(world_size))
        return tuple(sorted(suspects)) if isinstance(self.ranks, str) else self.ranks

    def is_for(self, role: str) -> bool:
        """Is it for processes of this role, of those that have its ranks? It is where either is of no role."""
        return len({layout.role_in_names(name) for name in (self.role, role) if name}) < 2

    def _as_content(self) -> dict[str, Any]:
        return {
            "stages": list(self.stages), "ranks": self.ranks if isinstance(self.ranks, str) else list(self.ranks),
            "steps": self.steps, "occurrences": self.occurrences, "preset": self.preset,
            "options": {key: list(value) if isinstance(value, tuple) else value for key, value in self.options},
            "sample": None if self.sample is None else self.sample._asdict(),
            "limits": self.limits._asdict(), "reason": self.reason, "occasion": self.occasion,
            "created_ns": self.created_ns, "expires_ns": self.expires_ns,
            # Left out where there is none: the ids of requests from before there were any stay what they are.
            **({} if self.planned is None else {"planned": self.planned._asdict()}),
            **({"force": True} if self.force else {}), **({"role": self.role} if self.role else {}),
        }  # fmt: skip


def check_request(fields: Any, names: Known, source: str = "request", now_ns: int | None = None) -> Request:
    """A request from a dict that came from anywhere, from a file or of what `escalate()` was given.
    `source`: what messages call it. `now_ns`: as `created_ns` where that is left out; default: this host's wall clock.
    Raises ConfigError: with one `Problem` for each thing in it that is wrong or unknown.
    """
    return _RequestFields(fields, names, source, time.time_ns() if now_ns is None else now_ns).request()


class _RequestFields:
    """One reading of a dict, which gathers all of its problems."""

    def __init__(self, fields: Any, names: Known, source: str, now_ns: int) -> None:
        self.fields, self.names, self.source, self.now_ns = fields, names, source, now_ns
        self.problems: list[Problem] = []

    def request(self) -> Request:
        if not isinstance(self.fields, dict):
            raise ConfigError(f"{self.source}: a request is a JSON object, not {shorten_value(self.fields)}")
        self._check_keys("", self.fields, _KEYS)
        steps, occurrences = (self._count_at("", self.fields, key, 1) for key in ("steps", "occurrences"))
        if steps is not None and occurrences is not None:
            self._wrong("occurrences", occurrences, f"steps={steps} is given too; give one of them")
        elif occurrences is None:
            steps = steps or 1
        options = self._read_options()
        created_ns, expires_ns = self._read_times()
        if type(force := self.fields.get("force", False)) is not bool and force is not None:
            self._wrong("force", force, "must be true or false")
        made = Request(
            stages=self._read_stages(), ranks=self._read_ranks(), steps=steps, occurrences=occurrences,
            preset=self._read_preset(bool(options)), options=options, sample=self._read_sample(), limits=self._limits(),
            reason=self._text_at("reason"), occasion=self._text_at("occasion"), planned=self._read_planned(),
            created_ns=created_ns, expires_ns=expires_ns, force=force is True, role=self._text_at("role"),
        )  # fmt: skip
        id = self.fields.get("id")
        if not self.problems and id is not None and id != made.id:
            self._wrong("id", id, "it is not the id of this content; leave it out, or don't edit the request")
        if self.problems:
            raise ConfigError.of(self.problems)
        return made

    def _wrong(self, key: str, value: Any, why: str, allowed: Collection[str] = ()) -> None:
        if len(self.problems) < _PROBLEMS_AT_MOST:
            self.problems.append(Problem(self.source, None, key, value, why, tuple(allowed)))

    def _check_keys(self, place: str, table: Mapping[Any, Any], allowed: Collection[str]) -> None:
        for key in table:
            if key not in allowed:
                shown = key if isinstance(key, str) and key.isprintable() and len(key) < 80 else shorten_value(key)
                self._wrong(f"{place}{shown}", None, "there is no such key", sorted(allowed))

    def _read_stages(self) -> tuple[str, ...]:
        if "stage" in self.fields and "stages" in self.fields:
            self._wrong("stages", None, "stage and stages are both given; give one")
        key = "stage" if "stage" in self.fields else "stages"
        field = self.fields.get(key)
        names = [field] if isinstance(field, str) else field
        if not isinstance(names, (list, tuple)) or not names:
            self._wrong(key, field, "must be a stage's name, or a list of some", self.names.stages)
            return ()
        of_the_run = {stage_names.canonical_key(name) for name in self.names.stages}
        for name in names:
            if not isinstance(name, str) or stage_names.canonical_key(name) not in of_the_run:
                self._wrong(key, name, "no stage of this run", sorted(self.names.stages))
        return tuple(sorted({stage_names.canonical_key(name) for name in names if isinstance(name, str)}))

    def _read_ranks(self) -> Ranks:
        ranks = self.fields.get("ranks")
        if "ranks" not in self.fields:
            self._wrong("ranks", None, f"must be given: a list of ranks, {ALL} or {SUSPECT_AND_PEER}")
        elif isinstance(ranks, str) and ranks in (ALL, SUSPECT_AND_PEER):
            return ranks
        elif groups.are_groups(ranks):
            try:
                return groups.strip_words(str(ranks))
            except ValueError as exc:
                self._wrong("ranks", ranks, f"{exc}; give numbers, {', '.join(groups.FORMS)}")
        elif not isinstance(ranks, (list, tuple)) or not ranks:
            self._wrong("ranks", ranks, "must be a list of ranks, or a word", (ALL, SUSPECT_AND_PEER, *groups.FORMS))
        else:
            return self._check_numbered(ranks)
        return ()

    def _check_numbered(self, ranks: Collection[Any]) -> tuple[int, ...]:
        for rank in ranks:
            if type(rank) is not int or rank not in self.names.ranks:
                self._wrong("ranks", rank, "no rank of this run", write_spans(self.names.ranks, " to "))
        distinct = sorted({rank for rank in ranks if type(rank) is int})
        if not self.problems and len(distinct) < len(ranks):
            self._wrong("ranks", list(ranks), "a rank is given twice")
        return tuple(distinct)

    def _read_preset(self, has_options: bool) -> str | None:
        preset = self.fields.get("preset")
        if preset is None and has_options:
            return None
        preset = DEFAULT_PRESET if preset is None else preset
        if not isinstance(preset, str) or preset not in self.names.presets:
            self._wrong("preset", preset, "no preset", sorted(self.names.presets))
        return str(preset)

    def _read_options(self) -> tuple[tuple[str, Any], ...]:
        options = {option.name: option for option in list_settable(REQUEST)}
        values = self._table_at("options", options)
        return tuple((key, self._read_option(options[key], values[key])) for key in sorted(values) if key in options)

    def _read_option(self, option: Option, value: Any) -> Any:
        place, value = f"options.{option.name}", option.meant(value)
        if not option.takes(value) or (option.is_list and option.default and not value):
            self._wrong(place, value, _DEMANDS[option.kind], option.values)
        if not option.is_list:
            return value
        names = value if isinstance(value, (list, tuple)) else ()
        return tuple(sorted({name for name in names if isinstance(name, str) and self._is_text(place, name)}))

    def _read_sample(self) -> Sample | None:
        table = self._table_at("sample", Sample._fields)
        if not table:
            return None
        per = table.get("per")
        if per not in BOUNDARIES:
            self._wrong("sample.per", per, "must say what is counted", BOUNDARIES)
        skip, record = self._count_at("sample.", table, "skip", 0), self._count_at("sample.", table, "record", 1)
        return Sample(str(per), skip or 0, 1 if record is None else record)

    def _read_planned(self) -> Planned | None:
        table = self._table_at("planned", Planned._fields)
        if not table:
            return None
        if self.fields.get("occurrences") is not None:
            self._wrong("planned", None, "occurrences are counted from now on: a planned window has steps")
        first_step = self._count_at("planned.", table, "first_step", 1, most=STEP_MAX + 1)
        counted_from = table.get("counted_from", COUNTED_FROM[0])
        if counted_from not in COUNTED_FROM:
            self._wrong("planned.counted_from", counted_from, "must say what step 1 is", COUNTED_FROM)
        framework = table.get("framework", "")
        is_text = self._is_text("planned.framework", framework)
        return Planned(first_step or 1, str(counted_from), framework if is_text else "")

    def _limits(self) -> SessionLimits:
        by_name = limits.by_name()
        table = self._table_at("limits", by_name)
        values: dict[str, Any] = {}
        for name in (name for name in table if name in by_name and table[name] is not None):
            if by_name[name].takes(table[name]):
                values[name] = by_name[name].kind(table[name])
            else:
                self._wrong(f"limits.{name}", table[name], by_name[name].demand)
        return SessionLimits(**values)

    def _read_times(self) -> tuple[int, int]:
        created_ns = self._count_at("", self.fields, "created_ns", 0, most=1 << 62)
        created_ns = self.now_ns if created_ns is None else created_ns
        expires_ns = self._count_at("", self.fields, "expires_ns", 1, most=1 << 62)
        expires_ns = created_ns + LIVES_S * 10**9 if expires_ns is None else expires_ns
        if not 0 < expires_ns - created_ns <= LIVES_AT_MOST_S * 10**9:
            self._wrong("expires_ns", expires_ns, f"must be after created_ns, by at most {LIVES_AT_MOST_S} s")
        return created_ns, expires_ns

    def _table_at(self, key: str, allowed: Collection[str]) -> Mapping[str, Any]:
        table = self.fields.get(key)
        if isinstance(table, dict):
            self._check_keys(f"{key}.", table, allowed)
            return table
        if table is not None:
            self._wrong(key, table, f"must be an object of {', '.join(allowed)}")
        return {}

    def _count_at(
        self, place: str, table: Mapping[str, Any], key: str, least: int, most: int = COUNT_AT_MOST
    ) -> int | None:
        value = table.get(key)
        if value is None or (type(value) is int and least <= value <= most):
            return value
        self._wrong(f"{place}{key}", value, f"must be a whole number from {least} to {most}")
        return None

    def _text_at(self, key: str) -> str:
        value = self.fields.get(key)
        return str(value) if value is not None and self._is_text(key, value) else ""

    def _is_text(self, place: str, value: Any) -> bool:
        """Is it a text that any terminal and any file may show?"""
        if isinstance(value, str) and len(value) <= WORDS_AT_MOST and (value.isprintable() or not value):
            return True
        self._wrong(place, value, f"must be a text of at most {WORDS_AT_MOST} printable characters")
        return False


_DEMANDS = {
    FLAG: "must be true or false", ONE_OF: "no such value", NUMBER: "must be a number from 0, or null",
    **dict.fromkeys((SOME_OF, NAMES), "must be a list of names, none of them empty"),
}  # fmt: skip
_KEYS = ("id", "stage", *Request.__dataclass_fields__)
