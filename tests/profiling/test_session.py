"""One session of this process: its folder and file, its device, and what holds whatever goes wrong."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Iterator

import pytest
from builders import threads
from builders.tried_session import Run, Tried

import mstxkit
from mstxkit import faults
from mstxkit.host import folders, identity
from mstxkit.profiling import backends, guard, metadata, presets, profilers
from mstxkit.profiling.backends import _session
from mstxkit.profiling.backends import find_profiler as backend_here
from mstxkit.profiling.session import OneSession
from mstxkit.store import documents, layout, run_file


@pytest.fixture(autouse=True)
def _nothing_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Devices of these tests are their own, and none is left taken."""
    monkeypatch.setattr(profilers, "find_others", lambda: ())
    monkeypatch.setitem(sys.modules, "tried", SimpleNamespace(__version__="1.2.3"))
    (tmp_path / "shm").mkdir()
    monkeypatch.setattr(folders, "SHARED_MEMORY", str(tmp_path / "shm"))
    yield
    assert guard._taken == {}
    assert _session._open == {}


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Tried:
    made = Tried()
    monkeypatch.setattr(backends, "choose_backend", lambda: (made, {"first": "not imported"}))
    return made


@pytest.fixture
def run(tmp_path: Path, backend: Tried) -> Run:
    return Run(run_file.open_run_folder(tmp_path / "run")[0])


def lock_file(tmp_path: Path, device: int) -> Path:
    return tmp_path / "shm" / f"mstxkit-{os.geteuid()}" / "devices" / f"npu-{device}.lock"


def test_a_session_records_into_a_folder_of_its_own_in_the_run(run: Run) -> None:
    assert run.begin() is None
    recorded = run.end("the stage ended", [7])

    assert recorded.folder is not None
    assert recorded.folder.parent == run.folder / "profiles" / "actor_update" / "step7" / "rank3"
    assert recorded.folder.name.endswith(f"-{os.getpid()}")
    assert [path.name for path in recorded.folder.iterdir()] == ["session.json"]
    assert [path.name for path in (run.folder / "profiles" / ("ab" * 8)).iterdir()] == ["host_1_2_tried"]
    assert (recorded.bytes, recorded.problems) == (5, ())
    assert 0 < recorded.start_ns <= recorded.end_ns


def test_its_file_says_all_that_there_is_to_say(run: Run) -> None:
    run.begin(seconds=60.0, bytes=1000)
    recorded = run.end("the stage ended", [7, 8])

    told = run.told()
    costs = [told.pop("start_cost_ns"), told.pop("stop_cost_ns")]
    assert min(costs) > 0
    assert told == {
        "format": 1, "run": "a" * 32, "host": identity.name_host(), "boot": identity.boot_id(), "pid": os.getpid(),
        "pid_start": identity.pid_start(os.getpid()), "pidns": os.stat("/proc/self/ns/pid").st_ino,
        "rank": 3, "world_size": 8, "role": "actor",
        "stage": "actor_update", "step": 7, "steps": [7, 8], "request": "ab" * 8, "preset": "full",
        "options": {"level": "level1"}, "reason": "slow", "state": "recorded", "start_ns": recorded.start_ns,
        "end_ns": recorded.end_ns, "bytes": 5, "output": f"../../../../{'ab' * 8}/host_1_2_tried", "problems": [],
        "notes": ["a note of the options", "a note of the profiler"],
        "limits": {"seconds": 60.0, "bytes": 1000, "bytes_enforceable": True},
        "overshoot": {"seconds": 0.0, "bytes": 0}, "backend": "tried", "backend_version": "1.2.3",
        "mstxkit": mstxkit.__version__, "ended_because": "the stage ended",
        "distributed_args": {"rank": 3, "world_size": 8}, "is_only_window": True, "stored": None,
    }  # fmt: skip


def test_while_it_records_its_file_says_so(run: Run, backend: Tried) -> None:
    seen: list[Any] = []
    backend.then["start"] = lambda: seen.append(run.told()["state"])
    run.begin()

    assert seen == ["recording"]
    assert run.told()["state"] == "recording"
    assert (run.session.is_open, run.session.order) == (True, run.order())
    run.end()
    assert (run.session.is_open, run.session.order) == (False, None)


@pytest.mark.parametrize(
    ("changes", "below"),
    [
        ({"step": None}, "actor_update/step-unknown/rank3"),
        ({"stage": "light", "request": ""}, "light/step7/rank3"),
        ({"stage": "timing_s/param_sync"}, r"timing_s_param_sync-[0-9a-f]{8}/step7/rank3"),
        ({"stage": "actor.update-2"}, r"actor\.update-2/step7/rank3"),
    ],
)
def test_folders_are_named_by_stage_step_and_rank(run: Run, changes: dict[str, Any], below: str) -> None:
    run.begin(**changes)
    recorded = run.end()

    assert recorded.folder is not None
    assert re.fullmatch(below, str(recorded.folder.parent.relative_to(run.folder / "profiles")))


@pytest.mark.parametrize(
    "stage",
    ["..", ".", "", "../../etc", "/", "a/../../..", "~", "\x00", "x" * 5000, "\ud800", "-rf", ".hidden", "a\nb"],
)
def test_no_stage_leads_out_of_the_run(run: Run, stage: str) -> None:
    assert run.begin(stage=stage) is None
    recorded = run.end()

    assert recorded.folder is not None
    assert recorded.folder.resolve().parents[3] == run.folder / "profiles"
    assert run.told()["stage"] == stage


def test_names_of_different_stages_stay_different() -> None:
    names = ["a/b", "a_b", "a b", "A_B", "a.b", "x" * 200, "x" * 201]

    assert len({layout.stage_in_names(name) for name in names}) == len(names)
    assert layout.stage_in_names("actor_update") == "actor_update"


def test_a_link_in_the_way_is_not_followed(run: Run, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (run.folder / "profiles").mkdir(0o700)
    (run.folder / "profiles" / "actor_update").symlink_to(tmp_path / "elsewhere")

    problem = run.begin()

    assert problem is not None
    assert "is a symbolic link" in problem
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert not run.session.is_open


def test_folders_and_files_are_private(run: Run) -> None:
    run.begin()
    run.end()

    (file,) = run.files()
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    way = [folder for folder in file.parents if run.folder in folder.parents]
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in way} == {0o700}
    assert len(way) == 5


def test_a_run_folder_that_is_gone_is_not_made_again(run: Run, tmp_path: Path) -> None:
    problem = run.begin(run=tmp_path / "gone")

    assert problem == f"the session's folder cannot be made: the run folder {tmp_path / 'gone'} is not there"
    assert not (tmp_path / "gone").exists()


def test_two_sessions_have_two_folders(run: Run) -> None:
    for _ in range(3):
        run.begin()
        run.end()

    assert len(run.files()) == 3


def test_a_second_session_is_refused_and_the_first_goes_on(run: Run, backend: Tried) -> None:
    run.begin()

    assert run.begin(stage="reward") == "a session of stage actor_update is open in this process already"
    assert Run(run.folder).begin() is not None  # nor by another owner in this process
    assert backend.calls == ["start"]
    recorded = run.end()
    assert recorded.problems == ()


def test_without_a_session_there_is_nothing_to_end(run: Run) -> None:
    assert run.session.end("", []) is None
    assert run.session.bytes_so_far() is None


def test_where_no_profiler_can_record_each_says_why(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        backends, "choose_backend", lambda: (None, {"torch_npu": "it sees no NPU", "torch": "not imported"})
    )

    assert run.begin() == ("no profiler can record in this process: torch_npu: it sees no NPU; torch: not imported")
    assert run.files() == []
    assert backend_here() == (None, {"torch_npu": "it sees no NPU", "torch": "not imported"})


def test_the_backend_here_is_the_one_that_would_record(run: Run) -> None:
    assert backend_here() == ("tried", {"first": "not imported"})


def test_a_framework_in_pieces_is_no_error_for_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Any:
        raise AttributeError("partially initialized module")

    monkeypatch.setattr(backends, "choose_backend", broken)

    assert backend_here() == (None, {"any": "AttributeError: partially initialized module"})
    assert OneSession().begin(Run(Path("/")).order()) == (
        "the session could not begin: AttributeError: partially initialized module"
    )
    assert faults.counts == {"session.backend": 1, "session.begin": 1}


# The device.


def test_the_device_is_taken_while_it_records_and_named_to_others(run: Run, backend: Tried, tmp_path: Path) -> None:
    backend.number = 4
    run.begin()
    during = json.loads(lock_file(tmp_path, 4).read_text())
    run.end()

    assert (during["run"], during["stage"], during["pid"]) == ("a" * 32, "actor_update", os.getpid())
    assert lock_file(tmp_path, 4).read_text() == ""


def test_the_device_is_the_hosts_own_number(
    run: Run, backend: Tried, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend.number = 1
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "5,6")
    run.begin()
    run.end()

    assert lock_file(tmp_path, 6).exists()


def test_who_profiles_already_is_named_and_nothing_is_made(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        profilers, "find_others", lambda: (profilers.Other("verl", "verl's own profiler records; wait for it"),)
    )

    assert run.begin() == "verl's own profiler records; wait for it"
    assert not (run.folder / "profiles").exists()


def test_a_device_that_cannot_be_asked_for_is_a_reason(run: Run, backend: Tried) -> None:
    backend.fails["device"] = RuntimeError("device lost")

    assert run.begin() == "the session could not begin: RuntimeError: device lost"
    assert faults.counts == {"session.begin": 1}


# What goes wrong.


def test_a_start_that_raises_is_a_reason_and_in_the_file(run: Run, backend: Tried) -> None:
    backend.fails["start"] = RuntimeError("no memory on the device")

    assert run.begin() == "start: RuntimeError: no memory on the device"
    assert not run.session.is_open
    told = run.told()
    assert (told["state"], told["problems"]) == ("failed", ["start: RuntimeError: no memory on the device"])
    assert run.session.end("", []) is None


def test_after_a_start_that_raised_the_next_one_records(run: Run, backend: Tried) -> None:
    backend.number = 4
    backend.fails["start"] = RuntimeError("once")
    run.begin()
    backend.fails.clear()

    assert run.begin() is None
    recorded = run.end()
    assert recorded.problems == ()


def test_a_stop_that_raises_is_a_problem_and_what_there_is_is_kept(run: Run, backend: Tried) -> None:
    backend.fails["stop"] = RuntimeError("while it wrote")
    run.begin()
    recorded = run.end("the stage raised", [7])

    assert recorded.folder is not None
    assert recorded.problems == ("stop: RuntimeError: while it wrote",)
    told = run.told()
    assert (told["state"], told["problems"]) == ("recorded", ["stop: RuntimeError: while it wrote"])
    assert told["ended_because"] == "the stage raised"


def test_data_that_lack_what_they_must_hold_are_a_failure(run: Run, backend: Tried) -> None:
    backend.lacks = "it holds no PROF_* folder"
    run.begin()
    recorded = run.end(steps=[7])

    assert (recorded.folder, recorded.problems) == (None, ("it holds no PROF_* folder",))
    told = run.told()
    assert (told["state"], told["output"], told["steps"]) == ("failed", "host_1_2_tried", [7])


def test_a_profiler_that_somebody_else_ended_says_so(run: Run, backend: Tried) -> None:
    run.begin()
    assert backend.recorder is not None
    backend.recorder.records = False
    recorded = run.end(steps=[7])

    assert recorded.problems == ("tried had ended before it was told to: somebody else stopped it",)
    assert run.told()["problems"] == list(recorded.problems)


@pytest.mark.parametrize("where", ["start", "stop"])
def test_an_interrupt_goes_on_to_the_program_with_everything_given_back(run: Run, backend: Tried, where: str) -> None:
    backend.number = 4
    backend.fails[where] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        run.begin()
        run.end()

    assert not run.session.is_open
    assert run.told()["state"] == "failed"
    assert run.told()["problems"][0].startswith(f"the {where} was interrupted")
    assert guard._taken == {}
    backend.fails.clear()
    assert run.begin() is None
    run.end()


@pytest.mark.parametrize("raised", [KeyboardInterrupt(), RuntimeError("a fault of ours")])
def test_what_goes_wrong_after_the_stop_leaves_no_file_that_says_it_records(
    run: Run, monkeypatch: pytest.MonkeyPatch, raised: BaseException
) -> None:
    def complete(*_: Any) -> None:
        raise raised

    monkeypatch.setattr("mstxkit.profiling.metadata.complete_metadata", complete)
    run.begin()
    try:
        recorded = run.end(steps=[7])
        assert recorded.problems == ("the session could not be ended as it should: RuntimeError: a fault of ours",)
    except KeyboardInterrupt:
        pass

    told = run.told()
    assert (told["state"], told["bytes"], told["steps"]) == ("recorded", 5, [7])
    assert told["problems"][0].startswith("what was recorded is as the profiler left it: ")
    assert not run.session.is_open


def test_another_thread_ends_nothing_and_is_told_so(run: Run) -> None:
    run.begin()
    elsewhere: list[Any] = []
    threads.elsewhere(lambda: elsewhere.append(run.session.end("", [])))

    assert elsewhere[0].folder is None
    assert elsewhere[0].problems == ("not stopped: only the thread that started a session may stop it",)
    assert run.session.is_open
    recorded = run.end()
    assert recorded.problems == ()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_no_session_and_may_have_its_own(run: Run, backend: Tried, tmp_path: Path) -> None:
    run.begin()
    child = os.fork()
    if child == 0:
        has_none = not run.session.is_open and run.session.end("", []) is None and run.session.bytes_so_far() is None
        own = run.begin(stage="reward") is None and run.session.end("", []) is not None
        os._exit(0 if has_none and own else 1)

    assert os.WEXITSTATUS(os.waitpid(child, 0)[1]) == 0
    recorded = run.end()
    assert recorded.problems == ()


# The disk.


def full(*_: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_on_a_disk_that_is_full_at_the_start_nothing_begins(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "replace_file", full)

    assert run.begin() == "the session's folder cannot be made: [Errno 28] No space left on device"
    assert not run.session.is_open


def test_on_a_disk_that_is_full_at_the_end_the_file_says_so_all_the_same(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.begin()
    monkeypatch.setattr(documents, "replace_file", full)
    recorded = run.end("the stage ended", [7])

    problem = "[Errno 28] No space left on device"
    assert recorded.problems == (
        f"the profiler's metadata could not be completed: {problem}",
        f"session.json could not be replaced as a whole: {problem}",
    )
    told = run.told()
    assert (told["state"], told["steps"]) == ("recorded", [7])
    assert told["problems"] == [f"the profiler's metadata could not be completed: {problem}"]


def room(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, blocks: int, all_blocks: int = 1 << 20) -> None:
    real = os.statvfs(tmp_path)
    told = os.statvfs_result((4096, 4096, all_blocks, blocks, blocks, *real[5:10]))
    monkeypatch.setattr(os, "statvfs", lambda _: told)


def test_with_little_room_on_the_disk_nothing_begins(
    run: Run, backend: Tried, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """CANN would record nothing, and say so in a log of its own."""
    room(monkeypatch, tmp_path, 5000)

    assert run.begin() == (f"only 19 MiB are left on the disk of {run.folder}, too little to record; make room there")
    assert (backend.calls, run.files()) == ([], [])


def test_a_disk_that_fills_is_a_problem_of_the_data(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run.begin()
    room(monkeypatch, tmp_path, 1)
    recorded = run.end()

    assert recorded.problems == (f"no room is left on the disk of {run.folder}: what was recorded is cut short",)
    assert run.told()["problems"] == list(recorded.problems)


def test_a_file_system_that_does_not_tell_its_room_is_no_full_one(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    room(monkeypatch, tmp_path, 0, all_blocks=0)
    assert run.begin() is None
    recorded = run.end()

    assert recorded.problems == ()


# Sizes and limits.


def test_bytes_so_far_are_looked_for_at_most_a_fiftieth_of_the_time(
    run: Run, backend: Tried, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns, looks = [10**12], []
    monkeypatch.setattr("time.monotonic_ns", lambda: now_ns[0])
    run.begin()
    assert backend.recorder is not None

    def output() -> Path:
        looks.append(now_ns[0])
        now_ns[0] += 100_000_000  # a slow disk
        return backend.recorder.folder  # type: ignore[union-attr]

    monkeypatch.setattr(backend.recorder, "output", output)
    sizes = []
    for _ in range(80):
        sizes.append(run.session.bytes_so_far())
        now_ns[0] += 250_000_000
    monkeypatch.undo()
    run.end()

    assert set(sizes) == {5}
    assert len(looks) == 4
    assert all(after - before >= 50 * 100_000_000 for before, after in zip(looks, looks[1:]))


def test_bytes_in_memory_are_unknown_and_their_limit_is_said_not_to_hold(run: Run, backend: Tried) -> None:
    backend.on_disk = False
    run.begin(bytes=1000)

    assert run.session.bytes_so_far() is None
    run.end()
    told = run.told()
    assert told["limits"] == {"seconds": None, "bytes": 1000, "bytes_enforceable": False}
    assert told["notes"][1] == ("the limit of 1000 bytes cannot be enforced: tried keeps data in memory until the stop")


def test_what_goes_beyond_the_limits_is_in_the_file(run: Run, backend: Tried) -> None:
    run.begin(seconds=1e-9, bytes=2)
    run.end("the limit of bytes", [7])

    assert run.told()["overshoot"]["bytes"] == 3
    assert run.told()["overshoot"]["seconds"] >= 0
    assert backend.limits == [2]


def test_without_limits_there_is_no_overshoot(run: Run) -> None:
    run.begin()
    run.end()

    assert run.told()["overshoot"] == {"seconds": None, "bytes": None}


def test_a_preset_of_options_has_no_name(run: Run) -> None:
    run.begin(preset=presets.made_preset(None, [("level", "level2")]).preset)
    run.end()

    assert (run.told()["preset"], run.told()["options"]) == (None, {"level": "level2"})


def test_parallel_sizes_that_cannot_be_had_are_left_out(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def asserts(rank: int, world_size: int) -> dict[str, Any]:
        raise AssertionError("model parallel group is not initialized")

    monkeypatch.setattr(metadata, "distributed_args", asserts)
    run.begin()
    run.end()

    assert run.told()["distributed_args"] == {"rank": 3, "world_size": 8}
    assert faults.counts == {"session.distributed_args": 1}
