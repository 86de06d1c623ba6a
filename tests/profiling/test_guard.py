"""One session per device: between processes, in a process, over forks, kills and damaged files."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, Iterator

import pytest
from builders.peers import MakePeer, Peer, make_peer  # noqa: F401
from builders.threads import on_threads

from mstxkit.host import folders
from mstxkit.profiling import guard, profilers

SCRIPT = """
import os
from pathlib import Path
from mstxkit.profiling import guard
mine = None
def answer(word, *words):
    global mine
    if word == "take":
        device, run, stage = words
        number = None if device == "none" else int(device)
        mine = guard.take_device(number, run=run, stage=stage, folder=Path(os.environ["AT"]))
        return "taken" if isinstance(mine, guard.Claim) else f"refused: {mine.sentence}"
    if word == "release":
        return str(mine.release())
    if word == "fork":
        child = os.fork()
        if child == 0:
            open(os.environ["AT"] + "/child", "w").write(answer(*words))
            os._exit(0)
        os.waitpid(child, 0)
        return open(os.environ["AT"] + "/child").read()
"""


@pytest.fixture(autouse=True)
def _nobody_else(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What profiles this test run itself is another matter."""
    monkeypatch.setattr(profilers, "find_others", lambda: ())
    yield
    assert guard._taken == {}


@pytest.fixture
def peer(make_peer: MakePeer, tmp_path: Path) -> Peer:  # noqa: F811
    return make_peer(SCRIPT, AT=str(tmp_path))


def lock_file(tmp_path: Path, device: int = 3) -> Path:
    return folders.live_folder("devices", str(tmp_path), lambda: tmp_path) / f"npu-{device}.lock"


def taken(result: object) -> guard.Claim:
    assert isinstance(result, guard.Claim), result
    return result


def refused(result: object) -> guard.Refusal:
    assert isinstance(result, guard.Refusal), result
    return result


def test_a_device_that_another_process_has_is_refused_with_its_owner(peer: Peer, tmp_path: Path) -> None:
    before = time.time_ns()
    peer.ask("take", 3, "run-a", "actor_update")
    refusal = refused(guard.take_device(3, run="run-b", stage="reward", folder=tmp_path))

    assert refusal.owner is not None
    assert refusal.owner[:4] == (peer.pid, os.uname().nodename, "run-a", "actor_update")
    assert before <= refusal.owner.since_ns <= time.time_ns()
    assert re.fullmatch(
        rf"device 3 is taken by process {peer.pid} on \S+ \(run run-a, stage actor_update, since [-\d]+ [:\d]+ UTC\); "
        "ask again when that has ended, or stop it",
        refusal.sentence,
    )


def test_another_device_is_free(peer: Peer, tmp_path: Path) -> None:
    peer.ask("take", 3, "run-a", "actor_update")

    taken(guard.take_device(4, folder=tmp_path)).release()


def test_processes_without_a_device_do_not_meet(peer: Peer) -> None:
    assert peer.ask("take", "none", "run-a", "actor_update") == "taken"
    taken(guard.take_device(None)).release()


def test_a_released_device_is_free_and_names_nobody(peer: Peer, tmp_path: Path) -> None:
    peer.ask("take", 3, "run-a", "actor_update")
    peer.ask("release")
    claim = taken(guard.take_device(3, folder=tmp_path))
    claim.release()

    assert lock_file(tmp_path).read_bytes() == b""


def test_who_has_a_device_knows_who_waits_for_it_and_leaves_it_to_that_one(peer: Peer, tmp_path: Path) -> None:
    """Until it has been there, or is gone: else who takes the device again and again leaves nobody a turn."""
    claim = taken(guard.take_device(3, stage="light", folder=tmp_path))
    before = claim.wanted_by
    peer.ask("take", 3, "run-b", "actor_update")
    waits = claim.wanted_by
    claim.release()
    left = [claim.is_left()]
    for word in (("take", 3, "run-b", "actor_update"), ("release",)):
        peer.ask(*word)
        left.append(claim.is_left())

    assert before is None and waits is not None
    assert waits[:4] == (peer.pid, os.uname().nodename, "run-b", "actor_update")
    assert left == [True, False, False]


@pytest.mark.parametrize("goes", ["killed", "silent"])
def test_to_who_is_killed_or_does_not_come_for_minutes_no_device_is_left(
    peer: Peer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, goes: str
) -> None:
    claim = taken(guard.take_device(3, stage="light", folder=tmp_path))
    peer.ask("take", 3, "run-b", "actor_update")
    claim.release()
    if goes == "killed":
        peer.end(signal.SIGKILL)
    else:
        later_s = time.monotonic() + guard._LEFT_FOR_S
        monkeypatch.setattr(time, "monotonic", lambda: later_s)

    assert not claim.is_left()


def test_the_device_of_a_killed_process_is_free(peer: Peer, tmp_path: Path) -> None:
    peer.ask("take", 3, "run-a", "actor_update")
    peer.end(signal.SIGKILL)
    left = lock_file(tmp_path).read_bytes()
    claim = taken(guard.take_device(3, run="run-b", folder=tmp_path))

    assert json.loads(left)["run"] == "run-a"
    assert json.loads(lock_file(tmp_path).read_bytes())["run"] == "run-b"
    claim.release()


def test_a_process_has_one_session_whatever_the_device(tmp_path: Path) -> None:
    claim = taken(guard.take_device(3, run="run-a", stage="reward", folder=tmp_path))
    for device in (3, 4, None):
        why = refused(guard.take_device(device, folder=tmp_path)).sentence
        assert why.startswith(f"a session of mstxkit runs in this process already: process {os.getpid()} on ")
    claim.release()
    claim.release()

    taken(guard.take_device(4, folder=tmp_path)).release()


def test_a_file_of_the_program_that_got_the_locks_number_is_neither_emptied_nor_closed(tmp_path: Path) -> None:
    """A program may close every descriptor that it has, and open its own, in the middle of a session."""
    claim = taken(guard.take_device(3, folder=tmp_path))
    (number,) = [int(fd.name) for fd in Path("/proc/self/fd").iterdir() if fd.resolve() == lock_file(tmp_path)]
    own = os.open(tmp_path / "own", os.O_RDWR | os.O_CREAT)
    os.dup2(own, number)
    os.write(number, b"a checkpoint")
    claim.release()

    assert (tmp_path / "own").read_bytes() == b"a checkpoint"
    assert os.path.samestat(os.fstat(number), os.fstat(own))
    os.close(number)
    os.close(own)


def test_asking_in_the_owning_process_does_not_free_its_lock(peer: Peer, tmp_path: Path) -> None:
    """POSIX frees a lock when its process closes any descriptor of the file."""
    claim = taken(guard.take_device(3, run="run-a", folder=tmp_path))
    guard.take_device(3, folder=tmp_path)

    assert peer.ask("take", 3, "run-b", "reward").startswith("refused: device 3 is taken by process ")
    claim.release()
    assert peer.ask("take", 3, "run-b", "reward") == "taken"


def test_releasing_an_old_claim_leaves_the_next_one(peer: Peer, tmp_path: Path) -> None:
    old = taken(guard.take_device(3, folder=tmp_path))
    old.release()
    claim = taken(guard.take_device(3, folder=tmp_path))
    old.release()

    assert peer.ask("take", 3, "run-b", "reward").startswith("refused")
    claim.release()


def test_of_many_threads_one_gets_it(tmp_path: Path) -> None:
    start, results = threading.Barrier(8), []

    def try_it() -> None:
        start.wait()
        results.append(guard.take_device(3, folder=tmp_path))

    on_threads(8, lambda _: try_it())
    claims = [result for result in results if isinstance(result, guard.Claim)]

    assert len(claims) == 1
    claims[0].release()


def test_a_forked_child_has_nothing_of_its_parents_claim(peer: Peer, tmp_path: Path) -> None:
    peer.ask("take", 3, "run-a", "reward")

    assert re.match(rf"refused: device 3 is taken by process {peer.pid} ", peer.ask("fork", "take", 3, "run-b", "x"))
    assert peer.ask("fork", "take", "4", "run-b", "x") == "taken"


def test_a_forked_child_that_releases_changes_nothing(peer: Peer, tmp_path: Path) -> None:
    peer.ask("take", 3, "run-a", "reward")
    peer.ask("fork", "release")
    owner = refused(guard.take_device(3, folder=tmp_path)).owner

    assert owner is not None and (owner.pid, owner.stage) == (peer.pid, "reward")


def test_the_child_of_a_dead_owner_does_not_keep_the_device(make_peer: MakePeer, tmp_path: Path) -> None:  # noqa: F811
    leave_a_child = SCRIPT.replace("os.waitpid(child, 0)", "return str(child)").replace(
        'open(os.environ["AT"] + "/child", "w").write(answer(*words))', "import time; time.sleep(60)"
    )
    peer = make_peer(leave_a_child, AT=str(tmp_path))
    peer.ask("take", 3, "run-a", "reward")
    child = int(peer.ask("fork"))
    try:
        peer.end()

        taken(guard.take_device(3, folder=tmp_path)).release()
    finally:
        os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"7", b"\xff", b'{"pid": 1}', b"[" * 4000, json.dumps({"pid": 1, "since_ns": 1e400})]
)
def test_a_lock_whose_owner_cannot_be_read_is_a_lock(
    peer: Peer, tmp_path: Path, text: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "_ASK_AGAIN", 1)
    peer.ask("take", 3, "run-a", "reward")
    lock_file(tmp_path).write_bytes(text if isinstance(text, bytes) else text.encode())
    refusal = refused(guard.take_device(3, folder=tmp_path))

    assert refusal == (
        "device 3 is taken by another process of this user, which does not say who it is",
        None,
    )


def test_what_a_dead_owner_left_is_not_told_of_the_living_one(
    peer: Peer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between taking the lock and saying so, the file still names the one before."""
    monkeypatch.setattr(guard, "_ASK_AGAIN", 1)
    peer.ask("take", 3, "run-a", "reward")
    about = json.loads(lock_file(tmp_path).read_bytes())
    lock_file(tmp_path).write_text(json.dumps({**about, "pid_start": about["pid_start"] - 1}))

    assert refused(guard.take_device(3, folder=tmp_path)).owner is None


def test_a_lock_that_was_removed_meanwhile_is_not_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever comes next would lock a new file of that name."""
    lockf, removed = guard.fcntl.lockf, []

    def remove_first(descriptor: int, operation: int) -> Any:
        if not removed:
            removed.append(os.fstat(descriptor).st_ino)
            lock_file(tmp_path).rename(tmp_path / "removed")
        return lockf(descriptor, operation)

    monkeypatch.setattr(guard.fcntl, "lockf", remove_first)
    claim = taken(guard.take_device(3, folder=tmp_path))

    assert lock_file(tmp_path).stat().st_ino != removed[0]
    assert json.loads(lock_file(tmp_path).read_bytes())["pid"] == os.getpid()
    claim.release()


@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_what_is_no_file_of_ours_is_refused_and_left(tmp_path: Path, kind: str) -> None:
    path = lock_file(tmp_path)
    {"link": lambda: path.symlink_to(tmp_path / "else"), "fifo": lambda: os.mkfifo(path), "folder": path.mkdir}[kind]()
    refusal = refused(guard.take_device(3, folder=tmp_path))

    assert refusal.sentence.startswith("device 3 cannot be locked against other processes: ")
    assert not (tmp_path / "else").exists() and os.path.lexists(path)


def test_a_folder_of_somebody_elses_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"mstxkit-{os.geteuid()}").symlink_to(tmp_path / "elsewhere")

    assert "is a symbolic link" in refused(guard.take_device(3, folder=tmp_path)).sentence


def test_a_full_disk_hides_the_owner_and_not_the_lock(
    peer: Peer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    claim = taken(guard.take_device(3, folder=tmp_path))

    assert peer.ask("take", 3, "run-b", "x").startswith("refused: device 3 is taken by another process of this user")
    claim.release()


def test_without_a_folder_given_the_locks_are_the_users_own_on_shared_memory() -> None:
    device = 90_000 + os.getpid()
    claim = taken(guard.take_device(device))
    path = Path(f"/dev/shm/mstxkit-{os.geteuid()}/devices/npu-{device}.lock")
    if not path.exists():
        path = Path("/tmp", *path.parts[3:])
    try:
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parents[1].stat().st_mode & 0o777 == 0o700
    finally:
        claim.release()
        path.unlink()


def test_who_else_profiles_is_the_reason_of_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = (profilers.Other("a", "a owns it"), profilers.Other("b", "b may start"))
    monkeypatch.setattr(profilers, "find_others", lambda: found)
    refusal = refused(guard.take_device(3, folder=tmp_path))

    assert refusal == ("a owns it; b may start", None)
    assert not lock_file(tmp_path).exists()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_a_refusal_leaves_no_file_open(peer: Peer, tmp_path: Path) -> None:
    peer.ask("take", 3, "run-a", "reward")
    guard.take_device(3, folder=tmp_path)
    before = os.listdir("/proc/self/fd")
    guard.take_device(3, folder=tmp_path)

    assert len(os.listdir("/proc/self/fd")) == len(before)
