"""The texts of a whole run, each once: a block's own ids become codes that hold across processes."""

from __future__ import annotations

from typing import Callable, NamedTuple

import numpy as np

from ..store.livefile import SiteText, Texts
from .decode import U16, U32

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

    def stage_code(self, key: str) -> int:
        """The code of a stage's key; any text is one, also an empty one."""
        return self._stages.setdefault(key, len(self._stages) + 1)

    def site_codes(self, ids: U16, texts: Texts) -> U32:
        """Codes of a block's site ids, element by element."""
        codes = {site_id: self.site_code(site) for site_id, site in texts.sites.items()}
        return _translate(ids, codes, lambda: self.site_code(UNKNOWN_SITE))

    def stage_codes(self, ids: U16, texts: Texts) -> U32:
        """Codes of a block's stage ids, element by element; 0 stays 0."""
        codes = {stage_id: self.stage_code(key) for stage_id, key in texts.stages.items()}
        return _translate(ids, {**codes, 0: 0}, lambda: self.stage_code(UNKNOWN_TEXT))


def _translate(ids: U16, code_of: dict[int, int], unknown: Callable[[], int]) -> U32:
    missing = -1
    table = np.full(int(ids.max(initial=0)) + 1, missing, dtype=np.int64)
    for id, code in code_of.items():
        if id < len(table):
            table[id] = code
    codes = table[ids]
    if (codes == missing).any():
        codes[codes == missing] = unknown()
    return codes.astype(np.uint32)
