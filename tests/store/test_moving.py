"""Sealed files on their way from a host's own disk into the run: each is there once, and whole, wherever it is cut."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from builders.cut_short import cut_short
from builders.local_seals import SealedPlace
from builders.mounts import mount

import mstxkit
from mstxkit.host import detached, life
from mstxkit.store import documents, fetching, layout, local_place, sealed_care, sealed_place

__all__ = ["mount"]


@pytest.fixture
def place(tmp_path: Path) -> SealedPlace:
    return SealedPlace(tmp_path)


def test_what_is_finished_moves_and_the_newest_of_who_may_write_stays(place: SealedPlace) -> None:
    ended, alive = place.process(1), place.process(2)
    place.announce(alive)
    before = {path.name: path.read_bytes() for path in (place.write(ended, 1), place.write(alive, 1))}
    place.write(alive, 2)

    assert place.take_care() == ([f"{ended}.0001.mxs", f"{alive}.0001.mxs"], "")
    assert place.names() == ([f"{alive}.0002.mxs"], sorted(before))
    assert {name: (place.sealed / name).read_bytes() for name in before} == before
    place.end(alive)
    assert place.take_care()[0] == [f"{alive}.0002.mxs"]


@pytest.mark.parametrize("name", ["{}.json", "{}.making", "{}.json.adopting.7.123"])
def test_what_is_still_to_be_sealed_stays_also_while_somebody_is_at_it(place: SealedPlace, name: str) -> None:
    process = place.process(1)
    (place.run / "live" / name.format(process)).touch()
    place.write(process, 1)

    assert place.take_care()[0] == []


def test_who_holds_its_lock_lives_though_its_pointer_is_gone(place: SealedPlace) -> None:
    process = place.process(1)
    place.write(process, 1)
    holds = "life.hold_lock(pathlib.Path(sys.argv[1])); print(flush=True); input()"
    holder = f"import sys, pathlib; from mstxkit.host import life; {holds}"
    lock = place.live / f"{process}{life.SUFFIX}"
    environ = {**os.environ, "PYTHONPATH": str(Path(mstxkit.__file__).parents[1])}
    command = [sys.executable, "-c", holder, str(lock)]
    with subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as alive:
        assert alive.stdout is not None
        alive.stdout.readline()
        assert place.take_care()[0] == []
        alive.kill()

    assert place.take_care()[0] == [f"{process}.0001.mxs"]


STEPS = ["os.rename", "os.fsync", "os.utime", "Path.unlink", "copy_file", "is_same"]


@pytest.mark.parametrize("count", range(3))
@pytest.mark.parametrize("name", STEPS)
def test_where_it_is_cut_off_nothing_is_lost_or_doubled_and_the_next_one_goes_on(
    place: SealedPlace, monkeypatch: pytest.MonkeyPatch, name: str, count: int
) -> None:
    """As by a kill: after so many calls of one of its steps nothing more happens."""
    process = place.process(1)
    before = {path.name: path.read_bytes() for path in (place.write(process, number) for number in (1, 2, 3))}
    owner: Any = {"os": os, "Path": Path}.get(name.split(".")[0], sealed_care)
    with cut_short(monkeypatch, owner, name.split(".")[-1], count):
        with pytest.raises(KeyboardInterrupt):
            place.take_care()
    folders = [place.here, place.sealed]
    assert sealed_place.all_names(folders) == sorted(before)
    for file, content in before.items():
        with os.fdopen(sealed_place.open_sealed(folders, file), "rb") as stream:
            assert stream.read() == content
    assert place.take_care()[1] == ""

    assert place.names() == ([], sorted(before))
    assert {file: (place.sealed / file).read_bytes() for file in before} == before


def test_after_a_real_kill_in_the_middle_of_a_copy_it_goes_on(place: SealedPlace) -> None:
    process = place.process(1)
    path = place.write(process, 1, size=16 << 20)
    before = path.read_bytes()
    words = detached.words_of(place.care(mb_s=10))
    program = "import sys; from mstxkit.store import sealed_care as care; "
    program += "care.take_care(care.detached.of_words(care.SealedCare, sys.argv[1:]))"
    environ = {**os.environ, "PYTHONPATH": str(Path(mstxkit.__file__).parents[1])}
    with subprocess.Popen([sys.executable, "-c", program, *words], env=environ) as mover:
        deadline = time.monotonic() + 60
        while not list(place.sealed.glob("*.~")) and time.monotonic() < deadline:
            time.sleep(0.01)
        mover.send_signal(signal.SIGKILL)

    assert place.names() == ([f"{path.name}.moving"], [f"{path.name}.~"])
    assert place.take_care() == ([path.name], "")
    assert place.names() == ([], [path.name])
    assert (place.sealed / path.name).read_bytes() == before


def test_a_full_disk_of_the_run_leaves_them_here_and_says_so(place: SealedPlace, mount: Any) -> None:
    process = place.process(1)
    os.rmdir(place.sealed)
    full = mount("run/sealed", "size=1m,mode=700")
    place.write(process, 1, size=2 << 20)
    moved, problem = place.take_care()

    assert moved == [] and "are free on the run's disk" in problem
    assert os.listdir(full) == []
    assert os.listdir(place.here).count(f"{process}.0001.mxs") == 1, "it is not claimed, and counts for its writer"
    assert [record.problem for record in place.records().values()] == [problem]
    assert [(record.files, record.bytes > 2 << 20) for record in place.records().values()] == [(1, True)]


def test_a_folder_of_the_run_that_cannot_be_written_leaves_them_here(place: SealedPlace, mount: Any) -> None:
    os.rmdir(place.sealed)
    mount("run/sealed", "ro")
    place.write(place.process(1), 1)

    assert place.take_care()[0] == []
    assert place.take_care()[1]
    assert sealed_place.all_names([place.here]) == [f"{place.process(1)}.0001.mxs"]


def test_no_link_is_followed_and_what_is_no_file_is_left(place: SealedPlace, tmp_path: Path) -> None:
    outside = tmp_path / "outside.mxs"
    outside.write_bytes(b"theirs")
    (place.here / f"{place.process(1)}.0001.mxs").symlink_to(outside)
    place.write(place.process(2), 1)
    moved, problem = place.take_care()

    assert moved == [f"{place.process(2)}.0001.mxs"]
    assert problem
    assert outside.read_bytes() == b"theirs"
    assert place.names()[1] == moved


def test_a_run_that_is_gone_is_not_made_again_for_what_is_left_of_it(place: SealedPlace) -> None:
    place.write(place.process(1), 1)
    os.rename(place.run, place.run.with_name("elsewhere"))

    assert place.take_care() == ([], f"{place.run} is not there: what is on this host stays")
    assert not place.run.exists()


def test_no_more_than_so_many_bytes_a_second_pass(place: SealedPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    place.write(place.process(1), 1, size=3_000_000)
    with monkeypatch.context() as patched:
        patched.setattr(fetching.time, "sleep", slept.append)
        sealed_care.move_file(place.here, place.sealed, f"{place.process(1)}.0001.mxs", 1.0)

    assert sum(slept) >= 3.0


def test_a_folder_that_another_host_of_this_name_has_is_not_taken_for_ours(place: SealedPlace) -> None:
    assert sealed_place.on_this_host(place.run, place.run_id) == [place.here]
    (place.here / ".place").write_text("0" * 16)

    assert sealed_place.on_this_host(place.run, place.run_id) == []


@pytest.mark.parametrize("folder", ["/etc", "relative", "", "/", "/a\0b/c/d/e/f", "/tmp/../tmp/x/y/z/.sealed"])
def test_a_record_that_names_any_folder_is_not_believed(place: SealedPlace, folder: str) -> None:
    (name, record), *_ = place.records().items()
    documents.replace_file(
        place.run / layout.CARE / name, care_record_json(record._replace(folder=folder), place.run_id)
    )

    assert sealed_place.on_this_host(place.run, place.run_id) == []


def test_a_record_of_what_can_be_no_path_keeps_nobody_from_opening_the_run(place: SealedPlace) -> None:
    """Nor from sealing what a killed process left, which asks for these places as well."""
    (record,) = place.records().values()
    folder = local_place.root_of(Path("/a\0b"), place.run_id) / sealed_place.FOLDER
    content = care_record_json(record._replace(folder=str(folder)), place.run_id)
    documents.replace_file(place.run / layout.CARE / f"{record.host}-other.json", content)

    assert sealed_place.on_this_host(place.run, place.run_id) == [place.here]


def care_record_json(record: Any, run_id: str) -> bytes:
    import json

    return json.dumps({**record._asdict(), "format": 1, "run": run_id}).encode()


def test_the_copy_is_checked(place: SealedPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    place.write(place.process(1), 1)
    monkeypatch.setattr(fetching, "_PIECE_BYTES", 1 << 22)
    monkeypatch.setattr(os, "posix_fadvise", lambda descriptor, *_: os.pwrite(descriptor, b"x", 0))
    moved, problem = place.take_care()

    assert moved == [] and "is not what was read" in problem
    assert sealed_place.all_names([place.here]) == [f"{place.process(1)}.0001.mxs"]
