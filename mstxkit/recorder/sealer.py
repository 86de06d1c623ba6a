"""The sealer: one background thread that turns full banks into blocks on disk, keeps the live file's identity up to
date and mstxkit's own cost within its budget.

It sleeps in the engine, without the GIL. Encoding (in C) and compression release the GIL too, so that training is
interrupted for microseconds, not for the 5 ms slices of a thread that computes in Python.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Callable

from .. import faults
from ..engine.choose import engine
from ..host import identity, jitter, life
from ..store import livefile
from .background import Background
from .live import LiveFile, life_of

if TYPE_CHECKING:
    from .block_writer import BlockWriter
    from .governor import Governor
    from .handing_over import HandingOver
    from .sealed import SealedFiles

# How often identity is looked at, and how long after a full disk a retry is made. Seconds.
_TICK_S = 1.0
# After so many looks at which nothing had been recorded since the last: seconds to the next, unless something is. Of
# these looks most see to the keeper only; all else is done after some more seconds. Where another thread sees to the
# keeper, all is done when that one wakes, and by itself only after a minute: an interpreter that has slept for long
# takes ten times as long for its first steps, whichever thread takes them.
_QUIET_LOOKS, _QUIET_LOOK_S, _QUIET_TICK_S, _LOOKED_FOR_TICK_S = 5, 10.0, 30.0, 60.0
# Seconds to the next look where no more records than this have come since the last, no calls were coalesced, and
# another thread sees to the keeper. A bank that is full, or a step that moves on, wakes us sooner.
_UNHURRIED_TICK_S, _FEW = 6.0, 1000
_A_LITTLE_S = 0.01
# How often it is looked at who this process is once its rank is known, and whether its lock is still its own.
_OF_ITSELF_S = 5.0
# How often coalesced calls are written and costs looked at; a little less, as a tick may come early.
_GOVERN_EVERY_NS = 990_000_000
# After a fork only this thread is there, asleep, until no other fork has come for so long, or they came for that long.
_FORKS_AGAIN_WITHIN_S, _FORKS_AT_MOST_S = 0.02, 0.5


class Sealer:
    """Seal full banks, and a bank that is not full once it is `seal_every_s` old, in the thread `background`.
    `live`: the live file of this process. `files`: gives where blocks go, as the first one is written. `seal_every_s`:
    seconds after which a bank with records is sealed although it is not full; a quarter less at most, by the process.
    `budget_ratio`: own cost of ranges over wall time beyond which sites are coalesced; 0 for any.
    """

    def __init__(
        self, live: LiveFile, files: Callable[[], SealedFiles], seal_every_s: float, budget_ratio: float = 0.0
    ) -> None:
        self._live, self._files = live, files
        self.background = Background("mstxkit-sealer", self._turn, engine.wake)
        self._sealing = threading.Lock()
        self._learning = threading.RLock()  # a handler of a signal may identify in the midst of it
        self._releasing = threading.Lock()
        self._is_over = False
        self._handing_over: HandingOver | None = None
        self._writer: BlockWriter | None = None
        self._sealed: dict[int, int] = {}
        self._rotating = jitter.Every(seal_every_s, "seal", time.monotonic())
        self.budget_ratio = budget_ratio
        self.governor: Governor | None = None  # made in this thread: no import of its is interrupted by a signal
        engine.flush_coalesced()
        self._governed_ns, self._costs_before = time.monotonic_ns(), engine.site_costs()
        self._coalesced, self._coalesces = sum(count for *_, count in self._costs_before), False
        self._recorded, self._quiet_looks, self._ticked_s = (0, 0), 0, time.monotonic()
        self._parked_s: float | None = None  # since when all of our threads are, but this one
        self._of_itself = jitter.Every(_OF_ITSELF_S, "itself", time.monotonic())
        self._known: tuple[tuple[int, ...], dict[str, Any]] = (), {}
        # Called at each tick in this thread, also where a step is over.
        self.each_tick: list[Callable[[], None]] = []
        # Called once a second in this thread; must not raise. Gives the CPU time that others of our threads took, ns.
        self.each_second: Callable[[], int] = lambda: 0
        # The same where nothing is recorded, of what does not wait for that, several times between two of the above.
        self.each_quiet_look: Callable[[], int] = lambda: 0
        # Called in this thread some time after a fork: starts the other threads. False: not now.
        self.start_others: Callable[[], bool] = lambda: True
        # Is that done by another thread, which calls `tick_too` as well?
        self.is_looked_for: Callable[[], bool] = lambda: False

    def tick_too(self) -> None:
        """Of another thread, which has just been awake: let a tick that is due sooner or later be now."""
        if self._quiet_looks > _QUIET_LOOKS and time.monotonic() > self._ticked_s + _QUIET_TICK_S:
            engine.wake()

    def park(self, deadline: float | None = None) -> bool:
        """End the thread around a fork, as `Background.pause` does; started again, it is the one that starts others."""
        self._parked_s = self._parked_s or time.monotonic()
        return self.background.pause(deadline)

    def close(self) -> None:
        """From now on no bank of the engine is this sealer's: it may be another live file's by the time that a write
        returns which hangs now.
        """
        with self._releasing:
            self._is_over = True

    def _turn(self) -> bool:
        if self._parked_s is not None and not self._has_started_others(self._parked_s):
            return True
        work = self._tick if self._sleep() else self._look
        if not self.background.is_pausing and not self._safely(work):
            # A full disk stays full for a while, and the hot path wakes us at each record that it has to drop.
            self.background.sleep(_TICK_S)
        return True

    def _has_started_others(self, parked_s: float) -> bool:
        """To end and start all threads takes milliseconds, and a program may fork for each sample of a batch."""
        if time.monotonic() < parked_s + _FORKS_AT_MOST_S:
            self.background.sleep(_FORKS_AGAIN_WITHIN_S)
        if self.background.is_pausing:
            return False
        self._parked_s = None  # before: a fork that comes then says it anew
        if not self._safely(self.start_others):
            self._parked_s = parked_s
            self.seal_full_banks()  # the kernel may have no thread for one of them for long
            self.background.sleep(_TICK_S)
        return self._parked_s is None

    def _sleep(self) -> bool:
        """Is it time for a tick by now? Else nothing has happened: a process that has recorded nothing for a while is
        looked at again once it does, or after a longer one.
        """
        recorded = livefile.count_recorded(self._live.view, self._live.layout)
        self._quiet_looks = self._quiet_looks + 1 if recorded == self._recorded else 0
        is_little = recorded[0] == self._recorded[0] and recorded[1] - self._recorded[1] <= _FEW
        self._recorded = recorded
        if self._quiet_looks <= _QUIET_LOOKS:
            is_settled = not self._coalesces and self._known[1].get("rank") is not None
            every_s = _UNHURRIED_TICK_S if is_little and is_settled and self.is_looked_for() else _TICK_S
            self.background.rest(lambda: engine.wait(max(0.0, self._until_tick_s(every_s))))
            return True
        look_s, every_s = (_LOOKED_FOR_TICK_S,) * 2 if self.is_looked_for() else (_QUIET_LOOK_S, _QUIET_TICK_S)
        left_s = self._until_tick_s(every_s)
        tick_s = time.monotonic() + left_s
        is_woken = self.background.rest(lambda: engine.wait_for_records(min(look_s, max(_A_LITTLE_S, left_s))))
        return is_woken or time.monotonic() >= tick_s

    def _until_tick_s(self, every_s: float) -> float:
        """What is left in the bank is sealed in time."""
        now_s = time.monotonic()
        left_s = self._ticked_s + every_s - now_s
        return min(left_s, self._rotating.left_s(now_s) + _A_LITTLE_S) if self._recorded[1] else left_s

    def _look(self) -> bool:
        before = time.thread_time_ns()
        before -= self.each_quiet_look()
        self._look_at_itself()
        livefile.add_to_counter(self._live.view, "own_cost_ns", time.thread_time_ns() - before)
        return True

    def _safely(self, work: Callable[[], bool]) -> bool:
        with faults.noted("sealer"):
            return work()
        return False

    def _tick(self) -> bool:
        before, self._ticked_s = time.thread_time_ns(), time.monotonic()
        is_early = time.monotonic_ns() - self._governed_ns < _GOVERN_EVERY_NS
        faults.tell_hooks(self.each_tick)
        if self.handing_over.hand_over() and is_early and engine.full_bank() < 0:
            livefile.add_to_counter(self._live.view, "own_cost_ns", time.thread_time_ns() - before)
            return True  # a step is over, and that was what it was woken for
        if not is_early:
            self._govern()
            before -= self.each_second()
        is_done = self.seal_full_banks()
        if self._rotating.is_due(time.monotonic()) and engine.rotate():
            self._recorded = livefile.count_recorded(self._live.view, self._live.layout)  # nothing was, by that
        self._look_at_itself()
        livefile.add_to_counter(self._live.view, "own_cost_ns", time.thread_time_ns() - before)
        return is_done

    def _govern(self) -> None:
        """Write what was coalesced, and coalesce what costs too much."""
        if (governor := self.governor) is None:
            from .governor import Governor, outside_ns

            self.governor = governor = Governor(self.budget_ratio, outside_ns())
            governor.decide(self._governed_ns, self._costs_before)  # which only takes down what there was
        engine.flush_coalesced()
        self._governed_ns = time.monotonic_ns()
        costs = engine.site_costs()
        coalesced = sum(count for *_, count in costs)
        self._coalesced, self._coalesces = coalesced, coalesced != self._coalesced
        for site, on in governor.decide(self._governed_ns, costs):
            engine.throttle(site, on)
        livefile.add_to_counter(self._live.view, "own_cost_ns", governor.spent_ns)

    def let_go(self) -> None:
        """Nothing is coalesced for its cost any more: at the end, and in a forked child, where another one begins."""
        for site, on in self.governor.release() if self.governor is not None else ():
            engine.throttle(site, on)

    def finish(self) -> None:
        """The end: write what was coalesced, count what ranges have cost since the last time."""
        self._govern()
        self.let_go()

    def seal_full_banks(self) -> bool:
        """Write every full bank as a block. False when one could not be written; it stays, and is tried again."""
        with self._sealing:
            with faults.noted("sealer.write"):
                while not self._is_over and (index := engine.full_bank()) >= 0:
                    self._seal(index)
                return True
        return False

    def _seal(self, index: int) -> None:
        seq, count = self.writing().write_bank(index)
        with self._releasing:
            if self._is_over:
                self._sealed[seq] = count
            else:
                engine.release_bank(index)

    def seal_the_rest(self, error: str | None = None) -> None:
        """Write what is left in the live file once the engine has let go of it, what is open, and the end. `error`: the
        exception that ended the program. Raises OSError: it could not be written.
        """
        with self._sealing:
            self.writing().write_rest(self._sealed, error)

    def writing(self) -> BlockWriter:
        """Who writes blocks; made with the first of them."""
        if self._writer is None:
            from .block_writer import BlockWriter

            self._writer = BlockWriter(self._live, self._files())
        return self._writer

    @property
    def handing_over(self) -> HandingOver:
        """What this process hands over to the host's keeper. For this thread."""
        if self._handing_over is None:
            from .handing_over import HandingOver

            self._handing_over = HandingOver(self._live)
        return self._handing_over

    def has_steps(self) -> bool:
        """Was anything that was handed over in a step? Any thread."""
        return self._handing_over is not None and self._handing_over.has_steps

    def _look_at_itself(self) -> None:
        """Who it is may be learnt at any time until its rank is known, and changes seldom after that."""
        is_due = self._of_itself.is_due(time.monotonic())
        if is_due or self._known[1].get("rank") is None:
            self.learn_identity()
        if is_due:
            with faults.noted("sealer.life", OSError):
                life.keep_lock(life_of(self._live.path))

    def learn_identity(self) -> None:
        """Rank and role may be known only after the first ranges: the file always has the newest."""
        with self._learning:
            mark = livefile.identity_mark(self._live.view)
            if mark != self._known[0]:
                self._known = mark, livefile.read_identity(self._live.view)
            newest = {**identity.renew_identity(self._known[1]), "first_step": engine.first_step()}
            if newest != self._known[1]:
                livefile.write_identity(self._live.view, newest)
