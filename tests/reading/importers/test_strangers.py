"""A profile of another job, or of another attempt, is never joined as if it were of this one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from builders import device_profiles, imported_run
from builders.device_profiles import MS, Device

pytest.importorskip("numpy")
pytest.importorskip("polars")

from mstxkit.reading.importers import _importing, _places
from mstxkit.reading.importers._importing import Imported
from mstxkit.reading.run import open_run

DAY = 86_400_000 * MS
STRANGER = {"pid": 999, "host": "node9"}
WHO = "was recorded by process 999 on node9, and rank 0 of the run has no such process: is it of this run?"


def imported(run: Path, file: Path) -> Imported:
    (made,) = _importing.import_all(open_run(run).files, _places.find_files([file], []), lambda _: None)
    return made


def database(folder: Path, device: Device) -> Path:
    return device_profiles.ascend_db(folder / "ascend_pytorch_profiler_0.db", device)


@pytest.mark.parametrize("even", [False, True])
def test_a_profile_of_a_restarted_job_is_of_the_attempt_at_that_time(tmp_path: Path, even: bool) -> None:
    """In a container both attempts have one pid, and their steps may be as long."""
    run = imported_run.run_of(tmp_path / "run", even=even, pids=(100, 100))
    device = imported_run.device_of(even=even).shifted(imported_run.ATTEMPT)

    made = imported(run, database(tmp_path, device))

    assert sorted({row["step"] for row in made.rows}) == list(range(6, 12))
    assert abs(made.clocks[0]["offset_ns"]) < MS


def test_a_pid_decides_between_attempts_as_long(tmp_path: Path) -> None:
    """Also where the profiler's clock is off, by as much as lies between them."""
    run = imported_run.run_of(tmp_path / "run", pids=(100, 200))

    made = imported(run, database(tmp_path, imported_run.device_of().shifted(imported_run.ATTEMPT)))

    assert {row["step"] for row in made.rows} == set(range(6))


def test_yesterdays_job_is_refused_though_its_steps_were_as_long(tmp_path: Path) -> None:
    run = imported_run.run_of(tmp_path / "run")
    device = replace(imported_run.device_of().shifted(-DAY), **STRANGER)

    made = imported(run, database(tmp_path, device))

    assert (made.rows, made.problem) == ([], WHO)


def test_a_job_beside_it_is_refused_though_its_steps_are_as_long(tmp_path: Path) -> None:
    run = imported_run.run_of(tmp_path / "run", even=True)
    device = replace(imported_run.device_of(5, even=True, first=2).shifted(37 * MS), **STRANGER)

    made = imported(run, database(tmp_path, device))

    assert (made.rows, made.problem) == ([], WHO)


def test_the_same_recording_by_a_host_of_another_name_is_joined_and_says_so(tmp_path: Path) -> None:
    """As of a container with a name of its own: ranges that agree, and a clock that is right, are enough."""
    run = imported_run.run_of(tmp_path / "run")

    made = imported(run, database(tmp_path, replace(imported_run.device_of(), **STRANGER)))

    assert len(made.rows) == 12 and made.problem == ""
    assert made.notes == [WHO.partition(": is it")[0]]


def test_a_recording_of_another_host_without_ranges_is_refused(tmp_path: Path) -> None:
    run = imported_run.run_of(tmp_path / "run")
    device = replace(imported_run.device_of(), ranges=[], **STRANGER)
    folder = tmp_path / "node9_999_20261124101010123_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    (folder.parent / "profiler_info_0.json").parent.mkdir()
    (folder.parent / "profiler_info_0.json").write_text("{}")

    made = imported(run, device_profiles.kernel_details(folder / "kernel_details.csv", device))

    assert (made.rows, made.problem) == ([], WHO)


def test_another_process_of_the_host_is_joined_by_the_wall_clock_and_says_so(tmp_path: Path) -> None:
    """An inference engine has a process of its own, and its ranges are no one's."""
    run = imported_run.run_of(tmp_path / "run")
    device = imported_run.device_of()
    device.ranges = [("execute_model", start, end) for _, start, end in device.ranges]

    made = imported(run, database(tmp_path, replace(device, pid=999)))

    assert len(made.rows) == 12
    assert any("no such process" in note for note in made.notes) and any("wall clock" in note for note in made.notes)


def test_spans_of_an_engine_on_another_host_are_joined_and_say_so(tmp_path: Path) -> None:
    run = imported_run.run_of(tmp_path / "run")

    made = imported(
        run, device_profiles.otlp(tmp_path / "spans.jsonl", replace(imported_run.device_of(), host="node9"))
    )

    assert made.rows and any("on node9" in note for note in made.notes)


@pytest.mark.parametrize("format", ["ascend_db", "trace_view", "torch_trace"])
def test_ranges_called_as_the_runs_none_of_which_agrees_are_of_another_job(tmp_path: Path, format: str) -> None:
    """By the wall clock its kernels would go to stages in which they did not run."""
    run, device = imported_run.run_of(tmp_path / "run"), replace(imported_run.device_of(), pid=999)
    device.ranges = [(name, start, (start + end) // 2) for name, start, end in device.ranges]
    name, write = device_profiles.WRITERS[format]

    made = imported(run, write(tmp_path / name, device))

    assert made.rows == [] and "at that time none of them agrees: is it of this run?" in made.problem


def test_where_steps_are_all_as_long_an_hour_is_too_far_to_say_which_they_are(tmp_path: Path) -> None:
    run = imported_run.run_of(tmp_path / "run", even=True)

    made = imported(run, database(tmp_path, imported_run.device_of(5, even=True, first=2).shifted(DAY // 24)))

    assert made.rows == [] and "fits the run at several places" in made.problem


def test_where_steps_are_all_as_long_and_no_clock_is_right_the_bound_is_a_step(tmp_path: Path) -> None:
    run = imported_run.run_of(tmp_path / "run", even=True)
    near, apart = (
        imported(run, database(tmp_path / str(ms), imported_run.device_of(5, even=True, first=2).shifted(ms * MS)))
        for ms in (0, 30)
    )

    assert near.clocks[0]["error_ns"] < MS
    assert apart.clocks[0]["error_ns"] == pytest.approx(100 * MS, abs=MS)
