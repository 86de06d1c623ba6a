"""`mstxkit status RUN`: what ranks are doing, how requests stand, which profiles there are, on any terminal."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from builders import lives
from builders.escalated_run import GONE, NS, empty_run, left, run_of, say, session
from builders.run_files import RUN_ID, WALL_OFFSET_NS

pytest.importorskip("numpy")
pytest.importorskip("polars")
typer_testing = pytest.importorskip("typer.testing")

import mstxkit.cli  # noqa: E402
from mstxkit.store import whereabouts  # noqa: E402
from mstxkit.store.report import Report  # noqa: E402


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return run_of(tmp_path / "run")


def status(run: Path, *words: str, columns: int = 120) -> Any:
    arguments = ["status", str(run), *words]
    return typer_testing.CliRunner().invoke(mstxkit.cli.build_application(), arguments, env={"COLUMNS": str(columns)})


def shown(run: Path) -> str:
    """With single spaces, so that it does not matter how wide a column is."""
    return " ".join(status(run).output.split())


def told(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(status(run, "--json").output)
    return found


def sees(run: Path, **process: Any) -> Path:
    """What the keeper of this host has seen of this process, and its file."""
    whereabouts.write_whereabouts(run, RUN_ID, run, [{"pid": os.getpid(), **process}])
    (file,) = (run / "now").iterdir()
    return file


def test_each_rank_has_its_step_and_how_old_that_is(run: Path) -> None:
    say(run, 1, phase="running", step=9)

    assert re.search(r"0 - 7 [\d.]+ s ago idle torch 1 - 9 [\d.]+ s ago running torch 2 - 7", shown(run))


def test_where_a_rank_is_now_is_what_its_keeper_saw_last(run: Path) -> None:
    say(run, 1, step=9)
    sees(run, rank=1, step=31, stage="actor_generate", in_stage_ns=12 * NS)

    assert re.search(r" 1 actor_generate for 12 s 31 [\d.]+ s ago idle torch", shown(run))
    assert told(run)["now"][0]["stage"] == "actor_generate"


def test_a_rank_that_takes_no_requests_is_seen_all_the_same(tmp_path: Path) -> None:
    run = empty_run(tmp_path / "run")
    sees(run, rank=5, step=31, stage="actor_generate", in_stage_ns=12 * NS)

    assert re.search(r" 5 actor_generate for 12 s 31 [\d.]+ s ago", shown(run))


def test_what_another_host_says_is_as_old_as_two_clocks_tell(run: Path) -> None:
    file = sees(run, rank=9, step=31)
    document = json.loads(file.read_text())
    file.write_text(json.dumps({**document, "host": "n7", "boot": "", "written_ns": document["written_ns"] - 70 * NS}))

    assert re.search(r" 9 - 31 ~7\d s ago", shown(run))
    assert "by the clocks of two hosts" in shown(run)


def test_of_many_ranks_those_that_do_the_same_are_on_one_line(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", 20)
    say(run, 1, phase="running", step=9, world_size=20)
    say(run, 2, step=8, world_size=20)

    assert re.search(r"0, 2-19 - 7 to 8 up to [\d.]+ s ago idle torch 1 - 9 [\d.]+ s ago running torch", shown(run))


def test_of_a_thousand_ranks_that_are_all_elsewhere_there_are_a_few_lines(tmp_path: Path) -> None:
    run = empty_run(tmp_path / "run")
    processes = [{"pid": 10 + n, "rank": n, "step": 5, "stage": f"stage_{n % 40}"} for n in range(1000)]
    whereabouts.write_whereabouts(run, RUN_ID, run, processes)

    text = status(run).output

    assert len(text.splitlines()) < 60
    assert "600 more ranks" in text
    assert len(told(run)["now"]) == 1000


def test_a_rank_without_a_profiler_says_why(run: Path) -> None:
    say(run, 1, backend=None, why_not={"torch_npu": "it is not imported"})

    assert re.search(r" 1 - 7 [\d.]+ s ago idle none: torch_npu: it is not imported", shown(run))


def test_a_rank_whose_process_has_ended_is_told(run: Path) -> None:
    say(run, 3, process=GONE)

    assert re.search(r" 3 - 7 [\d.]+ s ago ended torch", shown(run))


def test_a_request_stands_with_the_number_of_ranks_in_each_state(run: Path) -> None:
    request = left(run, ranks="all", reason="slower since noon")
    for rank, state in enumerate(("armed", "done", "armed")):
        say(run, rank, Report(request.id, rank, state))

    assert f"{request.id[:8]} queued 1, armed 2, done 1 of 4 1 step of actor_update" in shown(run)
    assert "slower since noon" in shown(run)


def test_open_requests_come_first_and_of_those_that_ended_the_last_few(run: Path) -> None:
    ended = [left(run, occasion=str(n), created_ns=1, expires_ns=2) for n in range(7)]
    still_open = left(run)
    text = shown(run)

    assert text.index(still_open.id[:8]) < text.index(ended[6].id[:8])
    assert ended[1].id[:8] not in text
    assert "2 that ended before" in text
    assert len(told(run)["requests"]) == 8


def test_profiles_are_listed_with_their_sizes_light_ones_too(run: Path) -> None:
    folders = [session(run, "a" * 16), session(run, stage="light", preset="light", bytes=2048)]

    text = shown(run)

    assert all(str(folder.relative_to(run)) in text for folder in folders)
    assert "full recorded 5.00 MiB" in text
    assert "light recorded 2.00 KiB" in text


def test_of_many_profiles_the_latest_are_listed(run: Path) -> None:
    for step in range(12):
        session(run, step=step, start_ns=WALL_OFFSET_NS + step)
    text = shown(run)

    assert "/step11/" in text
    assert "/step1/" not in text
    assert "the latest of 12" in text


def test_a_profile_that_does_not_say_when_it_began_is_not_the_latest(run: Path) -> None:
    for step in range(10):
        session(run, step=step, start_ns=WALL_OFFSET_NS + step)
    folder = session(run, step=77, start_ns=WALL_OFFSET_NS)
    document = json.loads((folder / "session.json").read_text())
    (folder / "session.json").write_text(json.dumps({**document, "start_ns": None}))

    assert "step77" not in shown(run) and "step9" in shown(run)


def test_of_many_open_requests_the_first_are_listed(run: Path) -> None:
    waiting = [left(run, occasion=str(n)) for n in range(20)]
    text = shown(run)

    assert waiting[15].id[:8] in text
    assert waiting[16].id[:8] not in text
    assert "4 more that are open" in text


def test_as_json_it_is_the_same(run: Path) -> None:
    request = left(run, ranks=[1])
    say(run, 1, Report(request.id, 1, "running", step=7, first_step=7, last_step=7), phase="running")
    session(run, request.id, state="recording")

    found = told(run)

    assert [one["phase"] for one in found["ranks"]] == ["idle", "running", "idle", "idle"]
    assert found["requests"][0]["request"]["id"] == request.id
    assert found["requests"][0]["states"] == {"running": 1}
    assert found["requests"][0]["ranks"][0]["first_step"] == 7
    assert found["profiles"][0]["state"] == "recording"


def test_requests_change_nothing_in_the_exit_code(run: Path) -> None:
    request = left(run)
    say(run, 1, Report(request.id, 1, "failed", reason="no space left on device"))

    assert status(run).exit_code == 0


def test_a_control_folder_that_cannot_be_used_is_told(run: Path) -> None:
    left(run)
    os.chmod(run / "control" / "requests.json", 0o666)

    assert "may be written by others" in shown(run)


def test_a_profile_s_file_that_is_damaged_is_listed(run: Path) -> None:
    (session(run) / "session.json").write_bytes(b"{")

    done = status(run)

    assert done.exit_code == 1
    assert "session.json" in done.output


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_nothing_is_wider_than_the_terminal(run: Path, columns: int) -> None:
    request = left(run, ranks="all", reason="words and words " * 20)
    for rank in range(4):
        say(run, rank, Report(request.id, rank, "failed", reason="a long story " * 20), backend=None)
        session(run, request.id, rank=rank, step=None)

    done = status(run, columns=columns)

    assert max(map(len, done.output.splitlines())) <= columns


def test_what_others_wrote_drives_no_terminal(run: Path) -> None:
    session(run, preset="\x1b[31m[bold]red", state="\x07")
    say(run, 1, backend="\x1b]0;title\x07", phase="\x1b[2J")

    output = status(run).output

    assert "\x1b" not in output
    assert "\x07" not in output


@pytest.mark.parametrize("number", [10**400, -1], ids=["long", "low"])
def test_a_rank_whose_time_cannot_be_is_shown_all_the_same(run: Path, number: int) -> None:
    file = run / "control" / "acks" / "rank1.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "host": "elsewhere", "written_ns": number}))

    assert [rank["written_ns"] for rank in told(run)["ranks"] if rank["rank"] == 1] == [0]
    assert status(run).exit_code == 0


def test_status_needs_no_torch(run: Path) -> None:
    left(run)
    program = """
        import mstxkit.cli
        try:
            mstxkit.cli.main()
        except SystemExit:
            pass
    """

    assert not lives.loads(program, "status", run, of="torch ray torch_npu")
