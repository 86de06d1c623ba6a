"""Call sites and stages: interned once, for the life of the process."""

from __future__ import annotations

from typing import Any, Callable

from ... import faults
from ...host import names
from ...store import livefile, records
from . import banks, interruptions
from .sums import StageTotal, waits

describe: Callable[[object, object, object], Any] = names.describe
# What a pickled site is a call of, and so what it arrives as in another process.
unpickle: Callable[[str, Any, Any], Any] | None = None
mark: Callable[..., None] = lambda message, **attributes: None  # noqa: E731

_by_description: dict[Any, Site] = {}
_by_name: dict[Any, Site] = {}  # of exact texts
by_id: list[Site] = []
_stages: dict[str, StageTotal] = {}
seen: dict[str, None] = {}  # keys of the stages that have begun in this process, in order


class Site:
    """A call site, interned: one per (name, domain, stage) and process. Pickles as a call of the hook `unpickle`."""

    __slots__ = (
        "bank", "calls", "coalesced", "cost_ns", "domain", "entry", "id", "is_watched", "limits", "message",
        "message_domain", "name", "own_stage", "stage",
    )  # fmt: skip

    def __init__(self, site_id: int, name: Any, stage: Any, domain: Any, described: Any) -> None:
        name_bytes, domain_bytes, key, self.message, self.message_domain = described
        self.id, self.name, self.stage, self.domain = site_id, name, stage, domain
        self.own_stage = None if key is None else _stage_of(key)
        self.is_watched = self.own_stage is not None  # see `listeners`
        payload = livefile.site_payload(name_bytes, domain_bytes, self.own_stage.id if self.own_stage else 0)
        self.entry = livefile.SITE, site_id, payload
        self.bank: Any = None
        self.limits: Any = None  # see `limits`
        self.calls = self.coalesced = 0
        self.cost_ns = 0.0
        if isinstance(name, str):
            banks.count_cut(name, name_bytes)

    def __reduce__(self) -> tuple[Any, tuple[Any, Any, Any]]:
        if unpickle is None:
            raise TypeError("a Site pickles as a call of the site hook, and none is set")
        return unpickle, (self.name, self.stage, self.domain)

    def __repr__(self) -> str:
        return f"Site({self.name!r}, stage={self.stage!r}, domain={self.domain!r})"


def intern(name: Any, stage: Any = None, domain: Any = names.DEFAULT_DOMAIN) -> Site:
    """The site of this name, stage and domain. Never raises for bad values: what is no str is named by its type."""
    domain = names.DEFAULT_DOMAIN if domain is None else domain
    is_exact = type(name) is str and type(domain) is str and (stage is None or type(stage) is str)
    site = _by_name.get((name, stage, domain)) if is_exact else None
    if site is None:
        with banks.lock:
            site = _describe_site(name, stage, domain)
            is_kept = site is not by_id[0] or name == records.CATCH_ALL
            if is_exact and is_kept and len(_by_name) < records.SITE_LIMIT:
                _by_name[name, stage, domain] = site
    return site


def _describe_site(name: Any, stage: Any, domain: Any) -> Site:
    try:
        described = tuple(describe(name, stage, domain))
    except Exception as exc:
        if not interruptions.is_ours(exc, describe):
            raise
        interruptions.note("engine.intern", exc)
        return by_id[0]
    name_bytes, domain_bytes, key = described[:3]
    site = _by_description.get(described[:3])
    if site is None:
        is_as_its_stage = key is not None and (name_bytes, domain_bytes) == (key.encode(), b"default")
        if len(by_id) >= records.SITE_LIMIT and not (is_as_its_stage and _stage_of(key) is not None):
            return _catch_all(key)
        site = _by_description[described[:3]] = Site(len(by_id) + 1, name, stage, domain, described)
        by_id.append(site)
    return site


def _catch_all(key: str | None) -> Site:
    banks.count(banks.NAMES_CAPPED)
    if not faults.counts.get("names"):
        names.tell_of_too_many(mark, records.CATCH_ALL)
    return by_id[0] if key is None or _stage_of(key) is None else _describe_site(key, key, names.DEFAULT_DOMAIN)


def checked(value: Any) -> Site:
    """The same, if it is a site. Raises TypeError: it is none."""
    if type(value) is not Site:
        raise TypeError("a Site was expected")
    return value


def watch_site(site: Site, /) -> None:
    """Watch it from now on, as a site with a stage is from the beginning."""
    checked(site).is_watched = True


def add_cost(site: Site, ns: float, /) -> None:
    """Something else was done for calls of this site, and took so long."""
    checked(site).cost_ns += ns


def _stage_of(key: str) -> StageTotal | None:
    stage = _stages.get(key)
    is_numbered = any(digit in key for digit in "0123456789")
    if stage is None and len(_stages) < (records.NUMBERED_STAGES if is_numbered else records.STAGE_MAX):
        stage = _stages[key] = StageTotal(len(_stages) + 1, key)
    if stage is None:
        names.tell_of_too_many_stages(key)
    return stage


def stages() -> list[StageTotal]:
    """All stages by number."""
    return list(_stages.values())


def stage_keys() -> list[str]:
    """The keys of all stages, in the order of their ids from 1."""
    return list(_stages)


def stage_waits() -> dict[str, str]:
    """Key of each stage whose ranges have said `waits_for`, to whom; "" where that was no text."""
    return dict(waits)


def stages_seen() -> list[str]:
    """Keys of the stages that have begun in this process, in the order of their first begin."""
    return list(seen)
