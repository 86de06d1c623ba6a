"""Profiles are parsed in processes of their own; what becomes of each is kept, and nothing of them outlives it."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, Iterator

import pytest
from builders.raw_profiles import Bench, calls, is_gone
from builders.waiting import until

from mstxkit.errors import MstxkitError
from mstxkit.parsing import lock, profiles, records, tools, work
from mstxkit.parsing.profiles import Profile
from mstxkit.parsing.records import ParseRecord


def plan(bench: Bench, jobs: int = 2, limit_s: float | None = None, export: str = "", **environ: str) -> work.ParsePlan:
    found = tools.find_msprof(bench.environ)
    return work.ParsePlan(
        jobs, limit_s, export, tools.make_environment({**bench.environ, **environ}, found.path), found.path
    )


@pytest.fixture
def locked(bench: Bench) -> Iterator[int]:
    (bench.run / "profiles").mkdir(exist_ok=True)
    descriptor = lock.take_lock(bench.run / "profiles")
    yield descriptor
    os.close(descriptor)


def ready(bench: Bench) -> list[Profile]:
    return [one for one in profiles.of_run(bench.run) if one.state == profiles.READY]


def parsed(bench: Bench, how: work.ParsePlan, locked: int) -> dict[str, ParseRecord]:
    """Each profile, by the file `how` of it, with its last record."""
    told = {}
    for profile, known in work.parse_profiles(bench.run, ready(bench), how, locked):
        told[(bench.run / profile.path / "how").read_text()] = known
        assert records.read_record(profile.record_file) == known
    return told


def test_each_profile_comes_to_its_own_end(bench: Bench, locked: int) -> None:
    for rank, how in enumerate(("is well", "fails", "crashes", "raises", "complains")):
        bench.profile(how, rank=rank)

    told = parsed(bench, plan(bench, jobs=3), locked)

    assert {how: known.state for how, known in told.items()} == {
        "is well": "parsed", "fails": "failed", "crashes": "failed", "raises": "failed", "complains": "parsed",
    }  # fmt: skip
    assert [one.name for one in told["is well"].outputs] == ["analyse.done", "ascend_pytorch_profiler.db", "half.csv"]
    assert told["is well"].versions == {"torch_npu": "9.9"}
    assert told["fails"].error == "no database is in ASCEND_PROFILER_OUTPUT; Task [DbParser] run failed."
    assert told["crashes"].error == "its process was killed by signal 11 (Segmentation fault)"
    assert told["raises"].error.startswith("RuntimeError: no such table")
    assert told["complains"].notes == ("There is no flow.",)


def test_the_parser_has_a_process_of_its_own_with_nothing_of_ours_and_gives_way(bench: Bench, locked: int) -> None:
    raw = bench.profile()

    parsed(bench, plan(bench, MSTXKIT_RUN=str(bench.run), MSTXKIT_AUTOPATCH="verl", RANK="3"), locked)

    (told,) = calls(raw)
    assert told["pid"] != os.getpid()
    assert (told["ours"], told["patched"], told["RANK"]) == (["MSTXKIT_OFF"], False, None)
    assert told["nice"] >= min(19, os.nice(0) + 15)
    assert not Path(told["cwd"]).is_relative_to(bench.run)
    assert told["path"] == [], "the current folder is on the path"


def test_a_profile_without_device_data_needs_no_msprof(bench: Bench, locked: int) -> None:
    bench.profile(device=False, export="text")
    bench.msprof.unlink()

    assert parsed(bench, plan(bench), locked)["is well"].state == "parsed"


def test_what_is_to_be_written_can_be_chosen(bench: Bench, locked: int) -> None:
    raw = bench.profile(export="text")

    told = parsed(bench, plan(bench, export="db"), locked)

    assert (told["is well"].state, calls(raw)[0]["export"]) == ("parsed", ["db"])


def test_without_what_it_was_to_write_a_parse_has_failed(bench: Bench, locked: int) -> None:
    bench.profile(export="text")

    told = parsed(bench, plan(bench), locked)

    assert told["is well"].error == "no trace_view.json is in ASCEND_PROFILER_OUTPUT"


def test_a_profile_that_takes_too_long_is_stopped_with_all_that_it_started(bench: Bench, locked: int) -> None:
    raw = bench.profile("hangs")

    told = parsed(bench, plan(bench, limit_s=4), locked)

    assert told["hangs"].error == "stopped: not parsed within 4 s"
    for call in calls(raw):  # none where the machine is too busy to come so far in time
        assert is_gone(call["pid"])
    if (raw / "child").exists():
        assert until(lambda: is_gone(int((raw / "child").read_text() or 1 << 22)))


def test_leftovers_of_msprof_are_removed_and_raw_data_are_not(bench: Bench, locked: int) -> None:
    raw = bench.profile()
    prof = next(raw.glob("PROF_*"))
    left = ["host/sqlite/a.db", "host/data/all_file.complete", "device_0/timeline/x", "msprof_1.db", "analyze/x"]
    kept = ["host/data/raw.slice_0", "device_0/data/raw.slice_0", "host/info.json"]
    for name in left + kept:
        (prof / name).parent.mkdir(parents=True, exist_ok=True)
        (prof / name).write_text("x")

    told = parsed(bench, plan(bench), locked)

    assert told["is well"].state == "parsed"
    assert [name for name in left if (prof / name).exists()] == []
    assert [name for name in kept if not (prof / name).exists()] == []


@pytest.mark.parametrize("target", ["/etc", "../../../../../../outside"])
def test_a_link_out_of_the_profile_keeps_parsers_from_it(bench: Bench, locked: int, target: str) -> None:
    raw = bench.profile()
    (bench.run.parent / "outside").mkdir()
    (raw / "FRAMEWORK").symlink_to(target)

    told = parsed(bench, plan(bench), locked)

    assert told["is well"].error == "not parsed: FRAMEWORK is a link that leads out of the profile"
    assert calls(raw) == []


def test_a_link_inside_the_profile_is_no_reason_to_leave_it_out(bench: Bench, locked: int) -> None:
    (bench.profile() / "latest").symlink_to("how")

    assert parsed(bench, plan(bench), locked)["is well"].state == "parsed"


def test_a_pipe_in_a_profile_keeps_parsers_from_it(bench: Bench, locked: int) -> None:
    os.mkfifo(bench.profile() / "profiler_metadata.json")

    assert "neither a file nor a folder" in parsed(bench, plan(bench), locked)["is well"].error


def test_a_link_for_the_result_is_replaced_and_not_followed(bench: Bench, locked: int) -> None:
    raw = bench.profile()
    outside = bench.run.parent / "outside"
    outside.write_text("mine")
    for name in ("analysis.json", "analysis.log"):
        (raw.parent / name).symlink_to(outside)

    assert parsed(bench, plan(bench), locked)["is well"].state == "parsed"
    assert outside.read_text() == "mine"
    assert stat.S_IMODE((raw.parent / "analysis.json").lstat().st_mode) == 0o640


def test_what_cannot_be_loaded_is_told_before_any_profile_is_touched(bench: Bench) -> None:
    (bench.packages / "torch_npu" / "__init__.py").write_text("raise OSError('libhccl.so: cannot open')")

    loaded = work.load_parser("torch_npu", plan(bench))

    assert loaded == ({}, "OSError: libhccl.so: cannot open")


@pytest.mark.parametrize(
    ("status", "told"), [(7, "its process ended with status 7"), (0, "its process ended while it was loaded")]
)
def test_a_framework_that_ends_its_process_while_it_is_loaded_is_told(bench: Bench, status: int, told: str) -> None:
    (bench.packages / "torch_npu" / "__init__.py").write_text(f"import os; os._exit({status})")

    assert work.load_parser("torch_npu", plan(bench)) == ({}, told)


def test_a_framework_that_is_never_loaded_is_told(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "_LOADED_WITHIN_S", 1.0)
    (bench.packages / "torch_npu" / "__init__.py").write_text("import time; time.sleep(1000)")

    assert work.load_parser("torch_npu", plan(bench))[1] == "it was not loaded within 1 s"


def test_an_older_analyse_gets_the_options_that_it_has(bench: Bench, locked: int) -> None:
    """torch_npu 6.0.rc1 takes the path alone."""
    module = bench.packages / "torch_npu" / "profiler" / "profiler.py"
    source = module.read_text().replace("max_process_number=1, export_type=None", "")
    module.write_text("export_type = None\n" + source)
    raw = bench.profile()

    assert parsed(bench, plan(bench), locked)["is well"].state == "parsed"
    (raw.parent / "analysis.json").unlink()
    assert "has no export_type" in parsed(bench, plan(bench, export="db"), locked)["is well"].error


def test_a_lock_file_that_says_nonsense_is_still_a_lock(
    bench: Bench, locked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "_DYING_S", 0.0)
    (bench.run / "profiles" / "analysis.lock").write_text("[" * 5000)

    with pytest.raises(MstxkitError, match="another `mstxkit profiles --analyse` works on this run; wait"):
        lock.take_lock(bench.run / "profiles")


@pytest.mark.parametrize(
    "content",
    ["", "{", "[1]", '{"format": 2, "state": "parsed"}', '{"format": 1, "state": "fine"}', "x" * (2 << 20)],
    ids=["empty", "half", "list", "newer", "unknown", "huge"],
)
def test_a_record_that_cannot_be_believed_is_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "analysis.json").write_text(content)

    assert records.read_record(tmp_path / "analysis.json") is None


def test_a_record_with_values_of_other_types_reads_as_nothing_said(tmp_path: Path) -> None:
    wild: dict[str, Any] = {"seconds": 1e999, "outputs": [1, {"bytes": "x"}], "notes": {}, "versions": [], "error": 3}
    (tmp_path / "analysis.json").write_text(json.dumps({"format": 1, "state": "parsed", **wild}))

    assert records.read_record(tmp_path / "analysis.json") == ParseRecord("parsed", 0, (records.ParsedFile("", 0),))
