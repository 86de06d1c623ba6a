"""How the processes of a run ended: by what each said, by what it left behind, and by what became of the others.

*Ended*: it said so itself. *Left*: gone in order, without a word. *Killed*: by a signal of its own, inside of a range,
or while the others went on. The first that failed, crashed or was killed took along who was gone soon after it. Who
says nothing else is judged by its company: those that one launcher started on one host, or all workers of a Ray job. A
company that is gone at once left with the job. Where its launcher says that a child died, or started the company anew,
the first of them was killed. Whoever tells of a death asks here: the tables, and the watchman as it happens.
"""

from __future__ import annotations

import time
from typing import Iterable, Mapping, NamedTuple, Sequence

from ..host import parts
from ..store import incidents, stacks
from ..store.incidents import Incident
from ..store.values import group_by, small_number, text_of
from . import attempts
from .processes import ENDED, KILLED, LEFT, LOST, RUNNING, Process, find_lifetime

# A sign of life is a heartbeat a second, late on a busy host: what is nearer together than this was at once.
AT_ONCE_NS = 3_000_000_000
# Nothing begun for so long inside of a range: a server waits there.
WAITS_NS = 1_000_000_000
# Errors that end a program because one of its processes died.
# Source: torch 2.13 `distributed/elastic/multiprocessing/errors/__init__.py`, `multiprocessing/spawn.py`; Ray 2.42.1
# and 2.60.0 `ray/exceptions.py`; CPython 3.9 to 3.13 `concurrent/futures/process.py`.
A_CHILD_DIED = frozenset(
    (
        "ChildFailedError", "ProcessExitedException", "RayActorError", "ActorDiedError", "ActorUnavailableError",
        "WorkerCrashedError", "OutOfMemoryError", "NodeDiedError", "BrokenProcessPool",
    )
)  # fmt: skip
# Errors by which a program is told to end, or leaves: nobody's fault.
ORDERLY = frozenset(("KeyboardInterrupt", "SystemExit", "GeneratorExit", "SignalException"))
# What is gone nearer together than this was signalled at once; a launcher ends the others so soon after the first, who
# have this long to leave before it kills them (srun 30 s, torchrun 30 s).
SIGNALLED_NS, TAKEN_ALONG_NS = 100_000_000, 40_000_000_000
_NEVER = 1 << 63
WITH_THE_JOB, WITH_ITS_POOL, NEXT_PROGRAM = "with the job", "with its pool", "for another program"
WHILE_OTHERS_WENT_ON = "while the others went on"


class Life(NamedTuple):
    """One process of a run. Times in ns on the run's wall clock.

    Attributes:
        start_ns, last_ns: its first and its last sign of life; now, if it is running.
        gone_ns: when another one of its attempt saw that it was gone; None where none lived to see it.
        was_watched: was it seen at that moment, not only some time later?
        entered_ns: when it entered the last of the ranges that it was inside of; None where it was in none.
    """

    process: Process
    start_ns: int
    last_ns: int
    gone_ns: int | None
    entered_ns: int | None
    was_watched: bool = False

    @property
    def about_gone_ns(self) -> int:
        """When it was gone, as nearly as that is known."""
        return self.gone_ns if self.was_seen and self.gone_ns is not None else self.last_ns

    @property
    def was_seen(self) -> bool:
        """Is it known to the moment when it was gone?"""
        return self.was_watched and self.gone_ns is not None

    def was_gone_after(self, first: Life) -> bool:
        """Or may have been, where that is not known to the moment?"""
        are_seen = (self.was_seen or self.process.state == ENDED) and (first.was_seen or first.process.state == ENDED)
        return self.about_gone_ns - first.about_gone_ns > (0 if are_seen else -AT_ONCE_NS)

    @property
    def is_inside(self) -> bool:
        """Was it inside of a range?"""
        return self.entered_ns is not None

    @property
    def is_waiting(self) -> bool:
        """Has it done nothing for a while, in a range or outside of any?"""
        return self.entered_ns is None or self.last_ns - self.entered_ns >= WAITS_NS

    @property
    def is_crash(self) -> bool:
        """Did a signal of its own end it?"""
        return bool(self.process.fatal) or self.process.signal in stacks.FATAL

    @property
    def has_failed(self) -> bool:
        """Is it sure by itself that it failed, crashed or was killed: by what it left, or by an incident?"""
        if self.process.state == ENDED:
            error, is_beside = self.process.error, self.process.identity.get("under") in parts.BESIDE
            return is_failure(error) and error not in A_CHILD_DIED and not is_beside
        was_killed = self.process.signal == stacks.KILL and not self.process.is_of_ray
        return self.process.state == KILLED and (self.is_crash or self.process.was_told or was_killed)


class Fate(NamedTuple):
    """A state, and how it came to it, as words that follow it; None where there is nothing to add."""

    state: str
    how: str | None = None


def is_wrong(state: str, how: str | None) -> bool:
    """Was a process that ended so killed, or ended by an exception?"""
    return state == KILLED or (state == ENDED and how is not None and is_failure(how.removeprefix("by ")))


def is_failure(error: str | None) -> bool:
    """Does an error that ended a program say that something failed?"""
    return error is not None and error not in ORDERLY


def of_run(
    processes: Sequence[Process], last_open_ns: Mapping[int, int], of_watchmen: Sequence[Incident] = ()
) -> dict[int, Fate]:
    """How each process of a run ended, by its index; each learns which attempt of the job it belongs to.

    Args:
        last_open_ns: When those that are or were inside of ranges entered the last one, by index.
        of_watchmen: The incidents of the run: deaths that the watchmen have told of.
    """
    deaths = [incident for incident in of_watchmen if incident.kind in (incidents.KILLED, incidents.SIGNAL)]
    details = {text_of(death.details.get("process")): death.details for death in deaths}
    for process in processes:
        if process.name in details:
            process.was_told = True
            process.signal = process.signal or small_number(details[process.name].get("signal")) or 0
            process.fatal = process.fatal or text_of(details[process.name].get("fatal"))
    spans = [find_lifetime(process, last_open_ns.get(process.index, 0)) for process in processes]
    numbers = attempts.number_attempts([(process.identity, *span) for process, span in zip(processes, spans)])
    for process, attempt in zip(processes, numbers):
        process.attempt = attempt
    by_name = {process.name: (process, start_ns) for process, (start_ns, _) in zip(processes, spans)}
    lives = []
    for process, (start_ns, last_ns) in zip(processes, spans):
        by, by_start_ns = by_name.get(process.sealed_by, (None, 0))
        # Did who saw it live on in the same start of the job, not in one that came shortly after?
        was_seen = process.sealed_by == stacks.WATCHMAN or (
            by is not None and by.attempt == process.attempt
            and (by_start_ns < last_ns or (by.identity.get("job") or "") == process.identity.get("job"))
        )  # fmt: skip
        gone_ns = process.gone_ns + process.offset_ns if was_seen else None
        seen_ns = time.time_ns() if process.state == RUNNING else last_ns
        lives.append(Life(process, start_ns, seen_ns, gone_ns, last_open_ns.get(process.index), process.was_watched))
    return judge_endings(lives)


def judge_endings(lives: Sequence[Life]) -> dict[int, Fate]:
    """How each process of a run ended, by its index."""
    return _Judge(lives).endings


class _Judge:
    """All processes of a run, and what is known of their endings so far, by index."""

    def __init__(self, lives: Sequence[Life]) -> None:
        words = ((life.process.index, _by_its_own_word(life)) for life in lives)
        self.endings = {index: ending for index, ending in words if ending is not None}
        self._silent = [life for life in lives if life.process.index not in self.endings]
        here = (life for life in lives if life.process.state != LOST)
        self._by_place = group_by(here, lambda life: (life.process.host, life.process.pid))
        self._drivers = {
            life.process.attempt: life for life in lives if life.process.identity.get("under") == parts.RAY_DRIVER
        }
        self._attempts = group_by(lives, lambda life: life.process.attempt)
        # When the first of an attempt was gone on a host, without a word and inside of a range.
        silent_inside = (life for life in self._silent if life.is_inside)
        inside = group_by(silent_inside, lambda life: (life.process.attempt, life.process.host))
        self._died_inside_ns = {place: min(life.last_ns for life in gone) for place, gone in inside.items()}
        for members in self._attempts.values():
            self.endings.update(self._of_first(members))
            self.endings.update((life.process.index, Fate(LEFT, WITH_THE_JOB)) for life in self._signalled(members))
            for company in group_by(members, _launched_by).values():
                self.endings.update(self._of_company(company, members))

    def _of_first(self, members: list[Life]) -> Iterable[tuple[int, Fate]]:
        """The first of an attempt that is sure to have failed, and who was gone soon after it, as the job was."""
        gone = sorted((life for life in members if life.process.state != RUNNING), key=lambda life: life.about_gone_ns)
        first = next((life for life in gone if life.has_failed and not self._was_told_to_end(life, members)), None)
        if first is None:
            return
        if first.process.state == KILLED:
            yield first.process.index, _judge_ending(first, True)
        is_over = max(life.about_gone_ns for life in members) - first.about_gone_ns <= TAKEN_ALONG_NS
        for life in gone:
            if life is first or life.process.index in self.endings or not life.was_gone_after(first):
                continue
            if life.is_crash or life.process.was_told:
                yield life.process.index, _judge_ending(life, True)
            elif is_over:
                yield life.process.index, Fate(LEFT, WITH_THE_JOB)

    def _was_told_to_end(self, life: Life, members: list[Life]) -> bool:
        """Was the whole job signalled, or who started it, and one killed with that, or as it had not left in time?"""
        if life.is_crash or life.process.was_told or life.process.state == ENDED or len(members) == 1:
            return False
        launcher, others = self._find_launcher(life), [other for other in members if other is not life]
        after = [(life.about_gone_ns - other.about_gone_ns, other) for other in others]
        # Source: Ray 2.60.0, "Lifetimes of a User-Spawn Process": a worker that exits kills its children first.
        has_failed = any(is_failure(other.process.error) for other in others)
        is_exit = launcher is not None and launcher.process.is_of_ray and not has_failed
        near = [peer for ns, peer in after if -(AT_ONCE_NS if is_exit else SIGNALLED_NS) <= ns <= TAKEN_ALONG_NS]
        return (
            all(ns >= -SIGNALLED_NS for ns, _ in after)
            or any(peer is launcher for peer in near if peer.process.state == KILLED)
            or any(peer.process.signal == stacks.TERMINATE and 0 < ns <= TAKEN_ALONG_NS for ns, peer in after)
            or (launcher is not None and launcher.process.error in ORDERLY)
        )

    def _signalled(self, members: list[Life]) -> list[Life]:
        """All that were left of a job, where they were gone at once without a word, and nobody lived to see that."""
        over_ns = max(life.last_ns for life in members)
        last = [life for life in members if over_ns - life.last_ns <= AT_ONCE_NS]
        seen = [life.about_gone_ns for life in last if life.was_seen]
        if len(seen) < len(last) or max(seen) - min(seen) > SIGNALLED_NS:
            last = [life for life in last if life.gone_ns is None]
        is_anew = any(life.is_inside for life in last) and self._was_started_anew(last[0], over_ns + TAKEN_ALONG_NS)
        are_silent = all(life.process.index not in self.endings for life in last)
        return last if len(last) > 1 and are_silent and not is_anew else []

    def _of_company(self, company: list[Life], members: list[Life]) -> list[tuple[int, Fate]]:
        silent = [life for life in company if life.process.index not in self.endings]
        over_ns = max(life.last_ns for life in company)
        at_the_end = [life for life in silent if over_ns - life.last_ns <= AT_ONCE_NS]
        killed = {life.process.index for life in silent} - {life.process.index for life in at_the_end}
        for gone in _gone_together(at_the_end):
            killed.update(life.process.index for life in self._killed_of(gone, company, members))
        return [(life.process.index, _judge_ending(life, life.process.index in killed)) for life in silent]

    def _killed_of(self, gone: list[Life], company: list[Life], members: list[Life]) -> list[Life]:
        """Those who were killed, of a company's last who may have been gone at once."""
        # Did another one end by an error of its own, for which this one was then ended?
        failed_ns = (other.last_ns for other in company if other.process.error is not None)
        over_ns = gone[0].gone_ns or gone[0].last_ns
        # Was one of the same attempt gone, inside of a range, on another host some time before?
        was_another_host_first = any(
            attempt == gone[0].process.attempt and host != gone[0].process.host and gone[0].last_ns - ns > AT_ONCE_NS
            for (attempt, host), ns in self._died_inside_ns.items()
        )
        if was_another_host_first or any(last_ns < over_ns for last_ns in failed_ns):
            return []
        if len(gone) == 1 or self._has_launcher_that_is_well(gone[0]):
            return [life for life in gone if not self._left_alone(life, members)]
        return self._find_first(gone)

    def _has_launcher_that_is_well(self, life: Life) -> bool:
        """Then what it started is judged one by one: it may have ended a server that waited, not one at work."""
        launcher = self._find_launcher(life)
        if launcher is None or life.process.is_of_ray or self._was_started_anew(life):
            return False
        return launcher.process.state in (ENDED, RUNNING) and launcher.process.error is None

    def _find_first(self, gone: list[Life]) -> list[Life]:
        """The one that took the others along; none where they left in order."""
        launcher = self._find_launcher(gone[0])
        seen = [life for life in gone if life.gone_ns is not None]
        if self._was_started_anew(gone[0]) or (launcher is not None and launcher.process.error in A_CHILD_DIED):
            return _find_earliest(seen or [life for life in gone if life.is_inside])
        # Where no launcher went on, who saw it was one of them, or the launcher, and was gone later.
        was_outlived = launcher is None or launcher.process.state == KILLED
        return _find_earliest(seen) if was_outlived else []

    def _left_alone(self, life: Life, members: list[Life]) -> bool:
        """Did one leave in order, whatever the others that were gone? By who started it, else by those of its job."""
        launcher = self._find_launcher(life)
        above = [other for other in members if other is not life] if launcher is None else [launcher]
        if any(other.last_ns - life.last_ns > AT_ONCE_NS or other.process.error in A_CHILD_DIED for other in above):
            return False
        has_ended = launcher is not None and launcher.process.state == ENDED
        return has_ended and (life.process.is_of_ray or life.is_waiting) if life.is_inside else bool(above)

    def _find_launcher(self, life: Life) -> Life | None:
        """Who started it, where that is known and a process of the run: the driver of its Ray job, or its parent."""
        mine = life.process
        if mine.is_of_ray:
            return self._drivers.get(mine.attempt)
        parents = self._by_place.get((mine.host, small_number(mine.identity.get("ppid")) or 0), [])
        return next((parent for parent in parents if parent.process is not mine), None)

    def _was_started_anew(self, life: Life, until_ns: int = _NEVER) -> bool:
        """Has its launcher started a later attempt by then?"""
        later = (members for attempt, members in self._attempts.items() if attempt > life.process.attempt)
        theirs = (other for members in later for other in members if other.start_ns <= until_ns)
        return any(_launched_by(other) == _launched_by(life) for other in theirs)


def _by_its_own_word(life: Life) -> Fate | None:
    """What a process said of its end, or what is sure without the others; None where there is nothing of the kind."""
    process, status = life.process, life.process.exit_status
    if process.state == ENDED:
        return Fate(ENDED, process.error and f"by {process.error}")
    if process.state == LEFT:
        return Fate(LEFT, NEXT_PROGRAM)
    if process.state != KILLED:
        return Fate(process.state)
    if status is not None:
        return Fate(KILLED if status or life.is_inside else LEFT, f"by os._exit({status})")
    # Workers of pools and data loaders end by their owner's signal.
    if process.identity.get("under") in (parts.POOL, parts.DATALOADER) and not life.is_inside:
        return Fate(LEFT, WITH_ITS_POOL)
    return None


def _judge_ending(life: Life, is_killed: bool) -> Fate:
    if not is_killed:
        return Fate(LEFT, WITH_THE_JOB)
    if life.process.signal or life.process.fatal:
        return Fate(KILLED, f"by {stacks.signal_name(life.process.signal, life.process.fatal)}")
    return Fate(KILLED, None if life.is_inside else WHILE_OTHERS_WENT_ON)


def _launched_by(life: Life) -> tuple[object, ...]:
    return ("ray",) if life.process.is_of_ray else (life.process.host, small_number(life.process.identity.get("ppid")))


def _find_earliest(gone: list[Life]) -> list[Life]:
    """The one that was gone first. Where that is not known to the moment, rather one that was inside of a range."""
    inside = [life for life in gone if life.is_inside]
    candidates = gone if all(life.was_watched for life in gone) else inside or gone
    return sorted(candidates, key=lambda life: life.about_gone_ns)[:1]


def _gone_together(gone: list[Life]) -> list[list[Life]]:
    """Those that may have been gone at once: who began when another one was gone already was not ended with that."""
    sets: list[list[Life]] = []
    over_ns = -1
    for life in sorted(gone, key=lambda life: (life.gone_ns or _NEVER, life.start_ns)):
        if not sets or life.start_ns > over_ns:
            sets.append([])
            over_ns = life.gone_ns or _NEVER
        sets[-1].append(life)
    return sets
