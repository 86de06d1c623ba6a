"""Call sites and stages of the Python twin: interned once, for the life of the process."""

from __future__ import annotations

from collections import deque
from typing import Any, Callable, Iterator, Mapping

from ... import faults
from ...host import names
from ...store import livefile, records
from . import banks, encoding
from .sums import StageSums, forget

_STEPS_KEPT = 8
# How many ranges that were still held when they ended are looked after for a site; others are made anew.
LENT_LIMIT = 16
_CATCH_ALL = "(too many names)"

describe: Callable[[object, object, object], Any] = names.describe
# What a pickled site is a call of, and so what it arrives as in another process.
unpickle: Callable[[str, Any, Any], Any] | None = None
on_capped: Callable[[], None] = lambda: None  # noqa: E731

_sites: dict[tuple[bytes, bytes, str | None], Site] = {}
_by_name: dict[str, Site] = {}
_by_id: list[Site] = []
_stage_ids: dict[str, int] = {}
_stages: list[StageTotal] = []
# Keys of the stages that have begun in this process, in order.
_seen: dict[str, None] = {}
# Of those whose ranges have said `waits_for`, to whom.
waits: dict[str, str] = {}


class Site:
    """A call site, interned: one per (name, domain, stage) and process. Pickles as a call of the hook `unpickle`."""

    __slots__ = (
        "body_key", "calls", "coalesced", "cost_ns", "domain", "id", "is_watched", "lent", "limits", "message",
        "message_domain", "name", "own_stage", "payload", "pool", "quick", "stage", "take", "total", "typed",
        "wrappers_pool", "wrappers_take",
    )  # fmt: skip

    def __init__(self, site_id: int, name: Any, stage: Any, domain: Any, described: Any) -> None:
        self.id = site_id
        name_bytes, domain_bytes, key, self.message, self.message_domain = described
        self.name, self.stage, self.domain = name, stage, domain
        self.own_stage = _stage_id(key)
        self.total: Any = stage_of(self.own_stage) if self.own_stage else None
        self.is_watched = bool(self.own_stage)  # see `watch`
        self.payload = livefile.site_payload(name_bytes, domain_bytes, self.own_stage)
        # Calls the quick way, as far as they have been counted, and the others with what they took; see `limits`.
        self.quick = self.calls = self.coalesced = 0
        self.cost_ns = 0.0
        self.limits: Any = None
        # Ranges that nobody holds, how to take one of them, and weak references to those that somebody may hold.
        self.pool: deque[Any] = deque()
        self.take: Callable[[], Any] = self.pool.pop
        self.lent: deque[Any] = deque(maxlen=LENT_LIMIT)
        # Under what a position of a body is kept: see `bodies`.
        self.body_key: Any = object()
        # The same with attributes, or with a stage, by the number of attributes: see `typed`.
        self.typed: dict[int, Any] = {}
        self.wrappers_pool: deque[Any] = deque()
        self.wrappers_take: Callable[[], Any] = self.wrappers_pool.pop
        if isinstance(name, str) and encoding.was_cut(name, name_bytes):
            encoding.on_cut()

    def __reduce__(self) -> tuple[Any, tuple[Any, Any, Any]]:
        if unpickle is None:
            raise TypeError("a Site pickles as a call of the site hook, and none is set")
        return unpickle, (self.name, self.stage, self.domain)

    def __repr__(self) -> str:
        return f"Site({self.name!r}, stage={self.stage!r}, domain={self.domain!r})"


class StageTotal(StageSums):
    """What a stage adds up to in this process: the union of its occurrences, for the last few steps."""

    __slots__ = ("active", "is_seen", "kept", "key", "payload", "since", "step")

    def __init__(self, stage_id: int, key: str) -> None:
        super().__init__(stage_id)
        self.key = key
        self.payload = key.encode("utf-8", "backslashreplace")
        self.active = self.since = self.step = 0
        self.is_seen = False
        self.kept: dict[int, int] = {}

    def begins(self, start: int, step: int, is_recorded: bool = True) -> None:
        """One more occurrence. Times in ticks."""
        with banks.lock:
            if is_recorded:
                kept = self.latest
                if kept.step != step:
                    kept = self.of(step)
                if not kept.active:
                    kept.since = start
                kept.active += 1
            if not self.active:
                self.since = start
                self.step = step
                if not self.is_seen:
                    self.is_seen = True
                    _seen[self.key] = None
            self.active += 1

    def ends(
        self, end: int, step: int, start: int, busy: int, is_inner: bool, attributes: Mapping[str, Any] | None,
        is_recorded: bool = True,
    ) -> None:  # fmt: skip
        """One less; the last of those that overlap adds their union to the step in which the first began."""
        with banks.lock:
            if is_recorded:
                if attributes and (waits_for := attributes.get("waits_for")) is not None:
                    waits[self.key] = waits_for if type(waits_for) is str else ""
                kept = self.latest
                if kept.step != step:
                    kept = self.of(step)
                kept.ends(start, end, busy, is_inner, attributes)
            if self.active:
                self.active -= 1
                if not self.active:
                    self._add(self.step, end - self.since)

    def ends_last(self, end: int, start: int, node: Any) -> None:
        """The same at a position, written for speed: mostly it is the first to begin of all that overlap, and the last
        to end.
        """
        with banks.lock:
            kept = self.latest
            duration = end - start
            if self.active == kept.active == 1 and self.since == kept.since == start:
                self.active = kept.active = 0
                kept.total += duration
                if not kept.count or start < kept.first:
                    kept.first = start
                kept.count += 1
                kept.last = end
                if duration > kept.longest:
                    kept.longest = duration
                try:
                    self.kept[kept.step] += duration
                except KeyError:
                    self._add(kept.step, duration)
                return
        self.ends(end, node.step, start, 0, node.is_inside_itself, None)

    def _add(self, step: int, ticks: int) -> None:
        self.kept[step] = self.kept.get(step, 0) + ticks
        if len(self.kept) > _STEPS_KEPT:
            del self.kept[next(iter(self.kept))]


def intern(name: str, stage: str | None = None, domain: str | None = names.DEFAULT_DOMAIN) -> Site:
    """The site of this name, stage and domain. Never raises for bad values: what is no str is named by its type."""
    domain = names.DEFAULT_DOMAIN if domain is None else domain
    plain = type(name) is str and stage is None and type(domain) is str and domain == names.DEFAULT_DOMAIN
    site = _by_name.get(name) if plain else None
    if site is not None:
        return site
    with banks.lock:
        return _intern(name, stage, domain, plain)


def _intern(name: Any, stage: Any, domain: Any, plain: bool) -> Site:
    if plain and len(_by_id) >= records.SITE_LIMIT:
        return _catch_all()
    described = describe(name, stage, domain)
    key = (described[0], described[1], described[2])
    site = _sites.get(key)
    if site is None:
        if len(_by_id) >= records.SITE_LIMIT:
            return _catch_all()
        site = Site(len(_by_id) + 1, name, stage, domain, described)
        _by_id.append(site)
        _sites[key] = site
    if plain:
        _by_name[name] = site
    return site


def _catch_all() -> Site:
    on_capped()
    faults.warn_once("names", f"more than {records.SITE_LIMIT} names: later ones are recorded as {_CATCH_ALL!r}")
    return _by_name[_CATCH_ALL]


def make_catch_all() -> None:
    """Intern the site of names beyond the limit, before there are too many."""
    intern(_CATCH_ALL)


def count() -> int:
    """How many sites there are."""
    return len(_by_id)


def sites() -> Iterator[Site]:
    """All sites by id."""
    return iter(tuple(_by_id))


def site_of(site_id: int) -> Site:
    """The site with this id."""
    return _by_id[site_id - 1]


def checked(value: Any) -> Site:
    """The same, if it is a site. Raises TypeError: it is none."""
    if type(value) is not Site:
        raise TypeError("a Site was expected")
    return value


def _stage_id(key: str | None) -> int:
    if key is None:
        return 0
    stage_id = _stage_ids.get(key, 0)
    if stage_id or len(_stages) >= records.STAGE_MAX:
        return stage_id
    stage = StageTotal(len(_stages) + 1, key)
    _stages.append(stage)
    _stage_ids[key] = stage.id
    return stage.id


def stage_of(stage_id: int) -> StageTotal:
    """The stage with this id."""
    return _stages[stage_id - 1]


def stage_key(stage_id: int) -> str | None:
    """Its key; None for 0."""
    return _stages[stage_id - 1].key if stage_id else None


def stages() -> Iterator[StageTotal]:
    """All stages by id."""
    return iter(tuple(_stages))


def stages_seen() -> list[str]:
    """Keys of the stages that have begun in this process, in the order of their first begin."""
    return list(_seen)


def after_fork() -> None:
    """In a forked child, none has, none is open, and none has taken any time."""
    _seen.clear()
    forget(stages())
    for stage in stages():
        stage.active, stage.is_seen = 0, False
        stage.kept.clear()


def stage_times(step: int | None, in_force: int | None) -> dict[str, float]:
    """Stage to seconds of `step`, which has ticks of 1 ns.

    None: of the latest step before the one in force that has any, else of the latest that has any.
    """
    if step is None:
        step = _latest(in_force)
    return {stage.key: stage.kept[step] * 1e-9 for stage in stages() if step in stage.kept}


def _latest(in_force: int | None) -> int:
    kept = {step for stage in stages() for step in tuple(stage.kept)}
    steps = kept - {records.NO_STEP}
    finished = [step for step in steps if in_force is not None and step < in_force]
    return max(finished or steps, default=records.NO_STEP)
