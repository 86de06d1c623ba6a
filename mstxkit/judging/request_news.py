"""What becomes of the requests for profiles of a run, told when it changes: for what is exported as it happens."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Iterator

from ..errors import MstxkitError
from ..store.fate import Fates, Progress
from ..store.report import EscalationNews
from ..store.values import forget_oldest
from . import acting
from .speakers import Speakers

# Looked at so often; of all requests that are open together so many ranks are read, those that were asked first.
_LOOKS_EVERY_S, _RANKS_AT_MOST = 2.0, 256
_ENDED_AT_MOST = 10_000


class RequestNews:
    """Of one run. One thread at a time. `run`: the run folder. `run_id`: its id."""

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
                yield _make_news(progress, state, now_ns)
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


def _make_news(progress: Progress, state: str, now_ns: int) -> EscalationNews:
    request = progress.asked.request
    reason = next((report.reason for report in progress.reports if report.state == state and report.reason), "")
    ranks = tuple(report.rank for report in progress.reports)
    verdict = acting.verdict_in(request.occasion)
    return EscalationNews(
        request.id, state, now_ns, request.created_ns, str(progress), reason, request.stages, ranks,
        request.preset or "", request.reason, "" if verdict is None else verdict[0],
    )  # fmt: skip
