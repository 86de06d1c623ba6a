"""What ranks of a run say of themselves and of requests, as far as somebody who judges needs it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Collection, Mapping, Sequence

from ..store import documents, fate, layout, messages, request
from ..store.control_folder import ControlFolder
from ..store.documents import Unusable
from ..store.fate import Asked, Heard
from .acting import Wish

# Who is there is listed anew after some seconds: of 10,000 ranks that takes a shared file system its time.
_LISTED_FOR_S = 10.0


class Speakers:
    """Those of one run, and what was asked of them. `run`, `run_id`: its folder, and its id."""

    def __init__(self, run: Path, run_id: str) -> None:
        self.control, self._listed_s = ControlFolder(run, run_id), 0.0
        self._listed: list[tuple[int, str]] = []
        self._asked, self._state = dict[str, Asked](), tuple[int, ...]()

    def names(self) -> list[tuple[int, str]]:
        """Rank and role of all that have said anything of themselves."""
        now_s = time.monotonic()
        if not self._listed or now_s >= self._listed_s + _LISTED_FOR_S:
            names = map(layout.ack_of, documents.names_in(self.control.path / layout.ACKS))
            self._listed, self._listed_s = sorted(name for name in names if name is not None), now_s
        return self._listed

    def heard(self, names: Sequence[tuple[int, str]]) -> list[Heard]:
        """What these said last."""
        acks = (self.control.acknowledgement(rank, role) for rank, role in names)
        speakers = (fate.speaker_of(ack) for ack in acks if ack is not None)
        return [speaker for speaker in speakers if speaker is not None]

    def of_ranks(self, ranks: Collection[int]) -> list[Heard]:
        """What all that are one of these ranks said last."""
        return self.heard([name for name in self.names() if name[0] in ranks])

    def asked(self) -> Mapping[str, Asked]:
        """The newest requests by their ids, oldest first; read where they have changed."""
        state = documents.state_of(self.control.path / layout.REQUESTS)
        if state != self._state:
            try:
                self._asked = {each.request.id: each for each in fate.read_asked(self.control)}
            except Unusable:
                self._asked = {}  # whoever sends replaces it
            self._state = state
        return self._asked

    def ask(self, wish: Wish, role: str, now_ns: int) -> str:
        """Ask for a profile, of that role alone unless it is ""; the id of the request. Raises MstxkitError: it cannot
        be asked for, or nothing can be left in the run.
        """
        fields = {
            "stage": wish.stage, "ranks": list(wish.ranks), "steps": 1, "preset": wish.preset, "role": role,
            "reason": f"the judge: {wish.reason}"[: request.WORDS_AT_MOST], "occasion": wish.occasion,
        }  # fmt: skip
        names = request.Known((wish.stage,), wish.ranks, (wish.preset,))
        asked = request.check_request(fields, names, "verdict", now_ns)
        self.control.send(messages.of_request(asked))
        return asked.id

    def cancel(self, id: str, why: str) -> None:
        """Take a request back. Raises MstxkitError: nothing can be left in the run."""
        self.control.send(messages.of_cancel(id, why))
