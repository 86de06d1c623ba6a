"""Bad weather around the run folder: it cannot be made or written, fills up, is removed, is not what it seems."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Callable

import pytest
from builders import lives

import mstxkit
from mstxkit import faults
from mstxkit.errors import CaptureError
from mstxkit.host import folders
from mstxkit.recorder import adopt, current

Mount = Callable[[str, str], Path]
# Banks of the least size, sealed as fast as they fill.
SMALL = {"bank_bytes": 16384, "banks": 4, "slots": 16}
RANGES_IN_A_BANK = 700


def record(name: str, count: int) -> None:
    for _ in range(count):
        with mstxkit.mstx_range(name):
            pass


def fill_a_bank(name: str) -> None:
    """More than a bank takes, so that one is sealed."""
    record(name, RANGES_IN_A_BANK)
    assert current.recorder.sealer.seal_full_banks()


def test_a_missing_folder_is_made_with_all_above_it_for_this_user_only(run: Path) -> None:
    folder = run / "deep" / "down"
    before = os.umask(0)
    try:
        with mstxkit.capture(folder):
            record("x", 1)
            live_file = Path(str(mstxkit.status().live_file))
            live_mode, pointer_mode = mode(live_file), mode(next((folder / "live").iterdir()))
            live_folder_mode = mode(live_file.parent)
    finally:
        os.umask(before)

    assert [mode(path) for path in (folder, folder / "live", folder / "sealed")] == [0o700] * 3
    assert [mode(path) for path in (folder / "sealed").iterdir()] == [0o640]
    assert (mode(folder / "run.json"), live_mode, pointer_mode, live_folder_mode) == (0o640, 0o640, 0o640, 0o700)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_a_file_is_no_run_folder(run: Path) -> None:
    run.write_text("mine")
    with pytest.raises(CaptureError, match="is not a folder"):
        mstxkit.capture(run)

    assert run.read_text() == "mine"


def test_below_a_file_no_folder_can_be_made(run: Path) -> None:
    run.write_text("mine")
    with pytest.raises(CaptureError, match="cannot be used: Not a directory"):
        mstxkit.capture(run / "below")


def test_a_link_to_a_folder_elsewhere_is_resolved_once(run: Path, tmp_path: Path) -> None:
    link, other = tmp_path / "link", tmp_path / "other"
    link.symlink_to(run)
    with mstxkit.capture(link) as started:
        link.unlink()
        link.symlink_to(other)
        record("x", 1)

    assert started.run == run
    assert lives.ended(run) == {"x": 1}
    assert not other.exists()


@pytest.mark.parametrize("inner", ["live", "sealed"])
def test_a_link_inside_the_run_folder_is_refused(run: Path, tmp_path: Path, inner: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    run.mkdir()
    (run / inner).symlink_to(elsewhere)
    with pytest.raises(CaptureError, match=f"{inner} is a symbolic link"):
        mstxkit.capture(run)

    assert not list(elsewhere.iterdir())


def test_a_link_put_in_place_of_the_sealed_folder_is_not_followed(run: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with mstxkit.capture(run, **SMALL):
        shutil.rmtree(run / "sealed")
        (run / "sealed").symlink_to(elsewhere)
        record("x", 10)
    kept = list((run / "live").glob("*.json"))
    shutil.rmtree(lives.live_folder(run))

    assert not list(elsewhere.iterdir())
    assert len(kept) == 1, "what could not be sealed stays in the live file"


def test_a_read_only_file_system_is_refused_in_words(tmp_path: Path, mount: Mount) -> None:
    folder = mount("read-only", "ro")
    with pytest.raises(CaptureError, match="cannot be used: Read-only file system"):
        mstxkit.capture(folder)
    with pytest.raises(CaptureError, match="Read-only file system"):
        mstxkit.capture(folder / "run")


def test_a_run_that_became_read_only_is_refused_and_leaves_nothing(run: Path, mount: Mount) -> None:
    folder = mount("run", "size=4m")
    with mstxkit.capture(folder):
        record("x", 1)
    remount(folder, "ro")
    with pytest.raises(CaptureError, match="cannot be written: Read-only file system"):
        mstxkit.capture(folder)

    assert not lives.live_folder(folder).exists()


def remount(folder: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(folder)], check=True)


def test_a_full_disk_costs_nothing_that_the_banks_can_hold(run: Path, mount: Mount) -> None:
    """Blocks wait in the live file until there is room again; a fault is counted, no torn block is left."""
    folder = mount("run", "size=256k")
    with mstxkit.capture(folder, bank_bytes=16384, banks=16, slots=16):
        filler = folder / "filler"
        fill_up(filler)
        record("x", 5 * RANGES_IN_A_BANK)
        recorder = current.recorder
        could_seal = recorder.sealer.seal_full_banks()
        with recorder.sealer._sealing:  # its own thread tries again and again
            torn = [path.name for path in (folder / "sealed").iterdir()]
        filler.unlink()
        can_seal = recorder.sealer.seal_full_banks()

    assert (could_seal, can_seal) == (False, True)
    assert not torn
    assert faults.counts["sealer.write"] >= 1
    assert lives.ended(folder) == {"x": 5 * RANGES_IN_A_BANK}
    assert sum(row["dropped"] for row in lives.processes(folder)) == 0
    assert not lives.damage(folder)


def fill_up(filler: Path) -> None:
    with filler.open("wb", buffering=0) as stream:
        try:
            while stream.write(bytes(4096)):
                pass
        except OSError:
            pass


def test_on_a_disk_that_stays_full_the_rest_is_dropped_and_counted(run: Path, mount: Mount) -> None:
    folder = mount("run", "size=256k")
    recorded = 20 * RANGES_IN_A_BANK
    with mstxkit.capture(folder, **SMALL):
        fill_up(folder / "filler")
        record("x", recorded)
        dropped = mstxkit.status().counters["dropped"]
        (folder / "filler").unlink()

    assert dropped > 0
    assert lives.ended(folder) == {"x": recorded - dropped}
    assert [row["dropped"] for row in lives.processes(folder)] == [dropped]


def test_on_a_disk_that_is_full_at_the_end_the_live_file_stays_to_be_collected(run: Path, mount: Mount) -> None:
    folder = mount("run", "size=256k")
    lives.run(
        """
        import os, sys, mstxkit
        started = mstxkit.capture(sys.argv[1], bank_bytes=16384, banks=4, slots=16)
        with open(sys.argv[1] + "/filler", "wb", buffering=0) as stream:
            try:
                while stream.write(bytes(4096)): pass
            except OSError:
                pass
        kept = mstxkit.stage("open at the end")
        kept.__enter__()
        for _ in range(1000):
            with mstxkit.mstx_range("x"):
                pass
        started.stop()
        """,
        folder,
        has_faults=True,
    )
    pointers = len(list((folder / "live").glob("*.json")))
    (folder / "filler").unlink()
    adopted = adopt.collect_dead(folder)

    assert pointers == 1
    assert [(one.records, one.open_ranges) for one in adopted] == [(1000, True)]
    assert lives.ended(folder) == {"x": 1000}
    assert lives.still_open(folder) == {"open at the end": 1}
    assert [row["state"] for row in lives.processes(folder)] == ["ended"]
    assert not lives.live_folder(folder).exists()


def test_a_file_size_limit_is_weathered_like_a_full_disk(run: Path) -> None:
    """RLIMIT_FSIZE, which needs no mount: the sealed file cannot grow, the ranges wait in the live file."""
    lives.run(
        """
        import resource, signal, sys, mstxkit, mstxkit.capturing
        from mstxkit.recorder import current
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        started = mstxkit.capture(sys.argv[1], bank_bytes=16384, banks=8, slots=16)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
        for _ in range(2000):
            with mstxkit.mstx_range("x"):
                pass
        sealer = current.recorder.sealer
        assert not sealer.seal_full_banks()
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert sealer.seal_full_banks()
        """,
        run,
        has_faults=True,
    )

    assert lives.ended(run) == {"x": 2000}
    assert not lives.damage(run)


def test_a_folder_that_is_removed_under_a_running_process_comes_back_with_what_follows(run: Path) -> None:
    with mstxkit.capture(run, **SMALL):
        fill_a_bank("before")
        run_id = lives.run_id(run)
        shutil.rmtree(run)
        fill_a_bank("after")
        with mstxkit.mstx_range("at the end"):
            pass

    found = lives.ended(run)
    assert found["at the end"] == 1
    assert found["after"] == RANGES_IN_A_BANK
    assert lives.run_id(run) == run_id
    assert not lives.damage(run)
    assert not faults.counts


def test_after_its_folder_was_removed_a_killed_process_can_still_be_collected(run: Path) -> None:
    process = lives.start(
        """
        import os, shutil, signal, sys, mstxkit, mstxkit.capturing
        from mstxkit.recorder import current
        mstxkit.capture(sys.argv[1], bank_bytes=16384, banks=8, slots=16)
        shutil.rmtree(sys.argv[1])
        for _ in range(1000):
            with mstxkit.mstx_range("x"):
                pass
        current.recorder.sealer.seal_full_banks()
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        run,
    )
    lives.finished(process)
    adopt.collect_dead(run)

    assert lives.ended(run) == {"x": 1000}


def test_a_folder_that_is_removed_and_cannot_be_made_again_stops_nobody(run: Path) -> None:
    with mstxkit.capture(run, **SMALL):
        run_id = lives.run_id(run)
        shutil.rmtree(run)
        run.write_text("a file is here now")
        record("x", 10 * RANGES_IN_A_BANK)
        counters = mstxkit.status().counters
    shutil.rmtree(Path(folders.SHARED_MEMORY) / f"mstxkit-{os.geteuid()}" / run_id)

    assert counters["dropped"] > 0
    assert run.read_text() == "a file is here now"


def test_a_quota_of_nothing_keeps_nothing_on_disk(run: Path) -> None:
    with mstxkit.capture(run, quota_bytes=0, **SMALL):
        record("x", 3 * RANGES_IN_A_BANK)
        current.recorder.sealer.seal_full_banks()
        evicted = mstxkit.status().counters["evicted"]
        files = list((run / "sealed").iterdir())

    assert evicted > RANGES_IN_A_BANK
    assert not files
    assert not list((run / "sealed").iterdir())


def test_a_small_quota_keeps_the_newest_and_counts_what_it_costs(run: Path) -> None:
    quota_bytes = 100_000
    with mstxkit.capture(run, quota_bytes=quota_bytes, bank_bytes=16384, banks=32, slots=16):
        for number in range(60):
            for _ in range(100):
                with mstxkit.mstx_range("x", n=number, text=os.urandom(32).hex()):
                    pass
            current.recorder.sealer.seal_full_banks()
        size_bytes = sum(path.stat().st_size for path in (run / "sealed").iterdir())

    numbers = [row["attributes"]["n"] for row in lives.ranges(run)]
    told = lives.processes(run)[0]
    assert size_bytes <= quota_bytes
    assert sum(path.stat().st_size for path in (run / "sealed").iterdir()) <= quota_bytes
    assert told["evicted"] > 0 == told["dropped"]
    assert len(numbers) + told["evicted"] == 6000
    assert numbers == sorted(numbers) and numbers[-1] == 59
