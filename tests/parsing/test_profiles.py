"""The profiles of a run are found, whoever wrote them; nothing that a folder or a file says leads out of the run."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from builders.raw_profiles import GONE_PID, Bench

from mstxkit.host import identity
from mstxkit.parsing import profiles
from mstxkit.parsing.profiles import Profile

ME = identity.of_process("0" * 32, True, "0")


def only(bench: Bench, unfinished: bool = False) -> Profile:
    (one,) = profiles.of_run(bench.run, unfinished)
    return one


def test_a_session_says_whose_a_profile_is(bench: Bench) -> None:
    raw = bench.profile(stage="gen", step=7, rank=3)

    one = only(bench)

    assert (one.stage, one.step, one.rank, one.request, one.bytes) == ("gen", 7, 3, "r3", 100)
    assert (one.kind, one.state, one.reason) == ("torch_npu", "ready", "")
    assert one.path == str(raw.relative_to(bench.run))
    assert one.record_file == raw.parent / "analysis.json"


def test_a_run_without_profiles_has_none(bench: Bench) -> None:
    assert profiles.of_run(bench.run) == []


def test_a_raw_folder_without_a_session_is_taken_and_said_to_be(bench: Bench) -> None:
    raw = bench.profile(stage="gen", step=7, rank=3, session={"none": True})

    one = only(bench)

    assert (one.stage, one.step, one.rank, one.request) == ("gen", 7, 3, "")
    assert (one.state, one.reason) == ("ready", "no session.json")
    assert one.record_file == raw.parent / f"{raw.name}.analysis.json"


STILL = {**ME, "state": "recording", "output": None}


@pytest.mark.parametrize(
    ("session", "state"),
    [
        ({**STILL}, "recording"),
        ({**STILL, "pid": GONE_PID}, "ready"),
        ({**STILL, "pid_start": 1}, "ready"),
        ({**STILL, "host": "elsewhere"}, "recording"),
        ({"state": "recording", "output": None, "pid": os.getpid()}, "recording"),
        ({"state": "recording", "output": None}, "ready"),
        ({"state": "recording", "output": None, "pid": "x"}, "recording"),
    ],
    ids=["of us", "ended", "another process", "another host", "bare, of us", "bare, ended", "nonsense"],
)
def test_what_a_living_process_records_is_left_out(bench: Bench, session: dict[str, Any], state: str) -> None:
    bench.profile(session=session)

    one = only(bench)

    assert one.state == state
    assert ("may be incomplete" if state == "ready" else "record it") in one.reason.replace("records", "record")


def test_what_another_host_may_record_is_taken_when_asked_for(bench: Bench) -> None:
    bench.profile(session={**STILL, "host": "elsewhere"})

    assert "--unfinished" in only(bench).reason
    assert only(bench, unfinished=True).state == "ready"


def test_pointer_files_say_who_lives_where_a_session_does_not(bench: Bench) -> None:
    bench.profile(session={"state": "recording", "output": None, "host": "elsewhere", "pid": 5})
    pointer = {**ME, "host": identity.name_host(), "pid": os.getpid(), "path": "x", "format": 1}
    (bench.run / "live" / "p.json").write_text(json.dumps(pointer))

    assert only(bench).state == "recording"
    bench.run.joinpath("profiles/actor_update/step5/rank0/1000-77/session.json").write_text(
        json.dumps({"state": "recording", "host": identity.name_host(), "pid": os.getpid()})
    )
    assert only(bench).reason == f"process {os.getpid()} on {identity.name_host()} still records it"


def test_a_raw_folder_without_session_and_end_is_its_processs(bench: Bench) -> None:
    host = os.uname().nodename
    for pid in (os.getpid(), GONE_PID - 1):
        name = f"{host}_{pid}_20261122000000000_ascend_pt"
        raw = bench.profile(rank=pid, session={"none": True}, name=name)
        (raw / "profiler_info.json").unlink()

    assert {one.rank: one.state for one in profiles.of_run(bench.run)} == {
        os.getpid(): "recording",
        GONE_PID - 1: "ready",
    }


def test_what_needs_no_parsing_is_said_to(bench: Bench) -> None:
    for rank, session in enumerate(
        (
            {"backend": "torch", "output": "host_1_2.pt.trace.json"},
            {"backend": "torch_npu", "state": "failed", "output": None},
            {"backend": "torch_npu", "output": "gone_ascend_pt"},
        )
    ):
        raw = bench.profile(rank=rank, session=session)
        raw.rename(bench.run / f"away{rank}")

    assert [(one.state, one.reason) for one in profiles.of_run(bench.run)] == [
        ("nothing to do", "traces of torch.profiler need no parsing"),
        ("nothing to do", "nothing was recorded"),
        ("nothing to do", "its output is not in its folder"),
    ]


def test_a_mindspore_profile_of_a_cpu_cannot_be_parsed_later(bench: Bench) -> None:
    name = f"host_{GONE_PID}_20261122000000000_ascend_ms"
    raw = bench.profile(name=name, device=False, session={"backend": "mindspore"})
    (raw / "profiler_info.json").unlink()

    assert (only(bench).state, only(bench).kind) == ("nothing to do", "mindspore")


@pytest.mark.parametrize("output", ["/etc", "../../../..", "..", ".", "", "\0", "x" * 5000, 7, ["a"], {"a": 1}, None])
def test_no_output_that_a_session_names_leads_elsewhere(bench: Bench, output: Any) -> None:
    raw = bench.profile(session={"output": output})

    assert only(bench).path == str(raw.relative_to(bench.run))


@pytest.mark.parametrize(
    "content",
    [b"", b'{"state": "rec', b"[]", b"\xff\xfe", b"[" * 100_000, b'{"a": "' + b"x" * (2 << 20) + b'"}'],
    ids=["empty", "half-written", "a list", "no text", "deep", "huge"],
)
def test_a_session_that_cannot_be_read_costs_its_profile_only_its_names(bench: Bench, content: bytes) -> None:
    raw = bench.profile()
    (raw.parent / "session.json").write_bytes(content)

    one = only(bench)

    assert (one.state, one.reason) == ("ready", "session.json cannot be read")
    assert (one.stage, one.step, one.rank) == ("actor_update", 5, 0)


def test_values_of_other_types_in_a_session_are_as_if_absent(bench: Bench) -> None:
    bench.profile(session={"stage": 3, "step": True, "rank": 1 << 70, "request": [], "bytes": "many"})

    one = only(bench)

    assert (one.stage, one.step, one.rank, one.request, one.bytes) == ("actor_update", 5, 0, "", None)


def test_a_session_that_is_a_link_is_not_read(bench: Bench, tmp_path: Path) -> None:
    raw = bench.profile(stage="gen")
    (tmp_path / "other.json").write_text(json.dumps({"stage": "theirs", "state": "recorded", "output": raw.name}))
    (raw.parent / "session.json").unlink()
    (raw.parent / "session.json").symlink_to(tmp_path / "other.json")

    assert only(bench).stage == "gen"


def test_links_are_not_followed(bench: Bench, tmp_path: Path) -> None:
    raw = bench.profile()
    outside = tmp_path / "outside"
    (outside / "rank9").mkdir(parents=True)
    raw.rename(outside / "rank9" / raw.name)
    (bench.run / "profiles" / "theirs").symlink_to(outside)
    raw.symlink_to(outside / "rank9" / raw.name)

    assert [one.state for one in profiles.of_run(bench.run)] == ["nothing to do"]
    (bench.run / "profiles").rename(tmp_path / "profiles")
    (bench.run / "profiles").symlink_to(tmp_path / "profiles")
    assert profiles.of_run(bench.run) == []


def test_folders_too_deep_are_not_entered(bench: Bench) -> None:
    deep = bench.run / "profiles" / Path(*["d"] * 20)
    (deep / "host_1_20261122000000000_ascend_pt").mkdir(parents=True)

    assert profiles.of_run(bench.run) == []
