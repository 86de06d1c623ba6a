"""One request on one rank: its window, what of it was recorded, and how it stands."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Mapping

from .moves import DONE, EXPIRED, FAILED, NS, QUEUED, REFUSED, Now, Policy, Report
from .requests import Known, Request, checked

_NOTES_AT_MOST = 10


@dataclass
class Task:
    """A request that has not ended on this rank.

    Args:
        request: What is asked for.
        deadline_ns: Monotonic clock; no session begins after it.
        needs_agreement: Its window begins at a step that all of its ranks agree on.
        state: One of OPEN_STATES.
        reason: What it waits for.
        ready_ns: Monotonic clock; since when it waits for the agreement; None: it does not.
        first_step: First step of the window; None until it is decided, and where occurrences are counted.
        suspects: The ranks that "suspect+peer" stands for.
        had_session: Was any session begun for it?
        ending: State and reason that it is to end with as soon as no session is open; None: it goes on.
        counts: Occurrences recorded, by stage.
        steps: Steps in which anything was recorded, in order.
        bytes: Raw data.
        notes: What is worth a word in its report.
    """

    request: Request
    deadline_ns: int
    needs_agreement: bool = False
    state: str = QUEUED
    reason: str = ""
    ready_ns: int | None = None
    first_step: int | None = None
    suspects: tuple[int, ...] = ()
    had_session: bool = False
    ending: tuple[str, str] | None = None
    counts: Counter[str] = field(default_factory=Counter)
    steps: list[int] = field(default_factory=list)
    bytes: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def recorded(self) -> int:
        """Sessions that were recorded."""
        return sum(self.counts.values())

    @property
    def last_step(self) -> int | None:
        """Last step of the window; None where it has no first, or counts occurrences."""
        return None if self.first_step is None else self.first_step + (self.request.steps or 1) - 1

    def wants(self, stage: str, step: int | None) -> bool:
        """Is this occurrence of a stage, in this step, to be recorded?

        A window whose first step is open begins with the first that is wanted. Where no step was ever told, a step is
        one occurrence.
        """
        if stage not in self.request.stages:
            return False
        if self.request.occurrences is not None or step is None:
            return self.counts[stage] < self._times
        return self.first_step is None or self.first_step <= step <= (self.last_step or 0)

    def began(self, step: int | None) -> None:
        """A stage that is wanted was entered in this step."""
        if self.request.occurrences is None and self.first_step is None:
            self.first_step = step

    def has_recorded(self, stage: str, step: int | None, size_bytes: int) -> None:
        """A session of this stage is closed and its data is there."""
        self.counts[stage] += 1
        self.bytes += size_bytes
        if step is not None and step not in self.steps:
            self.steps.append(step)

    def verdict(self, step: int | None) -> tuple[str, str] | None:
        """State and reason if it is at its end in this step; None while it goes on."""
        if self.request.occurrences is not None or self.first_step is None:
            is_over = all(self.counts[stage] >= self._times for stage in self.request.stages)
        else:
            is_over = step is not None and step > (self.last_step or 0)
        if not is_over:
            return None
        missing = [stage for stage in self.request.stages if not self.counts[stage]]
        window = f"steps {self.first_step} to {self.last_step}"
        return (FAILED, f"{', '.join(missing)} was not recorded in {window}") if missing else (DONE, "")

    def note(self, words: str) -> None:
        """Something that its report is to tell besides, once, and not without end."""
        if words and words not in self.notes and len(self.notes) < _NOTES_AT_MOST:
            self.notes.append(words)

    def over(
        self, step: int | None, now: Now, policy: Policy, used_up: str, process_ends: bool
    ) -> tuple[str, str] | None:
        """State and reason of its end, if it is at its end now and no session of it is open; else None.

        Args:
            step: The rank's step.
            now: Both clocks.
            policy: How long it waits for others.
            used_up: Which budget of the run is used up; empty: none.
            process_ends: Does nothing come any more?
        """
        if self.ending is not None:
            return self.ending
        is_late = now.mono_ns >= self.deadline_ns
        verdict = None if self.state == QUEUED else self.verdict(step)
        if verdict is None and (process_ends or is_late) and self.state != QUEUED and step is not None:
            last = self.verdict(step + 1)  # its last step may be recorded, and just not be followed by another
            verdict = last if last == (DONE, "") else None
        if verdict is not None:
            return verdict
        if process_ends:
            return FAILED, f"the process ended; {self.progress()}"
        if is_late:
            return EXPIRED, "; ".join(word for word in (self.reason, self.progress()) if word)
        if self.ready_ns is not None and now.mono_ns - self.ready_ns > 2 * int(policy.agreement_s * NS):
            return EXPIRED, "no step was agreed: the agreeing rank did not answer"
        if used_up:
            return (FAILED, f"{used_up}; {self.progress()}") if self.had_session else (REFUSED, used_up)
        return None

    def progress(self) -> str:
        """How far it came, in words."""
        if self.request.occurrences is not None or self.first_step is None:
            return f"{self.recorded} of {self._times * len(self.request.stages)} occurrences recorded"
        return f"{len(self.steps)} of {self.request.steps} steps recorded"

    def report(self, rank: int, step: int | None, state: str | None = None, reason: str | None = None) -> Report:
        """As a report of this rank; `state` and `reason`: those of its end."""
        words = [self.reason if reason is None else reason, *self.notes]
        return Report(
            self.request.id,
            rank,
            state or self.state,
            step,
            ready=self.ready_ns is not None and state is None,
            first_step=self.first_step,
            last_step=self.last_step,
            recorded=self.recorded,
            recorded_steps=tuple(self.steps),
            bytes=self.bytes,
            reason="; ".join(word for word in words if word),
        )

    def remembered(self, rank: int, step: int | None) -> dict[str, Any]:
        """As plain data, for a restart."""
        return {
            "request": self.request.as_json(),
            "suspects": list(self.suspects),
            "had_session": self.had_session,
            "first_step": self.first_step if self.needs_agreement else None,
            "report": self.report(rank, step).as_json(),
        }

    @property
    def _times(self) -> int:
        return self.request.occurrences or self.request.steps or 1


def remembered_request(told: Mapping[str, Any]) -> Request:
    """A request from a rank's memory: checked when it came, so any stage, rank and preset is known.

    Raises:
        ConfigError: it is no request.
    """
    presets = [] if told["preset"] is None else [told["preset"]]
    return checked(told, Known(told["stages"], range(1 << 31), presets), "memory")


def life_ns(request: Request, now: Now) -> int:
    """How long a request has to live: never longer than its maker said, however wrong one of their clocks is."""
    return min(request.expires_ns - now.wall_ns, request.expires_ns - request.created_ns)
