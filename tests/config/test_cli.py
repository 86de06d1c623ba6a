"""`mstxkit config show` and `config convert`: a file's meaning, and the same for another system."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable, NamedTuple

import pytest

import mstxkit.cli

RL = """profiler_config:
  integrated:
    profile: true
    stage: actor_update
    profile_level: level1
    profile_step_start: 5
    profile_step_end: 7
    profile_ranks: [0]
"""


Run = Callable[..., "Ended"]
Shown = Callable[..., Any]


@pytest.fixture
def rl(tmp_path: Path) -> str:
    path = tmp_path / "rl.yaml"
    path.write_text(RL, encoding="utf-8")
    return str(path)


class Ended(NamedTuple):
    """How a command ended."""

    exit_code: int
    stdout: str
    stderr: str


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """`mstxkit config WORDS`, in this process."""

    def command(*words: str) -> Ended:
        with pytest.raises(SystemExit) as caught:
            mstxkit.cli.build_application()(["config", *words], prog_name="mstxkit")
        return Ended(int(caught.value.code or 0), *capsys.readouterr())

    return command


@pytest.fixture
def shown(run: Run) -> Shown:
    """What a command gives with --json."""

    def command(*words: str) -> Any:
        found = run(*words, "--json")
        assert found.exit_code == 0, found.stderr
        return json.loads(found.stdout)

    return command


def test_show_makes_every_field_explicit_and_says_where_it_was_given(
    rl: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    found = run("show", rl)

    rows = {line.split()[0]: line.split()[1:] for line in found.stdout.splitlines()[2:]}
    assert found.exit_code == 0
    assert found.stdout.startswith(f"{rl}: mindspeed_rl\n")
    assert rows["window.first_step"] == ["5", "6", "profiler_config.integrated.profile_step_start"]
    assert rows["level"] == ["level1", "5", "profiler_config.integrated.profile_level"]
    assert rows["export"] == ["text", "default"]


def test_show_as_json_is_the_whole_configuration(rl: str, shown: Shown) -> None:
    found = shown("show", rl)

    assert (found["source"], found["flavour"]) == (rl, "mindspeed_rl")
    assert found["config"]["window"]["steps"] == 2
    assert found["config"]["stages"] == ["actor_update"]
    assert found["places"]["ranks"] == {"file": rl, "line": 8, "key": "profiler_config.integrated.profile_ranks"}
    assert found["warnings"] == ["no warm-up step: the first recorded step holds the profiler's own start"]


def test_convert_writes_the_text_alone_to_standard_output(rl: str, run: Run) -> None:
    found = run("convert", rl, "--to", "mstxkit")

    assert found.exit_code == 0
    assert found.stdout.startswith("mstxkit:\n  enabled: true\n")
    assert "warning: no warm-up step" in found.stderr


def test_convert_lists_what_the_target_cannot_express(rl: str, run: Run) -> None:
    found = run("convert", rl, "--to", "verl")

    told = [line.partition("=")[0] for line in found.stderr.splitlines() if line.startswith("verl cannot express")]
    assert found.exit_code == 0
    assert told == [
        f"verl cannot express {field}"
        for field in ("window.counted_from", "stages", "mstx", "domains_exclude", "export")
    ]  # fmt: skip


def test_convert_as_json_holds_text_and_losses(rl: str, shown: Shown) -> None:
    found = shown("convert", rl, "--to", "verl")

    assert found["to"] == "verl"
    assert "global_profiler:" in found["text"]
    assert {"field": "export", "value": "text", "why": 'always db (verl 0.6.1: text); it becomes "db"'} in found["lost"]


def test_a_converted_file_can_be_shown_again(rl: str, tmp_path: Path, run: Run, shown: Shown) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(run("convert", rl, "--to", "mstxkit").stdout, encoding="utf-8")

    assert shown("show", str(path))["config"] == shown("show", rl)["config"]


def test_a_bad_file_ends_with_1_and_every_problem(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(RL.replace("level1", "levl1").replace("profile: true", "profile: sure"), encoding="utf-8")

    found = run("show", str(path))

    first, second = found.stderr.splitlines()
    assert found.exit_code == 1 and "Ends with 1 where it is wrong" in run("show", "--help").stdout
    assert first.startswith(f"mstxkit: {path}:3: profiler_config.integrated.profile='sure': not a flag")
    assert "did you mean level1?" in second


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("show", "nowhere.yaml"), "mstxkit: nowhere.yaml: No such file or directory"),
        (("convert", "nowhere.yaml", "--to", "nothing"), "mstxkit: --to nothing: choose one of dyno, mindspeed_llm"),
        (("show", "nowhere.toml"), "mstxkit: nowhere.toml: No such file or directory"),
    ],
)
def test_wrong_use_ends_with_2(words: tuple[str, ...], message: str, run: Run) -> None:
    found = run(*words)

    assert found.exit_code == 2
    assert found.stderr.startswith(message)


def test_a_flavour_can_be_asked_for_where_a_file_holds_several(tmp_path: Path, run: Run, shown: Shown) -> None:
    path = tmp_path / "both.yaml"
    path.write_text(RL + "global_profiler: {tool: npu, steps: [3]}\n", encoding="utf-8")

    assert run("show", str(path)).exit_code == 2
    assert shown("show", str(path), "--from", "verl")["config"]["window"]["first_step"] == 3


def test_the_environment_of_this_shell_can_be_shown(monkeypatch: pytest.MonkeyPatch, shown: Shown) -> None:
    monkeypatch.setenv("MS_PROFILER_OPTIONS", '{"start": true, "output_path": "/data"}')

    found = shown("show", "env")

    assert (found["flavour"], found["config"]["path"]) == ("mindspore_env", "/data")


def test_what_a_file_says_cannot_drive_the_terminal(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "own.yaml"
    path.write_text('mstxkit: {path: "\\e[31m[bold]x"}\n', encoding="utf-8")

    found = run("show", str(path))

    assert "\x1b" not in found.stdout
    assert "[bold]x" in found.stdout


def test_help_names_both_commands(run: Run) -> None:
    found = run("--help")

    assert "show" in found.stdout
    assert "convert" in found.stdout


@pytest.fixture
def script(tmp_path: Path) -> str:
    """A launch script of verl with two branches."""
    path = tmp_path / "run.sh"
    verl = "python3 -m verl.trainer.main_ppo global_profiler.tool=npu actor_rollout_ref.actor.profiler.enable=True"
    branches = f"then\n  {verl} global_profiler.steps=[2]\nelse\n  {verl} global_profiler.steps=null\nfi\n"
    path.write_text(f'if [ "$PROFILE" = 1 ]; {branches}', encoding="utf-8")
    return str(path)


def test_a_branch_of_a_script_is_chosen_and_never_guessed(script: str, run: Run, shown: Shown) -> None:
    ended = run("show", script)

    assert ended.exit_code == 1
    assert "line 2 (then) or line 4 (else); choose with --branch 2 or --branch 4" in ended.stderr
    assert [shown("show", script, "--branch", line)["config"]["enabled"] for line in ("2", "4")] == [True, False]
    assert run("show", script, "--branch", "9").exit_code == 2


def test_the_form_of_an_older_verl_is_written(rl: str, run: Run) -> None:
    ended = run("convert", rl, "--to", "verl", "--verl-version", "0.5.0")

    assert "profile_steps: [5, 6]" in ended.stdout
    assert "verl_0_5 cannot express window.counted_from" in ended.stderr
    assert run("convert", rl, "--to", "verl", "--verl-version", "old").exit_code == 2


def test_writing_may_add_what_its_user_must_know(rl: str, run: Run, shown: Shown) -> None:
    note = "write 4 and 5"

    assert note in run("convert", rl, "--to", "mindspore").stderr
    assert any(note in one for one in shown("convert", rl, "--to", "mindspore")["notes"])
