"""A process's mailbox: one reader of the shared folder per host, who may die or hang; forks, deletions, two jobs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any, Callable

import pytest
from builders.peers import MakePeer, Peer, make_peer  # noqa: F401

from mstxkit import faults
from mstxkit.escalation.duty import mailbox as mailbox_module
from mstxkit.escalation.duty.mailbox import Mailbox
from mstxkit.store.control_folder import ControlFolder

RUN, OTHER_RUN = "a" * 32, "b" * 32

RANK = """
import os
from pathlib import Path
from mstxkit.store.control_folder import ControlFolder
from mstxkit.escalation.duty.mailbox import Mailbox
box = Mailbox(ControlFolder(Path(os.environ["AT"]), os.environ["RUN_ID"]), Path(os.environ["HOST"]))
def answer(word, *words):
    if word == "poll":
        box.poll()
        return ",".join(one["id"] for one in box.take()) or "-"
    if word == "leads":
        return str(box._turn.is_held)
    if word == "close":
        return str(box.close())
    if word == "fork":
        child = os.fork()
        if child == 0:
            box.acknowledge(9, {})
            said = [box.poll(), box.flush(), box.take(), bool(box._news)]
            box.close()
            Path(os.environ["AT"], "child").write_text(str(said))
            os._exit(0)
        os.waitpid(child, 0)
        return Path(os.environ["AT"], "child").read_text()
"""

MakeRank = Callable[..., Peer]


@pytest.fixture
def control(tmp_path: Path) -> ControlFolder:
    return ControlFolder(tmp_path / "run", RUN)


@pytest.fixture(autouse=True)
def _folders(tmp_path: Path) -> None:
    for name in ("run", "host", "other_host"):
        (tmp_path / name).mkdir(mode=0o700)


@pytest.fixture
def rank(make_peer: MakePeer, tmp_path: Path) -> MakeRank:  # noqa: F811
    def make(host: str = "host", run: str = "run", run_id: str = RUN) -> Peer:
        return make_peer(RANK, AT=str(tmp_path / run), HOST=str(tmp_path / host), RUN_ID=run_id)

    return make


def requests(control: ControlFolder) -> Path:
    return control.path / "requests.json"


def host_files(tmp_path: Path, host: str = "host") -> list[str]:
    return sorted(path.suffix for path in (tmp_path / host).rglob("*") if path.is_file())


def test_the_flag_is_set_by_news_and_cleared_by_taking_it(control: ControlFolder, tmp_path: Path) -> None:
    box = Mailbox(control, tmp_path / "host")
    assert (bool(box._news), box.poll(), bool(box._news), box.take()) == (False, False, False, [])
    control.send({"id": "one", "stage": "reward"})
    control.send({"id": "two"})

    assert (bool(box._news), box.poll(), bool(box._news)) == (False, True, True)
    assert box.take() == [{"id": "one", "stage": "reward"}, {"id": "two"}]
    assert (bool(box._news), box.poll(), box.take()) == (False, False, [])
    box.close()


def test_each_id_comes_once_whatever_becomes_of_the_file(control: ControlFolder, tmp_path: Path) -> None:
    box = Mailbox(control, tmp_path / "host")
    came: list[str] = []
    for change in (
        lambda: control.send({"id": "one"}),
        lambda: control.send({"id": "two"}),
        lambda: os.utime(requests(control)),
        lambda: requests(control).unlink(),
        lambda: control.send({"id": "one"}),
        lambda: control.send({"id": "three"}),
        lambda: [path.unlink() for path in control.path.iterdir()] + [control.path.rmdir()],
        lambda: control.send({"id": "four"}),
    ):
        change()
        box.poll()
        came += [one["id"] for one in box.take()]

    assert came == ["one", "two", "three", "four"]
    assert (box.problem, faults.counts) == (None, {})
    box.close()


def test_a_change_that_keeps_size_and_mtime_is_seen(control: ControlFolder, tmp_path: Path) -> None:
    """A shared file system's clock may stand still, or be another."""
    box = Mailbox(control, tmp_path / "host")
    control.send({"id": "one"})
    os.utime(requests(control), (1, 1))
    box.poll()
    text = requests(control).read_text().replace('"one"', '"two"')
    requests(control).write_text(text)
    os.utime(requests(control), (1, 1))
    box.poll()

    assert [one["id"] for one in box.take()] == ["one", "two"]
    box.close()


def test_on_a_host_one_process_reads_the_shared_folder_for_all(
    rank: MakeRank, control: ControlFolder, tmp_path: Path
) -> None:
    first, second = rank(), rank()
    control.send({"id": "one"})
    assert [first.ask("poll"), second.ask("poll")] == ["one", "one"]
    assert [first.ask("leads"), second.ask("leads")] == ["True", "False"]
    control.send({"id": "two"})

    assert second.ask("poll") == "-"  # it does not look there itself
    assert [first.ask("poll"), second.ask("poll")] == ["two", "two"]


def test_every_host_has_its_own_reader(rank: MakeRank, control: ControlFolder) -> None:
    here, there = rank("host"), rank("other_host")
    control.send({"id": "one"})

    assert [here.ask("poll"), there.ask("poll")] == ["one", "one"]
    assert [here.ask("leads"), there.ask("leads")] == ["True", "True"]


def test_when_the_reader_is_killed_another_one_takes_over(rank: MakeRank, control: ControlFolder) -> None:
    first, second, third = rank(), rank(), rank()
    for peer in (first, second, third):
        peer.ask("poll")
    first.end(signal.SIGKILL)
    control.send({"id": "one"})

    assert [second.ask("poll"), third.ask("poll")] == ["one", "one"]
    assert [second.ask("leads"), third.ask("leads")] == ["True", "False"]


def test_while_the_reader_hangs_the_others_look_for_themselves(
    rank: MakeRank, control: ControlFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailbox_module, "LATE_S", 0.05 - mailbox_module.TOLD_S)
    leader = rank()
    leader.ask("poll")
    box = Mailbox(control, tmp_path / "host")
    leader.send(signal.SIGSTOP)
    try:
        time.sleep(0.1)
        control.send({"id": "one"})

        assert box.poll()
        assert not box._turn.is_held
    finally:
        leader.send(signal.SIGCONT)
    assert leader.ask("poll") == "one"
    assert [one["id"] for one in box.take()] == ["one"] and not box.poll()
    box.close()


@pytest.mark.parametrize("what", ["lock", "relay", "folder", "relay damaged"])
def test_what_is_lost_on_the_host_is_made_again(
    rank: MakeRank, control: ControlFolder, tmp_path: Path, what: str
) -> None:
    first, second = rank(), rank()
    control.send({"id": "one"})
    before = [first.ask("poll"), second.ask("poll")]
    for path in (tmp_path / "host").rglob("*.*"):
        if what == "relay damaged" and path.suffix == ".json":
            path.write_text("{")
        elif what == "folder" or path.suffix == {"lock": ".lock", "relay": ".json"}.get(what):
            path.unlink()
    if what == "folder":
        shutil.rmtree(tmp_path / "host")
    control.send({"id": "two"})
    came = [peer.ask("poll") for _ in range(2) for peer in (first, second)]

    assert before == ["one", "one"]
    assert [came[0], came[2]].count("two") == [came[1], came[3]].count("two") == 1
    assert host_files(tmp_path) == [".json", ".lock"]


def test_who_finds_the_relay_damaged_looks_in_the_shared_folder(
    rank: MakeRank, control: ControlFolder, tmp_path: Path
) -> None:
    first, second = rank(), rank()
    control.send({"id": "one"})
    before = [first.ask("poll"), second.ask("poll")]
    next((tmp_path / "host").rglob("*.json")).write_text("{")
    control.send({"id": "two"})

    assert (before, second.ask("poll")) == (["one", "one"], "two")


def test_what_others_rename_into_the_hosts_folder_is_no_news(
    rank: MakeRank, control: ControlFolder, tmp_path: Path
) -> None:
    """The keeper does that at each batch of a job, and each process would wake up. A request is news to each: whose
    turn it was to pass it on may have been killed.
    """
    leader = rank()
    control.send({"id": "one"})
    leader.ask("poll")
    box = Mailbox(control, tmp_path / "host")
    box.poll()
    places = box.places_of_news()
    box.close()

    assert places is not None and tmp_path / "host" not in places
    assert [places[0].parent, *places[1:]] == [tmp_path / "host", control.path]


def test_two_jobs_do_not_meet(rank: MakeRank, control: ControlFolder, tmp_path: Path) -> None:
    """Even where one was given the other's folders by mistake."""
    other = ControlFolder(tmp_path / "run", OTHER_RUN)
    ours, theirs = rank(run_id=RUN), rank(run_id=OTHER_RUN)
    control.send({"id": "ours"})
    assert [ours.ask("poll"), theirs.ask("poll")] == ["ours", "-"]
    box = Mailbox(other, tmp_path / "other_host")
    box.poll()

    assert (box.take(), box.problem) == ([], f"{requests(control)} belongs to another run")
    assert other.acknowledgements() == []
    box.close()


def test_a_forked_child_neither_reads_nor_writes_nor_ends_anything(
    rank: MakeRank, control: ControlFolder, tmp_path: Path
) -> None:
    first, second = rank(), rank()
    first.ask("poll")
    control.send({"id": "one"})

    assert first.ask("fork") == "[False, False, [], False]"
    assert control.acknowledgements() == []
    assert host_files(tmp_path) == [".lock"]
    assert [first.ask("poll"), second.ask("poll")] == ["one", "one"]
    assert [first.ask("leads"), second.ask("leads")] == ["True", "False"]


def test_news_that_a_child_inherits_are_not_its_own(make_peer: MakePeer, tmp_path: Path) -> None:  # noqa: F811
    with_news = RANK + "box._news.append({'id': 'one'})"
    peer = make_peer(with_news, AT=str(tmp_path / "run"), HOST=str(tmp_path / "host"), RUN_ID=RUN)

    assert peer.ask("fork") == "[False, False, [], False]"
    assert peer.ask("poll") == "one"


def test_the_last_one_to_close_clears_the_host_folder(rank: MakeRank, control: ControlFolder, tmp_path: Path) -> None:
    first, second = rank(), rank()
    control.send({"id": "one"})
    first.ask("poll"), second.ask("poll")
    second.ask("close")
    left = host_files(tmp_path)
    first.ask("close")

    assert (left, host_files(tmp_path)) == ([".json", ".lock"], [])


def test_a_reader_that_closes_hands_over(rank: MakeRank, control: ControlFolder) -> None:
    first, second = rank(), rank()
    first.ask("poll"), second.ask("poll")
    first.ask("close")
    control.send({"id": "one"})

    assert [second.ask("poll"), second.ask("leads")] == ["one", "True"]


def test_a_run_folder_that_goes_away_is_stated_at_most(
    control: ControlFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*args: Any) -> Any:
        raise OSError(116, "Stale file handle")

    box = Mailbox(control, tmp_path / "host")
    control.send({"id": "one"})
    with monkeypatch.context() as stale:
        stale.setattr(os, "open", gone)
        assert not box.poll()
        problem = box.problem
    assert problem is not None and "Stale file handle" in problem
    assert (box.poll(), box.problem) == (True, None)
    box.close()


def test_readers_of_files_that_are_replaced_all_the_time_lose_nothing(control: ControlFolder, tmp_path: Path) -> None:
    box, sent, ended = Mailbox(control, tmp_path / "host"), 150, threading.Event()

    def write() -> None:
        for number in range(sent):
            control.send({"id": str(number)})
        ended.set()

    writer = threading.Thread(target=write)
    writer.start()
    came: list[str] = []
    while not ended.is_set():
        box.poll()
        came += [one["id"] for one in box.take()]
        assert box.problem is None
    writer.join()
    box.poll()
    came += [one["id"] for one in box.take()]

    assert came == [str(number) for number in range(sent)]
    assert len(json.loads(requests(control).read_bytes())["messages"]) == sent
    box.close()


def reads_of(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that are read from now on."""
    reads: list[str] = []
    real = mailbox_module.documents.read_small

    def noted(path: Path, *more: Any, **named: Any) -> bytes | None:
        reads.append(path.name)
        return real(path, *more, **named)

    monkeypatch.setattr(mailbox_module.documents, "read_small", noted)
    return reads


def test_a_file_that_is_as_it_was_is_not_read_again(
    control: ControlFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailbox_module, "_SETTLES_WITHIN_S", 0.0)
    box, other = Mailbox(control, tmp_path / "host"), Mailbox(control, tmp_path / "host")
    control.send({"id": "one"})
    for each in (box, other, box, other):
        each.poll()
    reads = reads_of(monkeypatch)
    for _ in range(5):
        box.poll(), other.poll()
    before = list(reads)
    control.send({"id": "two"})
    box.poll(), other.poll()

    assert before == []
    assert [one["id"] for one in box.take()] == [one["id"] for one in other.take()] == ["one", "two"]
    box.close(), other.close()


def test_a_file_that_has_just_changed_is_read_until_it_must_be_whole(
    control: ControlFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shared file system may say that it changed, and give what it held before."""
    box = Mailbox(control, tmp_path / "host")
    control.send({"id": "one"})
    old = (control.path / "requests.json").read_bytes()
    box.poll()
    control.send({"id": "two"})
    with monkeypatch.context() as stale:
        stale.setattr(mailbox_module.documents, "read_small", lambda path, *more, **named: old)
        box.poll()
    assert box.places_of_news() is None
    box.poll()

    assert [one["id"] for one in box.take()] == ["one", "two"]
    box.close()


def test_a_file_that_is_said_to_be_as_it_was_is_read_from_time_to_time(
    control: ControlFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shared file system may say so for long."""
    monkeypatch.setattr(mailbox_module, "_SETTLES_WITHIN_S", 0.0)
    monkeypatch.setattr(mailbox_module, "_READ_AGAIN_S", 0.05)
    box = Mailbox(control, tmp_path / "host")
    control.send({"id": "one"})
    box.poll()
    state = mailbox_module.documents.state_of(control.path / "requests.json")
    control.send({"id": "two"})
    monkeypatch.setattr(mailbox_module.documents, "state_of", lambda path: state)
    time.sleep(0.06)
    box.poll()

    assert [one["id"] for one in box.take()] == ["one", "two"]
    box.close()


@pytest.mark.parametrize("is_reused", [False, True])
def test_who_lost_its_turn_as_the_program_closed_its_file_takes_it_again_and_closes_nothing_of_the_program(
    control: ControlFolder, tmp_path: Path, is_reused: bool
) -> None:
    """As daemons do, which open their own files next, with our numbers."""
    box = Mailbox(control, tmp_path / "host")
    box.poll()
    assert box._turn._file is not None
    number = box._turn._file.number
    if is_reused:
        opened = os.open(tmp_path / "own", os.O_RDWR | os.O_CREAT)
        os.dup2(opened, number)
        os.close(opened)
    else:
        os.close(number)
    control.send({"id": "one"})
    has_come = box.poll()
    own = os.readlink(f"/proc/self/fd/{number}")
    box.close()

    assert has_come and box.problem is None
    if is_reused:
        assert own == str(tmp_path / "own") and (tmp_path / "own").read_bytes() == b""
        os.close(number)


def test_where_news_come_from_depends_on_whose_turn_it_is(
    control: ControlFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailbox_module, "_SETTLES_WITHIN_S", 0.0)
    control.send({"id": "one"})
    box = Mailbox(control, tmp_path / "host")
    before = box.places_of_news()
    box.poll()

    assert before is not None and [before[0].parent, *before[1:]] == [tmp_path / "host", control.path]
    assert box.places_of_news() == [control.path]
    monkeypatch.setattr(mailbox_module, "is_local", lambda folder: False)
    shared = Mailbox(control, tmp_path / "other_host")
    shared.poll()
    assert shared.places_of_news() == []
    box.close(), shared.close()
