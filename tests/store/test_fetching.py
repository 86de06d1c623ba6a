"""Profiles on a host's own disk: written there, moved into the run checked and whole, whatever is cut off, or kept."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from builders.cut_short import cut_short, stale_once
from builders.local_profiles import REQUEST, Place

import mstxkit
from mstxkit.errors import CaptureError
from mstxkit.host import identity
from mstxkit.store import fetching, local_place, retention
from mstxkit.store.aftercare import Care, take_care
from mstxkit.store.session_file import read_sessions


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def content(raw: Path) -> dict[str, bytes]:
    return {str(file.relative_to(raw)): file.read_bytes() for file in raw.rglob("*") if file.is_file()}


def test_data_are_written_to_the_disk_of_the_host_and_the_run_says_where(place: Place) -> None:
    file = place.record()

    assert place.told(file)["stored"] == {"host": identity.name_host(), "folder": str(file.data)}
    assert file.data.is_relative_to(place.disk / f"mstxkit-{os.geteuid()}" / place.run_id / identity.name_host())
    assert os.listdir(file.folder) == ["session.json"]
    below = [folder for folder in [file.data, *file.data.parents] if folder.is_relative_to(place.disk)][:-1]
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in below} == {0o700}


def test_it_is_moved_into_the_folder_of_its_request_as_it_was(place: Place) -> None:
    files = [place.record(rank) for rank in range(2)]
    before = [content(file.data / f"node_{rank}_1_ascend_pt") for rank, file in enumerate(files)]

    assert [done.problem for done in place.fetch()] == ["", ""]

    assert sorted(os.listdir(place.run / "profiles" / REQUEST)) == ["node_0_1_ascend_pt", "node_1_1_ascend_pt"]
    assert [content(place.data(file)) for file in files] == before
    assert [place.told(file)["stored"] for file in files] == [None, None]
    assert list(local_place.sessions_below(place.root)) == []
    data = place.data(files[0]) / "PROF_1" / "data"
    assert (stat.S_IMODE(data.stat().st_mode), stat.S_IMODE(data.parent.stat().st_mode)) == (0o640, 0o700)


def test_a_second_time_there_is_nothing_to_do(place: Place) -> None:
    place.record()
    place.fetch()

    assert place.fetch() == []


def test_what_still_records_stays_and_what_a_killed_process_left_comes_beside_its_file(place: Place) -> None:
    mine, killed = place.record(is_open=True), place.record(1, is_open=True)
    killed.document.update(pid_start=1)
    (killed.folder / "session.json").write_text(json.dumps(killed.document))
    place.fetch()

    assert mine.data.is_dir()
    assert sorted(os.listdir(killed.folder)) == ["node_1_1_ascend_pt", "session.json"]


@pytest.mark.parametrize("name", ["copy_file", "_say_so", "_into_request", "shutil.rmtree", "os.rename"])
@pytest.mark.parametrize("count", range(3))
def test_where_it_is_cut_off_the_next_one_goes_on(
    place: Place, monkeypatch: pytest.MonkeyPatch, name: str, count: int
) -> None:
    """As by a kill: after so many calls of one of its steps nothing more happens."""
    files = [place.record(rank) for rank in range(2)]
    before = [content(file.data / f"node_{rank}_1_ascend_pt") for rank, file in enumerate(files)]
    owner: Any = fetching
    for part in name.split(".")[:-1]:
        owner = getattr(owner, part)

    with cut_short(monkeypatch, owner, name.split(".")[-1], count):
        try:
            place.fetch()
        except KeyboardInterrupt:
            pass
    assert {done.problem for done in place.fetch()} <= {""}

    assert [content(place.data(file)) for file in files] == before
    assert sorted(os.listdir(place.run / "profiles" / REQUEST)) == ["node_0_1_ascend_pt", "node_1_1_ascend_pt"]
    assert [os.listdir(file.folder) for file in files] == [["session.json"]] * 2
    assert list(local_place.sessions_below(place.root)) == []


def test_what_cannot_be_listed_for_a_moment_is_not_taken_for_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = place.record()
    before = content(file.data / "node_0_1_ascend_pt")
    with stale_once(monkeypatch, file.data, 0):
        (told,) = place.fetch()

    assert told.problem and content(file.data / "node_0_1_ascend_pt") == before
    assert [done.problem for done in place.fetch()] == [""]
    assert content(place.data(file)) == before


KILLED = """
import sys
from pathlib import Path
from mstxkit.store.fetching import fetch_all
run, run_id, root = sys.argv[1:]
list(fetch_all(Path(run), run_id, Path(root), 20))
"""


def test_after_a_real_kill_it_goes_on_and_copies_no_finished_file_again(place: Place) -> None:
    file = place.record(size=16 << 20)
    before = content(file.data / "node_0_1_ascend_pt")
    command = [sys.executable, "-c", KILLED, str(place.run), place.run_id, str(place.root)]
    environ = {**os.environ, "PYTHONPATH": str(Path(mstxkit.__file__).parents[1])}
    with subprocess.Popen(command, env=environ) as process:
        deadline = time.monotonic() + 60
        while not list(file.folder.rglob("*.~")) and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)

    (part,) = file.folder.glob("*.part")
    assert file.data.is_dir()
    assert not (place.run / "profiles" / REQUEST).exists()
    assert (part / "profiler_info.json").exists() or not (part / "PROF_1" / "data").exists()
    assert [done.problem for done in place.fetch()] == [""]
    assert content(place.data(file)) == before


def test_a_copy_that_reads_otherwise_stays_where_it_was(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    file = place.record()
    monkeypatch.setattr(os, "posix_fadvise", lambda descriptor, *_: os.pwrite(descriptor, b"x", 0))

    (done,) = place.fetch()

    assert "is not what was read" in done.problem
    assert (file.data / "node_0_1_ascend_pt" / "PROF_1" / "data").exists()
    assert place.told(file)["stored"] is not None


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_links_and_pipes_are_not_moved(place: Place, kind: str) -> None:
    file = place.record()
    strange = file.data / "node_0_1_ascend_pt" / "strange"
    strange.symlink_to("/etc/passwd") if kind == "link" else os.mkfifo(strange)

    (done,) = place.fetch()

    assert "neither a file nor a folder" in done.problem
    assert file.data.is_dir()


def test_two_runs_on_one_disk_do_not_meet(place: Place, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Place(tmp_path / "other")
    other.disk = place.disk
    files = place.record(), other.record()

    place.fetch()

    assert place.data(files[0]).is_dir()
    assert files[1].data.is_dir()
    assert not (other.run / "profiles" / REQUEST).exists()


def test_a_link_on_the_way_to_the_disk_is_refused(place: Place, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (place.disk / f"mstxkit-{os.geteuid()}").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(CaptureError, match="symbolic link"):
        place.record()
    assert os.listdir(tmp_path / "elsewhere") == []


def test_a_disk_that_is_not_mounted_is_not_made(place: Place) -> None:
    place.disk = place.disk / "nvme0"

    with pytest.raises(FileNotFoundError, match="is not there"):
        place.record()
    assert not place.disk.exists()


@pytest.mark.parametrize("setting", ["local:", "local:relative", "/a", "remote:/a", "local:/a/../b", "local:/a\nb", 7])
def test_a_setting_that_is_none_is_refused(setting: Any) -> None:
    with pytest.raises(CaptureError, match="local:/a/folder"):
        local_place.given_in(setting)


@pytest.mark.parametrize(
    "stored",
    [None, 7, {}, {"host": "another", "folder": "/x"}, {"host": identity.name_host()},
     {"host": identity.name_host(), "folder": "/etc"}, {"host": identity.name_host(), "folder": "relative"}],
)  # fmt: skip
def test_no_place_that_a_session_names_is_believed(place: Place, stored: Any) -> None:
    assert local_place.root_named_by({"stored": stored}, ("a", "b", "c", "d"), place.run_id) is None


@pytest.mark.parametrize("disk", ["/a\0b", "/\ud800", "/" + "x" * 300])
def test_a_place_that_can_be_no_path_is_not_believed_either(place: Place, disk: str) -> None:
    below = ("a", "b", "c", "d")
    stored = {
        "host": identity.name_host(),
        "folder": str(local_place.root_of(Path(disk), place.run_id).joinpath(*below)),
    }

    assert local_place.root_named_by({"stored": stored}, below, place.run_id) is None


@pytest.mark.parametrize("odd", [{"request": 7}, {"request": ["x"]}, {"stage": None}, {"output": "x" * 300}])
def test_what_somebody_else_wrote_of_a_session_keeps_no_other_from_being_moved(place: Place, odd: Any) -> None:
    first, second = place.record(0), place.record(1)
    told = place.told(first)
    (first.folder / "session.json").write_text(json.dumps({**told, **odd}))
    done = place.fetch()
    retention.make_room(place.run, place.run_id, 1)

    assert len(done) == 2
    assert place.told(second)["stored"] is None
    assert content(place.data(second))


def test_the_place_of_a_real_one_is(place: Place) -> None:
    file = place.record()
    below = file.folder.relative_to(place.run / "profiles").parts

    assert local_place.root_named_by(place.told(file), below, place.run_id) == place.root


def test_the_pace_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    (tmp_path / "data").write_bytes(bytes(1_000_000))
    with monkeypatch.context() as patched:
        patched.setattr(fetching.time, "sleep", slept.append)
        fetching.copy_file(tmp_path / "data", tmp_path / "copy", 2.0)
        fetching.copy_file(tmp_path / "data", tmp_path / "another", 0.0)

    assert slept == [0.5]


# Making room.


def test_the_oldest_go_first_and_the_newest_of_each_request_and_rank_stays(place: Place) -> None:
    files = [place.record(local=False, number=n, end_ns=n, request=request) for n, request in
             enumerate([REQUEST, "cd" * 8, REQUEST, REQUEST], 1)]  # fmt: skip

    removed = retention.make_room(place.run, place.run_id, 1)

    kept = [place.told(file)["output"] is not None for file in files]
    assert kept == [False, True, False, True]
    assert [gone.folder for gone in removed] == [str(files[n].folder.relative_to(place.run)) for n in (0, 2)]
    about = place.told(files[0])["removed"]
    assert (about["bytes"], about["why"]) == (1002, "more than 1 bytes of profiles")
    assert sorted(path.name for path in (place.run / "profiles").rglob("*_ascend_pt")) == [
        "node_0_2_ascend_pt", "node_0_4_ascend_pt"
    ]  # fmt: skip


def test_no_more_goes_than_has_to(place: Place) -> None:
    files = [place.record(local=False, number=n, end_ns=n) for n in range(1, 5)]

    retention.make_room(place.run, place.run_id, 3100)

    assert [place.told(file)["output"] is None for file in files] == [True, False, False, False]


def test_on_the_host_its_own_limit_holds(place: Place) -> None:
    files = [place.record(number=n, end_ns=n) for n in range(1, 4)]

    take_care(Care(place.run, place.run_id, place.disk, mb_s=0, host_bytes=1100))

    assert [file.data.is_dir() for file in files] == [False, False, True]
    assert [place.told(file)["stored"] is None for file in files] == [True, True, False]


def test_what_is_being_parsed_stays(place: Place) -> None:
    files = [place.record(local=False, number=n, end_ns=n) for n in range(1, 3)]
    (files[0].folder / "analysis.json").write_text(json.dumps({"format": 1, "state": "parsing"}))

    assert retention.make_room(place.run, place.run_id, 1) == []


def test_a_removal_that_was_cut_off_is_finished(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [place.record(local=False, number=n, end_ns=n) for n in range(1, 3)]
    raw = place.data(files[0])
    with monkeypatch.context() as patched:
        patched.setattr(retention.shutil, "rmtree", lambda path: None)
        retention.make_room(place.run, place.run_id, 1)
    assert raw.exists()

    retention.make_room(place.run, place.run_id, 1 << 40)

    assert not raw.exists()


def test_all_of_it_together_moves_makes_room_and_leaves_only_the_newest(place: Place) -> None:
    for number in range(1, 4):
        place.record(number=number, end_ns=number)

    take_care(Care(place.run, place.run_id, place.disk, mb_s=1000, run_bytes=1100))

    outputs = [session.document["output"] for session in read_sessions(place.run, place.run_id)]
    assert [output is None for output in outputs] == [True, True, False]
    assert list(local_place.sessions_below(place.root)) == []
