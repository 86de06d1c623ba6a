"""What ranks of a run say of themselves and of requests, as far as somebody who judges needs it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Collection, Iterator, Mapping, Sequence

from ..errors import MstxkitError
from ..store import documents, fate, layout, messages, request
from ..store.control_folder import ControlFolder
from ..store.documents import Unusable
from ..store.fate import Asked, Fates, Heard, Progress
from ..store.report import EscalationNews
from ..store.values import forget_oldest
from .acting import Wish, verdict_in

# Who is there is listed anew after some seconds: of 10,000 ranks that takes a shared file system its time.
_LISTED_FOR_S = 10.0
# News are looked for so often; of all requests that are open together so many ranks are read, those asked first.
_LOOKS_EVERY_S, _RANKS_AT_MOST, _ENDED_AT_MOST = 2.0, 256, 10_000


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


class RequestNews:
    """What becomes of a run's requests, told when it changes: for what is exported as it happens. One thread at a time.
    `run`: the run folder. `run_id`: its id.
    """

    def __init__(self, run: Path, run_id: str) -> None:
        self._speakers, self._looks_s = Speakers(run, run_id), 0.0
        self._said: dict[str, str] = {}
        self._ended: dict[str, None] | None = None

    def look(self, now_ns: int) -> list[EscalationNews]:
        """What is new since the last look, one word a request. What had ended before the first look is no news. Never
        raises for what is in the run. `now_ns`: wall clock.
        """
        if time.monotonic() < self._looks_s:
            return []
        self._looks_s = time.monotonic() + _LOOKS_EVERY_S
        try:
            return list(self._news(now_ns))
        except (OSError, MstxkitError):
            return []  # somebody removes the run, or writes in it just now

    def _news(self, now_ns: int) -> Iterator[EscalationNews]:
        is_first, self._ended = self._ended is None, self._ended or {}
        for progress in self._open(now_ns):
            id, counts = progress.asked.request.id, list(progress.counts())
            # Of all ranks together: while it is open that of the last of them, then the worst; "" where none is asked.
            state = "" if not counts else counts[-1] if progress.has_ended else counts[0]
            if progress.has_ended:
                self._ended[id] = None
            if state and state != self._said.get(id, "") and not (is_first and progress.has_ended):
                self._said[id] = state
                request, reports = progress.asked.request, progress.reports
                reason = next((report.reason for report in reports if report.state == state and report.reason), "")
                yield EscalationNews(
                    id, state, now_ns, request.created_ns, str(progress), reason, request.stages,
                    tuple(report.rank for report in reports), request.preset or "", request.reason,
                    (verdict_in(request.occasion) or ("",))[0],
                )  # fmt: skip
        forget_oldest(self._ended, _ENDED_AT_MOST)
        self._said = {id: state for id, state in self._said.items() if id not in self._ended}

    def _open(self, now_ns: int) -> list[Progress]:
        """How those stand that have not ended."""
        open_ = [asked for id, asked in self._speakers.asked().items() if id not in (self._ended or ())]
        if not open_:
            return []
        size = max((rank for rank, _ in self._speakers.names()), default=-1) + 1
        ranks = {rank: None for asked in reversed(open_) for rank in asked.request.ranks_in(size, asked.suspects)}
        fates = Fates(self._speakers.of_ranks(set(list(ranks)[:_RANKS_AT_MOST])), now_ns=now_ns)
        return [fates.progress(asked) for asked in open_]
