"""The real MindSpore parses a raw profile that was made by hand, with a stand-in for msprof: no data of a device."""

from __future__ import annotations

import importlib.util
import json
import os
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest
from builders import soak
from builders.raw_profiles import ROOT, Bench

pytestmark = [
    pytest.mark.daily(2),
    pytest.mark.mindspore,
    pytest.mark.skipif(importlib.util.find_spec("mindspore") is None, reason="needs mindspore"),
]

# Of mindspore 2.10.0 `common/profiler_parameters.py` (`original_params`): what its analyse cannot do without.
PARAMETERS = {
    "is_set_schedule": False, "profiler_level": "Level0", "aic_metrics": "None", "activities": ["CPU", "NPU"],
    "export_type": ["db"],
}  # fmt: skip


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path)
    bench.environ["PYTHONPATH"] = str(ROOT)
    return bench


@pytest.fixture
def raw(bench: Bench) -> Path:
    raw = bench.profile(name="host_7_20261122000000000_ascend_ms", rank=3, session={"backend": "mindspore"})
    (raw / "profiler_info.json").unlink()
    told = {"device_id": "0", "rank_id": "3"}
    info = {"profiler_parameters": PARAMETERS, "ms_profiler_info": told, "jit_level": "O0"}
    (raw / "profiler_info_3.json").write_text(json.dumps(info))
    (raw / "FRAMEWORK").mkdir()
    prof = next(raw.glob("PROF_*"))
    (prof / "device_0" / "data").mkdir(parents=True)
    (prof / "host" / "host_start.log").write_text("[Host]\nclock_monotonic_raw = 1\ncntvct = 1\n")
    times = {"collectionTimeBegin": "1000", "clockMonotonicRaw": "1000"}
    (prof / "host" / "start_info").write_text(json.dumps(times))
    return raw


def row(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.stdout, done.stderr
    (one,) = json.loads(done.stdout)["profiles"]
    return dict(one)


def test_a_raw_profile_becomes_a_database(bench: Bench, raw: Path) -> None:
    done = bench.analyse("--json")

    told = row(done)
    assert (told["state"], told["error"], done.returncode) == ("parsed", "", 0)
    assert told["versions"]["mindspore"].startswith("2.")
    with sqlite3.connect(raw / "ASCEND_PROFILER_OUTPUT" / "ascend_mindspore_profiler_3.db") as base:
        assert base.execute("select count(*) from MSTX_EVENTS").fetchone() == (0,)
    base.close()


def test_what_it_cannot_read_has_failed_in_its_own_words_although_it_returns_as_ever(bench: Bench, raw: Path) -> None:
    (raw / "profiler_info_3.json").write_text("{}")

    told = row(bench.analyse("--json"))

    assert told["state"] == "failed"
    assert told["error"].startswith("no ASCEND_PROFILER_OUTPUT was written; Call to offline_analyse failed")


def test_half_an_output_is_no_hindrance(bench: Bench, raw: Path) -> None:
    (raw / "ASCEND_PROFILER_OUTPUT").mkdir()
    (raw / "ASCEND_PROFILER_OUTPUT" / "half.csv").write_text("half")

    told = row(bench.analyse("--json"))

    assert told["state"] == "parsed"
    assert [one["name"] for one in told["outputs"]] == ["ascend_mindspore_profiler_3.db"]


@pytest.mark.parametrize("name", soak.sample(["ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"], 1))
def test_msprof_need_not_be_on_the_path(bench: Bench, raw: Path, name: str) -> None:
    told = row(bench.analyse("--json", PATH=os.environ["PATH"], **{name: str(bench.cann)}))

    assert told["state"] == "parsed", told["error"]
