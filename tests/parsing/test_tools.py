"""msprof is found where CANN has it, or it is said where it was looked for and what to do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from builders.raw_profiles import make_msprof

from mstxkit.parsing import tools

NOWHERE = {"PATH": "/nowhere", "HOME": "/nowhere"}
HAS_CANN = any(Path("/usr/local", home).exists() for home in tools._DEFAULT_HOMES)


def test_the_one_on_the_path_comes_first(tmp_path: Path) -> None:
    first, second = make_msprof(tmp_path / "a"), make_msprof(tmp_path / "b")

    found = tools.find_msprof({"PATH": str(first.parent), "ASCEND_HOME_PATH": str(tmp_path / "b")})

    assert (found.path, found.problem) == (str(first), "")
    assert second.exists()


@pytest.mark.parametrize("variable", ["ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"])
def test_canns_variables_lead_to_it(tmp_path: Path, variable: str) -> None:
    msprof = make_msprof(tmp_path)

    assert tools.find_msprof({**NOWHERE, variable: str(tmp_path)}).path == str(msprof)


@pytest.mark.parametrize("home", ["Ascend/cann", "Ascend/ascend-toolkit/latest"])
def test_an_installation_of_this_user_is_found(tmp_path: Path, home: str) -> None:
    msprof = make_msprof(tmp_path / home)

    assert tools.find_msprof({"PATH": "/nowhere", "HOME": str(tmp_path)}).path == str(msprof)


def test_the_link_in_bin_leads_to_the_same_tool(tmp_path: Path) -> None:
    msprof = make_msprof(tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "msprof").symlink_to(msprof)

    assert tools.find_msprof({**NOWHERE, "ASCEND_HOME_PATH": str(tmp_path)}).path == str(tmp_path / "bin" / "msprof")


@pytest.mark.skipif(HAS_CANN, reason="CANN is installed here")
def test_where_there_is_none_it_says_where_it_looked_and_what_to_do() -> None:
    found = tools.find_msprof({**NOWHERE, "ASCEND_HOME_PATH": "/opt/cann"})

    assert found.path is None
    for place in (
        "PATH",
        "$ASCEND_TOOLKIT_HOME (not set)",
        "/opt/cann/bin ($ASCEND_HOME_PATH)",
        "/usr/local/Ascend/cann",
    ):
        assert place in found.problem
    assert "set_env.sh" in found.problem
    assert "take the run's folder to a host that has it" in found.problem


@pytest.mark.skipif(HAS_CANN, reason="CANN is installed here")
def test_one_without_its_script_is_not_one_that_frameworks_use(tmp_path: Path) -> None:
    msprof = make_msprof(tmp_path)
    script = tmp_path / "tools/profiler/profiler_tool/analysis/msprof/msprof.py"
    script.unlink()

    found = tools.find_msprof({"PATH": str(msprof.parent)})

    assert found.path is None
    assert f"they look for {script}, which is not there" in found.problem


def test_a_good_one_further_on_is_taken_instead_of_a_bad_one(tmp_path: Path) -> None:
    bad = tmp_path / "bad" / "msprof"
    bad.parent.mkdir()
    bad.write_text("#!/bin/sh\n")
    bad.chmod(0o755)
    good = make_msprof(tmp_path / "good")

    assert tools.find_msprof({"PATH": str(bad.parent), "ASCEND_HOME_PATH": str(tmp_path / "good")}).path == str(good)


def test_whoever_parses_is_no_part_of_the_training_and_of_no_run() -> None:
    variables = {
        "MSTXKIT_RUN": "/r",
        "MSTXKIT_AUTOPATCH": "verl",
        "RANK": "3",
        "PROF_CONFIG_PATH": "/p",
        "PATH": "/bin",
    }

    kept = tools.make_environment({**variables, "LD_LIBRARY_PATH": "/l"}, None)

    assert kept == {
        "PATH": "/bin", "LD_LIBRARY_PATH": "/l", "MSTXKIT_OFF": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
    }  # fmt: skip


def test_an_msprof_that_is_not_on_the_path_is_put_there(tmp_path: Path) -> None:
    msprof = make_msprof(tmp_path)

    kept = tools.make_environment({"PATH": "/bin"}, str(msprof))

    assert kept["PATH"] == f"{msprof.parent}{os.pathsep}/bin"


def test_doctor_says_which_msprof_it_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("typer")
    from mstxkit.cli import _checks

    msprof = make_msprof(tmp_path)
    monkeypatch.setenv("PATH", str(msprof.parent))

    assert _checks._check_msprof() == [_checks.Check("msprof", "ok", str(msprof))]


@pytest.mark.skipif(HAS_CANN, reason="CANN is installed here")
@pytest.mark.parametrize("package", ["torch_npu", "mindspore", None])
def test_doctor_misses_msprof_only_where_something_could_be_parsed(
    monkeypatch: pytest.MonkeyPatch, package: str | None
) -> None:
    pytest.importorskip("typer")
    from mstxkit.cli import _checks

    for name in ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("HOME", "/nowhere")
    monkeypatch.setattr(_checks, "find_version", lambda name: "1" if name == package else None)

    assert [check.level for check in _checks._check_msprof()] == ([] if package is None else ["note"])
