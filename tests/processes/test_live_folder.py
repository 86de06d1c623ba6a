"""Where live files are: on tmpfs, or where there is room; in folders of this user's own, and gone when nobody needs
them.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, Callable

import pytest
from builders import lives

import mstxkit
from mstxkit.errors import CaptureError
from mstxkit.host import folders
from mstxkit.recorder import adopt, current

Mount = Callable[[str, str], Path]


def recorded_file(run: Path, **limits: Any) -> Path:
    """Record one range, and return where its live file was meanwhile."""
    with mstxkit.capture(run, **limits), mstxkit.mstx_range("recorded"):
        found = Path(str(mstxkit.status().live_file))
        assert found.is_file()
    return found


def test_it_is_in_shared_memory_and_gone_at_the_end(run: Path) -> None:
    live_file = recorded_file(run)

    assert live_file.parent == lives.live_folder(run)
    assert not live_file.parent.exists()


def test_it_can_be_wanted_somewhere_else(run: Path, tmp_path: Path) -> None:
    live_file = recorded_file(run, live_folder=tmp_path / "mine")

    assert live_file.parent == lives.live_folder(run, str(tmp_path / "mine"))
    assert lives.ended(run) == {"recorded": 1}


@pytest.mark.parametrize("by", ["argument", "variable"])
def test_a_relative_one_is_where_the_program_was_when_it_began(run: Path, tmp_path: Path, by: str) -> None:
    """It goes to another folder, and is killed: who seals what it leaves finds it."""
    lives.run(
        """
        import os, signal, sys, mstxkit
        os.chdir(sys.argv[2])
        mstxkit.capture(sys.argv[1], **({"live_folder": "mine"} if sys.argv[3] == "argument" else {}))
        os.chdir("/")
        with mstxkit.mstx_range("recorded"):
            pass
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        run, tmp_path, by, status=-9, MSTXKIT_LIVE_FOLDER="mine" if by == "variable" else "",
    )  # fmt: skip
    adopt.collect_dead(run)

    assert lives.ended(run) == {"recorded": 1}
    assert not lives.live_folder(run, str(tmp_path / "mine")).exists()


def test_a_wanted_folder_that_is_too_small_is_refused_with_its_name(run: Path, mount: Mount) -> None:
    small = mount("small", "size=1m")
    with pytest.raises(CaptureError, match=rf"no room for a live file of .* KiB .{small}: No space left on device"):
        mstxkit.capture(run, live_folder=str(small))

    assert not list((run / "live").iterdir())


@pytest.mark.parametrize("wrong", ["a file", "below a file", "read-only"])
def test_a_wanted_folder_that_cannot_be_used_is_refused_with_its_name(
    run: Path, tmp_path: Path, mount: Mount, wrong: str
) -> None:
    (tmp_path / "file").write_text("")
    wanted = {"a file": tmp_path / "file", "below a file": tmp_path / "file" / "x"}.get(wrong)
    wanted = wanted or mount("read-only", "ro")
    with pytest.raises(CaptureError, match=f"no live file can be made in {wanted}"):
        mstxkit.capture(run, live_folder=wanted)


def test_shared_memory_that_is_too_small_gives_way_to_the_runs_own_disk_and_says_so(
    run: Path, mount: Mount, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    small = mount("shm", "size=1m")
    monkeypatch.setattr(folders, "SHARED_MEMORY", str(small))
    live_file = recorded_file(run)
    (said,) = [record.getMessage() for record in caplog.records]

    assert live_file.parent == lives.live_folder(run, str(run))
    assert lives.ended(run) == {"recorded": 1}
    assert not any(path.is_file() for path in small.rglob("*"))
    assert f"{small} has no room" in said and str(live_file.parent) in said and "--shm-size" in said


def test_a_run_on_a_network_has_no_live_file_there(
    run: Path, tmp_path: Path, mount: Mount, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store into a page of a file behind a network waits for as long as that network does."""
    small, shared = mount("shm", "size=1m"), mount("shared", "size=64m")
    monkeypatch.setattr(folders, "SHARED_MEMORY", str(small))
    monkeypatch.setattr(folders, "_LOCAL_KINDS", folders._LOCAL_KINDS - {"tmpfs"})
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    live_file = recorded_file(shared)

    assert live_file.parent == lives.live_folder(shared, str(tmp_path))
    assert lives.ended(shared) == {"recorded": 1}


def test_a_live_file_on_the_runs_own_disk_survives_a_kill(run: Path) -> None:
    lives.run(
        """
        import os, sys, mstxkit
        from mstxkit.host import folders
        folders.SHARED_MEMORY = "/nowhere"
        mstxkit.capture(sys.argv[1])
        with mstxkit.mstx_range("ended"): pass
        with mstxkit.mstx_range("open"): os._exit(0)
        """,
        run,
    )
    adopt.collect_dead(run)

    assert lives.ended(run) == {"ended": 1}
    assert lives.still_open(run) == {"open": 1}
    assert not any(path.suffix == ".live" for path in run.rglob("*"))


def test_no_room_anywhere_is_said_with_what_was_tried(run: Path, mount: Mount, monkeypatch: pytest.MonkeyPatch) -> None:
    small, tiny = mount("shm", "size=1m"), mount("run", "size=1m")
    monkeypatch.setattr(folders, "SHARED_MEMORY", str(small))
    with pytest.raises(CaptureError) as caught:
        mstxkit.capture(tiny)

    assert f"{small}: No space left on device; {tiny}: No space left on device" in str(caught.value)
    assert "fewer or smaller banks" in str(caught.value)
    assert not list((tiny / "live").iterdir())


def squat_with_a_link(folder: Path, elsewhere: Path) -> None:
    folder.symlink_to(elsewhere)


def squat_as_somebody_else(folder: Path, elsewhere: Path) -> None:
    folder.mkdir()
    os.chown(folder, 12345, 12345)


@pytest.mark.parametrize("squat", [squat_with_a_link, squat_as_somebody_else])
def test_a_folder_of_our_name_that_is_not_ours_is_not_used_and_named(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    squat: Callable[[Path, Path], None],
) -> None:  # fmt: skip
    """In a world-writable place anybody can make a folder, or a link, with the name that this user's will have."""
    if os.geteuid():
        pytest.skip("only root can give a folder away")
    shared, elsewhere = tmp_path / "shm", tmp_path / "elsewhere"
    shared.mkdir()
    elsewhere.mkdir()
    squat(shared / f"mstxkit-{os.geteuid()}", elsewhere)
    monkeypatch.setattr(folders, "SHARED_MEMORY", str(shared))
    live_file = recorded_file(run)
    with pytest.raises(CaptureError, match=r"symbolic link|belongs to user 12345"):
        mstxkit.capture(run, live_folder=shared)

    assert live_file.parent == lives.live_folder(run, str(run))
    assert not list(elsewhere.iterdir())
    assert f"{shared}/mstxkit-{os.geteuid()} is another user's, or no folder: remove it" in caplog.text


def test_a_folder_of_ours_that_others_can_look_into_is_closed(run: Path, tmp_path: Path) -> None:
    mine = tmp_path / f"mstxkit-{os.geteuid()}"
    mine.mkdir(mode=0o755)
    recorded_file(run, live_folder=tmp_path)

    assert mine.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_another_process_takes_away_meanwhile_is_made_again(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last process of a run to end removes the folder, perhaps just before this one makes its file in it."""
    real, taken = os.statvfs, []

    def taken_away(path: Path) -> Any:
        if len(taken) < 3:
            taken.append(path)
            shutil.rmtree(path)
        return real(path)

    monkeypatch.setattr(os, "statvfs", taken_away)
    recorded_file(run)

    assert len(taken) == 3
    assert lives.ended(run) == {"recorded": 1}


def test_a_live_file_that_is_removed_under_its_process_is_sealed_all_the_same(run: Path) -> None:
    with mstxkit.capture(run), mstxkit.mstx_range("recorded"):
        shutil.rmtree(lives.live_folder(run))

    assert lives.ended(run) == {"recorded": 1}
    assert [row["state"] for row in lives.processes(run)] == ["ended"]


def test_a_process_that_is_killed_while_it_makes_its_live_file_leaves_nothing(run: Path) -> None:
    """At each point of the making in turn."""
    for point in (
        "os.statvfs",
        "os.posix_fallocate",
        "mmap.mmap",
        "livefile.lay_out",
        "livefile.write_identity",
        "os.link",
    ):
        lives.run(
            """
            import mmap, os, sys, mstxkit
            from mstxkit.store import livefile
            from mstxkit.recorder import live
            where, _, what = sys.argv[2].partition(".")
            if where == "mmap":
                live.mmap = type("dying", (), {"mmap": lambda *_: os._exit(7), "MAP_SHARED": 1})
            elif what == "link":
                os.replace = lambda a, b, real=os.replace: os._exit(7) if str(b).endswith(".json") else real(a, b)
            else:
                setattr({"os": os, "livefile": livefile}[where], what, lambda *_: os._exit(7))
            mstxkit.capture(sys.argv[1])
            """,
            run, point, status=7,
        )  # fmt: skip
        adopt.collect_dead(run)

    assert not list((run / "live").iterdir())
    assert not lives.live_folder(run).exists()
    assert not lives.damage(run)


def test_what_is_printed_by_a_program_that_closed_its_output_is_written_into_no_file_of_ours(run: Path) -> None:
    """As a daemon does: the live file was its standard error, and one line of a C library cost the whole recording."""
    lives.run(
        """
        import os, sys, mstxkit
        os.closerange(0, 3)
        mstxkit.capture(sys.argv[1])
        with mstxkit.mstx_range("before"):
            pass
        for number in range(3):
            os.write(number, b"a warning of a library\\n" * 100)
        with mstxkit.mstx_range("after"):
            pass
        """,
        run,
    )

    assert lives.ended(run) == {"before": 1, "after": 1}
    assert not lives.damage(run)


def test_two_runs_on_one_host_do_not_see_each_other(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    lives.run("import os, sys, mstxkit; mstxkit.capture(sys.argv[1]); mstxkit.mark('m'); os._exit(0)", run)
    with mstxkit.capture(other), mstxkit.mstx_range("of the other"):
        assert current.live_view() is not None
    left_alone = lives.live_folder(run).exists()
    adopt.collect_dead(other)
    adopted = adopt.collect_dead(run)

    assert left_alone
    assert len(adopted) == 1
    assert lives.ended(other) == {"of the other": 1}
    assert not lives.ended(run)
    assert lives.run_id(run) != lives.run_id(other)
