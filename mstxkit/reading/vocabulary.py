"""The texts of a whole run, each once: a block's own ids become codes that hold across processes."""

from __future__ import annotations

from typing import Callable, NamedTuple

import numpy as np
import numpy.typing as npt

from ..store.livefile import SiteText, Texts
from .decode import U16, U32

Codes = npt.NDArray[np.int64]
_MISSING = -1
UNKNOWN_TEXT = "(unknown)"
UNKNOWN_SITE = SiteText(UNKNOWN_TEXT, UNKNOWN_TEXT, 0)


class SiteName(NamedTuple):
    """What a site's code stands for. `is_stage`: its ranges are occurrences of a stage of their own."""

    name: str
    domain: str
    is_stage: bool


class Vocabulary:
    """Sites by code and stages by code; stage code 0 is no stage. It only grows.

    An id that no text describes gets a name that says so: a damaged text costs the name, not the range.
    """

    def __init__(self) -> None:
        self._sites: dict[SiteName, int] = {}
        self._stages: dict[str, int] = {}
        self._last: tuple[Texts, Codes, Codes] | None = None

    @property
    def sites(self) -> list[SiteName]:
        """What the site codes stand for."""
        return list(self._sites)

    @property
    def stages(self) -> list[str | None]:
        """What the stage codes stand for."""
        return [None, *self._stages]

    def site_code(self, site: SiteText) -> int:
        """The code of a site as a text entry describes it."""
        key = SiteName(site.name, site.domain, site.own_stage != 0)
        return self._sites.setdefault(key, len(self._sites))

    def has_stage_of_its_own(self, name: str, domain: str) -> bool:
        """Is there a site of this name and domain whose ranges are occurrences of a stage of their own?"""
        return SiteName(name, domain, True) in self._sites

    def stage_code(self, key: str) -> int:
        """The code of a stage's key; any text is one, also an empty one."""
        return self._stages.setdefault(key, len(self._stages) + 1)

    def block_codes(self, sites: U16, stages: U16, texts: Texts) -> tuple[U32, U32]:
        """Codes of a block's site ids and stage ids, element by element; stage 0 stays 0."""
        if self._last is None or self._last[0] is not texts:  # blocks often share theirs
            of_sites = {number: self.site_code(site) for number, site in texts.sites.items()}
            of_stages = {**{number: self.stage_code(key) for number, key in texts.stages.items()}, 0: 0}
            self._last = texts, _make_table(of_sites), _make_table(of_stages)
        _, site_table, stage_table = self._last
        codes = _translate_ids(sites, site_table, lambda: self.site_code(UNKNOWN_SITE))
        return codes, _translate_ids(stages, stage_table, lambda: self.stage_code(UNKNOWN_TEXT))


def _make_table(codes: dict[int, int]) -> Codes:
    """The code of each id; the last place stands for all ids that are larger."""
    table = np.full(2 + max(codes, default=0), _MISSING, dtype=np.int64)
    table[list(codes)] = list(codes.values())
    return table


def _translate_ids(ids: U16, table: Codes, unknown: Callable[[], int]) -> U32:
    codes = table.take(ids, mode="clip")
    if len(codes) and codes.min() == _MISSING:
        codes[codes == _MISSING] = unknown()
    return codes.astype(np.uint32)
