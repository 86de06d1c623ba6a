"""Stands by for requests: says in the control folder what this rank is, and looks for messages there.

Little more than a mailbox is loaded for that. With the first message the process goes on duty (`duty.py`), which takes
over the mailbox and the watcher's thread.
"""

from __future__ import annotations

import os
import time
from typing import Any, Callable, Mapping, Sequence

from ...engine.choose import engine
from ...host import identity, jitter, life
from ...profiling import backends
from ...recorder.background import ENDS_WITHIN_S
from ...store.control_folder import ControlFolder
from ...store.report import SAY_AGAIN_S, Report, Standing, StepPace
from .mailbox import Mailbox
from .post import Post
from .settings import DutySettings
from .watcher import Watcher

IDLE = "idle"
_PLACED_EVERY_S = 5.0
_Place = tuple[Mapping[str, tuple[int, int]], str]  # as `host.parallel.Place`


class Sentry:
    """One rank's, from the start of its watcher to `stop`, or until a `Duty` takes it over.
    `go_on_duty`: called on the watcher's thread where there are messages: takes this over. `beside`: what is done at
    each look while nothing goes on; must not raise.
    """

    origin: int | None = None  # a duty's, which sees stages begin

    def __init__(
        self, post: Post, settings: DutySettings, go_on_duty: Callable[[Sentry], None] = lambda sentry: None,
        beside: Callable[[], object] = lambda: None,
    ) -> None:  # fmt: skip
        self.post, self._go_on_duty = post, go_on_duty
        self._act, self._process = settings.act, life.of_this()  # `_act`: as in `Standing`
        self._can: tuple[int, str | None, _Place] = 0, None, ({}, "")
        self._placed_at, self._said_at = -_PLACED_EVERY_S, 0.0
        self._say_again_s = jitter.own_period_s(SAY_AGAIN_S, "say")
        self.control = ControlFolder(post.run, post.run_id)
        self.mailbox = Mailbox(self.control, post.host_folder)
        self.pace = StepPace()
        self.watcher = Watcher(self._look, settings.poll_every_s, self.mailbox.places_of_news, beside)

    def memory(self) -> Mapping[str, Any] | None:
        """What an earlier process of this rank has left to the next one on duty; None: nothing."""
        last = self.control.acknowledgement(self.post.rank, self.post.role)
        return None if last is None else last.document.get("memory")

    def are_stale(self, stages_seen: int) -> bool:
        """Is what this rank said of itself no longer so, or said long ago? So many stages it has entered by now.

        Where it stands is read again where it has entered another stage, and after some seconds.
        """
        before, now_s = self._can, time.monotonic()
        seen_before, _, place = before
        if stages_seen != seen_before or now_s >= self._placed_at + _PLACED_EVERY_S:
            self._placed_at, place = now_s, ({}, "neither Megatron nor torch.distributed is loaded there")
            if identity.may_have_groups():
                from ...host import parallel

                place = parallel.find_place()
        self._can = stages_seen, backends.find_profiler()[0], place
        return before != self._can or now_s - self._said_at > self._say_again_s

    def said(self, pace: StepPace, phase: str = IDLE, reports: Sequence[Report] = ()) -> dict[str, Any]:
        """The document of its acknowledgement, said now. Any thread: the place is as the watcher saw it last."""
        self._said_at = time.monotonic()
        (backend, refused), (groups, why_no_group) = backends.find_profiler(), self._can[2]
        timeouts: dict[str, str] = {}  # HCCL's, as this process's environment sets them
        if any(name.startswith("HCCL_") for name in os.environ):
            from ...store import hccl

            timeouts = hccl.set_here()
        standing = Standing(
            self.post.world_size, pace.step, pace.step_ns, tuple(engine.stages_seen()), phase, backend, refused,
            tuple(reports), groups, why_no_group, timeouts, self._act,
        )  # fmt: skip
        return {**standing.as_json(), "process": self._process}

    def _look(self) -> None:
        step = engine.process_step()
        if step is not None and step != self.pace.step:
            self.pace = self.pace.at(step, time.monotonic_ns())
        if self.mailbox.poll():
            self._go_on_duty(self)
        elif self.are_stale(len(engine.stages_seen())):
            self._say()
            self.mailbox.flush()

    def _say(self) -> None:
        self.mailbox.acknowledge(self.post.rank, self.said(self.pace), self.post.role)

    def retire(self) -> bool:
        """Leave a post that was only assumed, now that the rank is known."""
        self.watcher.stop()
        self.mailbox.withdraw(self.post.rank, self.post.role)
        return True

    def stop(self, deadline: float | None = None) -> None:
        """Capture ends: say so much, if the run folder answers by `deadline`."""
        self._say()
        deadline = time.monotonic() + ENDS_WITHIN_S if deadline is None else deadline
        self.watcher.background.finish(self.leave, deadline)

    def leave(self) -> None:
        """Write what is to go out, and hold nothing any more. Never raises."""
        self.mailbox.close()
        self.watcher.forget()

    def cost_ns(self) -> int:
        """CPU time of the watcher's thread since the last call."""
        return self.watcher.take_cost_ns()

    def doing(self) -> str | None:
        """Nothing is recorded."""
        return None
