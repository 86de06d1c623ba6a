"""Nobody adopts who lives, whatever his namespace, pause or descriptors; who became another program was not killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from builders import lives

from mstxkit.recorder import adopt
from mstxkit.store import process_pointer

RECORDS = """
    import sys, mstxkit
    mstxkit.capture(sys.argv[1], heartbeat_s=0.02)
    recorded = 0
    def record(count):
        global recorded
        for _ in range(count):
            with mstxkit.mstx_range("r", n=recorded):
                recorded += 1
    record(100)
    print("ready", flush=True)
    for line in sys.stdin:
        exec(line)
        print("done", flush=True)
"""
# Another pid namespace and another time namespace, where pids and start times are others; needs root.
ELSEWHERE = ["unshare", "--pid", "--time", "--boottime", "5000", "--monotonic", "5000", "--fork", "--mount-proc"]
COLLECTS = "import sys; from mstxkit.recorder import adopt; print(len(adopt.collect_dead(sys.argv[1])))"


def can_be_elsewhere() -> bool:
    """May this user make namespaces here?"""
    unshare = shutil.which(ELSEWHERE[0])
    return unshare is not None and not subprocess.run([*ELSEWHERE, "true"], capture_output=True).returncode


elsewhere = pytest.mark.skipif(not can_be_elsewhere(), reason="namespaces cannot be made here")


class Victim:
    """A process that records, and does as it is told."""

    def __init__(self, run: Path, *before: str) -> None:
        command = [*before, sys.executable, "-c", lives.dedented(RECORDS), str(run)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen(command, env=lives.environment(), text=True, **pipes)  # type: ignore[call-overload]
        assert self.says() == "ready\n", self.process.communicate()

    def says(self) -> str:
        """Its next line."""
        return str(self.process.stdout.readline())

    def tell(self, statement: str) -> None:
        """Let it begin one line of Python."""
        self.process.stdin.write(statement + "\n")
        self.process.stdin.flush()

    def does(self, statement: str) -> None:
        """Let it run one line of Python to its end."""
        self.tell(statement)
        assert self.says() == "done\n", self.process.communicate()

    def ends(self) -> None:
        """Let it end as it wants."""
        _, err = self.process.communicate(timeout=lives.FINISHES_WITHIN_S)
        assert "mstxkit: fault" not in err


def recorded(run: Path) -> list[int]:
    return sorted(row["attributes"]["n"] for row in lives.ranges(run) if row["name"] == "r")


def states(run: Path) -> list[str]:
    return sorted(row["state"] for row in lives.processes(run))


@elsewhere
def test_who_lives_in_another_namespace_is_not_adopted_however_long_it_is_paused(run: Path) -> None:
    """Its heartbeat's age says nothing: the clock of a time namespace that begins at 5,000 s is 83 minutes away."""
    victim = Victim(run, *ELSEWHERE)
    victim.does("import os, signal")
    inner = int(Path(f"/proc/{victim.process.pid}/task/{victim.process.pid}/children").read_text())
    os.kill(inner, signal.SIGSTOP)
    time.sleep(0.2)
    found = lives.run(COLLECTS, run), states(run)
    os.kill(inner, signal.SIGCONT)
    victim.does("record(100)")
    victim.ends()

    assert found == ("0\n", ["running"])
    assert recorded(run) == list(range(200))
    assert states(run) == ["ended"]


@elsewhere
def test_who_was_killed_in_another_namespace_is_adopted(run: Path) -> None:
    victim = Victim(run, *ELSEWHERE)
    inner = int(Path(f"/proc/{victim.process.pid}/task/{victim.process.pid}/children").read_text())
    os.kill(inner, signal.SIGKILL)
    victim.process.communicate()

    assert states(run) == ["killed"]
    assert lives.run(COLLECTS, run) == "1\n"
    assert recorded(run) == list(range(100))


@elsewhere
def test_from_another_namespace_nobody_is_adopted_who_lives_here(run: Path) -> None:
    victim = Victim(run)
    command = [*ELSEWHERE, sys.executable, "-c", COLLECTS, str(run)]
    done = subprocess.run(command, env=lives.environment(), capture_output=True, text=True)
    victim.does("record(100)")
    victim.ends()

    assert done.stdout == "0\n", done.stderr
    assert recorded(run) == list(range(200))


def test_who_closed_every_descriptor_it_had_is_not_adopted(run: Path) -> None:
    """As daemons do. Its lock is gone with them, until it looks, once a second."""
    victim = Victim(run)
    victim.does("import os; os.closerange(3, 4096)")
    found = lives.run(COLLECTS, run)
    victim.does("record(100)")
    victim.ends()

    assert found == "0\n"
    assert recorded(run) == list(range(200))


def test_what_was_sealed_by_mistake_and_then_went_on_is_whole(run: Path) -> None:
    """A bank that is sealed twice counts once, with all that it held in the end."""
    victim = Victim(run)
    (live,) = lives.live_folder(run).glob("*.live")
    copy = live.with_name("kept")
    shutil.copy(live, copy)
    (pointer,) = (run / "live").iterdir()
    about = pointer.read_bytes()
    victim.does("record(100)")
    victim.ends()
    # As an adopter that was wrong had found it.
    copy.parent.mkdir(exist_ok=True)
    copy.rename(live)
    pointer.write_bytes(about)
    adopt.collect_dead(run)

    assert recorded(run) == list(range(200))
    assert states(run) == ["ended"]
    assert not lives.damage(run)


def test_a_fork_that_becomes_another_program_is_no_process_of_the_run(run: Path) -> None:
    victim = Victim(run)
    victim.does("import os; child = os.fork(); child or os.execv('/bin/true', ['true'])")
    victim.does("os.waitpid(child, 0)")
    while_running = states(run)
    adopt.collect_dead(run)
    victim.ends()

    assert while_running == ["running"]
    assert states(run) == ["ended"]
    assert recorded(run) == list(range(100))


def test_who_becomes_another_program_has_left(run: Path) -> None:
    victim = Victim(run)
    victim.tell("import os; os.execv('/bin/sleep', ['sleep', '600'])")
    assert lives.wait_until(lambda: states(run) == ["left"])
    adopt.collect_dead(run)
    after = states(run)
    victim.process.kill()
    victim.process.communicate()

    assert after == states(run) == ["left"]
    assert recorded(run) == list(range(100))


def test_a_program_that_starts_itself_anew_has_two_lives_and_lost_neither(run: Path) -> None:
    command = f"[sys.executable, '-c', {lives.dedented(RECORDS)!r}, sys.argv[1]]"
    victim = Victim(run)
    victim.tell(f"import os, sys; os.execv(sys.executable, {command})")
    assert victim.says() == "ready\n"
    assert lives.wait_until(lambda: len(process_pointer.all_here(run)) == 1), "the second life adopts the first"
    victim.ends()

    assert states(run) == ["ended", "left"]
    assert recorded(run) == sorted([*range(100)] * 2)
