"""A process lives while its lock is held, whatever its pid, its clock or its heartbeat look like from here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from builders import lives

from mstxkit.host import identity, life

LONG_AGO = "15eed"  # the start of a process: it began in 1970
HOLDS = """
    import sys
    from pathlib import Path
    from mstxkit.host import life
    print(life.hold_lock(Path(sys.argv[1])), flush=True)
    for line in sys.stdin:
        exec(line)
        print("done", flush=True)
"""


class Holder:
    """Another process that holds a lock."""

    def __init__(self, path: Path) -> None:
        self._process = lives.start(HOLDS, path)
        self.pid = self._process.pid
        self.holds = self._said() == "True"

    def _said(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def does(self, statement: str) -> None:
        """Let it run one line of Python to its end."""
        self.tell(statement)
        assert self._said() == "done"

    def tell(self, statement: str) -> None:
        """Let it begin one line of Python."""
        assert self._process.stdin is not None
        self._process.stdin.write(statement + "\n")
        self._process.stdin.flush()

    def killed(self) -> None:
        """End it without a word, but not its children."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / f"{identity.name_host()}-1-5eed.life"


def test_a_lock_is_held_until_its_process_is_killed(path: Path) -> None:
    holder = Holder(path)
    while_alive = life.is_held(str(path))
    holder.killed()

    assert (holder.holds, while_alive) == (True, True)
    assert life.is_held(str(path)) is False
    assert path.stat().st_mode & 0o777 == 0o640


def test_looking_at_a_lock_does_not_free_it(path: Path) -> None:
    """Closing any descriptor of a file frees its process's locks: who holds one never opens it again."""
    life.hold_lock(path)
    looks = [life.is_held(str(path)) for _ in range(3)]
    other = lives.run("import sys; from mstxkit.host import life; print(life.is_held(sys.argv[1]))", path)
    life.let_go(path)

    assert (looks, other) == ([True] * 3, "True\n")
    assert not path.exists()


def test_what_is_held_is_held_by_nobody_else(path: Path) -> None:
    holder = Holder(path)

    assert life.hold_lock(path) is False
    holder.killed()
    assert life.hold_lock(path) is True
    assert life.hold_lock(path) is False, "another thread of this process"
    late = Holder(path)
    late.killed()
    life.let_go(path)

    assert late.holds is False


def test_a_child_forked_from_c_does_not_keep_its_parents_lock(path: Path) -> None:
    """Through `ctypes`, so that no hook of Python's runs; a lock of the open file would live on in the child."""
    holder = Holder(path)
    holder.does("import ctypes, time; child = ctypes.CDLL(None).fork(); child or time.sleep(600)")
    children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split()
    holder.killed()

    assert len(children) == 1
    assert life.is_held(str(path)) is False
    os.kill(int(children[0]), signal.SIGKILL)


def test_a_forked_daemon_keeps_the_files_it_opened_after_it_had_closed_all_it_was_given(path: Path) -> None:
    """A second after its fork it begins to record: by then our numbers are its log's and its sockets'."""
    status = lives.run(
        """
        import os, sys
        from pathlib import Path
        from mstxkit.host import life
        life.hold_lock(Path(sys.argv[1]))
        if (pid := os.fork()) == 0:
            os.closerange(3, 1000)
            own = [os.open("/dev/null", os.O_RDONLY) for _ in range(8)]
            life.is_held(sys.argv[1])
            os._exit(sum(not os.path.exists(f"/proc/self/fd/{number}") for number in own))
        print(os.waitpid(pid, 0)[1])
        """,
        path,
    )

    assert status == "0\n"


@pytest.mark.parametrize("harm", ["os.closerange(3, 1000)", "os.unlink(sys.argv[1])"])
def test_a_lock_that_the_program_lost_is_taken_again(path: Path, harm: str) -> None:
    holder = Holder(path)
    holder.does(f"import os; {harm}")
    lost = life.is_held(str(path))
    holder.does("life.keep_lock(Path(sys.argv[1]))")

    assert lost is not True
    assert life.is_held(str(path)) is True
    holder.killed()


def test_a_lock_that_was_not_lost_is_not_taken_twice(path: Path) -> None:
    life.hold_lock(path)
    before = len(os.listdir("/proc/self/fd"))
    life.keep_lock(path)

    assert len(os.listdir("/proc/self/fd")) == before
    life.let_go(path)


@pytest.mark.parametrize("kind", ["missing", "folder", "fifo", "link", "named otherwise"])
def test_what_is_no_lock_says_nothing_and_waits_for_nobody(path: Path, kind: str) -> None:
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "link":
        (path.parent / "other").touch()
        path.symlink_to(path.parent / "other")
    elif kind == "named otherwise":
        path = path.with_suffix(".db")
        path.touch()

    assert life.is_held(str(path)) is None


def who(**fields: Any) -> dict[str, Any]:
    return {**identity.of_life(), **fields}


def test_a_process_without_a_lock_is_known_by_pid_and_start() -> None:
    assert life.is_alive(who()) is True
    assert life.is_alive(who(pid_start=1)) is False


def test_a_process_that_has_ended_is_not_alive_reaped_or_not() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    about = who(pid=child.pid, pid_start=identity.pid_start(child.pid))
    while_alive = life.is_alive(about)
    child.kill()
    assert lives.wait_until(lambda: life.is_alive(about) is False)
    is_zombie = Path(f"/proc/{child.pid}").exists()
    child.communicate()

    assert (while_alive, is_zombie) == (True, True)
    assert life.is_alive(about) is False


@pytest.mark.parametrize("fields", [{"host": "elsewhere"}, {"boot": "another boot"}, {"pidns": 1}])
def test_where_nothing_can_be_told_nothing_is(fields: dict[str, Any]) -> None:
    assert life.is_alive(who(**fields)) is None


def test_of_an_earlier_boot_of_this_host_nobody_lives_whose_lock_is_still_on_its_disk(path: Path) -> None:
    """Another host may have the same name: what began since this one was started is of that, and may live."""
    path.touch()
    since = f"{time.time_ns():x}5eed"

    def told(start: str, lock: Path) -> bool | None:
        return life.is_alive(who(boot="another boot", start=start, life=str(lock)))

    assert told(LONG_AGO, path) is False
    assert told(LONG_AGO, path.with_name("gone.life")) is None
    assert told(since, path) is None


@pytest.mark.parametrize("elsewhere", [{}, {"pidns": 1, "pid": 1}, {"pid_start": 1}])
def test_whose_lock_is_held_lives_whatever_its_pid_looks_like_from_here(path: Path, elsewhere: dict[str, Any]) -> None:
    """From another pid namespace its pid means nothing; from another time namespace it started at another time."""
    holder = Holder(path)
    about = {**who(pid=holder.pid, pid_start=identity.pid_start(holder.pid)), **elsewhere, "life": str(path)}
    while_alive = life.is_alive(about)
    holder.killed()

    assert while_alive is True
    assert life.is_alive(about) is False


@pytest.mark.parametrize("is_here", [True, False])
def test_who_is_dead_does_not_live_while_another_one_holds_its_lock_to_seal_what_it_left(
    path: Path, is_here: bool
) -> None:
    """Its successor would take it for a second process of the same rank, and record again what it has recorded."""
    holder = Holder(path)
    about = who(pid=holder.pid, pid_start=identity.pid_start(holder.pid), life=str(path))
    holder.killed()
    adopter = None if is_here else Holder(path)
    if is_here:
        life.hold_lock(path)
    while_adopted = life.is_held(str(path)), life.is_alive(about)
    life.let_go(path)
    if adopter is not None:
        adopter.killed()

    assert while_adopted == (True, False)


def test_who_lost_its_lock_and_has_its_live_file_mapped_lives(path: Path) -> None:
    holder = Holder(path)
    holder.does("import mmap; f = open(sys.argv[1][:-4] + 'live', 'w+b'); f.truncate(4096)")
    holder.does("m = mmap.mmap(f.fileno(), 4096); import os; os.closerange(3, 1000)")
    about = who(pid=holder.pid, pid_start=identity.pid_start(holder.pid), life=str(path))

    assert life.is_held(str(path)) is False
    assert life.is_alive(about) is True
    holder.killed()
    assert life.is_alive(about) is False


def test_who_went_on_to_another_program_no_longer_lives_and_is_known_for_it(path: Path) -> None:
    holder = Holder(path)
    about = who(pid=holder.pid, pid_start=identity.pid_start(holder.pid), life=str(path))
    holder.does("import os")
    holder.tell("os.execv('/bin/sleep', ['sleep', '600'])")
    assert lives.wait_until(lambda: life.is_alive(about) is False)
    while_there = life.has_execed(about)
    holder.killed()

    assert while_there
    assert not life.has_execed(about)


@pytest.mark.parametrize("fields", [{"pid": "x"}, {"pid": None}, {"pid": [1]}, {"pid_start": None, "pid": -5}])
def test_a_pointer_that_names_no_process_names_no_living_one(fields: dict[str, Any]) -> None:
    assert life.is_alive(who(**fields)) is False
    assert not life.has_execed(who(**fields))
