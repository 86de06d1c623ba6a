"""`mstxkit escalate`: what is asked for is filed, explained, awaited and taken back; wrong use is told at once."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from builders.escalated_run import GONE, control, empty_run, left, run_of, say, session
from builders.run_files import BankFiles, ProcessFiles
from builders.waiting import until

pytest.importorskip("numpy")
pytest.importorskip("polars")
typer_testing = pytest.importorskip("typer.testing")

import mstxkit.cli  # noqa: E402
from mstxkit.cli import _parsing, escalate  # noqa: E402
from mstxkit.store import fate  # noqa: E402
from mstxkit.store.control_folder import ControlFolder  # noqa: E402
from mstxkit.store.fate import Asked, Progress  # noqa: E402
from mstxkit.store.report import Report  # noqa: E402
from mstxkit.store.request import Request  # noqa: E402

ROOT = Path(mstxkit.cli.__file__).parents[2]
WITHIN_S = 60


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return run_of(tmp_path / "run")


def call(*words: object) -> Any:
    return typer_testing.CliRunner().invoke(mstxkit.cli.build_application(), [str(word) for word in words])


def ask(run: Path, *words: object) -> Any:
    return call("escalate", run, "--stage", "actor_update", *words)


def asked(run: Path) -> list[Request]:
    return [one.request for one in fate.read_asked(control(run))]


def started(run: Path, *words: object, **more: Any) -> subprocess.Popen[str]:
    """As in a shell, in a process of its own, while the test goes on."""
    command = [sys.executable, "-m", "mstxkit", "escalate", str(run), *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    return subprocess.Popen(command, env=environment, text=True, **more)


def test_a_request_is_filed_and_its_id_told(run: Path) -> None:
    done = ask(run, "--ranks", "1")
    request = asked(run)[0]

    assert done.exit_code == 0
    assert request.id in done.output
    assert "1 step of actor_update, preset full, on rank 1" in done.output
    assert f"--cancel {request.id[:8]}" in done.output


def test_every_option_reaches_the_request(run: Path) -> None:
    done = call(
        "escalate", run, "--stage", "update_actor", "--stage", "actor_generate", "--ranks", "0,2-3", "--occurrences", 4,
        "--preset", "kernels", "--sample", "per=micro_batch,skip=2,record=1", "--limit-s", 30, "--limit-bytes", "2G",
        "--reason", "slow", "--expires-s", 60, "--json",
    )  # fmt: skip
    request = asked(run)[0]

    assert done.exit_code == 0
    assert json.loads(done.output) == {"schema": 1, "request": request.as_json(), "suspects": []}
    assert (request.stages, request.ranks) == (("actor_generate", "actor_update"), (0, 2, 3))
    assert (request.steps, request.occurrences, request.preset, request.reason) == (None, 4, "kernels", "slow")
    assert (request.sample, request.limits) == (("micro_batch", 2, 1), (30.0, 2 << 30))
    assert request.expires_ns - request.created_ns == 60 * 10**9


def test_options_are_set_over_a_preset(run: Path) -> None:
    words = ["level=2", "memory=true", "domains_exclude=", "activities=cpu,npu"]
    done = ask(run, "--ranks", "1", *(word for option in words for word in ("--set", option)))
    request = asked(run)[0]

    assert done.exit_code == 0
    assert request.preset == "full"
    assert dict(request.options) == {
        "level": "level2", "memory": True, "domains_exclude": (), "activities": ("cpu", "npu"),
    }  # fmt: skip
    assert "preset full with activities=cpu,npu, domains_exclude=, level=level2, memory=true" in done.output


def test_the_outcome_of_options_is_explained_with_its_size(run: Path) -> None:
    done = ask(run, "--ranks", "1", "--set", "level=0", "--explain", "--json")

    told = json.loads(done.output)
    assert told["records"].startswith("full+level=level0: level level0, activities cpu and npu, mstx")
    assert told["records"].endswith("aic_metrics of full is left out: there is none at level0")
    assert told["total_mb"] == 100 + 150 + 150


def test_ranks_that_have_not_entered_the_stage_are_told(run: Path) -> None:
    say(run, 2, stages=("reward",))
    done = ask(run, "--ranks", "all")

    assert "rank 2: nothing begins there before actor_update is entered for the first time" in done.output


def test_groups_of_ranks_are_asked_and_said(run: Path) -> None:
    for rank in range(4):
        say(run, rank, role="", groups={"dp": (rank // 2, 2), "tp": (rank % 2, 2)})
    done = ask(run, "--ranks", "peers:1, dp:0")
    explained = ask(run, "--ranks", "tp:0", "--explain")

    assert done.exit_code == 0, done.output
    assert "preset full, on peers:1,dp:0" in done.output
    assert "peers:1,dp:0: ranks 0-1, 3" in done.output
    assert [one.suspects for one in fate.read_asked(control(run))] == [(0, 1, 3)]
    assert "tp:0: ranks 0, 2" in explained.output


def test_the_same_command_twice_is_two_requests(run: Path) -> None:
    for _ in range(2):
        ask(run, "--ranks", "1")

    assert len(asked(run)) == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--stage", "actor_updat", "--ranks", "1"], "did you mean actor_update"),
        (["--stage", "actor_update", "--ranks", "9"], "0 to 3"),
        (["--stage", "actor_update", "--ranks", "1", "--sample", "per=batch"], "micro_batch, mini_batch, decode_step"),
        (["--stage", "actor_update", "--ranks", "1", "--sample", "per=micro_batch,skip=x"], "a whole number"),
        (["--stage", "actor_update", "--ranks", "suspect+peer"], "nobody can be suspected"),
        (["--stage", "actor_update", "--ranks", "dp:1"], "the dp of rank 0, 1, 2, 3 is not known"),
        (["--stage", "actor_update", "--ranks", "host:elsewhere"], "has the host 'elsewhere'; known: "),
        (["--stage", "actor_update", "--ranks", "1", "--set", "levle=1"], "did you mean level"),
        (["--stage", "actor_update", "--ranks", "1", "--set", "memory=yes"], "must be true or false"),
        (["--stage", "actor_update", "--ranks", "1", "--preset", "kernels", "--set", "shapes=true"], "activity cpu"),
        (["--cancel", "abc"], "none is open"),
    ],
)
def test_what_the_run_does_not_know_ends_with_an_error_and_nothing_is_filed(
    run: Path, words: list[str], told: str
) -> None:
    done = call("escalate", run, *words)

    assert done.exit_code in (1, 2)
    assert told in " ".join(done.output.split())
    assert asked(run) == []


@pytest.mark.parametrize(
    "words",
    [
        [], ["--stage", "actor_update"], ["--ranks", "1"],
        ["--stage", "actor_update", "--ranks", "one"], ["--stage", "actor_update", "--ranks", "3-1"],
        ["--stage", "actor_update", "--ranks", "0-999999999"], ["--stage", "actor_update", "--ranks", ""],
        ["--stage", "actor_update", "--ranks", "1", "--sample", "micro_batch"],
        ["--stage", "actor_update", "--ranks", "1", "--limit-bytes", "much"],
        ["--stage", "actor_update", "--ranks", "1", "--expires-s", "-1"],
        ["--stage", "actor_update", "--ranks", "1", "--cancel", "abc"],
    ],
)  # fmt: skip
def test_wrong_use_ends_with_2(run: Path, words: list[str]) -> None:
    assert call("escalate", run, *words).exit_code == 2
    assert asked(run) == []


def test_a_folder_that_is_not_there_or_no_run_is_left_alone(tmp_path: Path) -> None:
    assert ask(tmp_path / "nowhere", "--ranks", "1").exit_code == 2
    assert ask(tmp_path, "--ranks", "1").exit_code == 2
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("text", "meant"),
    [("500", 500), ("1k", 1024), ("2G", 2 << 30), ("1.5 GiB", 3 << 29), ("3MB", 3 << 20), ("1t", 1 << 40)],
)
def test_sizes_are_read_as_people_write_them(run: Path, text: str, meant: int) -> None:
    ask(run, "--ranks", "1", "--limit-bytes", text)

    assert asked(run)[0].limits.bytes == meant


def test_explaining_does_nothing(run: Path) -> None:
    done = ask(run, "--ranks", "1", "--explain")
    text = " ".join(done.output.split())

    assert done.exit_code == 0
    assert asked(run) == []
    assert all(word in text for word in ("who", "when", "pause", "size", "waits", "nothing was sent", "torch"))


def test_an_explanation_as_json_holds_the_same(run: Path) -> None:
    told = json.loads(ask(run, "--ranks", "all", "--explain", "--json").output)

    assert [one["rank"] for one in told["recorders"]] == [0, 1, 2, 3]
    assert told["total_mb"] == 3600
    assert told["suspects"] == []


@pytest.fixture
def uneven(run: Path) -> Path:
    """Rank 3 is slow in its last steps; before, rank 0 was."""
    for name in ("live", "sealed"):
        (run / name).mkdir()
    for rank, late_ns in enumerate((100, 110, 120, 400)):
        bank = BankFiles()
        for step in range(20):
            took_ns = late_ns if step >= 10 else (1000 if rank == 0 else 100)
            bank.range("u", step * 10_000, step * 10_000 + took_ns, stage="update_actor", own=True, step=step)
        ProcessFiles(run, 200 + rank, rank=rank).seal(bank, ended=None)
    return run


def test_suspect_and_peer_are_whom_the_verdict_blames_and_a_healthy_one(uneven: Path) -> None:
    done = ask(uneven, "--ranks", "suspect+peer")

    assert done.exit_code == 0
    assert fate.read_asked(control(uneven))[0].suspects == (1, 3)
    assert "verdict: rank 3 takes longer than the others in actor_update" in done.output
    assert "rank 1 is a healthy peer of 4" in done.output


def test_a_request_is_taken_back(run: Path) -> None:
    request = left(run)

    done = call("escalate", run, "--cancel", request.id[:6], "--reason", "no need")

    assert done.exit_code == 0
    assert fate.read_asked(control(run))[0].cancelled == "no need"


def test_what_is_taken_back_by_this_very_command_had_not_ended_before(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank answers within milliseconds, before the command looks."""
    request, send = left(run), ControlFolder.send

    def answered(control: ControlFolder, *message: Any) -> None:
        send(control, *message)
        say(run, 1, Report(request.id, 1, "cancelled"))

    monkeypatch.setattr(ControlFolder, "send", answered)

    assert "is not wanted any more; it was: queued" in call("escalate", run, "--cancel", request.id).output


def test_taking_back_what_has_ended_says_how(run: Path) -> None:
    request = left(run)
    say(run, 1, Report(request.id, 1, "done"))

    assert "had ended before: done" in call("escalate", run, "--cancel", request.id).output


def report(run: Path, state: str, **more: Any) -> Request:
    """Rank 1 says how the only request stands."""
    request: Request = until(lambda: asked(run))[0]
    say(run, 1, Report(request.id, 1, state, first_step=8, last_step=8, **more), phase=state)
    return request


def test_waiting_tells_each_state_in_a_pipe_and_ends_with_0_when_it_is_done(run: Path) -> None:
    with started(run, "--stage", "actor_update", "--ranks", "1", "--wait", stdout=subprocess.PIPE) as waiting:
        assert waiting.stdout is not None
        lines = [waiting.stdout.readline() for _ in range(3)]
        report(run, "running")
        lines.append(waiting.stdout.readline())
        folder = session(run, asked(run)[0].id)
        request = report(run, "done", recorded=1, bytes=5 << 20)
        rest = waiting.stdout.read()

    assert waiting.returncode == 0
    assert lines[2:] == ["rank 1: queued: no answer yet\n", "rank 1: running: step 8\n"]
    assert "rank 1: done: step 8; 1 session, 5.00 MiB\n" in rest
    assert rest.splitlines()[1].startswith(f"request {request.id}: done")
    assert f"{folder}  5.00 MiB\n" in rest


def test_a_request_of_many_sessions_does_not_fill_a_log(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    request = left(run)
    last: dict[int, object] = {}
    for done in range(1000):
        for state in ("armed", "running"):
            escalate._tell_changes(Progress(Asked(request), (Report(request.id, 1, state, recorded=done),)), last)

    assert len(capsys.readouterr().out.splitlines()) < 15


def test_waiting_ends_with_1_where_a_rank_failed(run: Path) -> None:
    with started(run, "--stage", "actor_update", "--ranks", "1", "--wait", stdout=subprocess.PIPE) as waiting:
        report(run, "failed", reason="no space left on device")
        told = waiting.communicate(timeout=WITHIN_S)[0]

    assert waiting.returncode == 1
    assert "no space left on device" in told


def test_waiting_ends_where_a_rank_of_another_host_died_in_its_session(run: Path) -> None:
    """Nobody here can tell that it did: its session's limit is over, and no word came since."""
    words = ("--stage", "actor_update", "--ranks", "1", "--limit-s", "1", "--wait")
    with started(run, *words, stdout=subprocess.PIPE) as waiting:
        request = until(lambda: asked(run))[0]
        say(run, 1, Report(request.id, 1, "running"), process={"host": "elsewhere"})
        file = run / "control" / "acks" / "rank1.json"
        spoken = json.loads(file.read_text())
        late_ns = int((fate.LATE_S + 2) * 1e9)
        file.write_text(json.dumps({**spoken, "written_ns": spoken["written_ns"] - late_ns}))
        told = waiting.communicate(timeout=WITHIN_S)[0]

    assert waiting.returncode == 1
    assert "failed: nothing is heard of it any more" in told


def test_waiting_ends_when_nobody_is_left(run: Path) -> None:
    with started(run, "--stage", "actor_update", "--ranks", "1", "--wait", "--json", stdout=subprocess.PIPE) as waiting:
        report(run, "armed")
        for rank in range(4):
            say(run, rank, process=GONE)
        told = json.loads(waiting.communicate(timeout=WITHIN_S)[0])

    assert waiting.returncode == 1
    assert told["states"] == {"queued": 1}


def test_what_is_waited_for_may_be_taken_back_by_somebody_else(run: Path) -> None:
    with started(run, "--stage", "actor_update", "--ranks", "1", "--wait", stdout=subprocess.PIPE) as waiting:
        call("escalate", run, "--cancel", until(lambda: asked(run))[0].id)
        told = waiting.communicate(timeout=WITHIN_S)[0]

    assert waiting.returncode == 1
    assert "cancelled" in told


def test_an_interrupt_ends_the_waiting_and_not_the_request(run: Path) -> None:
    words = ("--stage", "actor_update", "--ranks", "1", "--wait")
    with started(run, *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as waiting:
        assert waiting.stdout is not None
        while "queued" not in waiting.stdout.readline():
            pass
        waiting.send_signal(signal.SIGINT)
        _, told = waiting.communicate(timeout=WITHIN_S)

    assert waiting.returncode == 1
    assert "goes on" in told
    assert "Traceback" not in told
    assert fate.read_asked(control(run))[0].cancelled is None


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_on_a_terminal_it_draws_a_table_that_fits(run: Path, columns: int) -> None:
    ours, theirs = pty.openpty()
    words = ("--stage", "actor_update", "--ranks", "1", "--wait")
    command = [sys.executable, "-m", "mstxkit", "escalate", str(run), *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": str(columns), "TERM": "xterm"}
    seen: list[bytes] = []
    with subprocess.Popen(command, env=environment, stdout=theirs, stdin=theirs) as waiting:
        os.close(theirs)
        reader = threading.Thread(target=drained, args=(ours, seen))
        reader.start()
        report(run, "running")
        until(lambda: b"running" in b"".join(seen))
        report(run, "done", recorded=1, reason="a long word on what happened " * 4)
        waiting.wait(WITHIN_S)
        reader.join(WITHIN_S)
    os.close(ours)

    shown = b"".join(seen).decode()
    assert waiting.returncode == 0
    assert "running" in shown
    assert "done" in shown
    assert all(len(line) <= columns for line in plain(shown).splitlines() if "rank " not in line and "/" not in line)


def drained(file: int, seen: list[bytes]) -> None:
    while True:
        try:
            seen.append(os.read(file, 65536))
        except OSError:  # EIO: the other side is closed
            return


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "\n")


def test_a_run_whose_processes_have_not_said_anything_tells_when_they_do(tmp_path: Path) -> None:
    done = ask(empty_run(tmp_path / "run"), "--ranks", "1")

    assert done.exit_code == 1
    assert "first stage" in done.output


def test_after_waiting_it_parses_what_was_recorded_and_says_how_to_open_it(run: Path) -> None:
    request = left(run, occasion="parsed")
    say(run, 1, Report(request.id, 1, "done", first_step=7, last_step=7, recorded=1))
    session(run, request.id, output="host.pt.trace.json")

    wanted = _parsing.Wanted((), (), request.id, None)
    done = _parsing.analyse_profiles(run, wanted, _parsing.plan_of(), False, quiet=True)

    assert [row.profile.reason for row in done.rows.values()] == ["traces of torch.profiler need no parsing"]
    assert not done.is_wrong


def test_to_parse_it_has_to_wait(run: Path) -> None:
    done = ask(run, "--ranks", "1", "--analyse")

    assert done.exit_code == 2
    assert "add --wait" in done.output
    assert asked(run) == []
