"""The live file of a process: made whole or not at all, announced by its pointer, and taken away in the right order."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest

from mstxkit import faults
from mstxkit.errors import CaptureError
from mstxkit.host import identity, life
from mstxkit.recorder import live
from mstxkit.store import livefile, process_pointer, run_file

LAYOUT = livefile.Layout(slot_count=8, bank_count=2, bank_bytes=16384)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[live.LiveFile]:
    found = make(tmp_path)
    yield found
    live.remove_file(found)


def make(tmp_path: Path, layout: livefile.Layout = LAYOUT) -> live.LiveFile:
    run, run_id = run_file.open_run_folder(tmp_path / "run")
    who = identity.of_process(run_id, False, "1")
    return live.make_file(run, who, layout, str(tmp_path / "shm"), False)


def test_it_has_its_size_and_its_header_from_the_start(made: live.LiveFile) -> None:
    header = livefile.read_header(made.view)

    assert made.path.stat().st_size == LAYOUT.total_bytes == len(made.view)
    assert made.path.stat().st_blocks * 512 >= LAYOUT.total_bytes, "its space is really there"
    assert (header.layout, header.nonce, header.state) == (LAYOUT, made.nonce, livefile.BEING_MADE)
    assert stat.S_IMODE(made.path.stat().st_mode) == 0o640


def test_what_is_written_into_it_is_in_the_file(made: live.LiveFile) -> None:
    livefile.set_state(made.view, livefile.RECORDING)

    assert livefile.read_header(made.path.read_bytes()).state == livefile.RECORDING


def test_its_pointer_says_where_it_is_and_whose(made: live.LiveFile) -> None:
    pointer = json.loads(made.pointer.read_text())

    assert [path.name for path in made.pointer.parent.iterdir()] == [f"{made.name}.json"]
    assert pointer["path"] == str(made.path)
    assert life.is_alive(pointer) is True
    assert identity.process_name(pointer) == made.name


@pytest.mark.parametrize("lets_go", [live.let_go, live.forget_file, live.take_away, live.remove_file])
def test_a_file_of_the_program_that_got_its_number_stays_open(
    tmp_path: Path, lets_go: Callable[[live.LiveFile], None]
) -> None:
    """A program may close every descriptor that it has, and open its own: a mapping has one too."""
    found = make(tmp_path)
    (number,) = [int(fd.name) for fd in Path("/proc/self/fd").iterdir() if fd.resolve() == found.path]
    os.close(number)
    own = os.dup2(os.open("/dev/null", os.O_RDONLY), number)
    lets_go(found)
    live.remove_file(found)

    assert os.path.samestat(os.fstat(own), os.stat("/dev/null"))
    os.close(own)


def test_removed_it_leaves_nothing(tmp_path: Path) -> None:
    found = make(tmp_path)
    live.remove_file(found)

    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "run.json"]
    assert not found.path.parent.exists()


def test_a_folder_with_another_process_in_it_stays(made: live.LiveFile, tmp_path: Path) -> None:
    live.remove_file(make(tmp_path))

    assert made.path.exists()


def test_let_go_it_stays(tmp_path: Path) -> None:
    found = make(tmp_path)
    live.let_go(found)

    assert found.path.exists() and found.pointer.exists()
    with pytest.raises(ValueError, match="released"):
        found.view[0]


def test_a_view_that_somebody_still_holds_is_a_counted_fault(tmp_path: Path) -> None:
    found = make(tmp_path)
    held = memoryview(found.mapping)
    live.remove_file(found)
    held.release()

    assert not found.path.exists()
    assert faults.counts == {"live.let_go": 1}


def test_its_pointer_goes_last_so_that_a_kill_in_between_leaves_no_unknown_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed: list[str] = []
    found, real = make(tmp_path), Path.unlink

    def noted(path: Path, missing_ok: bool = False) -> None:
        removed.append(path.suffix)
        real(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", noted)
    live.remove_file(found)

    assert removed == [".live", ".json"]


def test_a_file_that_cannot_be_removed_keeps_its_pointer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "injected")

    found = make(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", refused)
        live.remove_file(found)

    assert found.path.exists() and found.pointer.exists()
    assert faults.counts == {"live.remove": 1}


def test_a_pointer_can_be_written_again(made: live.LiveFile) -> None:
    before = json.loads(made.pointer.read_text())
    made.pointer.unlink()
    process_pointer.write_pointer(made.pointer, made.path, livefile.read_identity(made.view))

    assert json.loads(made.pointer.read_text()) == before


@pytest.mark.parametrize("step", ["posix_fallocate", "statvfs", "open"])
def test_a_device_that_refuses_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    import os

    real = getattr(os, step)

    def refused(*args: Any, **kwargs: Any) -> Any:
        if step == "open" and not str(args[0]).endswith(".live"):
            return real(*args, **kwargs)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, refused)
    with pytest.raises(CaptureError, match=r"no room for a live file of 44 KiB .*No space left"):
        make(tmp_path)

    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "run.json"]
