"""Whatever a run is, each verb that reads it ends with one of its own codes, and says what it could not read and where.

What stands on a terminal is short and drives it nowhere, whatever the names are.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any, Callable

import pytest
from builders.odd_runs import CASES, DAMAGED, names, not_readable, one_range
from builders.run_files import new_run

pytest.importorskip("numpy")
pytest.importorskip("polars")
from typer.testing import CliRunner

from mstxkit import cli, open_run

pytestmark = pytest.mark.days("odd")

VERBS = (
    "report RUN", "report RUN --all", "report RUN --json", "report RUN --html page.html", "status RUN",
    "status RUN --json", "top RUN", "top RUN --once", "top RUN --json",
    "compare RUN --before 0:0 --after 1:1", "compare RUN OTHER --json", "collect RUN --compact", "report RUN",
    "report RUN --json", "profiles RUN --analyse", "profiles RUN", "collect RUN", "import --run RUN",
    "escalate RUN --stage a --ranks suspect+peer --preset full --explain",
)  # fmt: skip
CODES = {0, cli.FOUND_WRONG, cli.WRONG_USE}
DRIVES = re.compile("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]")


def ran(command: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(place)
    words = command.split()
    return CliRunner().invoke(cli.build_application(words[0]), words)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    one_range(new_run(tmp_path / "OTHER"))
    return tmp_path


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.__name__))
def test_every_verb_ends_by_itself_and_says_it_in_short(
    place: Path, case: Callable[[Path], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    case(new_run(place / "RUN"))

    for command in VERBS:
        done = ran(command, place, monkeypatch)
        raised = done.exception if not isinstance(done.exception, SystemExit) else None
        assert (raised, done.exit_code in CODES) == (None, True), f"{command}: {done.output[-2000:]}"
        assert DRIVES.findall(done.output) == [] and "\\x0a" not in done.output, command
        assert len(done.output) < 200_000 or "--json" in command, command
    assert (place / "page.html").stat().st_size < 6 << 20


@pytest.mark.parametrize("case", DAMAGED[:-1], ids=lambda case: str(case.__name__))
def test_what_is_damaged_is_named_by_every_table_and_the_rest_is_shown(
    place: Path, case: Callable[[Path], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = case(new_run(place / "RUN"))

    for command in ("report RUN", "report RUN --json"):
        done = ran(command, place, monkeypatch)
        assert (done.exit_code, file in done.output.replace("\n", "")) == (1, True), f"{command}: {done.output}"
        assert "rank 0" in done.output or '"rank": 0' in done.output
    assert ran("report RUN --html page.html", place, monkeypatch).exit_code == 1
    assert file in (place / "page.html").read_text(encoding="utf-8")


@pytest.mark.skipif(os.geteuid() != 0, reason="another user is needed")
def test_what_this_user_may_not_read_is_named_and_the_rest_is_shown(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = not_readable(new_run(place / "RUN"))
    for folder in (place / "RUN", *(path for path in (place / "RUN").rglob("*") if path.is_dir())):
        folder.chmod(0o755)
    (place / "RUN" / "sealed" / file.replace("101", "100")).chmod(0o644)
    ran("report OTHER", place, monkeypatch)  # imports what another user may not
    monkeypatch.chdir(place / "RUN")
    os.seteuid(65534)
    try:
        done = CliRunner().invoke(cli.build_application("report"), ["report", "."])
    finally:
        os.seteuid(0)

    assert done.exit_code == cli.FOUND_WRONG, done.output
    assert file in done.output and "Permission denied" in done.output
    assert "rank 0" in done.output


def test_names_of_any_kind_are_the_same_names_after_they_were_compacted(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names(new_run(place / "RUN"))
    before = sorted(open_run(place / "RUN").ranges()["name"])
    done = ran("collect RUN --compact --remove", place, monkeypatch)

    assert done.exit_code == 0, done.output
    assert not list((place / "RUN" / "sealed").glob("*.mxs"))
    assert sorted(open_run(place / "RUN").ranges()["name"]) == before


def test_a_run_may_be_named_by_a_link(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one_range(new_run(place / "RUN"))
    (place / "latest").symlink_to("RUN")
    shutil.rmtree(place / "OTHER")

    for verb in ("report {}", "status {}", "top {}", "top {} --once", "profiles {}", "import --run {}"):
        done, same = (ran(verb.format(name), place, monkeypatch) for name in ("latest", "RUN"))
        assert done.exit_code == same.exit_code == 0, done.output


@pytest.mark.parametrize(
    "verb", [*VERBS, "export RUN --to csv -o out", "report RUN --open --no-browser", "status RUN --incident"]
)
@pytest.mark.parametrize("is_there", [False, True])
def test_every_verb_says_in_the_same_words_that_a_folder_is_no_run(
    place: Path, verb: str, is_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_there:
        (place / "RUN").mkdir()
    done = ran(verb, place, monkeypatch)

    why = "not a run: it has neither run.json nor sealed/ nor live/" if is_there else "no such folder"
    said = f"mstxkit: RUN: {why}; a run is the folder that was given to capture() or MSTXKIT_RUN\n"
    assert (done.exit_code, done.output) == (cli.WRONG_USE, said)
    assert not is_there or os.listdir(place / "RUN") == []


def test_a_folder_of_runs_is_none_but_says_which_there_are(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c", "\x1b[31m"):
        one_range(new_run(place / name))
    (place / "RUNS").symlink_to(place)
    done = ran("report RUNS", place, monkeypatch)

    assert done.exit_code == cli.WRONG_USE
    assert "live/; runs in it: 2 more and a, b, c; a run is" in done.output


@pytest.mark.parametrize("verb", ["top RUN", "top RUN --once", "profiles RUN", "collect RUN", "import --run RUN"])
def test_a_run_that_does_not_say_its_id_is_a_damaged_one(
    place: Path, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (new_run(place / "RUN") / "run.json").write_text("{")
    done = ran(verb, place, monkeypatch)

    assert done.exit_code == cli.WRONG_USE and "RUN: a damaged run: its run.json does not say its id;" in done.output
