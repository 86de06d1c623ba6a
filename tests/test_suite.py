"""What runs where: the twin's part covers who asks the engine, and `make quick` knows who depends on whom."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from builders import soak
from builders.selection import ON_BOTH_ENGINES, rests

ROOT = Path(__file__).resolve().parents[1]
# Rooms that ask the engine at import and are proven on C alone, and why that is enough.
PROVEN_ON_C = {
    "bootstrap": "it says which engine is loaded, which tests/engine/test_twin_is_said proves on both",
    "capturing": "the forks of tests/processes and tests/engine/test_watch prove on both what it asks for",
    "cli": "it shows which engine is loaded",
    "escalation": "its duty hangs on hooks of stages and steps, which tests/engine proves on both",
    "patches": "a patched call asks for nothing but what tests/engine and tests/patching/test_around prove on both",
    "patching": "its seams, what goes around a call and what a call reads run on both; the rest looks for names",
    "profiling": "it asks in which step the training is, which tests/engine proves on both",
    "testing": "what it records is tested on both; the stand-in libraries know no engine",
    "process_status": "it reads counters, which tests/engine proves on both",
}


@pytest.fixture(scope="module")
def quick() -> ModuleType:
    spec = importlib.util.spec_from_file_location("quick", ROOT / ".ci/quick.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_who_asks_the_engine_is_tested_on_both_or_says_why_not(quick: ModuleType) -> None:
    on_both = {entry.split("/")[1] for entry in ON_BOTH_ENGINES if entry.endswith("/")}
    asking = quick.importers("engine")

    assert asking - on_both == set(PROVEN_ON_C)


@pytest.mark.parametrize("entry", ON_BOTH_ENGINES)
def test_what_runs_on_both_engines_is_there(entry: str) -> None:
    assert list(ROOT.glob(f"{entry}*"))


def test_rooms_that_import_a_part_are_found_whichever_way_they_do(quick: ModuleType) -> None:
    assert {"recorder", "reading"} <= quick.importers("store")
    assert "cli" in quick.importers("config/adapters") | quick.importers("reading/report")
    assert "store" not in quick.importers("recorder")


def test_a_short_run_takes_some_cases_in_their_order_and_a_long_one_all(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = list(range(100))

    monkeypatch.setenv("SOAK_TESTS", "0")
    short = soak.sample(cases, 7)
    monkeypatch.setenv("SOAK_TESTS", "1")

    assert len(short) == 7 and short == sorted(set(short))
    assert soak.sample(cases, 7) == cases
    assert soak.rounds("full", "short") == "full"


@pytest.mark.parametrize("today", [20261129, 20261130])
def test_of_two_days_each_long_test_runs_on_one(request: pytest.FixtureRequest, today: int) -> None:
    for day in ("odd", "even"):
        request.node.own_markers[:] = [pytest.mark.days(day).mark]
        assert rests(request.node, today) is not rests(request.node, today + 1)
        assert rests(request.node, today) is (day == "even" and today % 2 == 1 or day == "odd" and today % 2 == 0)


@pytest.mark.parametrize("name", ["main", "frameworks", "mindspore", "ray-2.42.1"])
def test_a_lock_names_one_version_of_each_package_and_no_place(name: str) -> None:
    lines = (ROOT / f".ci/locks/{name}.txt").read_text(encoding="utf-8").splitlines()

    assert all(line.count("==") == 1 and not set(line) & set("@/+ ") for line in lines)
    assert {"pytest", "pytest-xdist"} <= {line.partition("==")[0] for line in lines}
    assert not [line for line in lines if line.startswith("mstxkit")]
