"""Whatever lies in a run's folder, the reader raises only its own errors and never shows an altered range as good."""

from __future__ import annotations

import json
import os
import struct
import zlib
from pathlib import Path
from typing import Any, Iterator

import pytest
from builders import soak
from builders.run_files import WALL_OFFSET_NS, BankFiles, ProcessFiles, anchor, new_run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("numpy")
pl = pytest.importorskip("polars")

from mstxkit.errors import MstxkitError  # noqa: E402
from mstxkit.reading.run import Run, open_run  # noqa: E402
from mstxkit.store import livefile, segment  # noqa: E402

# Pages of the live file that hold nothing in these tests.
_BANK_BYTES = 4096


_settings = settings(
    max_examples=soak.rounds(600, 30),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def small_process(run: Path) -> ProcessFiles:
    process = ProcessFiles(run, anchors=(anchor(0),))
    process.identity = {key: process.identity[key] for key in ("run", "host", "boot", "pid", "start", "rank")}
    process.counters = {}
    return process


def read(path: Path) -> tuple[Run, set[Any]]:
    """All tables once; the rows of one of them."""
    opened, rows = read_ranges(path)
    opened.marks(), opened.stages(), opened.processes(), opened.tracks()
    return opened, rows


def read_ranges(path: Path) -> tuple[Run, set[Any]]:
    opened = open_run(path)
    return opened, set(opened.ranges().select("name", "start_ns", "duration_ns", "step", "attributes").rows())


def banks() -> tuple[BankFiles, BankFiles]:
    return BankFiles(1).range("a", 0, 5, step=1, n=7), BankFiles(2).range("b", 6, 9, stage="s", own=True)


def test_a_sealed_file_cut_anywhere_gives_its_whole_blocks(run: Path) -> None:
    path = small_process(run).seal(*banks(), ended=None)
    whole, (_, good) = path.read_bytes(), read(run)
    second = whole.index(segment.BLOCK_MAGIC, segment.FILE_HEADER_BYTES + 4)

    for size in soak.sample([*range(len(whole))], 100):
        path.write_bytes(whole[:size])
        opened, rows = read_ranges(run)

        assert rows <= good
        assert len(rows) == int(size >= second)
        assert bool(opened.damage) is (size not in (segment.FILE_HEADER_BYTES, second)), size


def test_no_flipped_bit_of_a_sealed_file_is_shown_as_good(run: Path) -> None:
    path = small_process(run).seal(*banks(), ended=None)
    whole, (_, good) = path.read_bytes(), read(run)

    for offset in soak.sample([*range(len(whole))], 100):
        altered = bytearray(whole)
        altered[offset] ^= 1 << offset % 8
        path.write_bytes(altered)
        opened, rows = read_ranges(run)

        assert rows < good, offset
        assert opened.damage, offset


def test_a_live_file_cut_anywhere_never_raises(run: Path) -> None:
    bank = banks()[0]
    slots = (livefile.Slot(9, bank.site("open"), 0, 1, 0, 0, 1),)
    path = ProcessFiles(run).live(bank, slots=slots, bank_bytes=_BANK_BYTES)
    whole, (_, good) = path.read_bytes(), read(run)

    for size in [*soak.rounds(range(len(whole)), range(soak.seed() % 97, len(whole), 97)), len(whole) - 1]:
        path.write_bytes(whole[:size])
        opened, rows = read_ranges(run)

        assert rows <= good
        assert opened.damage, size


def used_offsets(whole: bytes) -> Iterator[int]:
    return (offset for offset, byte in enumerate(whole) if byte)


def test_no_flipped_bit_of_a_live_file_raises_or_alters_a_record(run: Path) -> None:
    bank = banks()[0]
    slots = (livefile.Slot(9, bank.site("open"), 0, 1, 0, 0, 1),)
    path = ProcessFiles(run).live(bank, slots=slots, bank_bytes=_BANK_BYTES)
    whole, (_, good) = path.read_bytes(), read(run)
    first = livefile.read_header(whole).layout.bank_at(0) + livefile.BANK_HEADER_BYTES

    for offset in soak.sample([*used_offsets(whole)], 200):
        altered = bytearray(whole)
        altered[offset] ^= 1 << offset % 8
        path.write_bytes(altered)
        _, rows = read_ranges(run)

        if first <= offset < first + len(bank.raw):
            assert rows < good or rows == {("a", WALL_OFFSET_NS, 5, 1, None)} | (
                good - {g for g in good if g[0] == "a"}
            )


@_settings
@given(edits=st.lists(st.tuples(st.integers(0, 1 << 16), st.binary(min_size=1, max_size=40)), max_size=6))
def test_any_damage_to_any_file_never_raises(run: Path, edits: list[tuple[int, bytes]]) -> None:
    process = ProcessFiles(run)
    files = [process.seal(*banks()), process.live(*banks(), bank_bytes=_BANK_BYTES), run / "run.json"]
    files.append(run / "live" / f"{process.name}.json")
    for file in files:
        content = bytearray(file.read_bytes())
        for at, patch in edits:
            at %= len(content)
            content[at : at + len(patch)] = patch
        file.write_bytes(content)

    read(run)


@_settings
@given(meta=st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from([
        "identity", "counters", "clock", "kind", "ticks_per_ns", "anchors", "bank", "origin", "records", "attributes",
        "text_bytes", "codec", "heartbeat_ns", "ended", "salt", "pid", "host", "rank", "boot", "role", "start",
        "dropped",
    ]), inner, max_size=8),
    max_leaves=12,
), kind=st.integers(0, 5), payload=st.binary(max_size=30))  # fmt: skip
def test_any_meta_with_good_checksums_never_raises(run: Path, meta: Any, kind: int, payload: bytes) -> None:
    block = segment.pack_block(kind, meta, payload)
    (run / "sealed" / "h-1-a.0000.mxs").write_bytes(segment.file_header() + block)

    read(run)


@pytest.mark.parametrize("odd", [
    {"clock": {"ticks_per_ns": 10**400}}, {"records": True}, {"identity": {"pid": 1, "ppid": []}},
], ids=["rate", "size", "parent"])  # fmt: skip
def test_values_of_another_kind_in_a_whole_meta_never_raise(run: Path, odd: dict[str, Any]) -> None:
    process = small_process(run)
    sizes = {"bank": 9, "origin": 0, "records": 1, "attributes": 0, "text_bytes": 0, "codec": "zlib"}
    block = segment.pack_block(segment.RECORDS, {**process.meta(), **sizes, **odd}, zlib.compress(bytes(24)))
    (run / "sealed" / "h-1-a.0000.mxs").write_bytes(segment.file_header() + block)
    process.seal(*banks(), ended=None)

    assert {row[0] for row in read(run)[1]} >= {"a", "b"}


def test_names_that_no_encoder_takes_are_shown_as_escapes(run: Path) -> None:
    inside = [{"name": "n", "stage": "s\ud800", "start": 5, "track": 0, "depth": 0}]
    process = small_process(run)
    process.seal(*banks(), ended="killed", inside=inside)
    (run / "patches").mkdir()
    fields = dict.fromkeys(("framework", "path", "state", "reason", "detail", "tier"), "x\udcff")
    (run / "patches" / f"{process.name}.json").write_text(
        json.dumps({"format": 1, "targets": [fields], "settings": {}})
    )
    opened, _ = read(run)

    assert opened.open_ranges()["stage"].to_list() == ["s\\ud800"]
    assert set(opened.patches()["reason"].to_list()) == {"x\\udcff"}


@pytest.mark.parametrize("text", ["[]", "5", "{", "", "\x00", "[" * 100_000, '{"path": 5}'])
def test_a_pointer_that_is_none_is_damage(run: Path, text: str) -> None:
    (run / "live" / "h-1-a.json").write_text(text)

    assert read(run)[0].damage


def test_a_pointer_to_an_impossible_path_is_damage(run: Path) -> None:
    ProcessFiles(run).point_to(Path("/x\0y"))

    assert read(run)[0].damage


@pytest.mark.parametrize("pid", [-1, 1 << 70, "x", None, 1.5, [1]])
def test_a_pointer_may_hold_any_pid(run: Path, tmp_path: Path, pid: Any) -> None:
    ProcessFiles(run).point_to(tmp_path / "none", pid=pid)

    read(run)


def test_foreign_files_and_folders_are_damage_or_left_alone(run: Path) -> None:
    sealed = run / "sealed"
    (sealed / "README").write_text("not ours")
    (sealed / "notes.mxs").write_text("not ours either, and long enough to have a header")
    (sealed / "folder.mxs").mkdir()
    os.mkfifo(sealed / "fifo.mxs")
    os.mkfifo(run / "live" / "fifo.json")
    opened, _ = read(run)

    reasons = {Path(one.path).name: one.reason for one in opened.damage}

    assert reasons == {
        "notes.mxs": "not a sealed file of mstxkit",
        "folder.mxs": "not a regular file",
        "fifo.mxs": "not a regular file",
        "fifo.json": "not a regular file",
    }


def test_links_inside_a_run_are_not_followed(run: Path, tmp_path: Path) -> None:
    other = new_run(tmp_path / "other")
    real = ProcessFiles(other).seal(BankFiles().range("secret", 0, 1))
    (run / "sealed" / "link.mxs").symlink_to(real)
    opened, rows = read(run)

    assert rows == set()
    assert [Path(one.path).name for one in opened.damage] == ["link.mxs"]


@pytest.mark.parametrize("part", ["sealed", "live"])
def test_a_linked_folder_inside_a_run_is_not_followed_and_not_taken_for_an_empty_one(
    run: Path, tmp_path: Path, part: str
) -> None:
    """As it is with one into which this user may not look: those of a run are private to who records it."""
    other = new_run(tmp_path / "other")
    ProcessFiles(other).seal(BankFiles().range("secret", 0, 1))
    ProcessFiles(other).live(BankFiles().range("secret", 0, 1))
    (run / part).rmdir()
    (run / part).symlink_to(other / part)
    opened, rows = read(run)

    assert rows == set()
    assert [(loss.path, loss.reason[:30]) for loss in opened.damage] == [
        (str(run / part), "cannot be opened as a folder: ")
    ]


def test_a_live_path_that_is_a_link_or_fifo_is_damage(run: Path, tmp_path: Path) -> None:
    real = ProcessFiles(run, 1).live(BankFiles())
    (tmp_path / "link").symlink_to(real)
    os.mkfifo(tmp_path / "fifo")
    ProcessFiles(run, 1).point_to(tmp_path / "link")
    ProcessFiles(run, 2).point_to(tmp_path / "fifo")

    assert sorted(Path(one.path).name for one in read(run)[0].damage) == ["fifo", "link"]


def test_newer_files_say_to_upgrade_and_the_rest_is_read(run: Path, tmp_path: Path) -> None:
    ProcessFiles(run, 1).seal(BankFiles().range("good", 0, 1))
    newer = struct.pack("<8sHHI", segment.FILE_MAGIC, 2, 0, 0)
    (run / "sealed" / "h-2-a.0000.mxs").write_bytes(newer)
    path = ProcessFiles(run, 3).live(BankFiles())
    path.write_bytes(path.read_bytes()[:8] + b"\2\0" + path.read_bytes()[10:])
    ProcessFiles(run, 4).point_to(tmp_path / "x", format=2)
    (run / "run.json").write_text(json.dumps({"format": 2, "run": "x"}))
    opened, rows = read(run)

    assert {row[0] for row in rows} == {"good"}
    assert len(opened.damage) == 4
    assert all("upgrade" in one.reason for one in opened.damage)


def test_a_newer_block_is_skipped_and_named(run: Path) -> None:
    process = ProcessFiles(run)
    newer = bytearray(process.block(BankFiles(1).range("new", 0, 1)))
    struct.pack_into("<H", newer, 4, segment.APART + 1)
    struct.pack_into("<I", newer, 20, zlib.crc32(newer[:20]))
    path = process.seal(BankFiles(2).range("old", 0, 1))
    path.write_bytes(path.read_bytes() + bytes(newer))
    opened, rows = read(run)

    assert {row[0] for row in rows} == {"old"}
    assert "newer" in opened.damage[0].reason


@pytest.mark.parametrize(
    "claimed", [{"records": 1 << 29}, {"records": 1 << 62}, {"records": -1}, {"text_bytes": 1 << 30}]
)
@pytest.mark.parametrize("codec", ["zlib", "zstd"])
def test_huge_claims_cost_no_memory(run: Path, claimed: dict[str, int], codec: str) -> None:
    process = ProcessFiles(run)
    sizes = {"bank": 1, "origin": 0, "records": 0, "attributes": 0, "text_bytes": 0, "codec": codec, **claimed}
    # A zstd frame that says it holds 2^45 bytes.
    content = (
        b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 1 << 45) + b"\1\0\0" if codec == "zstd" else zlib.compress(b"")
    )
    block = segment.pack_block(segment.RECORDS, {**process.meta(), **sizes}, content)
    (run / "sealed" / f"{process.name}.0000.mxs").write_bytes(segment.file_header() + block)
    opened, rows = read(run)

    assert rows == set()
    assert len(opened.damage) == 1


def test_a_huge_sparse_file_is_read_up_to_the_limit(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mstxkit.reading.sealed.LIMIT_BYTES", 1 << 16)
    path = ProcessFiles(run).seal(BankFiles().range("a", 0, 1))
    os.truncate(path, 1 << 40)
    opened, rows = read(run)

    assert {row[0] for row in rows} == {"a"}
    assert any("beyond" in one.reason for one in opened.damage)


def test_a_file_full_of_block_magics_is_one_damage(run: Path) -> None:
    (run / "sealed" / "h-1-a.0000.mxs").write_bytes(segment.file_header() + segment.BLOCK_MAGIC * 20_000)

    assert len(read(run)[0].damage) <= 10


@pytest.mark.parametrize("text", [None, "{", "[]", "{}"])
def test_a_run_without_its_id_opens(run: Path, text: str | None) -> None:
    ProcessFiles(run).seal(BankFiles().range("a", 0, 1))
    (run / "run.json").unlink()
    if text is not None:
        (run / "run.json").write_text(text)
    opened, rows = read(run)

    assert opened.id == ""
    assert len(rows) == 1
    assert len(opened.damage) == int(text != "{}")


def test_a_file_that_vanishes_between_opening_and_reading_is_damage(run: Path) -> None:
    path = ProcessFiles(run).seal(BankFiles().range("a", 0, 1))
    opened = open_run(run)
    path.unlink()

    assert opened.ranges().height == 0
    assert opened.ranges().height == 0
    assert len(opened.damage) == 1


def test_only_clear_errors_come_out_of_a_path_of_any_kind(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")

    for path in (tmp_path / "fifo", "/dev/null", str(tmp_path / "a\nb"), "x" * 5000, "nul\0"):
        with pytest.raises(MstxkitError):
            open_run(path)


def test_a_file_that_a_quota_takes_after_the_run_was_opened_is_one_line_with_what_to_do(run: Path) -> None:
    kept, taken = (ProcessFiles(run, pid, rank=pid) for pid in (1, 2))
    for process in (kept, taken):
        file = process.seal(*banks(), inside=[{"name": "step", "domain": "d", "start": 5, "depth": 0}], ended="killed")
    opened = open_run(run)
    file.unlink()

    assert set(opened.ranges()["rank"]) == set(opened.open_ranges()["rank"]) == {1}
    opened.marks(), opened.stages()
    (loss,) = opened.damage
    assert (loss.path, loss.offset, loss.size) == (str(file), 0, 0)
    assert "gone since the run was opened" in loss.reason and "open it anew" in loss.reason
    assert open_run(run).damage == []
