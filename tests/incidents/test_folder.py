"""The incidents of a run as files: opened once, bounded, and none where nothing was wrong."""

from __future__ import annotations

import errno
import os
import stat
import time
from pathlib import Path

import pytest

from mstxkit.errors import MstxkitError
from mstxkit.incidents import folder
from mstxkit.incidents.folder import Call, IncidentFolders
from mstxkit.store import documents, incidents, layout, run_file
from mstxkit.store.incidents import EXCEPTION, HANG, KILLED, REQUEST, Incident


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return run_file.open_run_folder(tmp_path / "run")[0]


def of_host(run: Path, place: str = "a-1", at_most: int = 5, most_bytes: int = 1 << 20) -> IncidentFolders:
    return IncidentFolders(run, run_file.id_of(run) or "", place, at_most, most_bytes)


def opened(run: Path, monkeypatch: pytest.MonkeyPatch, seconds: int, size: int = 10) -> Call:
    """An incident that was opened so many seconds from now, and has come to something."""
    at_ns = time.time_ns() + seconds * 10**9
    monkeypatch.setattr(folder.time, "time_ns", lambda: at_ns)
    folders = of_host(run, most_bytes=10_000)
    call = folders.open(KILLED, at_ns)
    folders.answer(call.name, [{"text": "x" * size}])
    folders.conclude(Incident(call.name, at_ns, KILLED))
    monkeypatch.undo()
    return call


def test_two_hosts_that_see_the_same_hang_have_one_incident(run: Path) -> None:
    since_ns = time.time_ns() - 10**9
    first, second = of_host(run, "a-1").open(HANG, since_ns), of_host(run, "b-2").open(HANG, since_ns)

    assert first == second
    assert first.by == "a-1"


def test_what_another_host_has_opened_is_found_although_others_hold_the_lock_for_long(run: Path) -> None:
    """Of a thousand hosts that see the same death most waited too long for the lock, and opened another one later."""
    call = of_host(run, "a-1").open(KILLED, time.time_ns())
    with documents.hold_lock(run / layout.INCIDENTS / layout.INCIDENTS_LOCK, 1.0):
        found = of_host(run, "b-2").open(KILLED, time.time_ns())

    assert found == call


def test_it_is_known_how_many_hosts_have_answered_without_what_they_say(run: Path) -> None:
    hosts = of_host(run, "a-1"), of_host(run, "b-2")
    call = hosts[0].open(HANG, time.time_ns())
    counts = [hosts[0].answers(call.name)]
    for folders in hosts:
        folders.answer(call.name, [{"rank": 1}])
        counts.append(hosts[0].answers(call.name))

    assert counts == [0, 1, 2]
    assert hosts[0].reports(call.name) == [{"rank": 1}] * 2


def test_what_comes_within_seconds_belongs_to_the_incident_before(run: Path) -> None:
    assert of_host(run).open(KILLED, time.time_ns()) == of_host(run).open(EXCEPTION, time.time_ns())


@pytest.mark.parametrize(
    ("first", "second"), [(KILLED, REQUEST), (REQUEST, HANG), (REQUEST, KILLED), (EXCEPTION, HANG)]
)
def test_what_has_another_reason_is_an_incident_of_its_own(run: Path, first: str, second: str) -> None:
    assert of_host(run).open(first, time.time_ns()).name < of_host(run).open(second, time.time_ns()).name


def test_a_hang_after_one_that_is_over_is_another_incident(run: Path) -> None:
    folders = of_host(run)
    first = folders.open(HANG, time.time_ns())
    folders.conclude(Incident(first.name, first.opened_ns, HANG, over_ns=time.time_ns()))

    assert folders.open(HANG, 0).name > first.name


def test_a_clock_that_is_set_back_puts_no_trouble_into_an_incident_of_what_it_calls_the_future(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = opened(run, monkeypatch, 3600)
    hang = of_host(run).open(HANG, time.time_ns() - 10**9)

    assert hang.name > before.name, "the newest is the last"
    assert of_host(run, "b-2").newest() == hang
    assert of_host(run, "b-2").open(HANG, time.time_ns() - 10**9) == hang


def test_a_later_hang_is_another_incident(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = opened(run, monkeypatch, -100)
    second = of_host(run).open(HANG, time.time_ns() - 10**9)

    assert second.name > first.name


def test_beyond_their_number_the_oldest_goes_but_never_the_first(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [opened(run, monkeypatch, 60 * number).name for number in range(8)]

    assert incidents.list_names(run) == [names[0], *names[-4:]]


def test_beyond_their_size_the_oldest_goes_but_never_the_first(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [opened(run, monkeypatch, 60 * number, size=6000).name for number in range(4)]

    assert incidents.list_names(run) == [names[0], names[-1]]


def test_where_one_is_kept_no_second_is_opened(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(run, monkeypatch, -100)

    with pytest.raises(MstxkitError):
        of_host(run, at_most=1).open(HANG, time.time_ns())


def test_where_nothing_was_wrong_nothing_stays(run: Path) -> None:
    folders = of_host(run)
    call = folders.open(HANG, time.time_ns())
    folders.answer(call.name, [])
    folders.dissolve(call.name)

    assert incidents.list_names(run) == []


def test_hosts_learn_that_nobody_was_stuck_for_as_long_as_that_was_said(run: Path) -> None:
    folders = of_host(run)
    before = folders.was_quiet()
    for seconds in (100.0, -1.0):
        folders.dissolve(folders.open(HANG, time.time_ns()).name, seconds)
        before = before, of_host(run, "b-2").was_quiet()  # type: ignore[assignment]

    assert before == ((False, True), False)


def test_a_host_that_the_job_has_left_is_waited_for_no_more_and_one_that_is_alone_knows_it(run: Path) -> None:
    (run / layout.NOW).mkdir()
    counts = []
    for number, ago_s in enumerate((86400, 100, 0)):
        file = run / layout.NOW / f"{number}{layout.NOW_SUFFIX}"
        file.touch()
        os.utime(file, (time.time() - ago_s,) * 2)
        counts.append(of_host(run).hosts())

    assert counts == [1, 1, 2]


def test_a_full_disk_leaves_no_empty_incident(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def is_full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(folder.documents, "replace_file", is_full)
    with pytest.raises(OSError, match="no space"):
        of_host(run).open(HANG, time.time_ns())

    assert incidents.list_names(run) == []


def test_what_came_to_something_is_not_dissolved(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call = opened(run, monkeypatch, 0)
    of_host(run).dissolve(call.name)

    assert incidents.list_names(run) == [call.name]


def test_folders_and_files_are_private(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call = opened(run, monkeypatch, 0)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (run / layout.INCIDENTS / call.name).rglob("*")}

    assert modes == {
        "call.json": 0o640, "hosts": 0o700, "a-1.json": 0o640, "incident.json": 0o640, "incident.txt": 0o640,
    }  # fmt: skip


def test_a_run_that_somebody_has_removed_is_not_made_anew(run: Path) -> None:
    folders = of_host(run)
    (run / layout.RUN_FILE).unlink()

    with pytest.raises(MstxkitError):
        folders.open(HANG, time.time_ns())
    assert not (run / layout.INCIDENTS).exists()


def test_a_folder_of_incidents_that_is_a_link_is_not_written_to(run: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (run / layout.INCIDENTS).symlink_to(tmp_path / "elsewhere")

    with pytest.raises(MstxkitError):
        of_host(run).open(HANG, time.time_ns())
    assert not list((tmp_path / "elsewhere").iterdir())
