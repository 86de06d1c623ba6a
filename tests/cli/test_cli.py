"""The command line: verbs found by listing, exit codes, plain errors, JSON, and nothing heavy loaded to show help."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from builders import lives
from builders.run_files import RUN_ID, BankFiles, ProcessFiles, new_run

pytest.importorskip("numpy")
pytest.importorskip("polars")
typer_testing = pytest.importorskip("typer.testing")

import mstxkit.cli  # noqa: E402
from mstxkit.cli import _checks  # noqa: E402
from mstxkit.host import folders  # noqa: E402
from mstxkit.recorder import adopt  # noqa: E402
from mstxkit.store import run_file  # noqa: E402


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return new_run(tmp_path / "run")


@pytest.fixture
def good(run: Path) -> Path:
    bank = (
        BankFiles().range("gen", 0, 5_000_000, stage="gen", own=True, step=0).range("gen", 6_000_000, 7_000_000, step=1)
    )
    ProcessFiles(run, 42, host="h", role="actor").seal(bank)
    return run


@pytest.fixture
def bad(good: Path) -> Path:
    inside = [{"name": "fatal", "domain": "d", "start": 0}]
    ProcessFiles(good, 43, rank=1, host="h").seal(inside=inside, ended="killed")
    return good


def call(*words: object) -> Any:
    return typer_testing.CliRunner().invoke(mstxkit.cli.build_application(), [str(word) for word in words])


def typed(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """As in a shell, in a process of its own."""
    root = str(Path(mstxkit.cli.__file__).parents[2])
    inherited = {**os.environ, "PYTHONPATH": root, "COLUMNS": "100", **environment}
    command = [sys.executable, "-W", "error", "-m", "mstxkit", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env=inherited, timeout=60)


def test_every_verb_of_the_folder_is_a_command_with_help() -> None:
    help_text = call("--help").output

    shown = re.findall(r"^  ([a-z]+)  ", help_text.partition("Commands:")[2], re.MULTILINE)
    assert sorted(shown) == sorted(WORDS)
    assert len({*shown} - {"demo"}) <= 12
    assert shown[:6] == ["run", "status", "report", "top", "escalate", "compare"], "everyday ones come first"
    for verb in WORDS:
        assert call(verb, "--help").exit_code == 0


WORDS = [verb.rstrip("_") for verb in mstxkit.cli.list_verbs()]
COMMANDS = [[word] for word in WORDS if word != "config"] + [["config", "show"], ["config", "convert"]]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_has_one_line_as_an_example_whose_options_there_are(words: list[str]) -> None:
    """In a terminal of 80 columns."""
    lines = (
        typer_testing.CliRunner()
        .invoke(mstxkit.cli.build_application(), [*words, "--help"], terminal_width=80)
        .output.splitlines()
    )

    assert max(map(len, lines)) <= 80
    (example,) = (line.strip() for line in lines if line.startswith("  Example: "))
    assert f"{example} ".startswith(f"Example: mstxkit {' '.join(words)} ")
    mine, _, _ = example.partition(" -- ")
    assert {word for word in mine.split() if word.startswith("-")} <= offered(lines)


def offered(lines: list[str]) -> set[str]:
    """Options that a help shows."""
    return {word.strip(",") for line in lines if line.startswith("  -") for word in line.split()[:2] if word[0] == "-"}


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_shows_eight_options_at_most_and_help_all_every_one(words: list[str]) -> None:
    command = pytest.importorskip("typer.main").get_command(mstxkit.cli.build_application())
    for word in words:
        command = command.commands[word]
    every = {option.opts[-1] for option in command.params if option.opts[0].startswith("-")}
    few, whole = (call(*words, form).output.splitlines() for form in ("--help", "--help-all"))

    assert sum(line.startswith("  -") for line in few) <= 8
    assert offered(few) < offered(whole) | {"--help-all"}
    assert offered(whole) - {"-o"} == every | {"-h", "--help"}
    assert any(line.startswith("  Example: ") for line in whole)


def test_options_of_a_command_that_is_run_are_its_own(tmp_path: Path) -> None:
    done = typed(
        "run", "--run", tmp_path / "run", "--", sys.executable, "-c", "print(__import__('sys').argv)", "--help-all"
    )

    assert "'--help-all'" in done.stdout


@pytest.mark.parametrize("columns", [60, 80, 160])
def test_help_is_as_wide_as_the_terminal(columns: int) -> None:
    lines = typed("report", "--help", COLUMNS=str(columns)).stdout.splitlines()

    assert 0.8 * columns < max(map(len, lines)) <= columns


@pytest.mark.parametrize("word", ["watch", "open", "analyse", "compact", "patches"])
def test_verbs_that_went_into_others_are_gone(word: str) -> None:
    done = typed(word, "x")

    assert done.returncode == 2
    assert f"No such command '{word}'" in done.stderr


def test_help_is_whole_at_80_columns_and_says_the_exit_codes() -> None:
    done = typed("--help", COLUMNS="80")

    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "..." not in done.stdout.replace("[ARGS]...", "")
    assert "Exit codes: 0 done, 1 found something wrong, 2 wrong use" in done.stdout


def test_help_loads_nothing_heavy() -> None:
    program = """
        import mstxkit.cli, sys
        try:
            mstxkit.cli.main()
        except SystemExit as end:
            assert not end.code
    """

    assert not lives.loads(program, "--help", of="torch numpy polars ray torch_npu")


def test_report_of_a_good_run_ends_with_0_and_of_a_killed_one_with_1(good: Path) -> None:
    assert call("report", good).exit_code == 0
    ProcessFiles(good, 43).seal(inside=[{"name": "fatal", "domain": "d", "start": 5}], ended="killed")

    assert call("report", good).exit_code == 1


def test_report_shows_the_table(bad: Path) -> None:
    output = call("report", bad).output

    assert "5.00 ms" in output
    assert "rank 1 was killed in fatal" in output


def test_report_as_json_holds_the_same(bad: Path) -> None:
    found = json.loads(call("report", bad, "--json").output)

    assert found["stages"][0]["ranks"][0]["total_ns"] == 5_000_000
    assert found["endings"][0]["processes"][0]["inside"][0]["name"] == "fatal"


def test_status_shows_each_process_and_its_state(bad: Path) -> None:
    done = call("status", bad)
    states = [p["state"] for p in json.loads(call("status", bad, "--json").output)["processes"]]

    assert done.exit_code == 1
    assert "killed" in done.output
    assert states == ["ended", "killed"]


def test_status_calls_each_process_by_its_label(good: Path) -> None:
    for pid, part in ((43, "dataloader 0"), (44, "dataloader 1")):
        ProcessFiles(good, pid, host="h", role="actor", part=part, under="dataloader").seal()

    lines = call("status", good).output.splitlines()

    labels = ["rank 0 actor", "rank 0 actor dataloader 0", "rank 0 actor dataloader 1"]
    assert [line.partition("  ")[0] for line in lines[1:4]] == labels


def test_status_of_an_empty_run_says_so(run: Path) -> None:
    done = call("status", run)

    assert (done.exit_code, done.output) == (0, "No process has written to this run yet.\n")


def test_status_without_a_run_is_this_installation() -> None:
    found = {check["name"] for check in json.loads(call("status", "--json").output)["checks"]}

    assert {"mstxkit", "engine", "tmpfs", "polars"} <= found


@pytest.mark.parametrize(
    "words",
    [
        ("nonsense",),
        ("report",),
        ("report", "x", "--step", "1"),
        ("export", ".", "--to", "vhs"),
        ("import", "profiles"),
        ("doctor", "verl"),
        ("doctor", "--import"),
        ("collect", ".", "--remove"),
        ("collect", ".", "--compact", "--ray", "--host", "a"),
        ("top", ".", "--metrics", "off"),
    ],
    ids=" ".join,
)
def test_wrong_use_ends_with_2(words: tuple[str, ...]) -> None:
    assert call(*words).exit_code == 2


def test_an_export_that_cannot_be_written_ends_with_1_and_leaves_nothing(good: Path, tmp_path: Path) -> None:
    done = call("export", good, "--to", "chrome", "-o", tmp_path / "none" / "t.json")

    assert done.exit_code == 1
    assert "cannot be written" in done.output


def test_doctor_finds_nothing_wrong_here() -> None:
    done = call("doctor")

    assert done.exit_code == 0, done.output
    assert "engine" in done.output


def test_doctor_tells_what_killed_processes_left_in_memory_and_of_none_that_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "SHARED_MEMORY", str(tmp_path))
    processes = [lives.start(lives.DIES, tmp_path / run, MSTXKIT_LIVE_FOLDER=str(tmp_path)) for run in ("a", "b")]
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    while_both_live = _checks.left_in_memory()
    lives.killed(processes[0])
    (check,) = _checks.left_in_memory()
    lives.killed(processes[1])

    assert not while_both_live
    assert check.detail.partition(";")[0].endswith(" MiB of killed processes, runs with none that lives here: 1")
    command = check.detail.partition("take it away: ")[2]
    assert command == f"cd {folders.in_shared_memory()} && rm -r {run_file.id_of(tmp_path / 'a')}"
    adopt.collect_dead(tmp_path / "b")
    subprocess.run(command, shell=True, check=True)
    assert not _checks.left_in_memory() and not list(folders.in_shared_memory().iterdir())


def test_doctor_says_why_it_runs_on_the_twin() -> None:
    done = typed("doctor", "--json", MSTXKIT_NATIVE="0")

    (engine,) = [check for check in json.loads(done.stdout)["checks"] if check["name"] == "engine"]

    assert done.returncode == 0
    assert engine["level"] == "note"
    assert "MSTXKIT_NATIVE=0" in engine["detail"]


def test_doctor_ends_with_1_where_a_wrong_choice_of_an_engine_is_ignored() -> None:
    done = typed("doctor", "--json", MSTXKIT_NATIVE="yes")

    (choice,) = [check for check in json.loads(done.stdout)["checks"] if check["name"] == "MSTXKIT_NATIVE"]

    assert (done.returncode, choice["level"]) == (1, "wrong")
    assert choice["detail"] == "'yes' is ignored: 1 requires the C engine, 0 forbids it"


def test_doctor_ends_with_1_if_the_run_of_the_environment_is_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MSTXKIT_RUN", str(tmp_path / "file"))

    assert call("doctor").exit_code == 1


def test_a_variable_that_is_no_setting_is_noted() -> None:
    checks = _checks.check_environment({"MSTXKIT_RUNS": "x", "MSTXKIT_OFF": "1", "MSTXKIT_ROLE": "actor", "HOME": "/"})

    assert [(check.name, check.level) for check in checks] == [
        ("MSTXKIT_OFF", "note"),
        ("MSTXKIT_ROLE", "ok"),
        ("MSTXKIT_RUNS", "note"),
    ]


def test_a_near_name_is_offered_for_one_that_is_no_setting() -> None:
    (check,) = _checks.check_environment({"MSTXKIT_HANGS": "x"})

    assert "did you mean MSTXKIT_HANG_S?" in check.detail


@pytest.mark.parametrize(("name", "value", "words"), [
    ("HANG_S", "abc", "a number is needed"), ("HANG_S", "0.1", "seconds from 0.5"), ("ACT", "on", "one of observe"),
    ("BANKS", "1", "an int of at least 2"), ("BANKS", "2.5", "a whole number"), ("LIGHT", "rubbish", "no schedule"),
    ("SEALED", "disk", "local:/a/folder"), ("METRICS", "zz", "one of auto"), ("CONFIG", "/no/such.yaml", "is no file"),
])  # fmt: skip
def test_a_value_with_which_nothing_would_be_recorded_is_wrong(name: str, value: str, words: str) -> None:
    (check,) = _checks.check_environment({f"MSTXKIT_{name}": value})

    assert check.level == "wrong"
    assert words in check.detail


def test_no_key_in_an_address_is_shown() -> None:
    (check,) = _checks.check_environment({"MSTXKIT_METRICS": "otlp:http://me:secret@host:4318"})

    assert check.level == "wrong"
    assert "secret" not in check.detail


def test_what_a_process_hands_on_to_its_children_is_no_mistake(run: Path) -> None:
    """As `doctor` finds it in a shell or a notebook that a recorded program has started."""
    inherited = lives.run(
        """
        import json, os, sys, mstxkit
        with mstxkit.capture(sys.argv[1], hang_s=60, judge=0, rings=True, flops_per_token={"actor_update": 6e9}):
            print(json.dumps({name: value for name, value in os.environ.items() if name.startswith("MSTXKIT_")}))
        """,
        run,
    )
    checks = _checks.check_environment(json.loads(inherited))

    assert [check for check in checks if check.level != "ok"] == []
    assert {"MSTXKIT_RUN", "MSTXKIT_RUN_ID", "MSTXKIT_JOB", "MSTXKIT_HANG_S"} <= {check.name for check in checks}


def test_collect_of_a_run_without_killed_processes_finds_nothing(good: Path) -> None:
    done = call("collect", good)

    assert (done.exit_code, done.output) == (0, "nothing to collect on this host\n")


def test_collect_seals_what_a_killed_process_left(run: Path) -> None:
    killed = ProcessFiles(run, 99)
    path = killed.live(BankFiles().range("last", 0, 1))
    home = path.parent / RUN_ID
    home.mkdir()
    killed.point_to(path.rename(home / path.name))

    found = json.loads(call("collect", run, "--json").output)

    assert [(one["name"], one["records"]) for one in found["sealed"]] == [(killed.name, 1)]
    assert json.loads(call("report", run, "--json").output)["states"] == {"killed": 1}


def test_a_pipe_gets_no_colour_and_a_terminal_gets_the_same_words(bad: Path) -> None:
    piped = typed("report", bad).stdout
    shown = on_a_terminal("report", str(bad))

    assert "\x1b" not in piped
    assert "\x1b[" in shown
    assert "was killed" in piped
    assert "was killed" in shown


def test_an_encoding_without_the_names_characters_shows_escapes(run: Path) -> None:
    ProcessFiles(run).seal(BankFiles().range("重排", 0, 1, stage="重排", own=True))

    done = typed("report", run, PYTHONIOENCODING="ascii", PYTHONUTF8="0")

    assert done.returncode == 0, done.stderr
    assert "\\u91cd" in done.stdout


def on_a_terminal(*words: str) -> str:
    """What the command writes to a terminal of 100 columns."""
    main, child = pty.openpty()
    root = str(Path(mstxkit.cli.__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": root, "COLUMNS": "100", "TERM": "xterm-256color"}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen([sys.executable, "-m", "mstxkit", *words], stdout=child, stderr=child, env=environment)
    os.close(child)
    shown = b""
    try:
        while piece := os.read(main, 65536):
            shown += piece
    except OSError:
        pass  # the other end is closed: the command has ended
    os.close(main)
    process.wait(timeout=60)
    return shown.decode()


def test_a_command_is_no_process_of_the_run_it_looks_at(tmp_path: Path) -> None:
    """MSTXKIT_RUN is still set in the shell from which the run was started."""
    environment = {**os.environ, "MSTXKIT_RUN": str(tmp_path / "run")}
    record = "import mstxkit\nwith mstxkit.mstx_range('x'): pass"
    subprocess.run([sys.executable, "-c", record], env=environment, check=True)
    command = [sys.executable, "-m", "mstxkit", "status", str(tmp_path / "run"), "--json"]
    told = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)

    assert [process["state"] for process in json.loads(told.stdout)["processes"]] == ["ended"]
    assert len(list((tmp_path / "run" / "sealed").iterdir())) == 1
