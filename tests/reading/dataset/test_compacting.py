"""Sealed files become Parquet, batch by batch; every table says the same before, meanwhile and after."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from builders.cut_short import stale_once
from builders.judged_runs import INPUT, recorded, stage_times
from builders.mounts import Mount, mount  # noqa: F401
from builders.run_files import RUN_ID, WALL_OFFSET_NS, BankFiles, ProcessFiles, anchor, new_run

pytest.importorskip("polars")

import polars as pl
from polars.testing import assert_frame_equal

from mstxkit.errors import MstxkitError
from mstxkit.reading.dataset import compacting
from mstxkit.reading.exporters import load_exporter
from mstxkit.reading.rows import ALL
from mstxkit.reading.run import open_run
from mstxkit.reading.run_files import RunFiles
from mstxkit.store import dataset, layout
from mstxkit.store.dataset import CompactedBatch

DAY_NS = 86_400 * 10**9


def varied(path: Path) -> Path:
    """Two processes with attributes, marks, an error, open ranges, coroutines, several files, names of any kind."""
    run = new_run(path)
    inside = [{"name": "loader", "domain": "d", "start": 50, "depth": 0, "stage": "generate", "step": 3}]
    for rank in range(2):
        files = ProcessFiles(run, 100 + rank, rank=rank, role="actor" if rank else "rollout")
        for part in range(3):
            bank = BankFiles(seq=part + 1).track(0, 77, name="MainThread").track(1, 78, is_task=True, name="a task")
            for step in range(part * 4, part * 4 + 4):
                at = 1_000_000 * (1 + step * 10)
                bank.range("<b>'\"\x1b[31m", at + 10, at + 20, stage="generate", step=step, depth=1, error=True, busy=3)
                bank.mark("a mark", at + 30, stage="generate", step=step, note="ü")
                bank.range("gen", at, at + 5_000_000, stage="generate", own=True, step=step, tokens=step * 7, kind="a")
            files.seal(bank, **({"inside": inside, "ended": "killed"} if part == 2 else {}))
    return run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return varied(tmp_path / "run")


def tables(path: Path, **filters: Any) -> dict[str, Any]:
    run = open_run(path, **filters)
    frames = {
        "ranges": run.ranges(attributes=["tokens"]), "marks": run.marks(), "stages": run.stages(),
        "occurrences": run.occurrences(), "processes": run.processes(), "waits": run.waits(),
        "tracks": run.tracks(), "open_ranges": run.open_ranges(),
    }  # fmt: skip
    return {name: texts(frame) for name, frame in frames.items()}


def texts(frame: Any) -> Any:
    return frame.with_columns(pl.col(pl.Categorical).cast(pl.String))


def same(before: dict[str, Any], after: dict[str, Any]) -> None:
    for name, frame in before.items():
        assert_frame_equal(frame, after[name])


@pytest.mark.parametrize("remove", [False, True])
def test_all_tables_say_the_same_before_and_after(run: Path, remove: bool) -> None:
    before = tables(run)

    done = compacting.compact_files(run, remove=remove)

    assert (done.batches, done.files, done.removed) == (1, 2 * 3, 2 * 3 if remove else 0)
    assert len(os.listdir(run / layout.SEALED)) == (0 if remove else 6)
    same(before, tables(run))


def test_what_another_one_has_removed_meanwhile_is_counted_by_that_one_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two nodes of a Ray on one host: the second waits for the first, and had seen the files before."""
    run, alone, others = varied(tmp_path / "run"), compacting._work_alone, list[Any]()

    def waits(path: Path, host: str, wait_s: float) -> Any:
        if not others and list(dataset.list_batches(run, RUN_ID, host)):
            monkeypatch.setattr(compacting, "_work_alone", alone)
            others.append(compacting.compact_files(run, remove=True).removed)
        return alone(path, host, wait_s)

    monkeypatch.setattr(compacting, "_work_alone", waits)
    done = compacting.compact_files(run, remove=True)

    assert (others, done.removed) == ([6], 0)


def test_a_wall_clock_that_is_stepped_between_two_batches_does_not_move_ranges(tmp_path: Path) -> None:
    """Each batch was written by the wall clock as it was known then; what is read goes by the run's."""
    run, later_ns = new_run(tmp_path / "run"), WALL_OFFSET_NS + 3_600 * 10**9
    process = ProcessFiles(run)
    process.seal(BankFiles(seq=1).range("a", 10, 15).mark("m", 20), ended=None)
    compacting.compact_files(run, remove=True)
    process.anchors = tuple(anchor(second * 10**9, offset_ns=later_ns) for second in range(20, 25))
    process.seal(BankFiles(seq=2).range("b", 22 * 10**9, 22 * 10**9 + 5))
    compacting.compact_files(run, remove=True)

    assert open_run(run).ranges()["start_ns"].to_list() == [later_ns + 10, later_ns + 22 * 10**9]
    assert open_run(run).marks()["time_ns"].to_list() == [later_ns + 20]
    assert open_run(run, since=later_ns + 5, until=later_ns + 12).ranges()["name"].to_list() == ["a"]


@pytest.mark.parametrize("filters", [{"ranks": 1}, {"steps": [2, 3]}, {"stages": "generate"}, {"stages": "x"}])
def test_filters_leave_the_same(run: Path, filters: dict[str, Any]) -> None:
    before = tables(run, **filters)

    compacting.compact_files(run, remove=True)

    same(before, tables(run, **filters))


def test_a_stretch_of_time_leaves_the_same(run: Path) -> None:
    starts = open_run(run).ranges()["start_ns"].sort()
    filters = {"since": starts[5], "until": starts[20]}
    before = tables(run, **filters)

    compacting.compact_files(run, remove=True)

    same(before, tables(run, **filters))


def test_what_a_quota_takes_of_a_batch_later_is_still_there(run: Path) -> None:
    before = tables(run)
    compacting.compact_files(run)

    next((run / layout.SEALED).iterdir()).unlink()

    after = tables(run)
    same({name: frame for name, frame in before.items() if name != "processes"}, after)


def test_pieces_of_a_run_hold_all_rows_with_their_process(run: Path) -> None:
    before = [texts(pl.concat([part[at] for part in open_run(run).batches()])) for at in (0, 1)]
    compacting.compact_files(run, remove=True)

    for at, rows in enumerate(before):
        forward = pl.concat([texts(part[at]) for part in open_run(run).batches()])
        assert_frame_equal(rows, forward)
    back = [part[0].height for part in open_run(run).batches(backwards=True)]
    assert sum(back) == before[0].height


def test_ranges_around_midnight_stay_in_the_order_in_which_they_ended(tmp_path: Path) -> None:
    """Whoever draws them goes by it: an inner one ends before the one around it."""
    run, bank = new_run(tmp_path / "run"), BankFiles()
    midnight = DAY_NS - WALL_OFFSET_NS % DAY_NS
    for step in range(3):
        begin = midnight - 100 * 10**9 + step * 60 * 10**9  # the second one goes on beyond it
        for part in range(5):
            start, end = (begin + (part * 10 + at) * 10**9 for at in (1, 9))
            bank.range(f"micro{part}", start, end, stage="actor_update", step=step, depth=1)
        end = begin + 49 * 10**9  # with the last one inside of it
        bank.range("actor_update", begin, end, stage="actor_update", own=True, step=step)
    ProcessFiles(run, 100, rank=0, anchors=(anchor(0), anchor(midnight + 200 * 10**9))).seal(bank)

    def drawn(to: str) -> bytes:
        target = tmp_path / "drawn"
        load_exporter(to).write_to(open_run(run), target)
        return target.read_bytes()

    before = {to: drawn(to) for to in ("chrome", "otlp")}
    compacting.compact_files(run, remove=True)

    assert len(list((run / dataset.FOLDER).glob("ranges/day=*"))) == 2
    assert {to: drawn(to) == content for to, content in before.items()} == dict.fromkeys(before, True)


def test_texts_of_a_compacted_run_have_their_codes_in_the_order_in_which_they_come_up(tmp_path: Path) -> None:
    """In each process: the order of a set of texts is another one in each, and with it exported files were."""
    run, bank, stages = new_run(tmp_path / "run"), BankFiles(), [f"stage_{'abcdefghijkl'[at]}" for at in range(12)]
    for at, stage in enumerate(stages):
        bank.range(stage, 1_000 * at, 1_000 * at + 500, stage=stage, own=True, step=0)
    ProcessFiles(run, 100, rank=0).seal(bank)
    compacting.compact_files(run, remove=True)

    files = RunFiles(str(run))
    list(files.coded(ALL))
    assert files.vocabulary.stages == [None, *stages]


def test_what_is_there_already_is_not_done_again(run: Path) -> None:
    compacting.compact_files(run)
    before = sorted(str(file) for file in (run / dataset.FOLDER).rglob("*.parquet"))

    assert compacting.compact_files(run) == compacting.Compacted()
    assert sorted(str(file) for file in (run / dataset.FOLDER).rglob("*.parquet")) == before


def test_a_step_that_two_batches_hold_parts_of_is_one_step(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    files = ProcessFiles(run, 100, rank=0)
    files.seal(BankFiles(seq=1).range("a", 1_000, 2_000, stage="a", own=True, step=0))
    compacting.compact_files(run)
    files.seal(BankFiles(seq=2).range("a", 5_000, 7_000, stage="a", own=True, step=0))
    before = tables(run)

    compacting.compact_files(run, remove=True)

    assert before["stages"]["total_ns"].to_list() == [3_000]
    same(before, tables(run))


KILLED_HALF_WAY = """
import os, sys
from pathlib import Path
from mstxkit.errors import MstxkitError
from mstxkit.reading.dataset import compacting
from mstxkit.reading.exporters import load_exporter
from mstxkit.store import dataset
dataset.write_manifest = lambda *_: os._exit(9)
compacting.compact_files(Path(sys.argv[1]), remove=True)
"""


def test_what_ends_half_way_leaves_nothing_and_is_done_again(run: Path) -> None:
    before = tables(run)
    done = subprocess.run([sys.executable, "-c", KILLED_HALF_WAY, str(run)], timeout=60, check=False)
    assert done.returncode == 9 and list((run / dataset.FOLDER).rglob("*.parquet"))
    same(before, tables(run))

    compacting.compact_files(run, remove=True)

    same(before, tables(run))
    assert {batch.number for batch in dataset.list_batches(run, open_run(run).id)} == {0}


@pytest.mark.parametrize("at", ["fchmod", "replace", "fsync"])
def test_ctrl_c_leaves_nothing_wherever_it_comes_and_it_is_done_again(
    run: Path, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = getattr(os, at), []

    def interrupted(*words: Any, **more: Any) -> Any:
        calls.append(words)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*words, **more)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(compacting.os, at, interrupted)
        compacting.compact_files(run)

    assert list((run / dataset.FOLDER).rglob("*.parquet*")) == []
    assert compacting.compact_files(run).ranges == 48 + 2


def test_what_a_killed_one_was_writing_goes_with_the_next(run: Path) -> None:
    compacting.compact_files(run)
    whole = next((run / dataset.FOLDER).rglob("*.parquet"))
    left = whole.with_name(".7.0.parquet.0a1b2c3d")
    left.write_bytes(b"half")
    bank = BankFiles(seq=9).range("gen", 0, 5, stage="generate", own=True, step=0)
    ProcessFiles(run, 900, rank=0, role="rollout").seal(bank)
    shares: list[float] = []
    compacting.compact_files(run, progress=shares.append)

    assert not left.exists()
    assert sum(shares) == pytest.approx(1.0)


@pytest.mark.parametrize("count", range(6))
def test_where_manifests_cannot_be_listed_for_a_moment_nothing_is_lost(
    run: Path, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files without a manifest are removed: those may be all that is left of the run."""
    compacting.compact_files(run, remove=True)
    bank = BankFiles(seq=9).range("gen", 0, 5, stage="generate", own=True, step=0)
    ProcessFiles(run, 900, rank=0, role="rollout").seal(bank)
    before = tables(run)
    with stale_once(monkeypatch, run / dataset.FOLDER, count), suppress(MstxkitError):
        compacting.compact_files(run, remove=True)

    same(before, tables(run))


@pytest.mark.parametrize("free_bytes", [4096, 24 << 10, 60 << 10])
def test_a_disk_that_is_full_leaves_no_half_file(mount: Mount, free_bytes: int) -> None:  # noqa: F811
    disk = mount("disk", "size=1m")
    run = varied(disk / "run")
    room = os.statvfs(disk)
    (disk / "others").write_bytes(bytes(room.f_bavail * room.f_frsize - free_bytes))

    with pytest.raises(OSError, match="No space"):
        compacting.compact_files(run, remove=True)

    assert not list((run / dataset.FOLDER).rglob("*.parquet*")) and len(os.listdir(run / layout.SEALED)) == 6


def test_what_a_manifest_says_is_on_the_disk_before_sealed_files_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that goes down at that moment has one or the other."""
    run, written, removed = varied(tmp_path / "run"), [], []
    fsync, unlink = os.fsync, Path.unlink

    def synced(descriptor: int) -> None:
        written.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    def unlinked(path: Path, missing_ok: bool = False) -> None:
        removed.append((path.name, len(written)))
        unlink(path, missing_ok)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "unlink", unlinked)
    done = compacting.compact_files(run, remove=True)

    files, manifests = [name for name in written if ".parquet" in name], [name for name in written if ".json" in name]
    assert len(files) == len(list((run / dataset.FOLDER).rglob("*.parquet"))) and len(manifests) == 2
    assert [count for name, count in removed if name.endswith(layout.SEALED_SUFFIX)] == [len(written)] * done.removed


def test_files_lie_by_day_role_and_host_and_only_this_user_may_look(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    bank = BankFiles()
    for day in range(2):
        bank.range("a", day * DAY_NS, day * DAY_NS + 1_000, stage="a", own=True, step=day)
    ProcessFiles(run, 100, rank=0, role="../act or").seal(bank)

    compacting.compact_files(run)

    folder = run / dataset.FOLDER
    files = [file.relative_to(folder).parts for file in sorted(folder.rglob("*.parquet"))]
    assert {parts[0] for parts in files} == {dataset.RANGES, dataset.SUMMARIES, dataset.DAYS}
    assert {parts[2] for parts in files} == {"role=___act_or"} and len({parts[1] for parts in files}) == 2
    assert {oct(path.stat().st_mode & 0o777) for path in folder.rglob("*.parquet")} == {"0o640"}
    assert {oct(path.stat().st_mode & 0o777) for path in folder.rglob("*") if path.is_dir()} == {"0o700"}


@pytest.mark.parametrize("name", ["../../etc/passwd", "ranges/day=x/role=-/host=vm/../0.0.parquet", "/etc/passwd"])
def test_a_manifest_names_nothing_but_its_own_files(run: Path, name: str) -> None:
    compacting.compact_files(run, remove=True)
    manifest = next((run / dataset.FOLDER).glob("*.json"))
    fields = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**fields, "files": [name]}))

    assert len(open_run(run).ranges()) == 0


@pytest.mark.parametrize("content", ["{", '{"format": 1, "run": "another"}'])
def test_a_manifest_that_cannot_be_read_is_listed_and_nothing_of_its_batch_is_removed(
    tmp_path: Path, content: str
) -> None:
    """It may be so for a moment only, and the batch may be all that is left of its files."""
    run = new_run(tmp_path / "run")
    ProcessFiles(run, 100, rank=0, host="vm").seal(BankFiles().range("early", 0, 5))
    compacting.compact_files(run, remove=True)
    manifest = run / dataset.FOLDER / "vm.0.json"
    before, said = open_run(run).ranges(), manifest.read_text()
    manifest.write_text(content)
    ProcessFiles(run, 900, rank=9, host="vm").seal(BankFiles().range("late", 0, 5))

    opened = open_run(run)
    with pytest.raises(MstxkitError, match=r"vm\.0\.json"):
        compacting.compact_files(run, remove=True)
    manifest.write_text(said)

    assert opened.processes()["rank"].to_list() == [9] and [loss.path for loss in opened.damage] == [str(manifest)]
    assert len(open_run(run).ranges()) == len(before) + 1


def test_a_manifest_of_many_processes_that_lived_long_is_read(tmp_path: Path) -> None:
    """Each has hundreds of anchors of its clock: the manifest of a host of 64 ranks has two megabytes."""
    clock = {"anchors": [[2 * 10**15 + at, 10**15 + at, 10**18 + at, 40] for at in range(500)]}
    about = {f"vm-{pid}-{pid:020x}": {"about": {"clock": clock}} for pid in range(64)}

    dataset.write_manifest(tmp_path, RUN_ID, CompactedBatch("vm", 0, (), (), about))

    assert [len(batch.processes) for batch in dataset.list_batches(tmp_path, RUN_ID)] == [64]


def test_a_file_that_is_damaged_is_listed_and_the_rest_is_read(run: Path) -> None:
    compacting.compact_files(run, remove=True)
    broken = sorted((run / dataset.FOLDER).glob("ranges/*/role=actor/*/*.parquet"))
    for file in broken:
        file.write_bytes(b"PAR1" + os.urandom(100))
    opened = open_run(run)

    ranges = opened.ranges()

    assert set(ranges["rank"]) == {0} and [part.path for part in opened.damage] == list(map(str, broken))


@pytest.mark.parametrize("pointer", [None, "", '{"format": 99, "path": "/nowhere"}'], ids=["whole", "empty", "newer"])
def test_of_a_process_that_still_runs_the_newest_file_is_left(run: Path, pointer: str | None) -> None:
    """Also where its pointer cannot be read, now or by this version."""
    name = running(run, pointer)

    done = compacting.compact_files(run, remove=True)

    assert done.files == 5 and os.listdir(run / layout.SEALED) == [f"{name}.0002.mxs"]


def running(run: Path, pointer: str | None = None) -> str:
    """A process of these that still runs, by its pointer."""
    name = layout.sealed_process(sorted(os.listdir(run / layout.SEALED))[0])
    identity = next(p for p in RunFiles(str(run)).processes if p.name == name).identity
    whole = json.dumps({**identity, "path": "/nowhere"})
    (run / layout.LIVE / f"{name}{layout.POINTER}").write_text(whole if pointer is None else pointer)
    return name


@pytest.mark.parametrize("count", range(4))
@pytest.mark.parametrize("folder", [layout.SEALED, layout.LIVE])
def test_where_a_run_cannot_be_listed_for_a_moment_nothing_is_lost_and_who_runs_keeps_its_file(
    run: Path, folder: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, before = running(run), open_run(run).ranges(attributes=["tokens"]).height
    with stale_once(monkeypatch, run / folder, count), suppress(OSError):
        compacting.compact_files(run, remove=True)

    assert open_run(run).ranges(attributes=["tokens"]).height == before
    assert (run / layout.SEALED / f"{name}.0002.mxs").exists()


def test_a_run_of_many_steps_needs_few_bytes_a_summary(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", stage_times(INPUT, ranks=4, steps=400))

    compacting.compact_files(run)

    files = list((run / dataset.FOLDER).glob("summaries/*/*/*/*.parquet"))
    assert sum(file.stat().st_size for file in files) / (4 * 400 * 2) < 60
