"""What the kernel says of a process: its state, what it waits in, its CPU time and its input and output.

Source: Linux 5.10 to 6.12, `Documentation/filesystems/proc.rst`. What this user may not see is left out.
"""

from __future__ import annotations

import os
from typing import Any, Collection, Mapping, NamedTuple

from ..host import proc_files

_TICKS = os.sysconf("SC_CLK_TCK")
_TREE_AT_MOST, _THREADS_AT_MOST = 64, 32
# So often a second a thread goes to sleep that works and is interrupted only by others.
_SLEEPS_AT_MOST_S = 20.0
STATES = {"T": "stopped", "t": "traced", "D": "disk", "Z": "gone", "X": "gone", "R": "running"}


class Effort(NamedTuple):
    """What a process and all that it has started have used so far."""

    cpu_s: float  # CPU time
    moved_bytes: int  # read and written, by calls that name a file or a pipe
    # Their threads that run now, or would if there were a core for them, with how often each has gone to sleep so far.
    running: Mapping[int, int] = {}

    def is_run_on(self, later: Effort, seconds: float) -> bool:
        """Did a thread run so many seconds later too that has hardly slept, or has only begun? Who waits for the GIL is
        awake hundreds of times a second, and on a busy host often found so.
        """
        at_most = _SLEEPS_AT_MOST_S * seconds
        return any(sleeps - self.running.get(tid, 0) <= at_most for tid, sleeps in later.running.items())


def state_of(pid: int, beside: Collection[int] = ()) -> str:
    """`running`, `sleeping`, `stopped`, `traced`, `disk` (it waits for one, and cannot be killed), `gone`.

    A thread that cannot be interrupted counts for its process: what the process waits for is there. Those `beside` do
    not count.
    """
    states = [proc_files.stat_of(f"/proc/{pid}/task/{tid}")[:1] for tid in _list_threads(pid) if tid not in beside]
    states = states or [proc_files.stat_of(f"/proc/{pid}")[:1]]
    letters = {state[0] for state in states if state}
    worst = next((letter for letter in "TtD" if letter in letters), "")
    return STATES.get(worst or (proc_files.stat_of(f"/proc/{pid}") or ["X"])[0], "sleeping")


def signal_at_end(pid: int) -> int:
    """The number of the signal that has ended a process which nobody has waited for yet; 0: not known, or none.

    Source: proc(5), field 52 of `stat`, as `waitpid` gives it.
    """
    fields = proc_files.stat_of(f"/proc/{pid}")
    try:
        return int(fields[49]) & 0x7F if fields and fields[0] in ("Z", "X") else 0
    except (IndexError, ValueError):
        return 0


def oom_kills() -> int:
    """How many processes of this host it has killed so far because memory ran out, there or in a cgroup; 0: not known.

    Source: Linux 4.13, `include/linux/vm_event_item.h`, OOM_KILL.
    """
    return int(_read_field("/proc/vmstat", "oom_kill "))


def find_tracer(pid: int) -> int:
    """The process that debugs it; 0: none."""
    return int(_read_field(f"/proc/{pid}/status", "TracerPid:"))


def catches_signal(pid: int, signal: int) -> bool:
    """Has it a handler for this signal?"""
    return bool(int(_read_field(f"/proc/{pid}/status", "SigCgt:"), 16) >> signal - 1 & 1)


def measure_effort(pid: int) -> Effort:
    """Of the process, its descendants that live, and those that have ended and were waited for, as a compiler's."""
    cpu_s, moved_bytes, running = 0.0, 0, dict[int, int]()
    for member in _list_tree(pid):
        fields = proc_files.stat_of(f"/proc/{member}")
        if len(fields) > 14:
            cpu_s += sum(map(int, fields[11:15])) / _TICKS  # utime, stime, cutime, cstime
        moved = dict(
            line.split(": ", 1) for line in proc_files.read_text(f"/proc/{member}/io").splitlines() if ": " in line
        )
        moved_bytes += int(moved.get("rchar", 0)) + int(moved.get("wchar", 0))
        for tid in running_threads(member):
            running[tid] = int(_read_field(f"/proc/{member}/task/{tid}/status", "voluntary_ctxt_switches:"))
    return Effort(cpu_s, moved_bytes, running)


def running_threads(pid: int) -> list[int]:
    """Its threads that run, or would if there were a core for them."""
    return [tid for tid in _list_threads(pid) if proc_files.stat_of(f"/proc/{pid}/task/{tid}")[:1] == ["R"]]


def list_threads(pid: int) -> list[dict[str, Any]]:
    """`tid, name, state, waits_in, kernel` of each thread, the main one first: what the kernel holds it in."""
    return [
        {
            "tid": tid, "name": proc_files.read_text(f"/proc/{pid}/task/{tid}/comm").strip(),
            "state": (proc_files.stat_of(f"/proc/{pid}/task/{tid}") or [""])[0],
            "waits_in": waits_in(pid, tid),
            # `[<0>] futex_wait_queue+0x60/0x90` as `futex_wait_queue`; only root may read it.
            "kernel": [line.partition("] ")[2].partition("+")[0]
                       for line in proc_files.read_text(f"/proc/{pid}/task/{tid}/stack").splitlines()[:12]],
        }
        for tid in _list_threads(pid)[:_THREADS_AT_MOST]
    ]  # fmt: skip


def waits_in(pid: int, tid: int) -> str:
    """The kernel's function in which a thread waits: `futex_wait_queue`; "" where it does not, or may not be seen."""
    return proc_files.read_text(f"/proc/{pid}/task/{tid}/wchan").strip("0\n")[:100] if pid else ""


def _list_threads(pid: int) -> list[int]:
    try:
        return sorted(int(name) for name in os.listdir(f"/proc/{pid}/task") if name.isdecimal())
    except OSError:
        return []


def _list_tree(pid: int) -> list[int]:
    members, waiting = list[int](), [pid]
    while waiting and len(members) < _TREE_AT_MOST:
        member = waiting.pop()
        members.append(member)
        for tid in _list_threads(member):
            children = proc_files.read_text(f"/proc/{member}/task/{tid}/children").split()
            # Where a rank is the first process of a container, who watches is its child, and always runs.
            waiting += [int(child) for child in children if child.isdecimal() and int(child) != os.getpid()]
    return members


def _read_field(path: str, key: str) -> str:
    """What stands behind a word at the beginning of a line; "0" where it stands nowhere."""
    return next((line.split()[1] for line in proc_files.read_text(path).splitlines() if line.startswith(key)), "0")
