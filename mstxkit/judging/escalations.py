"""Profiles that verdicts ask for, in the control folder of a run: asked for once each, and taken back with the verdict.

`acting.py` decides; here is what it decides by, and what comes of it. What was asked for is read from the run itself,
so that a judge that is started again, or another one, goes on where the last one was.
"""

from __future__ import annotations

import shlex
import time
from collections import Counter
from pathlib import Path
from typing import Iterable, Iterator, Sequence

from ..errors import MstxkitError
from ..store import fate, layout, request
from ..store.fate import Asked, Fates, Heard, Progress
from ..store.report import DONE, EXPIRED, FAILED, IN_A_SESSION
from ..store.session_file import read_sessions
from ..store.verdicts import ALL_SLOW, Verdict
from . import acting
from .acting import Acting, Earlier, NotAsked, Peers
from .speakers import Speakers

# Verdicts that wait for their turn are looked at again so often, and so many words of ranks are read for one.
_LOOKS_EVERY_S, _READ_AT_MOST = 2.0, 64
# Whether the job lets verdicts act, so many ranks are asked, and again after so long.
_ASKED_WHETHER, _SAID_FOR_S = 4, 30.0
# Of requests older than this none is open any more, and so many are remembered.
_OPEN_AT_MOST_NS, _EARLIER_AT_MOST, _CANCELS_AT_MOST = 2 * request.LIVES_S * 10**9, 10_000, 256


class Escalations:
    """What verdicts on one run have asked for, and may still ask for. One thread at a time. `run`, `run_id`: the run
    folder, and its id. `verdicts`: as they were said last, by whomever.
    """

    def __init__(self, run: Path, run_id: str, verdicts: Iterable[Verdict] = ()) -> None:
        self._speakers, self._run, self._run_id = Speakers(run, run_id), str(run), run_id
        self._earlier: dict[str, Earlier] = {}
        self._request_of: dict[str, str] = {}
        self._why: dict[str, str] = {}
        self._final: set[tuple[str, str]] = set()  # id and kind: another kind of it may be one to act on
        self._cancels: dict[str, str] = {}
        self._peer_until_s: dict[str, float] = {}  # until when a verdict waits for a peer
        self._looks_s = self._checks_s = self._acts_until_s = 0.0
        for verdict in verdicts:
            if verdict.request:
                self._remember(acting.asked_by(verdict, verdict.request, verdict.time_ns))
                self._why[verdict.id] = verdict.no_request
            self.noted(verdict)

    def noted(self, verdict: Verdict) -> Verdict:
        """A verdict as it is said, with what it has asked for; one that is withdrawn takes its request back."""
        id = self._request_of.get(verdict.id, "")
        if verdict.withdrawn:
            if id and len(self._cancels) < _CANCELS_AT_MOST:
                self._cancels[id] = verdict.withdrawn
            self._why.pop(verdict.id, None)
            self._final.discard((verdict.id, verdict.kind))
        verdict = verdict._replace(request=id or verdict.request, no_request=self._why.get(verdict.id, ""))
        seen_by = f"mstxkit status {shlex.quote(self._run)}"
        return verdict._replace(next=seen_by) if id and not verdict.withdrawn else verdict

    def consider(self, holding: Sequence[Verdict], limits: Acting, now_ns: int) -> list[Verdict]:
        """Ask for one profile at most, take back what is not wanted any more. Never raises for what is in the run.
        Returns the verdicts, of those that hold, of which something else is to be said now.
        """
        try:
            self._cancel()
            return [*self._ended(holding), *self._ask(holding, limits, now_ns)]
        except (OSError, MstxkitError):
            return []  # a full disk, or a run that somebody removes: at the next look

    # What is asked for.

    def _ask(self, holding: Sequence[Verdict], limits: Acting, now_ns: int) -> list[Verdict]:
        waiting = [v for v in holding if v.id not in self._request_of and (v.id, v.kind) not in self._final]
        held = {verdict.id for verdict in holding}
        self._why = {id: why for id, why in self._why.items() if id in held}
        self._peer_until_s = {id: until_s for id, until_s in self._peer_until_s.items() if id in held}
        self._final &= {(verdict.id, verdict.kind) for verdict in holding}
        is_new = any(verdict.id not in self._why for verdict in waiting)
        if not waiting or (not is_new and time.monotonic() < self._looks_s):
            return []
        self._looks_s = time.monotonic() + _LOOKS_EVERY_S
        if not self._may_act():
            self._why.update((verdict.id, "") for verdict in waiting)
            return []
        self._learn(now_ns)
        blamed = {v.rank for v in holding if v.is_blaming and v.rank is not None and v.impact_ratio >= limits.impact}
        # What costs most first; that everybody is slow, of which no rank is the cause, last.
        waiting.sort(key=lambda verdict: (verdict.kind == ALL_SLOW, -verdict.impact_ratio, verdict.id))
        return list(self._answered(waiting, blamed, limits, now_ns))

    def _answered(self, waiting: Sequence[Verdict], blamed: set[int], limits: Acting, now_ns: int) -> Iterator[Verdict]:
        """Those of which something else is to be said now, each after it was tried, in turn."""
        first: NotAsked | None = None
        for verdict in waiting:
            is_asked = verdict.id in self._request_of  # by another judge
            refusal = None if is_asked else first or self._tried(verdict, blamed, limits, now_ns)
            is_news = refusal is None or self._why.get(verdict.id, "") != refusal.why
            if refusal is not None:
                self._why[verdict.id] = refusal.why
                self._final |= {(verdict.id, verdict.kind)} if refusal.is_final else set()
            if is_news:
                yield self.noted(verdict)
            if first is None and refusal is not None and refusal.may_soon:
                first = NotAsked(f"verdict {verdict.id}, which costs more, comes first")

    def _tried(self, verdict: Verdict, blamed: set[int], limits: Acting, now_ns: int) -> NotAsked | None:
        refusal = acting.refused_by_itself(verdict, limits)
        refusal = refusal or acting.refused_by_others(verdict, list(self._earlier.values()), limits, now_ns)
        if refusal is not None:
            before = [
                f"{acting.name_ranks(of)} never answered request {id}; " for id, of in self._mute_of(verdict).items()
            ]
            return refusal._replace(why="".join(before[-1:]) + refusal.why)
        speakers, shared = self._who_may_be_asked(verdict)
        wish = acting.wish_of(verdict, speakers, now_ns, shared, self._peers(verdict, speakers, blamed, limits))
        if isinstance(wish, NotAsked):
            return wish
        try:
            id = self._speakers.ask(wish, layout.role_in_names(verdict.role), now_ns)
        except MstxkitError as exc:
            return NotAsked(str(exc)[:300])
        self._remember(acting.asked_by(verdict, id, now_ns))
        return None

    def _peers(self, verdict: Verdict, speakers: Sequence[Heard], blamed: set[int], limits: Acting) -> Peers:
        size = next((each.standing.world_size for each in speakers if verdict.rank in (None, each.rank)), 0)
        is_of_group = verdict.rank in verdict.group or verdict.rank is None
        members = is_of_group and set(verdict.group) or set(range(min(size, fate.RANKS_AT_MOST)))
        unheard = members - {rank for rank, _ in self._speakers.names()} - blamed - {verdict.rank}
        until_s = self._peer_until_s.setdefault(verdict.id, time.monotonic() + limits.peer_s)
        mute = {rank for ranks in self._mute_of(verdict).values() for rank in ranks}
        return Peers(blamed, sorted(unheard), mute, time.monotonic() < until_s)

    def _mute_of(self, verdict: Verdict) -> dict[str, tuple[int, ...]]:
        return {id: of.mute for id, of in self._earlier.items() if of.mute and of.verdict == verdict.id}

    def _remember(self, earlier: Earlier) -> None:
        is_known = earlier.id in self._earlier
        if not earlier.mute and (is_known or len(self._earlier) < _EARLIER_AT_MOST):
            self._earlier[earlier.id] = earlier
            self._request_of[earlier.verdict] = earlier.id
            self._why.pop(earlier.verdict, None)

    # What the run says.

    def _may_act(self) -> bool:
        """Does the job let verdicts act, as some ranks say? Whether one does that is to be profiled is seen then."""
        now_s = time.monotonic()
        if now_s >= self._acts_until_s:
            speakers = self._speakers.heard(self._speakers.names()[:_ASKED_WHETHER])
            if acting.only_observes(speakers) or not speakers:
                self._looks_s += _SAID_FOR_S * bool(speakers)
                return False
            self._acts_until_s = now_s + _SAID_FOR_S
        return True

    def _learn(self, now_ns: int) -> None:
        """What was asked for before, by other judges too, and which of it is open."""
        for id, asked in self._speakers.asked().items():
            of, before = acting.verdict_in(asked.request.occasion), self._earlier.get(id)
            if of is not None:
                is_recent = abs(now_ns - asked.request.created_ns) <= _OPEN_AT_MOST_NS
                self._remember(before or Earlier(id, *of, asked.request.created_ns, is_recent))
        for id, earlier in self._earlier.items():
            if earlier.is_open:
                self._earlier[id] = earlier._replace(is_open=not self._has_ended(id))

    def _has_ended(self, id: str) -> bool:
        asked = self._speakers.asked().get(id)
        return asked is None or self._progress(asked).has_ended

    def _progress(self, asked: Asked) -> Progress:
        ranks = set(asked.request.ranks_in(0, asked.suspects))
        return Fates(self._speakers.of_ranks(ranks), lambda: read_sessions(self._run, self._run_id)).progress(asked)

    def _who_may_be_asked(self, verdict: Verdict) -> tuple[list[Heard], set[int]]:
        """Those that may be asked, nearest to the rank first; and the ranks that several processes have."""
        names, role = self._speakers.names(), layout.role_in_names(verdict.role)
        shared = {rank for rank, count in Counter(rank for rank, _ in names).items() if count > 1}
        group, size = {*verdict.group, verdict.rank}, max((rank for rank, _ in names), default=0) + 1
        of_role = [name for name in names if not role or name[1] in ("", role)]
        of_role = [name for name in of_role if not verdict.group or name[0] in group]
        of_role.sort(key=lambda name: (name[0] - (verdict.rank or 0)) % size)
        return self._speakers.heard(of_role[:_READ_AT_MOST]), shared

    # What is taken back.

    def _cancel(self) -> None:
        """Requests of verdicts that hold no more, unless they have begun."""
        for id, why in list(self._cancels.items()):
            asked = self._speakers.asked().get(id)
            if asked is not None and asked.cancelled is None:
                progress = self._progress(asked)
                begun = any(report.state in (*IN_A_SESSION, DONE) or report.recorded for report in progress.reports)
                if not (begun or progress.has_ended):
                    self._speakers.cancel(id, f"the verdict was withdrawn: {why}"[:300])
            self._cancels.pop(id)

    def _ended(self, holding: Sequence[Verdict]) -> list[Verdict]:
        """Of requests that have ended those verdicts to which not all came that was asked for: they say so. Those of
        which a peer never answered are taken back: the verdict may ask for another.
        """
        asking = [(verdict, id) for verdict in holding if (id := self._request_of.get(verdict.id, ""))]
        asking = [(verdict, id) for verdict, id in asking if self._earlier[id].is_open]
        if not asking or time.monotonic() < self._checks_s:
            return []
        self._checks_s = time.monotonic() + _LOOKS_EVERY_S
        before = dict(self._why)
        for verdict, id in asking:
            asked = self._speakers.asked().get(id)
            mute = self._never_answered(asked, verdict) if asked is not None else ()
            self._earlier[id] = self._earlier[id]._replace(is_open=not (mute or self._has_ended(id)), mute=mute)
            if asked is not None and mute:
                del self._request_of[verdict.id]
                if asked.cancelled is None:
                    self._speakers.cancel(id, f"{acting.name_ranks(mute)} never answered")
            elif asked is not None and not self._earlier[id].is_open:
                self._why[verdict.id] = acting.what_failed(self._progress(asked).reports)
        return [self.noted(v) for v, _ in asking if self._why.get(v.id, "") != before.get(v.id, "")]

    def _never_answered(self, asked: Asked, verdict: Verdict) -> tuple[int, ...]:
        """The peers by which a request expired on the rank that is blamed; () where it did not, or may still record."""
        ranks = asked.request.ranks_in(0, asked.suspects)
        words = Fates(self._speakers.of_ranks(set(ranks))).words(asked.request.id, asked.request)
        own = words.get(-1 if verdict.rank is None else verdict.rank)
        if own is None or own.state != EXPIRED or any(report.recorded for report in words.values()):
            return ()
        return tuple(rank for rank in ranks if rank not in words or words[rank].state == FAILED)
