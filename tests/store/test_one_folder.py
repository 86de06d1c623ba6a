"""The data of a request's sessions come together in one folder; what is said of them stays, and old runs are read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from builders.run_files import RUN_ID

from mstxkit.profiling import presets
from mstxkit.store import layout, run_file
from mstxkit.store.request import Known, check_request
from mstxkit.store.session_file import Order, RecordedSession, SessionFile, SessionOutcome, SessionStart, read_sessions

REQUEST = "ab" * 8


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return run_file.open_run_folder(tmp_path / "run")[0]


def start(**changes: Any) -> SessionStart:
    nothing: dict[str, Any] = {}
    order = Order(Path(), RUN_ID, 3, 8, "actor", "actor_update", 7, "full", REQUEST)._replace(**changes)
    return SessionStart(order, "full", nothing, (), True, "torch_npu", "2.13.0", "0.1.0", nothing)


def recorded(run: Path, name: str, is_whole: bool = True, **changes: Any) -> SessionFile:
    file = SessionFile(run, start(**changes))
    (file.data / name / "PROF_1").mkdir(parents=True)
    outcome = SessionOutcome(file.data / name, (7,), 1, 2, 5, (), is_whole)
    assert file.end(outcome, "the stage ended") is None
    return file


def below(run: Path, *parts: str) -> list[str]:
    return sorted(os.listdir(run.joinpath("profiles", *parts)))


def test_ranks_of_one_window_lie_side_by_side(run: Path) -> None:
    files = [recorded(run, f"node_{rank}_2_ascend_pt", rank=rank) for rank in range(3)]

    assert below(run, REQUEST) == [f"node_{rank}_2_ascend_pt" for rank in range(3)]
    for file in files:
        told = json.loads((file.folder / "session.json").read_text())
        assert (file.folder / told["output"] / "PROF_1").is_dir()


def test_each_window_of_several_has_a_folder(run: Path) -> None:
    for step in (7, 8):
        for rank in range(2):
            recorded(run, f"node_{rank}_{step}_ascend_pt", rank=rank, step=step, is_only_window=False)

    assert below(run, REQUEST) == ["actor_update.step7", "actor_update.step8"]
    assert below(run, REQUEST, "actor_update.step8") == ["node_0_8_ascend_pt", "node_1_8_ascend_pt"]


def test_a_stage_that_runs_twice_in_its_step_gets_a_folder_for_the_second_time(run: Path) -> None:
    for number in (1, 2):
        recorded(run, f"node_1_{number}_ascend_pt")

    assert below(run, REQUEST) == ["actor_update.step7.2", "node_1_1_ascend_pt"]


@pytest.mark.parametrize("changes", [{"request": ""}, {"is_whole": False}])
def test_light_capture_and_broken_data_stay_beside_their_file(run: Path, changes: dict[str, Any]) -> None:
    file = recorded(run, "node_1_2_ascend_pt", **changes)

    assert sorted(os.listdir(file.folder)) == ["node_1_2_ascend_pt", "session.json"]
    assert file.document["output"] == "node_1_2_ascend_pt"


def test_what_stands_in_the_way_is_not_replaced(run: Path) -> None:
    theirs = run / "profiles" / REQUEST / "node_1_2_ascend_pt"
    theirs.mkdir(parents=True)
    file = recorded(run, theirs.name)

    assert list(theirs.iterdir()) == []
    assert file.document["output"] == theirs.name
    assert "stay beside this file" in file.document["notes"][-1]


def test_a_link_in_the_place_of_the_folder_is_not_followed(run: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (run / "profiles").mkdir()
    (run / "profiles" / REQUEST).symlink_to(tmp_path / "elsewhere")
    file = recorded(run, "node_1_2_ascend_pt")

    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert (file.folder / "node_1_2_ascend_pt").is_dir()


def test_sessions_are_found_and_say_where_their_data_are(run: Path) -> None:
    recorded(run, "node_1_2_ascend_pt")
    recorded(run, "node_1_3_ascend_pt", stage="light", request="")
    light, full = sorted(read_sessions(run, RUN_ID), key=lambda session: session.key)

    assert full.place == f"profiles/{REQUEST}"
    assert light.place == light.folder


@pytest.mark.parametrize(
    "output",
    ["/etc", "../x", "../../../../../x/y", f"../../../../{REQUEST}", f"../../../../{REQUEST}/../x", "..", "", "a\0b",
     f"../../../../{REQUEST}/a/b/c", "../../../../other/raw", f"../../../../{REQUEST}//raw"],
)  # fmt: skip
def test_no_output_leads_elsewhere(output: str) -> None:
    folder = "profiles/actor_update/step7/rank3/1-2"

    assert layout.data_parts(tuple(folder.split("/")[1:]), output, REQUEST) is None
    assert RecordedSession(folder, {"output": output, "request": REQUEST}).place == folder


@pytest.mark.parametrize(
    ("given", "is_for_one"),
    [
        ({}, True),
        ({"occurrences": 1}, True),
        ({"steps": 2}, False),
        ({"occurrences": 3}, False),
        ({"stage": ["actor_update", "actor_generate"]}, False),
        ({"sample": {"per": "micro_batch", "record": 1}}, False),
    ],
)
def test_a_request_knows_whether_it_is_for_one_window(given: dict[str, Any], is_for_one: bool) -> None:
    known = Known(("actor_generate", "actor_update"), range(4), ("full",))

    assert check_request({"stage": "actor_update", "ranks": [1], **given}, known).is_for_one_window is is_for_one


def test_an_order_is_for_one_window_in_the_run_unless_it_says_more(run: Path) -> None:
    order = Order(run, RUN_ID, 3, 8, "", "light", None, presets.load_preset("light"))

    assert (order.is_only_window, order.local) == (True, None)
