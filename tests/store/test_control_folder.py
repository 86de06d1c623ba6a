"""The control folder: messages go in whole and once, acknowledgements come out per rank, damage is survived."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import stat
from pathlib import Path
from typing import Any, Callable

import pytest
from builders.peers import MakePeer, make_peer  # noqa: F401

from mstxkit import faults
from mstxkit.errors import MstxkitError
from mstxkit.escalation.duty.mailbox import Mailbox
from mstxkit.store import control_folder, documents
from mstxkit.store.control_folder import ControlFolder

RUN, OTHER_RUN = "a" * 32, "b" * 32

SENDER = """
import os
from pathlib import Path
from mstxkit.store.control_folder import ControlFolder
control = ControlFolder(Path(os.environ["AT"]), os.environ["RUN_ID"])
def answer(*words):
    return str([control.send({"id": word}) for word in words])
"""

HOLDER = """
import fcntl, os
file = open(os.environ["AT"] + "/control/requests.lock", "w")
def answer(word):
    return str(fcntl.lockf(file, fcntl.LOCK_EX))
"""


@pytest.fixture
def control(tmp_path: Path) -> ControlFolder:
    return ControlFolder(tmp_path, RUN)


def requests(control: ControlFolder) -> Path:
    return control.path / "requests.json"


def ids(control: ControlFolder) -> list[str]:
    return [one["id"] for one in json.loads(requests(control).read_bytes())["messages"]]


def mailbox(control: ControlFolder, name: str = "host") -> Mailbox:
    folder = control.path.parent / name
    folder.mkdir(mode=0o700, exist_ok=True)
    return Mailbox(control, folder)


def test_messages_are_kept_in_order_and_private(control: ControlFolder) -> None:
    assert control.send({"id": "one", "stage": "reward", "ranks": [1, 2]})
    assert control.send({"id": "two"})

    assert json.loads(requests(control).read_bytes()) == {
        "format": 1,
        "run": RUN,
        "messages": [{"id": "one", "stage": "reward", "ranks": [1, 2]}, {"id": "two"}],
    }
    assert stat.S_IMODE(control.path.stat().st_mode) == 0o700
    assert stat.S_IMODE(requests(control).stat().st_mode) == 0o640
    assert sorted(path.name for path in control.path.iterdir()) == ["requests.json", "requests.lock"]


def test_the_same_id_is_the_same_message(control: ControlFolder) -> None:
    first = control.send({"id": "one", "rank": 0})
    second = control.send({"id": "one", "rank": 1})

    assert (first, second) == (True, False)
    assert json.loads(requests(control).read_bytes())["messages"] == [{"id": "one", "rank": 0}]


def test_processes_that_send_at_once_lose_nothing(make_peer: MakePeer, control: ControlFolder) -> None:  # noqa: F811
    peers = [make_peer(SENDER, AT=str(control.path.parent), RUN_ID=RUN) for _ in range(3)]
    said = [[f"{i}-{n}" for n in range(15)] + ["all"] for i in range(3)]
    for peer, words in zip(peers, said):
        peer.tell(*words)
    answers = [peer.hear() for peer in peers]

    assert sorted(ids(control)) == sorted({word for words in said for word in words})
    assert sum(answer.count("False") for answer in answers) == 2


def test_a_file_system_without_locks_will_do(control: ControlFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer replaces the file right after ours, as if it had read the one before."""
    control.send({"id": "before"})
    old, replace = requests(control).read_bytes(), documents.replace_file
    calls: list[Path] = []

    def no_locks(*args: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    def overtaken(file: Path, content: bytes) -> None:
        calls.append(file)
        replace(file, content if len(calls) > 2 else old)

    monkeypatch.setattr(fcntl, "lockf", no_locks)
    monkeypatch.setattr(documents, "replace_file", overtaken)

    assert control.send({"id": "ours"})
    assert (ids(control), len(calls)) == (["before", "ours"], 3)


def test_a_message_that_is_always_lost_is_an_error(control: ControlFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "replace_file", lambda file, content: None)

    with pytest.raises(MstxkitError, match="written by too many at once"):
        control.send({"id": "ours"})


def test_a_writer_that_holds_the_lock_and_dies_does_not_block_the_next(
    make_peer: MakePeer,  # noqa: F811
    control: ControlFolder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    control.send({"id": "before"})
    peer = make_peer(HOLDER, AT=str(control.path.parent), RUN_ID=RUN)
    peer.ask("lock")
    monkeypatch.setattr(control_folder, "_SEND_WITHIN_S", 0.05)
    with pytest.raises(MstxkitError, match="is locked by another process"):
        control.send({"id": "ours"})
    peer.end(signal.SIGKILL)

    assert control.send({"id": "ours"})


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ({}, "id=None: a text of 1 to 200 printable"),
        ({"id": ""}, "id=''"),
        ({"id": 7}, "id=7"),
        ({"id": "a\nb"}, "printable"),
        ({"id": "a" * 201}, "1 to 200"),
        ({"id": "a", "x": {1, 2}}, "cannot be written as JSON"),
        ({"id": "a", "x": float("nan")}, "cannot be written as JSON"),
        ({"id": "a", "x": "y" * (1 << 19)}, "524288 at most"),
    ],
)
def test_what_is_no_message_is_refused(control: ControlFolder, message: dict[str, Any], why: str) -> None:
    with pytest.raises(MstxkitError, match=why):
        control.send(message)

    assert not requests(control).exists()


def test_the_oldest_messages_make_room(control: ControlFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_folder, "MESSAGES_AT_MOST", 3)
    for number in range(5):
        control.send({"id": str(number)})
    assert ids(control) == ["2", "3", "4"]

    for name in ("large", "larger", "largest"):
        control.send({"id": name, "x": "y" * 520_000})
    assert requests(control).stat().st_size <= 1 << 20
    assert ids(control) == ["larger", "largest"]


def half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def document(**changes: Any) -> Callable[[Path], None]:
    return lambda path: path.write_text(
        json.dumps({"format": 1, "run": RUN, "messages": [{"id": "theirs"}], **changes})
    )


def instead(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def replace(path: Path) -> None:
        path.unlink()
        make(path)

    return replace


def link(path: Path) -> None:
    target = path.parent.parent / "elsewhere.json"
    document()(target)
    path.symlink_to(target)


DAMAGE = {
    "half": (half, "is half written, or no JSON"),
    "empty": (lambda path: path.write_bytes(b""), "is empty"),
    "binary": (lambda path: path.write_bytes(b"\xff\x00"), "no JSON"),
    "list": (lambda path: path.write_text("[]"), "is no control file of format 1"),
    "text": (lambda path: path.write_text('"text"'), "is no control file"),
    "deep": (lambda path: path.write_text("[" * 500_000), "no JSON"),
    "digits": (lambda path: path.write_text('{"format": ' + "1" * 100_000 + "}"), "no JSON|no control file"),
    "format": (document(format=0), "is no control file of format 1"),
    "messages": (document(messages={"id": "theirs"}), "holds no list"),
    "another run": (document(run=OTHER_RUN), "belongs to another run"),
    "large": (lambda path: path.write_bytes(b" " * ((1 << 20) + 1)), "is larger than 1048576 bytes"),
    "mode": (lambda path: path.chmod(0o662), "may be written by others: its mode is 662"),
    "link": (instead(link), "a file is needed, no link"),
    "fifo": (instead(os.mkfifo), "is no file"),
    "unreadable": (lambda path: path.chmod(0o000), "Permission denied"),
}
NOT_FOR_ROOT = pytest.mark.skipif(os.geteuid() == 0, reason="root may read it")
each_damage = pytest.mark.parametrize(
    ("damage", "why"),
    [pytest.param(*case, id=name, marks=[NOT_FOR_ROOT] * (name == "unreadable")) for name, case in DAMAGE.items()],
)


@each_damage
def test_damage_is_stated_and_what_was_read_before_stays(
    control: ControlFolder, damage: Callable[[Path], None], why: str
) -> None:
    box = mailbox(control)
    control.send({"id": "one"})
    box.poll()
    damage(requests(control))
    again = [box.poll(), box.poll()]

    assert again == [False, False]
    assert box.problem is not None
    with pytest.raises(AssertionError, match=why):
        raise AssertionError(box.problem)
    assert [one["id"] for one in box.take()] == ["one"]
    assert faults.counts == {"control.files": 1}
    box.close()


@each_damage
def test_the_next_message_replaces_what_is_damaged(
    control: ControlFolder, damage: Callable[[Path], None], why: str
) -> None:
    box = mailbox(control)
    control.send({"id": "one"})
    damage(requests(control))
    assert control.send({"id": "two"})
    box.poll()

    assert ids(control)[-1] == "two" and "theirs" not in ids(control)
    assert ([one["id"] for one in box.take()][-1], box.problem) == ("two", None)
    assert faults.counts == {"control.requests": 1}
    box.close()


def test_what_a_newer_version_has_written_is_not_replaced(control: ControlFolder) -> None:
    control.send({"id": "one"})
    document(format=2)(requests(control))
    before, box = requests(control).read_bytes(), mailbox(control)
    box.poll()

    with pytest.raises(MstxkitError, match=r"no request can be left in .* of format 2, written by a newer mstxkit"):
        control.send({"id": "two"})
    assert requests(control).read_bytes() == before
    assert "upgrade this one" in str(box.problem)
    box.close()


def test_entries_that_are_no_messages_are_left_out(control: ControlFolder) -> None:
    control.send({"id": "one"})
    document(messages=[7, None, [], {}, {"id": 3}, {"id": "good"}, {"id": "good", "again": True}])(requests(control))
    box = mailbox(control)
    box.poll()

    assert (box.take(), box.problem) == ([{"id": "good"}], None)
    box.close()


def test_a_folder_in_the_place_of_the_file_is_an_error_with_its_name(control: ControlFolder) -> None:
    control.path.mkdir(mode=0o700)
    requests(control).mkdir(mode=0o700)

    with pytest.raises(MstxkitError, match=r"no request can be left in .*control: "):
        control.send({"id": "one"})


@pytest.mark.parametrize(
    ("kind", "why"), [("link", "is a symbolic link"), ("file", "is not a folder"), ("mode", "its mode is 777")]
)
def test_a_control_folder_that_is_not_our_own_is_refused_by_both_sides(
    control: ControlFolder, kind: str, why: str
) -> None:
    elsewhere = ControlFolder(control.path.parent / "elsewhere", RUN)
    elsewhere.path.mkdir(parents=True, mode=0o700)
    elsewhere.send({"id": "theirs"})
    if kind == "link":
        control.path.symlink_to(elsewhere.path)
    elif kind == "file":
        control.path.write_text("{}")
    else:
        control.path.mkdir()
        control.path.chmod(0o777)
    box = mailbox(control)
    box.poll()

    with pytest.raises(MstxkitError, match=why):
        control.send({"id": "one"})
    assert (box.take(), box.problem is not None) == ([], True)
    box.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_file_of_another_user_is_not_read(control: ControlFolder) -> None:
    control.send({"id": "one"})
    os.chown(requests(control), 4242, -1)
    box = mailbox(control)
    box.poll()

    assert box.problem == f"{requests(control)} belongs to user 4242, not to 0"
    box.close()


def test_acknowledgements_are_one_file_per_rank_and_role(control: ControlFolder) -> None:
    box = mailbox(control)
    box.acknowledge(3, {"r1": "armed"}, "actor")
    box.acknowledge(3, {"r1": "queued"}, "odd role/../x")
    box.acknowledge(12, {"r1": "armed"})
    box.acknowledge(12, {"r1": "done"})
    box.poll()
    found = control.acknowledgements()

    assert [(one.rank, one.role, one.document) for one in found] == [
        (3, "actor", {"r1": "armed"}),
        (3, "odd_role____x", {"r1": "queued"}),
        (12, "", {"r1": "done"}),
    ]
    assert {(one.host, one.pid) for one in found} == {(os.uname().nodename, os.getpid())}
    assert sorted(path.name for path in (control.path / "acks").iterdir()) == [
        "rank12.json", "rank3-actor.json", "rank3-odd_role____x.json",
    ]  # fmt: skip
    box.close()


def test_what_a_rank_said_before_its_restart_can_be_read(control: ControlFolder) -> None:
    first = mailbox(control)
    first.acknowledge(3, {"executed": ["r1"]}, "actor")
    assert first.flush()
    first.close()

    found = control.acknowledgement(3, "actor")
    assert found is not None and found.document == {"executed": ["r1"]}
    assert control.acknowledgement(4, "actor") is None


def test_acknowledgements_that_cannot_be_used_are_left_out(control: ControlFolder) -> None:
    box = mailbox(control)
    for rank in range(8):
        box.acknowledge(rank, {})
    box.flush()
    acks = control.path / "acks"
    half(acks / "rank0.json")
    (acks / "rank1.json").write_text("")
    (acks / "rank2.json").write_text(json.dumps({"format": 1, "run": RUN, "rank": 2}))
    (acks / "rank3.json").write_bytes((acks / "rank7.json").read_bytes())
    document(run=OTHER_RUN)(acks / "rank4.json")
    (acks / "rank5.json").unlink()
    (acks / "rank06.json").write_bytes((acks / "rank6.json").read_bytes())
    (acks / "notes.txt").write_text("foreign")
    (acks / "rank9.json").mkdir()

    assert [one.rank for one in control.acknowledgements()] == [6, 7]
    box.close()


def test_an_acknowledgement_that_could_not_be_written_is_tried_again(
    control: ControlFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = mailbox(control)
    box.acknowledge(0, {"r1": "armed"})
    with monkeypatch.context() as full:
        full.setattr(documents, "replace_file", raise_full)
        assert not box.flush()
        box.poll()
        problem = box.problem
    box.poll()

    assert problem is not None and "rank0.json cannot be written: " in problem and "No space left" in problem
    assert box.problem is None
    assert [one.document for one in control.acknowledgements()] == [{"r1": "armed"}]
    box.close()


def raise_full(file: Path, content: bytes) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_an_acknowledgement_that_is_too_large_is_stated(control: ControlFolder) -> None:
    box = mailbox(control)
    box.acknowledge(0, {"x": "y" * (1 << 20)})

    assert not box.flush()
    assert box.problem is not None and "and may have 1048576" in box.problem
    box.acknowledge(0, {})
    box.close()
    assert [one.rank for one in control.acknowledgements()] == [0]
