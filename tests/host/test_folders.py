"""Folders that can be trusted: made private, checked, never followed elsewhere; files that are whole or not there."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from mstxkit.errors import CaptureError
from mstxkit.host import folders
from mstxkit.store import documents, run_file


def test_a_run_folder_is_made_once_and_keeps_its_id(tmp_path: Path) -> None:
    folder, run_id = run_file.open_run_folder(tmp_path / "run")
    again = run_file.open_run_folder(tmp_path / "run")

    assert again == (folder, run_id)
    assert run_file.is_run_id(run_id)
    assert json.loads((folder / "run.json").read_text()).keys() == {"format", "run", "created_ns"}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"run": 7}', '{"run": "../../etc"}', '{"run": "' + "A" * 32 + '"}'])
def test_a_run_file_without_an_id_is_refused_and_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(CaptureError, match=r"run\.json is there but says no run id; remove it"):
        run_file.open_run_folder(tmp_path)

    assert (tmp_path / "run.json").read_text() == text


def test_a_file_system_without_hard_links_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*args: Any, **kwargs: Any) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    first, second = run_file.open_run_folder(tmp_path), run_file.open_run_folder(tmp_path)

    assert first == second
    assert sorted(path.name for path in tmp_path.iterdir()) == ["live", "run.json", "sealed"]


def test_a_disk_without_room_for_the_run_file_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(documents, "write_file", full)
    with pytest.raises(CaptureError, match="cannot be used: No space left on device"):
        run_file.open_run_folder(tmp_path)

    assert not (tmp_path / "run.json").exists()


def test_a_removed_run_folder_is_put_back_as_the_same_run(tmp_path: Path) -> None:
    run_file.put_back_run_folder(tmp_path / "run", "a" * 32)
    run_file.put_back_run_folder(tmp_path / "run", "b" * 32)

    assert run_file.open_run_folder(tmp_path / "run")[1] == "a" * 32


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can give a folder away")
    os.chown(tmp_path, 12345, 12345)
    try:
        with pytest.raises(CaptureError, match="belongs to user 12345, not to 0"):
            folders.make_folder(tmp_path)
    finally:
        os.chown(tmp_path, os.geteuid(), os.getegid())


def test_a_link_that_leads_nowhere_is_no_folder_of_ours(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(CaptureError, match="is a symbolic link"):
        folders.make_folder(tmp_path / "link")

    assert not (tmp_path / "nowhere").exists()


def test_a_link_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic link"):
        documents.write_file(tmp_path / "link", b"not yours")

    assert (tmp_path / "target").read_text() == "mine"


def test_a_replaced_file_is_the_new_one_and_leaves_no_draft(tmp_path: Path) -> None:
    documents.replace_file(tmp_path / "file", b"old")
    documents.replace_file(tmp_path / "file", b"new")

    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("file", b"new")]


def test_a_file_that_cannot_be_replaced_is_still_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(draft: Path, file: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    documents.replace_file(tmp_path / "file", b"old")
    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(OSError, match="Input/output"):
        documents.replace_file(tmp_path / "file", b"new")

    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("file", b"old")]


def test_json_is_read_from_regular_files_of_sane_size_only(tmp_path: Path) -> None:
    (tmp_path / "good").write_text('{"a": 1}')
    (tmp_path / "list").write_text("[1]")
    (tmp_path / "deep").write_text("[" * 100_000)
    (tmp_path / "binary").write_bytes(b"\xff\xfe{}")
    (tmp_path / "large").write_text('{"a": "' + "x" * 100 + '"}')
    (tmp_path / "link").symlink_to(tmp_path / "good")
    os.mkfifo(tmp_path / "pipe")
    names = ("good", "list", "deep", "binary", "link", "pipe", "missing", ".")
    found = {name: documents.read_json(tmp_path / name) for name in names}

    assert found == {**dict.fromkeys(names), "good": {"a": 1}}
    assert documents.read_json(tmp_path / "large", limit_bytes=50) is None


@pytest.mark.parametrize(
    ("path", "expected"), [("in/file", True), ("in", True), ("inner", False), ("in/../out", False), ("in/link", False)]
)
def test_what_lies_inside_a_folder_is_told_by_where_links_lead(tmp_path: Path, path: str, expected: bool) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "link").symlink_to(tmp_path)

    assert folders.is_inside(str(tmp_path / path), tmp_path / "in") is expected
