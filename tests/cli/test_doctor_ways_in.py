"""`mstxkit doctor` on the ways into other processes: what is there, what is not, and what to do about it."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sysconfig
from pathlib import Path

import pytest
from builders import interpreters

pytest.importorskip("typer")

from mstxkit.cli import _checks
from mstxkit.cli._checks import NOTE, OK, WRONG


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    interpreters.make(tmp_path / "venv")
    return tmp_path / "venv"


def doctor(venv: Path, cwd: Path | None = None, **variables: str) -> tuple[int, dict[str, tuple[str, str]]]:
    """Status, and level and detail of each check by its name."""
    environment = {**interpreters.Program(venv / "bin/python", venv).environment(), **variables}
    environment = {k: v for k, v in environment.items() if k not in ("MSTXKIT_RUN", "MSTXKIT_AUTOPATCH", "PYTHONPATH")}
    command = [venv / "bin/python", "-m", "mstxkit", "doctor", "--json"]
    done = subprocess.run(command, env={**environment, **variables}, cwd=cwd or venv, capture_output=True, text=True)
    # A wrong name is told by every process that imports mstxkit, doctor among them.
    assert [line for line in done.stderr.splitlines() if "MSTXKIT_AUTOPATCH=" not in line] == []
    return done.returncode, {one["name"]: (one["level"], one["detail"]) for one in json.loads(done.stdout)["checks"]}


def test_a_pth_file_in_place_is_found_and_tried(venv: Path) -> None:
    status, checks = doctor(venv)

    assert status == 0
    assert checks["mstxkit.pth"] == (OK, str(interpreters.site_of(venv) / "mstxkit.pth"))


def test_without_it_doctor_says_what_that_means_and_what_to_do(venv: Path) -> None:
    (interpreters.site_of(venv) / "mstxkit.pth").unlink()
    status, checks = doctor(venv)
    level, detail = checks["mstxkit.pth"]

    assert (status, level) == (0, NOTE)
    assert "only processes that import mstxkit take part" in detail
    assert str(interpreters.PTH) in detail


def test_one_of_another_version_is_wrong(venv: Path) -> None:
    (interpreters.site_of(venv) / "mstxkit.pth").write_text("import os\n")
    status, checks = doctor(venv)

    assert (status, checks["mstxkit.pth"][0]) == (1, WRONG)
    assert "another version" in checks["mstxkit.pth"][1]


def test_one_that_does_nothing_in_a_new_interpreter_is_wrong(venv: Path) -> None:
    """mstxkit is found in the current folder alone, which interpreters look into only later."""
    (interpreters.site_of(venv) / "a-source.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    status, checks = doctor(venv, cwd=interpreters.ROOT)

    assert (status, checks["mstxkit.pth"][0]) == (1, WRONG)
    assert "does not act on it" in checks["mstxkit.pth"][1]


def test_entry_points_are_found_once_the_package_is_installed(venv: Path) -> None:
    info = {"METADATA": "Metadata-Version: 2.1\nName: mstxkit\nVersion: 0\n"}
    info["entry_points.txt"] = "".join(f"[{group}]\nmstxkit = mstxkit.x\n" for group in _checks.GROUPS)
    interpreters.write(interpreters.site_of(venv), {f"mstxkit-0.dist-info/{name}": text for name, text in info.items()})
    level, detail = doctor(venv)[1]["entry points"]

    assert level == OK
    assert "verl.plugins" in detail


def test_entry_points_of_an_older_installation_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_checks, "GROUPS", ("no.such.group",))
    check = _checks.entry_points()

    assert check.level == NOTE
    assert "no.such.group" in check.detail


def test_a_framework_that_nobody_knows_is_wrong(venv: Path) -> None:
    status, checks = doctor(venv, MSTXKIT_AUTOPATCH="verl,verll")

    assert (status, checks["MSTXKIT_AUTOPATCH"][0]) == (1, WRONG)
    assert "did you mean verl" in checks["MSTXKIT_AUTOPATCH"][1]


def test_limits_of_the_recorder_are_settings() -> None:
    (check,) = _checks.check_environment({"MSTXKIT_BANK_BYTES": "65536"})

    assert check.level == OK


def test_a_cluster_that_answers_is_told_from_one_that_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        monkeypatch.setenv("RAY_ADDRESS", address)
        (answered,) = _checks.check_cluster()
    (unanswered,) = _checks.check_cluster()

    assert (answered.level, unanswered.level) == (OK, NOTE)
    assert answered.detail.startswith(f"{address} answers")


def test_without_a_cluster_nothing_is_said_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_checks, "CLUSTER_FILE", "/no/such/file")
    for address in ("", "auto", "local"):
        monkeypatch.setenv("RAY_ADDRESS", address)

        assert _checks.check_cluster() == []


def test_whatever_the_package_depends_on_is_looked_for() -> None:
    project = (Path(__file__).resolve().parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    (listed,) = re.findall(r"^dependencies = \[(.*)\]$", project, re.MULTILINE)
    optional = re.findall(r"^(?:cli|report) = \[(.*)\]$", project, re.MULTILINE)

    assert set(re.findall(r'"([a-z]+)', listed)) == set(_checks.NEEDED)
    assert len(optional) == 2
    assert set(re.findall(r'"([a-z]+)', ", ".join(optional))) - {"mstxkit"} <= set(_checks.OPTIONAL)
