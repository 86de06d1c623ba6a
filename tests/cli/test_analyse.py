"""`mstxkit profiles RUN --analyse`: what it parses, what it leaves, what it says, and that it goes on."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Iterator

import pytest
from builders.raw_profiles import Bench, calls, is_gone
from builders.waiting import until

pytest.importorskip("typer")
pytest.importorskip("rich")

pytestmark = pytest.mark.days("even")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def started(bench: Bench, ctrl_c: None) -> Iterator[subprocess.Popen[str]]:
    """The command, at work on a profile that never comes to an end."""
    raw = bench.profile("hangs", rank=9)
    with subprocess.Popen(
        bench.command(), env=bench.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            until(lambda: (raw / "child").exists() or process.poll() is not None)
            yield process
        finally:
            process.kill()
            process.communicate()


def states(bench: Bench, *words: object, **environ: str) -> dict[int, str]:
    """Rank to state, as the command tells it."""
    told = json.loads(bench.analyse("--json", *words, **environ).stdout)
    return {one["rank"]: one["state"] for one in told["profiles"]}


def test_a_run_is_parsed_once(bench: Bench) -> None:
    raws = [bench.profile(rank=rank) for rank in range(3)]

    first, second = bench.analyse(), bench.analyse()

    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout.count("  parsed  ") == 3
    assert (second.returncode, second.stdout.count("  parsed  ")) == (0, 3)
    assert [len(calls(raw)) for raw in raws] == [1, 1, 1]


def test_one_that_fails_is_told_and_costs_no_other(bench: Bench) -> None:
    bench.profile("is well")
    raw = bench.profile("raises", rank=1)

    done = bench.analyse()

    assert done.returncode == 1
    assert states(bench) == {0: "parsed", 1: "failed"}
    flat = "".join(done.stdout.split())
    assert "".join(f"failed:{raw.relative_to(bench.run)}:RuntimeError:nosuchtable:x\\x1b[31m".split()) in flat
    assert str(raw.parent / "analysis.log") in flat
    assert "\x1b" not in done.stdout


def test_what_failed_is_left_until_it_is_asked_for_again(bench: Bench) -> None:
    well, raw = bench.profile("is well"), bench.profile("fails", rank=1)
    bench.analyse()
    (raw / "how").write_text("is well")

    second = bench.analyse()
    again = bench.analyse("--again", "failed")

    assert (second.returncode, len(calls(raw)) - 1) == (1, 1)
    assert "Parse what failed before once more: --again failed" in second.stdout
    assert (again.returncode, len(calls(well))) == (0, 1)
    assert states(bench, "--again", "all") == {0: "parsed", 1: "parsed"}
    assert (len(calls(well)), len(calls(raw))) == (2, 3)


def test_json_is_the_table_for_programs(bench: Bench) -> None:
    raw = bench.profile(rank=2)

    told = json.loads(bench.analyse("--json").stdout)

    (one,) = told["profiles"]
    assert told["run"] == str(bench.run)
    assert told["tools"] == {"msprof": str(bench.msprof), "torch_npu": "9.9"}
    assert (told["missing"], told["interrupted"]) == ([], False)
    assert one["profile"] == str(raw.relative_to(bench.run))
    assert one["output"] == f"{one['profile']}/ASCEND_PROFILER_OUTPUT"
    assert {two["name"] for two in one["outputs"]} == {"analyse.done", "ascend_pytorch_profiler.db", "half.csv"}
    assert (one["state"], one["now"], one["stage"], one["request"]) == ("parsed", True, "actor_update", "r2")
    assert one["seconds"] > 0


@pytest.mark.parametrize(
    ("words", "ranks"),
    [
        (["--rank", "1"], {1}),
        (["--rank", "1", "--rank", "2"], {1, 2}),
        (["--stage", "gen"], {2}),
        (["--stage", "rollout_generate"], {2}),
        (["--stage", "update_actor"], {0, 1}),
        (["--request", "r0"], {0}),
    ],
)
def test_profiles_can_be_chosen_also_by_another_name_of_their_stage(
    bench: Bench, words: list[str], ranks: set[int]
) -> None:
    for rank, stage in enumerate(("actor_update", "actor_update", "actor_generate")):
        bench.profile(stage=stage, rank=rank)

    told = states(bench, *words)

    assert told == dict.fromkeys(ranks, "parsed")


@pytest.mark.parametrize("words", [["--rank", "7"], ["--stage", "actor_updat"], ["--request", "x"]])
def test_a_choice_that_no_profile_meets_is_wrong_use(bench: Bench, words: list[str]) -> None:
    raw = bench.profile()

    done = bench.analyse(*words)

    assert done.returncode == 2
    assert "none of the 1 profiles is as asked for" in done.stderr
    assert "stages: actor_update; ranks: 0; requests: r0" in done.stderr
    assert calls(raw) == []


@pytest.mark.parametrize("words", [["--jobs", "0"], ["--time-limit", "0"], ["--again", "some"], ["--export", "x"]])
def test_wrong_use_ends_with_2(bench: Bench, words: list[str]) -> None:
    assert bench.analyse(*words).returncode == 2


def test_a_run_without_profiles_has_nothing_to_do(bench: Bench) -> None:
    done = bench.analyse()

    assert (done.returncode, done.stdout) == (0, "This run has no profiles: nothing to do.\n")


def test_what_needs_no_parsing_needs_no_tools(bench: Bench) -> None:
    raw = bench.profile(session={"backend": "torch", "output": "host_1_2.pt.trace.json"})
    raw.rename(bench.run / "away")
    (bench.packages / "torch_npu" / "__init__.py").write_text("raise ImportError")

    done = bench.analyse()

    assert done.returncode == 0
    assert "traces of torch.profiler need no parsing" in done.stdout


def test_without_msprof_it_says_what_is_missing_and_parses_what_needs_none(bench: Bench) -> None:
    raw = bench.profile()
    bench.profile(rank=1, device=False, export="text")
    bench.msprof.unlink()

    done = bench.analyse()

    assert done.returncode == 1
    assert "missing: 1 profile is not parsed: no msprof" in done.stdout
    assert "set_env.sh" in done.stdout
    assert states(bench) == {0: "not parsed", 1: "parsed"}
    assert not (raw.parent / "analysis.json").exists(), "it did not fail: it was not tried"


def test_a_framework_that_is_not_there_is_told_with_what_to_do(bench: Bench) -> None:
    bench.profile(name="host_1_20261122000000000_ascend_ms", session={"backend": "mindspore"})
    (bench.packages / "mindspore").mkdir()
    (bench.packages / "mindspore" / "__init__.py").write_text("raise ModuleNotFoundError('No module named mindspore')")

    done = bench.analyse()

    flat = " ".join(done.stdout.split())
    assert done.returncode == 1
    assert "mindspore cannot be loaded: ModuleNotFoundError: No module named mindspore; install mindspore for" in flat


def test_a_profile_that_a_framework_parsed_itself_is_not_parsed_again(bench: Bench) -> None:
    raw = bench.profile(device=False, export="text")
    output = raw / "ASCEND_PROFILER_OUTPUT"
    output.mkdir()
    (output / "analyse.done").write_text("")
    assert states(bench) == {0: "parsed"}
    assert len(calls(raw)) == 1, "torch_npu leaves this mark also where it failed"
    (raw.parent / "analysis.json").unlink()

    assert states(bench) == {0: "parsed"}
    assert len(calls(raw)) == 1
    assert "not by this command" in bench.analyse().stdout


def test_another_command_is_refused_while_one_works(bench: Bench, started: subprocess.Popen[str]) -> None:
    raw = bench.profile(rank=1)

    done = bench.analyse()

    assert done.returncode == 1
    assert f"another `mstxkit profiles --analyse` works on this run (process {started.pid} on " in done.stderr
    assert calls(raw) == []


def test_after_a_kill_of_the_whole_command_the_next_one_goes_on(bench: Bench, started: subprocess.Popen[str]) -> None:
    (raw,) = bench.run.glob("profiles/*/*/*/*/*_ascend_pt")
    child = int((raw / "child").read_text())

    started.send_signal(signal.SIGKILL)
    (raw / "how").write_text("is well")
    done = bench.analyse()

    assert (done.returncode, done.stderr) == (0, "")
    assert is_gone(child), "somebody went on behind its back"
    assert [call["left"] for call in calls(raw)] == [False, False], "half a parse was taken for the beginning"
    assert states(bench) == {9: "parsed"}


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_ends_everything_and_says_how_to_go_on(
    bench: Bench, started: subprocess.Popen[str], how: signal.Signals
) -> None:
    (raw,) = bench.run.glob("profiles/*/*/*/*/*_ascend_pt")

    started.send_signal(how)
    shown, errors = started.communicate(timeout=60)

    assert (started.returncode, errors) == (1, "")
    assert "interrupted: run the same command again to go on" in shown
    assert json.loads((raw.parent / "analysis.json").read_text())["state"] == "interrupted"
    assert until(lambda: is_gone(int((raw / "child").read_text())))
    (raw / "how").write_text("is well")
    assert states(bench) == {9: "parsed"}


def test_a_profile_that_takes_too_long_has_failed(bench: Bench) -> None:
    bench.profile("hangs")

    done = bench.analyse("--time-limit", "2")

    assert done.returncode == 1
    assert "stopped: not parsed within 2 s" in " ".join(done.stdout.split())


def on_a_terminal(bench: Bench, *words: object) -> tuple[int, str]:
    """Exit code and all that the command shows where its output is a terminal."""
    pid, terminal = pty.fork()
    if pid == 0:
        environ = bench.environment(TERM="xterm-256color", COLUMNS="110")
        os.execve(sys.executable, bench.command(*words), environ)
    shown = b""
    try:
        while part := os.read(terminal, 4096):
            shown += part
    except OSError:
        pass  # Linux tells the end of a terminal by an error
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown.decode()


def test_a_terminal_shows_how_far_it_is_and_a_pipe_does_not(bench: Bench) -> None:
    for rank in range(2):
        bench.profile(rank=rank)

    code, shown = on_a_terminal(bench)

    assert code == 0
    assert "profiles" in shown
    assert "2/2" in shown or "1/2" in shown
    assert "actor_update step 5 rank 1" in shown
    assert bench.analyse("--again", "all").stderr == ""


def test_names_that_drive_a_terminal_are_shown_escaped(bench: Bench) -> None:
    bench.profile(session={"stage": "\x1b[2Jgen[red]", "request": "r"})

    _, shown = on_a_terminal(bench)

    assert "\x1b[2Jgen" not in shown
    assert "\\x1b[2Jgen[red]" in shown


def test_a_run_that_cannot_be_written_is_refused(bench: Bench) -> None:
    bench.profile()
    (bench.run / "profiles" / "analysis.lock").mkdir()

    done = bench.analyse()

    assert done.returncode == 1
    assert "analysis.lock cannot be locked" in done.stderr


def test_the_table_and_json_say_the_same(bench: Bench) -> None:
    bench.profile()
    bench.profile("fails", rank=1)
    table = bench.analyse(COLUMNS="200").stdout

    told: dict[str, Any] = json.loads(bench.analyse("--json").stdout)

    for one in told["profiles"]:
        assert one["state"] in table
        assert Path(one["profile"]).parent.name in table
