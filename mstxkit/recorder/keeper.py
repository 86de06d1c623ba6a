"""The keeper: of a run's processes on one host the one that looks after the others as they end.

It holds a lock beside the live files, `keeper-<host>.life`. The first process takes it and hands it over when it stops;
where it is killed, another one takes it within a few seconds. It sees at once that a process is gone, and seals what
that left, in a thread of its own. Whoever stops where no keeper is left does that for all that ended before it. Every
few seconds it also says where all of them are (`store/lookout.py`), unless the host's watchman does; every few minutes
it starts the process that looks after sealed files (`store/sealed_care.py`), and once more when the last one here has
ended: only where a setting asks for it, never on the thread that trains.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Callable, Collection

from .. import faults
from ..engine.choose import engine
from ..host import detached, identity, jitter, life, parts
from ..host.lease import Lease
from ..host.listing import ListedFolder
from ..store import layout, process_pointer, stacks
from ..store.lookout import Lookout
from . import live
from .background import Background, Postponed
from .watchman import WatchmanStarter

if TYPE_CHECKING:
    from .neighbours import Neighbours
    from .process import Recorder

_TURN_S = 1.0
_ADOPT = "mstxkit.recorder.adopt"
# How often it is looked whether there is a keeper, and whether the lock is still ours: a call of the kernel lets go of
# the GIL, and beside a busy thread costs twenty times as much as alone.
_LOOKS_EVERY_S = 3.0
# How long what the dead left is not sealed, so that the watchman can tell of them.
_SEEN_WITHIN_S = 15.0
# Where a whole job is signalled, the keeper is gone before this has passed: whom it says is gone, it has outlived.
_OUTLIVES_BY_S = 0.02
# What the dead may take in shared memory, of a run on this host: at half of it help is called, and comes in time.
DEAD_AT_MOST_BYTES, _HELPED_EVERY_S = 256 << 20, 5.0
# They are sealed within this, whatever interrupts it.
_SEALED_WITHIN_S = _SEEN_WITHIN_S + 5.0
# Processes of a job end together: one of them is the last, and passes on what all have left.
_ENDS_TOGETHER_S, _ASKED_EVERY_S = 0.05, 0.005
# At the end of a Ray driver, its workers have been told to end, and do so in milliseconds.
_WORKERS_END_WITHIN_S = 1.0


class Keeper:
    """What this process does for the others of its run here, while it is their keeper.
    `recorder`: of this process. `agent`: passes on what they hand over (`cluster/agent.py`), in the keeper's thread;
    its calls do not raise. `watching`: what `WatchmanStarter` takes after its words: it starts who watches them for
    hangs. What the dead left is sealed once that one has told of them. `is_forked`: a forked child does not look after
    what was left before.

    Threads/fork: `consider` from one thread at a time, `look` from any. `background`, its own, ends around
        a fork. A forked child makes a new one, and calls `forget` on its parent's.
    """

    def __init__(self, recorder: Recorder, agent: Postponed, watching: tuple[float, int, int], is_forked: bool) -> None:
        self._run, self._folder, self._own = recorder.run, recorder.live.path.parent, recorder.live.path.stem
        self._lock = self._folder / f"{layout.KEEPER}{identity.name_host()}{life.SUFFIX}"
        self._is_keeper, self._has_looked, self._spent_ns = False, False, 0
        self._starting, self._looking, self._is_over = threading.Lock(), threading.Lock(), False
        self._left: frozenset[str] = frozenset()
        self._noted = set[str]()  # who is gone, and of whom that was said
        self._gone_since_s: dict[str, float] = {}
        self._helped_s = 0.0
        self._unseen_s = 0.0
        self._listed = ListedFolder(self._folder)
        self._seen: tuple[frozenset[str], tuple[str, ...]] = frozenset(), ()
        self._looks = jitter.Every(_LOOKS_EVERY_S, "keeper", time.monotonic())
        self._made_neighbours: Neighbours | None = None
        self._lease = Lease(self._lock)
        place = recorder.run, recorder.run_id, self._folder
        self._watchman = WatchmanStarter(place, *watching)
        self._lookout = Lookout(*place, self._watchman.is_there)
        self._agent, self._has_steps = agent, recorder.sealer.has_steps
        self._care, self._care_due = recorder.care, None
        if self._care is not None:
            self._care_due = jitter.Every(self._care.every_s, "care", time.monotonic())
        # Are sealed files written on this host's own disk, so that recording needs no answer of the run folder?
        self._is_apart = self._care is not None and self._care.place is not None
        self.background = Background("mstxkit-keeper", self._turn, lambda: self._neighbours.wake())
        if not is_forked:  # become keeper, if there is none, and look after what was left before
            with faults.noted("keeper"):
                self._has_looked = len(process_pointer.all_here(self._run)) <= 1
                self.look()
                self.consider()

    @property
    def _neighbours(self) -> Neighbours:
        """Watches the others, once there are any."""
        if self._made_neighbours is None:
            from .neighbours import Neighbours

            self._made_neighbours = Neighbours(self._folder)
        return self._made_neighbours

    def look(self) -> None:
        """Every few seconds, on a thread of ours: become keeper where there is none any more, and work once there are
        others. Never raises. *Cost*: three system calls.
        """
        if not self._looking.acquire(blocking=False):
            return  # another thread is at it
        try:
            if self._is_keeper:
                self._is_keeper = life.keep_lock(self._lock)
            elif not self._is_over:
                self._is_keeper = life.hold_lock(self._lock)
                if not self._is_keeper and self._lease.is_silent():  # once he goes on, he finds that it is another's
                    self._lock.unlink(missing_ok=True)
                    self._is_keeper = life.hold_lock(self._lock)
            self.start()
        except Exception as exc:
            faults.note_fault("keeper", exc)
        finally:
            self._looking.release()

    def consider(self) -> int:
        """Once a second, on a thread of ours: `look` where it is time, and what the keeper does beside watching others.
        Gives the CPU time that the keeper's thread has taken since, ns. Never raises.
        """
        with faults.noted("keeper"):
            if self._looks.is_due(time.monotonic()):
                self.look()
            else:
                self.start()
            if self._is_keeper and self._care_due is not None and self._care_due.is_due(time.monotonic()):
                self._start_care("now")
            if self._is_keeper and not self.background.runs and not self._is_over:
                life.show_life(self._lock)
                self._watchman.consider()
                self._lookout.tell_if_due([self._own])
                self._pass_on("turn")
        spent_ns, self._spent_ns = self._spent_ns, 0
        return spent_ns

    def start(self) -> None:
        """Start the thread, or go on after a fork, where there is something to do: with no thread, a fork from C
        is safer. It always runs where sealed files are on this host's own disk: then this thread alone waits for a run
        folder that hangs. Never raises.
        """
        with faults.noted("keeper"):
            if not self._is_keeper or self.background.runs:
                return
            if self._is_apart or not self._has_looked or self._others():
                with self._starting:
                    if not self._is_over:
                        self._neighbours.open()
                        self.background.start()

    def end(self, deadline: float) -> None:
        """End the thread for good, before `hand_over` or `resign`, after which nobody who looks takes the lock."""
        if not self._is_over:
            self._is_over = True
            self._looking.acquire(timeout=max(0.0, deadline - time.monotonic()))  # for good
        if self._starting.acquire(timeout=max(0.0, deadline - time.monotonic())):  # whoever starts it is through
            self._starting.release()
        self.background.pause(deadline)

    def forget(self) -> None:
        """Let go of what is watched: in a forked child, what its parent does."""
        if self._made_neighbours is not None:
            self._made_neighbours.close()

    def resign(self) -> None:
        """Leave all to the next keeper."""
        self._is_keeper = False
        life.let_go(self._lock)
        live.forget_folder(self._folder)
        self.forget()

    def hand_over(self, go_on: Callable[[], bool]) -> None:
        """When this process has sealed what it had itself: seal what the others left, unless another keeper does, and
        let the next one be keeper. `end` came before.
        `go_on`: asked before each bank; where it says no, the rest is left to the next one.
        """
        try:
            is_keeper = self._is_keeper or _wait_within(_ENDS_TOGETHER_S, self._becomes_keeper)
            life.let_go(self._folder / f"{self._own}{life.SUFFIX}")  # the keeper waits for this one no more
            while is_keeper or self._becomes_keeper():
                if identity.read_current().get("under") == parts.RAY_DRIVER and not parts.is_driving():
                    _wait_within(_WORKERS_END_WITHIN_S, lambda: self._are_others_gone() or not go_on())
                self._collect(go_on)
                are_all_gone = _wait_within(_ENDS_TOGETHER_S, self._are_others_gone)
                self._pass_on("last", are_all_gone)
                if are_all_gone and self._is_apart:  # what is on this host's own disk goes into the run
                    self._start_care("last")
                life.let_go(self._lock)  # who found it taken has let go of its own since: then it is taken again
                is_keeper = False
                if are_all_gone or not self._are_others_gone():
                    break
        finally:
            self.resign()

    def _start_care(self, when: str) -> None:
        """*Cost*: a `posix_spawn`, which copies nothing of this process."""
        with faults.noted("caretaking"):
            if self._care is not None:
                detached.start_module("mstxkit.store.sealed_care", [when, *detached.words_of(self._care)])

    def _becomes_keeper(self) -> bool | None:
        """None: the last one has been here, and has removed the folder."""
        try:
            return life.hold_lock(self._lock)
        except FileNotFoundError:
            return None

    def _are_others_gone(self) -> bool:
        try:
            return not any(map(self._neighbours.is_alive, self._others()))
        except FileNotFoundError:
            return True  # the last of them has removed the folder

    def _turn(self) -> bool:
        """See who is gone, for a second at most, and seal what they left. What a fork interrupts goes on after it: a
        program that forks all the time leaves but moments, in which nothing is waited for that is there already.
        """
        before = time.thread_time_ns()
        if not self._is_keeper:
            return False
        life.show_life(self._lock)
        self._watchman.consider()
        self._neighbours.watch(self._others())
        self._neighbours.wait(0)  # in the order in which they were gone
        gone = self._gone()
        if not self._is_due(gone):
            turn_s = _TURN_S if self._has_looked or self._unseen_s else 0
            self.background.rest(lambda: self._neighbours.wait(turn_s))
            gone = self._gone()
        self._note_deaths()
        if self._is_due(gone):
            self._seal(gone)
        if not self.background.is_pausing:
            self._pass_on("turn")
            self._lookout.tell_if_due([self._own, *(name for name in self._others() if name not in gone)])
        self._spent_ns += time.thread_time_ns() - before
        return self._is_apart or bool(self._others())

    def _gone(self) -> frozenset[str]:
        """Who is gone, and has left something."""
        gone = self._neighbours.gone(self._others())
        self._gone_since_s = {name: self._gone_since_s.get(name, time.monotonic()) for name in gone}
        self._left = self._left & gone
        return gone

    def _is_due(self, gone: frozenset[str]) -> bool:
        """Is anything there to be sealed, of which the watchman has told, if it is to tell of it?"""
        new = gone - self._left
        self._have_help(new)
        # At first somebody may die just while it is sealed what was left before.
        is_first = self._watchman.is_on and not (self._has_looked or self._watchman.is_there())
        self._unseen_s = (self._unseen_s or time.monotonic()) if is_first else 0.0
        is_early = is_first and time.monotonic() - self._unseen_s < _SEEN_WITHIN_S
        return not is_early and bool(new - self._unseen(new) or not self._has_looked)

    def _have_help(self, new: frozenset[str]) -> None:
        """Where the dead take more than they may, or have waited for long, as forks interrupt this, a process apart
        seals them, and goes on while more come: no fork interrupts it.
        """
        now_s = time.monotonic()
        if now_s <= self._helped_s:
            return
        self._helped_s = now_s + _TURN_S
        is_late = min(map(self._gone_since_s.__getitem__, new), default=now_s) < now_s - _SEALED_WITHIN_S
        taken_bytes = 0
        for name in new:
            with suppress(OSError):  # it is just being sealed
                taken_bytes += os.stat(self._folder / f"{name}{layout.LIVE_SUFFIX}").st_blocks * 512
        if is_late or taken_bytes > DEAD_AT_MOST_BYTES // 2:
            self._helped_s = now_s + _HELPED_EVERY_S
            detached.start_module(_ADOPT, [str(self._run), str(self._folder)])

    def _unseen(self, gone: frozenset[str]) -> frozenset[str]:
        """Those of whom the watchman, or who follows a killed one, has still to tell: it renames their stacks then."""
        names, since_s = self._listed.names() if self._watchman.is_on else (), time.monotonic() - _SEEN_WITHIN_S
        lately = (n for n in gone if self._gone_since_s.get(n, 0.0) > since_s)
        return frozenset(n for n in lately if f"{n}{layout.STACKS_SUFFIX}" in names)

    def _note_deaths(self) -> None:
        """Beside what they left, whatever becomes of this process: who was first took the others along."""
        self._noted &= self._neighbours.gone_ns.keys()
        if new := self._neighbours.gone_ns.keys() - self._noted:
            self.background.sleep(_OUTLIVES_BY_S)
            for name in new:
                live_file = self._folder / f"{name}{layout.LIVE_SUFFIX}"
                stacks.add_death(live_file, self._own, self._neighbours.gone_ns[name], watched=True)
            self._noted |= new

    def _seal(self, gone: frozenset[str]) -> None:
        first_s, unseen = min(self._gone_since_s.values(), default=0.0), self._unseen(gone)
        self.background.sleep(max(0.0, first_s + _OUTLIVES_BY_S - time.monotonic()))
        if not self.background.is_pausing:
            self._collect(self._goes_on, unseen)
        if not self.background.is_pausing:
            self._has_looked, self._left = True, gone - unseen

    def _goes_on(self) -> bool:
        life.show_life(self._lock)
        return self.background.give_way()

    def _pass_on(self, method: str, *arguments: Any) -> None:
        """The agent does, once anything may have been handed over that is in a step: of nothing else anybody judges."""
        own = f"{self._own}{layout.HANDED_OVER_SUFFIX}"
        try:
            rings = [name for name in self._listed.names() if name.endswith(layout.HANDED_OVER_SUFFIX) and name != own]
        except FileNotFoundError:
            rings = []  # the last process has removed the folder
        is_in_steps = engine.process_step() is not None or self._has_steps()
        if self._agent.made or rings or is_in_steps:
            self._agent.ask(method, *arguments)

    def _collect(self, go_on: Callable[[], bool], but: Collection[str] = ()) -> None:
        from . import adopt

        adopt.collect_dead(self._run, go_on, self._own, self._neighbours.when_gone, but=but)

    def _others(self) -> tuple[str, ...]:
        """Names of the other processes of this run that have, or have left, a live file here."""
        names = self._listed.names()
        if names is not self._seen[0]:
            kept = layout.of_keeper(names, life.SUFFIX, self._own.rsplit("-", 2)[0])
            others = (name for name in kept if name != self._own and not name.startswith(layout.KEEPER))
            self._seen = names, tuple(others)
        return self._seen[1]


def _wait_within(seconds: float, asks: Callable[[], bool | None]) -> bool:
    """Does it become true so soon? Asked again and again, unless it says None."""
    until = time.monotonic() + seconds
    while not (answer := asks()):
        if answer is None or time.monotonic() >= until:
            return False
        time.sleep(_ASKED_EVERY_S)
    return True
