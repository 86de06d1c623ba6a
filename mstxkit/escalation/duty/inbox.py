"""What of the messages and reports in the control folder one rank's machine hears, and when."""

from __future__ import annotations

import contextlib
import time
from typing import AbstractSet, Any, Collection, Iterable, Iterator, Mapping

from ... import faults, stages
from ...errors import ConfigError
from ...pieces import boundaries
from ...profiling import presets
from ...store import layout, messages
from ...store.control_folder import ControlFolder
from ...store.report import REFUSED, Report, Standing
from ...store.request import WHOLE_STEPS
from ..machine import moves
from .own_sections import carried_out_by_itself

_RANKS_A_SECOND = 400  # so many files of other ranks are read at most, by the agreeing rank
_LOOKS_ELSEWHERE_S = 2.0


class Inbox:
    """Messages and reports on their way to the machine of one rank, made fit for it.

    A request waits here until this process has entered one of its stages: several processes may have the same rank, and
    it is for those that do the work. What can never be done here is refused, with the reason.

    Threads/fork: for the watcher; others only read the attributes.
    """

    def __init__(self, rank: int, world_size: int, role: str = "") -> None:
        self._rank, self._world_size, self._role = rank, world_size, role
        self.refused: dict[str, Report] = {}  # reports on requests that the machine never hears of, by id
        self.reasons: dict[str, str] = {}  # request id to the asker's words
        self.of_one_window: set[str] = set()  # ids of requests for one window alone
        self.waiting: dict[str, moves.RequestReceived] = {}  # for this process to enter their stage
        self._heard: dict[tuple[str, int], Report] = {}
        self._listens_again_at = self._looks_again_at = 0.0
        self.has_refused = False  # was anything refused since the owner said so?

    def events(self, arrived: Iterable[dict[str, Any]], seen: AbstractSet[str]) -> Iterator[moves.Event]:
        """Events of these messages, oldest first, and of earlier ones that were waiting for a stage.

        `seen`: canonical keys of the stages that this process has entered.
        """
        for message in arrived:
            try:
                event = messages.read_message(message, presets.list_presets())
            except ConfigError as exc:
                faults.warn_once("control.messages", f"a message in the control folder is not obeyed: {exc}")
                self._refuse(str(message.get("id")), str(exc))
                continue
            if not isinstance(event, moves.RequestReceived):
                # What was said of a request must not be told before the request itself.
                yield from self._ready(seen)
                yield event
            elif event.request.is_for(self._role):
                self.waiting[event.request.id] = event
        yield from self._ready(seen)

    def _ready(self, seen: AbstractSet[str]) -> Iterator[moves.RequestReceived]:
        for id, event in list(self.waiting.items()):
            enters = not seen.isdisjoint(event.request.stages) or (bool(seen) and WHOLE_STEPS in event.request.stages)
            if not enters and event.request.planned is None:
                continue  # what is planned is known from the start, also of stages that come first in its window
            del self.waiting[id]
            self.reasons[id] = event.request.reason
            if event.request.is_for_one_window:
                self.of_one_window.add(id)
            refusal = self._refusal(event)
            if refusal:
                self._refuse(id, refusal)
            else:
                yield event

    def _refusal(self, event: moves.RequestReceived) -> str:
        """Why this rank cannot do its part of it; empty where it can, or has none."""
        request = event.request
        if request.planned is not None and (theirs := carried_out_by_itself(request.planned.framework)):
            faults.warn_once("configuration", theirs)
            return theirs
        if request.sample is None or self._rank not in request.ranks_in(self._world_size, event.suspects):
            return ""
        reasons = (boundaries.explain_refusal(stage, request.sample.per) for stage in request.stages)
        return "; ".join(reason for reason in reasons if reason)

    def _refuse(self, id: str, reason: str) -> None:
        self.refused[id] = Report(id[:200], self._rank, REFUSED, reason=reason)
        self.has_refused = True

    def find_stages_elsewhere(self, control: ControlFolder, missing: AbstractSet[str]) -> frozenset[str]:
        """Of these stages those that processes of other roles with this rank have entered; looked for now and then."""
        if not missing or time.monotonic() < self._looks_again_at:
            return frozenset()
        self._looks_again_at = time.monotonic() + _LOOKS_ELSEWHERE_S
        entered, own = set[str](), layout.role_in_names(self._role)
        for acknowledgement in control.acknowledgements(of=self._rank):
            with contextlib.suppress(ConfigError):
                if acknowledgement.role != own:
                    entered.update(map(stages.canonical_key, Standing.read(acknowledgement.document).stages))
        return frozenset(missing & entered)

    def heard_from(self, control: ControlFolder, awaited: Mapping[str, Collection[int]]) -> Iterator[Report]:
        """What other ranks of this role say that is new. Reads a file for each, and not more often than is bearable.
        `awaited`: request id to the ranks of which this one waits to hear.
        """
        if not awaited or time.monotonic() < self._listens_again_at:
            return
        ranks = sorted(set().union(*awaited.values()) - {self._rank})
        self._listens_again_at = time.monotonic() + len(ranks) / _RANKS_A_SECOND
        self._heard = {key: report for key, report in self._heard.items() if key[0] in awaited}
        for rank in ranks:
            acknowledgement = control.acknowledgement(rank, self._role)
            try:
                reports = () if acknowledgement is None else Standing.read(acknowledgement.document).reports
            except ConfigError:
                continue
            for report in reports:
                is_awaited = report.rank == rank and rank in awaited.get(report.id, ())
                if is_awaited and self._heard.get((report.id, rank)) != report:
                    self._heard[report.id, rank] = report
                    yield report
