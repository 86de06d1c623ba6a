"""Shell scripts: what depends on a condition is never guessed, and what is not known never becomes a value."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path
from typing import Any

import pytest
from builders import soak
from builders.any_config import refusal
from hypothesis import given, settings
from hypothesis import strategies as st

from mstxkit.config import shell, sources
from mstxkit.config.configuring import configure
from mstxkit.config.shell_commands import read_choices
from mstxkit.errors import ConfigError

VERL = "python3 -m verl.trainer.main_ppo global_profiler.tool=npu actor_rollout_ref.actor.profiler.enable=True"
TWO_BRANCHES = f"""\
if [ "$PROFILE" = 1 ]; then
  {VERL} global_profiler.steps=[2]
else
  python3 -m verl.trainer.main_ppo global_profiler.steps=null
fi
"""


def config_of(text: str, *branches: Any) -> Any:
    return configure(sources.from_shell(text, "run.sh", read_choices(branches)))


def refused(text: str, *branches: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        config_of(text, *branches)
    return str(caught.value)


def words_of(text: str, *branches: Any) -> list[str]:
    words, _ = shell.split_commands(text, read_choices(branches), {})
    return [word.text for word in words if word.text != shell.END]


def test_both_branches_are_named_and_neither_is_taken() -> None:
    assert refused(TWO_BRANCHES) == (
        "run.sh:1: if [ $PROFILE = 1 ]: what is configured depends on this condition: line 2 (then) or line 4 (else); "
        "choose with --branch 2 or --branch 4"
    )


@pytest.mark.parametrize(("branch", "is_on"), [(2, True), (4, False), ("not:4", True), ("not:2", False)])
def test_a_branch_is_chosen_by_a_line_of_it_or_by_one_of_the_other(branch: Any, is_on: bool) -> None:
    assert config_of(TWO_BRANCHES, branch).enabled is is_on


def test_a_condition_that_has_nothing_to_do_with_profiling_is_none_of_ours() -> None:
    text = f"if [ -z $1 ]; then\n  echo usage: $0 model\n  exit 1\nfi\n{VERL} global_profiler.steps=[2] model=$1\n"

    assert config_of(text).enabled


def test_what_a_branch_assigns_is_in_doubt_where_it_is_used() -> None:
    text = f"STEPS=null\nif [ $DEEP ]; then\n  STEPS=[2]\nfi\n{VERL} global_profiler.steps=$STEPS\n"

    assert (
        "run.sh:2: if [ $DEEP ]: what is configured depends on this condition: line 3 (then) or none of it; choose"
        in (refused(text))
    )
    assert config_of(text, 3).window.first_step == 2
    assert not config_of(text, "not:3").enabled


def test_what_is_assigned_again_afterwards_is_certain() -> None:
    text = f"if true; then\n  STEPS=[2]\nfi\nSTEPS=[4]\n{VERL} global_profiler.steps=$STEPS\n"

    assert config_of(text).window.first_step == 4


def test_a_command_behind_a_test_depends_on_it_and_one_behind_a_command_does_not() -> None:
    text = f'S=[1]\n[ "$DEEP" = 1 ] && S=[2] || S=[3]\ncd /x && {VERL} global_profiler.steps=$S\n'

    assert "line 2 (&&) or line 2 (||); choose with --branch 2 or --branch not:2" in refused(text)
    assert config_of(text, 2).window.first_step == 2
    assert config_of(text, "not:2").window.first_step == 3


CASE = f"""\
case "$1" in
  off) STEPS=null ;;
  short|"")
    STEPS=[2]
    ;;
  *) STEPS=[2,3] ;;
esac
{VERL} global_profiler.steps=$STEPS
"""


def test_every_pattern_of_a_case_is_a_branch() -> None:
    told = refused(CASE)

    assert "run.sh:1: case $1: what is" in told
    assert "line 2 (off) or line 4 (short|) or line 6 (*); choose with --branch 2 or --branch 4 or --branch 6" in told
    assert [config_of(CASE, line).window.steps for line in (4, 6)] == [1, 2]


NESTED = f"""\
if [ $A ]; then
  if [ $B ]; then
    STEPS=[1]
  elif [ $C ]; then
    STEPS=[2]
  else
    STEPS=[3]
  fi
else
  STEPS=[4]
fi
{VERL} global_profiler.steps=$STEPS
"""


def test_choosing_an_inner_branch_chooses_those_around_it() -> None:
    assert [config_of(NESTED, line).window.first_step for line in (3, 5, 7, 10)] == [1, 2, 3, 4]
    assert len(refused(NESTED, 10, "not:10").splitlines()) >= 1


def test_every_condition_in_question_is_told_at_once() -> None:
    text = (
        f"if a; then\n S=[2]\nfi\nif b; then\n P=/x\nfi\n{VERL} global_profiler.steps=$S global_profiler.save_path=$P\n"
    )

    assert [line.partition(" what")[0] for line in refused(text).splitlines()] == [
        "run.sh:1: if a:", "run.sh:4: if b:",
    ]  # fmt: skip


def test_a_line_in_no_branch_and_no_line_are_refused(tmp_path: Path) -> None:
    assert "branch 9: no branch holds this line; branches are in lines 2 to 2 (then), 4 to 4 (else)" in (
        refused(TWO_BRANCHES, 9)
    )
    assert "branch 'two': a line is needed" in refused(TWO_BRANCHES, "two")
    path = tmp_path / "a.yaml"
    path.write_text("mstxkit: {enabled: true}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"branches are chosen in a script, whose name ends in \.sh, .*\.py$"):
        sources.read_source(path, [2])


def test_options_of_a_script_in_a_branch_are_in_doubt_too(tmp_path: Path) -> None:
    text = "A=\nif [ $P ]; then\n  A='--profile --profile-level level1'\nfi\ntorchrun train.py $A --profile-ranks 0\n"

    told = refusal(("train.sh", text), tmp_path)

    assert told.startswith("train.sh:2: if [ $P ]: what is configured depends on this condition: line 3 (then)")


def test_variables_of_the_environment_are_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/root")
    monkeypatch.setenv("DEEP_ARGS", "global_profiler.steps=[7]")

    config = config_of(f"{VERL} global_profiler.save_path=$HOME/prof $DEEP_ARGS\n")

    assert (config.path, config.window.first_step) == ("/root/prof", 7)


@pytest.mark.parametrize(
    ("text", "key", "why"),
    [
        ("$NOWHERE/x", "$NOWHERE", "this variable is set neither in the file nor in this environment"),
        ("${NOWHERE}", "${NOWHERE}", "this variable is set neither"),
        ("./$(date +%m)", "$(date +%m)", "what this command yields is known only when it runs"),
        ("`date`", "`date`", "what this command yields is known only when it runs"),
        ('"./`date`"', "`date`", "what this command yields is known only when it runs"),
        ("$((1+2))", "$((1+2))", "what this command yields"),
        ("$2", "$2", "an argument of the script is not known before it runs"),
        ("${HOME%/*}", "${HOME%/*}", "mstxkit does not work this out"),
        ("$$", "$$", "mstxkit does not work this out"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_told_where_it_would_become_a_value(
    text: str, key: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOWHERE", raising=False)

    told = refused(f"{VERL} \\\n global_profiler.save_path={text} other=$NOWHERE$(date)\n")

    assert told.startswith(f"run.sh:2: {key}: {why}")
    assert len(told.splitlines()) == 1


def test_a_loops_variable_has_several_values() -> None:
    text = f"for S in 1 2; do\n  {VERL} global_profiler.steps=[$S]\ndone\n"

    assert refused(text) == "run.sh:1: $S: the variable of a loop has several values: write the one that is meant"


def test_a_quoted_dollar_is_one() -> None:
    config = config_of(f"{VERL} global_profiler.steps=[1] 'global_profiler.save_path=/a/$b`c`' \n")

    assert config.path == "/a/$b`c`"


EXPANSIONS = """\
A=1; B="two words"; EMPTY=
C=$A-x; C+=y
D='$A'
echo $A ${A} "${B}" "$EMPTY|${EMPTY:-e}|${EMPTY-e}|${NONE-n}|${NONE:-$A}|${A:+set}|${NONE:+set}"
echo "$C" "$D" \\$A "\\$A" ${NONE:-${C}}/x "a'b" 'c"d'
for I in 1; do echo done; done
f() { echo in; }
[ 1 = 1 ] && echo yes
if true; then echo then; fi
case x in x) echo x ;; esac
"""


def test_words_are_those_that_bash_makes_of_them() -> None:
    """Each `echo` of the script, as bash splits it."""
    shown = EXPANSIONS.replace("echo", "printf '%s\\n'") + "f >/dev/null\n"
    real = subprocess.run(
        ["bash", "-c", shown], capture_output=True, text=True, timeout=60, env={"PATH": "/usr/bin:/bin"}
    )
    words, _ = shell.split_commands(EXPANSIONS, environment={})
    ours, is_shown = [], False
    for word in words:
        is_shown = (is_shown or word.text == "echo") and word.text != shell.END
        ours += [word.text] if is_shown and word.text not in ("echo", "in") else []

    assert real.stderr == ""
    assert ours == real.stdout.splitlines()


def test_arrays_functions_and_appended_variables_are_read() -> None:
    text = (
        'ARGS=(--profile --profile-level level1)\nrun() {\n  torchrun x.py "${ARGS[@]}" --profile-ranks 0 1\n}\nrun\n'
    )

    config = config_of(text)

    assert (config.enabled, config.level, config.ranks) == (True, "level1", (0, 1))


pieces = st.sampled_from(
    ["if ", "then ", "else ", "elif ", "fi ", "case x in ", "esac ", "a) ", ";; ", "for i in 1; do ", "done ", "A=1 ",
     "$A ", "${A:-", "} ", "[ 1 ] ", "&& ", "|| ", "; ", "\n", "( ", ") ", "'", '"', "`", "$(", "x ", "> f ", "\\", "#"]
)  # fmt: skip


@settings(max_examples=soak.rounds(3000, 150), deadline=None)
@given(st.lists(pieces, max_size=25).map("".join), st.integers(1, 5))
def check_any(text: str, line: int) -> None:
    source = sources.from_shell(text, "f.sh")
    for word in source.words:
        shell.list_unknown(word, "f.sh")
    with contextlib.suppress(ConfigError):  # no branch holds this line
        sources.from_shell(text, "f.sh", read_choices([line]))


def test_whatever_a_script_is_it_is_read() -> None:
    check_any()
