"""Sealed files on a host's own disk, with real processes: what was recorded is there once, wherever it is by then."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Iterator

import pytest
from builders import lives
from builders.mounts import Mount

import mstxkit
from mstxkit import cli
from mstxkit.errors import CaptureError
from mstxkit.host import identity
from mstxkit.reading import places
from mstxkit.store import local_place, sealed_place

pytestmark = pytest.mark.days("odd")

# Seals often and in small files; a care process of its own every second.
CAPTURES = """
    import os, subprocess, sys, time, mstxkit
    from mstxkit.engine.choose import engine
    run, disk = sys.argv[1:3]
    small = dict(bank_bytes=16 << 10, rotate_bytes=64 << 10, seal_every_s=0.1)
    limits = dict(sealed=f"local:{disk}", care_every_s=0.7, **small)
    mstxkit.capture(run, **limits)
    def record(count):
        for number in range(count):
            with mstxkit.mstx_range("r", x=os.urandom(8).hex()): pass
            if number % 200 == 199: await_sealer()
    def await_sealer():
        time.sleep(0.01)
        until = time.monotonic() + 5
        while engine.full_bank() >= 0 and time.monotonic() < until: time.sleep(0.01)
"""
WAITS = CAPTURES + """
    record(5_000)
    print("ready", flush=True)
    sys.stdin.readline()
    record(500)
"""  # fmt: skip


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "own"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


def started(run: Path, disk: Path, care_every_s: float = 0.7) -> subprocess.Popen[str]:
    process = lives.start(WAITS.replace("0.7", str(care_every_s)), run, disk)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def here(run: Path, disk: Path) -> list[str]:
    """What is on this host's own disk."""
    folder = local_place.root_of(disk, lives.run_id(run)) / sealed_place.FOLDER
    return sealed_place.all_names([folder])


def in_run(run: Path) -> list[str]:
    return sorted(os.listdir(run / "sealed"))


def command(*words: object) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "mstxkit", *map(str, words)], env=lives.environment(COLUMNS="300"),
        capture_output=True, text=True, timeout=lives.FINISHES_WITHIN_S,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_while_they_move_each_range_is_read_once_and_at_the_end_all_is_in_the_run(run: Path, disk: Path) -> None:
    process = started(run, disk)
    has_moved = False
    while not has_moved:
        has_moved = len(in_run(run)) > 0
        assert lives.ended(run) == {"r": 5_000}
        assert lives.damage(run) == []
    assert here(run, disk), "the newest stays"
    assert lives.finished(process)[0] == 0

    assert lives.ended(run) == {"r": 5_500}
    assert lives.wait_until(lambda: not here(run, disk))
    assert lives.ended(run) == {"r": 5_500} and lives.damage(run) == []
    assert [row["state"] for row in lives.processes(run)] == ["ended"]
    assert lives.wait_until(lambda: not places.list_places(str(run), lives.run_id(run), []))


def test_what_a_killed_process_left_is_sealed_here_and_fetched_by_hand(run: Path, disk: Path) -> None:
    process = started(run, disk, care_every_s=1000)
    lives.killed(process)
    before = here(run, disk)
    assert before and in_run(run) == []
    assert lives.ended(run) == {"r": 5_000}
    code, said = command("collect", run)

    assert code == 0 and "moved into the run" in said and "sealed" in said
    assert here(run, disk) == [] and set(before) <= set(in_run(run))
    assert lives.ended(run) == {"r": 5_000} and lives.damage(run) == []
    assert [row["state"] for row in lives.processes(run)] == ["killed"]
    assert command("collect", run) == (0, "nothing to collect on this host\n")


def test_the_next_process_of_the_run_moves_what_killed_ones_left(run: Path, disk: Path) -> None:
    process = started(run, disk, care_every_s=1000)
    lives.killed(process)
    lives.run(CAPTURES + "    record(10)", run, disk)

    assert lives.wait_until(lambda: not here(run, disk))
    assert lives.ended(run) == {"r": 5_010} and lives.damage(run) == []


def test_recording_goes_on_while_the_runs_disk_is_really_frozen(frozen_disk: Path, disk: Path) -> None:
    run = frozen_disk / "run"
    done = lives.run(
        CAPTURES
        + """
    from pathlib import Path
    from mstxkit.store import segment
    record(100)
    time.sleep(1.2)
    frozen = os.path.dirname(run)
    subprocess.run(["fsfreeze", "-f", frozen], check=True)
    began = time.monotonic()
    record(10_000)
    def sealed():
        here = [path for path in Path(disk).rglob("*.mxs*")]
        blocks = [block for path in here for block in segment.scan_blocks(path.read_bytes())]
        return sum(block.meta.get("records", 0) for block in blocks if block.kind == segment.RECORDS)
    while sealed() < 10_100 and time.monotonic() < began + 30: time.sleep(0.05)
    print(sealed(), flush=True)
    while time.monotonic() < began + 1.5: time.sleep(0.05)  # what moves sealed files hangs
    subprocess.run(["fsfreeze", "-u", frozen], check=True)
    """,
        run, disk,
    )  # fmt: skip

    assert int(done) == 10_100
    assert lives.ended(run) == {"r": 10_100}
    assert sum(row["dropped"] for row in lives.processes(run)) == 0
    assert lives.damage(run) == []


def test_where_the_runs_disk_is_full_they_stay_here_and_status_says_why(run: Path, disk: Path, mount: Mount) -> None:
    full = mount("full", "size=1m,mode=700")
    lives.run(CAPTURES + "    record(3_000); time.sleep(1.5)", full / "run", disk)
    run_id = lives.run_id(full / "run")
    assert lives.wait_until(lambda: any(row["problem"] for row in places.list_places(str(full / "run"), run_id, [])))

    assert lives.ended(full / "run") == {"r": 3_000}
    code, said = command("status", full / "run")
    assert code == 0 and "on this host's own disk, and read: " in said and "are free on the run's disk" in said
    assert json.loads(command("report", full / "run", "--json")[1])["places"][0]["files"] == len(
        here(full / "run", disk)
    )
    code, said = command("collect", full / "run")
    assert code == cli.FOUND_WRONG and "not moved" in said


def on_host(name: str, run: Path, disk: Path, program: str) -> subprocess.CompletedProcess[str]:
    """As on another host: its own name, its own /dev/shm, its own disk at the same place."""
    script = f'hostname {name} && mount -t tmpfs none /dev/shm && mount --bind "$1" /mnt && exec "$2" -c "$3" "$4" /mnt'
    words = ["unshare", "-mu", "sh", "-c", script, "-", str(disk), sys.executable, lives.dedented(program), str(run)]
    done = subprocess.run(words, env=lives.environment(), capture_output=True, text=True, timeout=60)
    if done.returncode and "unshare" in done.stderr:
        pytest.skip(f"no namespaces here: {done.stderr}")
    assert done.returncode == 0, done.stderr
    return done


def test_on_another_host_it_is_said_what_is_still_on_which(run: Path, tmp_path: Path) -> None:
    """Two hosts that see one run folder, and have a disk each; one moves nothing."""
    first, second = (tmp_path / name for name in ("first", "second"))
    for folder, name, mb_s in ((first, "node1", 0), (second, "node2", 20)):
        folder.mkdir()
        program = (
            CAPTURES.replace("dict(sealed=", f"dict(sealed_mb_s={mb_s}, sealed=") + "    record(1_000); time.sleep(1.5)"
        )
        on_host(name, run, folder, program)
    assert lives.wait_until(lambda: not list(second.rglob("*.mxs*")))
    local = list(first.rglob("*.mxs"))

    assert local
    assert lives.ended(run) == {"r": 1_000}
    assert lives.wait_until(
        lambda: [row["host"] for row in places.list_places(str(run), lives.run_id(run), [])] == ["node1"]
    )
    (row,) = places.list_places(str(run), lives.run_id(run), [])
    assert (row["files"], row["bytes"], row["is_here"]) == (len(local), sum(p.stat().st_size for p in local), False)
    for verb in ("report", "status"):
        assert "on the own disk of its host, and not read here" in command(verb, run)[1]


def test_a_quota_of_the_host_is_kept_and_counted_as_evicted(run: Path, disk: Path) -> None:
    limit = 160_000
    program = CAPTURES.replace("dict(sealed=", f"dict(sealed_host_bytes={limit}, sealed=") + """
    for _ in range(30):
        record(500)
        time.sleep(0.1)
    time.sleep(1.5)
    """  # fmt: skip
    lives.run(program, run, disk)

    assert lives.wait_until(lambda: not here(run, disk))
    assert lives.wait_until(lambda: sum(path.stat().st_size for path in (run / "sealed").iterdir()) <= limit + 65_536)
    assert lives.wait_until(lambda: lives.ended(run)["r"] + lives.processes(run)[0]["evicted"] == 15_000)
    (row,) = lives.processes(run)
    assert row["evicted"] > 0 and row["dropped"] == 0
    assert "evicted by" in command("report", run)[1]


def test_a_place_that_is_not_there_is_an_error_in_words(run: Path, tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=r"sealed=local:/no/such .*: /no/such is not there; a folder is needed"):
        mstxkit.capture(run, sealed="local:/no/such")
    with pytest.raises(CaptureError, match=r"sealed='disk' \(of capture or MSTXKIT_SEALED\): local:/a/folder"):
        mstxkit.capture(run, sealed="disk")
    with pytest.raises(CaptureError, match="keep_days='old'"):
        mstxkit.capture(run, keep_days="old")
    with pytest.raises(CaptureError, match="sealed_host_bytes=-1"):
        mstxkit.capture(run, sealed_host_bytes=-1)


def test_children_and_what_they_start_have_the_same_place(run: Path, disk: Path) -> None:
    lives.run(
        CAPTURES
        + """
    if (pid := os.fork()) == 0:
        record(10)
        sys.exit(0)
    os.waitpid(pid, 0)
    code = "import mstxkit; mstxkit.capture()\\nwith mstxkit.mstx_range('r'): pass"
    subprocess.run([sys.executable, "-c", code], check=True)
    names = {name.split("-")[1] for folder, _, names in os.walk(disk) for name in names if ".mxs" in name}
    print(len(names))
    """,
        run, disk,
    )  # fmt: skip

    assert lives.wait_until(lambda: not here(run, disk))
    assert lives.ended(run) == {"r": 11}
    assert {name.split("-")[0] for name in in_run(run)} == {identity.name_host()}
