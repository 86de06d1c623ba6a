"""The real torch_npu parses what the real torch_npu recorded, both on stand-ins for CANN: no data of a device.

A parse costs an import of torch_npu, so that several claims share one command.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sqlite3
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from builders.raw_profiles import GONE_PID, ROOT, Bench, make_msprof

from mstxkit.host import identity
from mstxkit.testing import StandIn, run_under_cann

pytestmark = [
    pytest.mark.daily(1),
    pytest.mark.npu,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(importlib.util.find_spec("torch_npu") is None, reason="needs torch_npu"),
]

# The real msprof is at work for seconds; torch_npu 2.13.0 gives up if it takes less than torch_npu takes to look.
MSPROF_S = 1.5

RECORD = """
import sys, time
from pathlib import Path
from mstxkit import sinks, stage
from mstxkit.profiling import backends, presets
sinks.install_all()
import torch, torch_npu
backend, _ = backends.choose_backend()
for name in ("light", "full"):
    session = backend.start(presets.load_preset(name), Path(sys.argv[0]).parent / name)
    with stage("actor_update"):
        torch.ones(3).add(1)
    while not session.bytes_so_far():
        time.sleep(0.001)
    outcome = session.stop([5])
    assert not outcome.problems, outcome
"""


class Real(NamedTuple):
    """A run of raw profiles, and what parses it."""

    bench: Bench
    raws: dict[str, Path]

    def analyse(self, *words: str, **environ: str) -> dict[str, Any]:
        """Raw folder to its row."""
        variables = {
            **os.environ, **StandIn.build().environment(), "PYTHONPATH": str(ROOT),
            "PATH": f"{self.bench.msprof.parent}{os.pathsep}{os.environ['PATH']}", **environ,
        }  # fmt: skip
        done = subprocess.run(
            self.bench.command("--json", *words), env=variables, capture_output=True, text=True, timeout=500
        )
        assert done.stdout, done.stderr
        told = json.loads(done.stdout)
        named = {str(raw.relative_to(self.bench.run)): name for name, raw in self.raws.items()}
        rows = {named[one["profile"]]: one for one in told["profiles"]}
        return {**rows, "tools": told["tools"], "missing": told["missing"], "status": done.returncode}

    def output(self, name: str) -> Path:
        """Where a parse writes."""
        return self.raws[name] / "ASCEND_PROFILER_OUTPUT"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "record.py").write_text(RECORD)
    done = run_under_cann(folder / "record.py", start_bytes=4096)
    assert done.returncode == 0, done.stderr
    return {name: next((folder / name).glob("*_ascend_pt")) for name in ("light", "full")}


def a_run(folder: Path, recorded: dict[str, Path], names: dict[str, str]) -> Real:
    """A run with copies of recorded profiles: name to the preset that it was recorded with."""
    bench = Bench(folder, MSPROF_S)
    raws = {}
    for rank, (name, preset) in enumerate(names.items()):
        session = bench.run / "profiles" / "actor_update" / "step5" / f"rank{rank}" / "1-2"
        raws[name] = session / recorded[preset].name
        shutil.copytree(recorded[preset], raws[name])
        told = {
            "format": 1, "host": "another-host", "pid": 7, "rank": rank, "stage": "actor_update", "step": 5,
            "state": "recorded", "output": raws[name].name, "backend": "torch_npu",
        }  # fmt: skip
        (session / "session.json").write_text(json.dumps(told))
    return Real(bench, raws)


@pytest.fixture(scope="module")
def parsed(recorded: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Real, dict[str, Any]]:
    """Profiles of another host, one with half an output of an earlier parse, one whose process was killed."""
    names = {"light": "light", "full": "full", "half": "full", "killed": "full"}
    real = a_run(tmp_path_factory.mktemp("parsed"), recorded, names)
    real.output("half").mkdir()
    (real.output("half") / "ascend_pytorch_profiler.db").write_text("half")
    (real.raws["killed"] / "profiler_info.json").unlink()
    session = {"state": "recording", "output": None, "host": identity.name_host(), "pid": GONE_PID}
    (real.raws["killed"].parent / "session.json").write_text(json.dumps(session))
    return real, real.analyse("--jobs", "2")


def test_raw_profiles_become_databases(parsed: tuple[Real, dict[str, Any]]) -> None:
    real, rows = parsed

    for name in ("light", "full", "half"):
        assert (rows[name]["state"], rows[name]["error"]) == ("parsed", "")
        with sqlite3.connect(real.output(name) / "ascend_pytorch_profiler.db") as base:
            tables = {row[0] for row in base.execute("select name from sqlite_master where type = 'table'")}
        base.close()
        assert {"STRING_IDS", "MSTX_EVENTS", "RANK_DEVICE_MAP", "META_DATA", "HOST_INFO"} <= tables
    assert rows["tools"]["torch_npu"].startswith("2.")
    assert rows["missing"] == []


def test_raw_data_are_all_there_after_a_parse(parsed: tuple[Real, dict[str, Any]], recorded: dict[str, Path]) -> None:
    real, _ = parsed
    before = {path.relative_to(recorded["full"]) for path in recorded["full"].rglob("*") if path.is_file()}

    assert [path for path in before if not (real.raws["full"] / path).exists()] == []


def test_what_a_killed_process_left_is_tried_and_said_to_be_incomplete(parsed: tuple[Real, dict[str, Any]]) -> None:
    _, rows = parsed

    assert "may be incomplete" in rows["killed"]["reason"]
    assert rows["killed"]["state"] in ("parsed", "failed")


def test_where_msprof_fails_the_profile_has_failed_whatever_torch_npu_says_and_it_can_be_repeated(
    recorded: dict[str, Path], tmp_path: Path
) -> None:
    real = a_run(tmp_path, recorded, {"light": "light"})
    good = real.bench.msprof.read_text()
    real.bench.msprof.write_text(
        good.replace('elif "--export" in given:', 'elif "--export" in given: sys.exit(3)\nif 0:')
    )

    failed = real.analyse()
    left = sorted(path.name for path in real.output("light").iterdir())
    real.bench.msprof.write_text(good)
    again = real.analyse("--again", "failed")

    assert (failed["status"], failed["light"]["state"]) == (1, "failed")
    assert failed["light"]["error"].startswith("no database is in ASCEND_PROFILER_OUTPUT; Failed to export CANN")
    assert left == ["analyse.done"], "torch_npu no longer marks a parse that failed like a good one"
    assert (again["status"], again["light"]["state"]) == (0, "parsed")


def test_text_is_written_where_that_is_asked_for(recorded: dict[str, Path], tmp_path: Path) -> None:
    real = a_run(tmp_path, recorded, {"full": "full"})

    told = real.analyse("--export", "text")

    assert told["full"]["state"] == "parsed", told["full"]["error"]
    assert json.loads((real.output("full") / "trace_view.json").read_text())


def test_without_canns_libraries_it_says_so_and_tries_nothing(recorded: dict[str, Path], tmp_path: Path) -> None:
    real = a_run(tmp_path, recorded, {"light": "light"})

    told = real.analyse(LD_LIBRARY_PATH="", ASCEND_HOME_PATH=str(make_msprof(tmp_path / "other").parents[3]))

    assert (told["status"], told["light"]["state"]) == (1, "not parsed")
    assert "torch_npu cannot be loaded: ImportError: lib" in told["missing"][0]
    assert "set_env.sh" in told["missing"][0]
    assert not (real.raws["light"].parent / "analysis.json").exists()
