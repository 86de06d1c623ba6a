"""What ranks of a run say of themselves and of requests, as far as somebody who judges needs it."""

from __future__ import annotations

import time
from typing import Collection, Sequence

from ..store import documents, fate, layout
from ..store.control_folder import ControlFolder
from ..store.fate import Heard

# Who is there is listed anew after some seconds: of 10,000 ranks that takes a shared file system its time.
_LISTED_FOR_S = 10.0


class Speakers:
    """Those of one run. `control`: its control folder."""

    def __init__(self, control: ControlFolder) -> None:
        self._control, self._listed_s = control, 0.0
        self._listed: list[tuple[int, str]] = []

    def names(self) -> list[tuple[int, str]]:
        """Rank and role of all that have said anything of themselves."""
        now_s = time.monotonic()
        if not self._listed or now_s >= self._listed_s + _LISTED_FOR_S:
            names = map(layout.ack_of, documents.names_in(self._control.path / layout.ACKS))
            self._listed, self._listed_s = sorted(name for name in names if name is not None), now_s
        return self._listed

    def heard(self, names: Sequence[tuple[int, str]]) -> list[Heard]:
        """What these said last."""
        acks = (self._control.acknowledgement(rank, role) for rank, role in names)
        speakers = (fate.speaker_of(ack) for ack in acks if ack is not None)
        return [speaker for speaker in speakers if speaker is not None]

    def of_ranks(self, ranks: Collection[int]) -> list[Heard]:
        """What all that are one of these ranks said last."""
        return self.heard([name for name in self.names() if name[0] in ranks])
