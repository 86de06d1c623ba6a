"""Ray itself is put back, the very objects, when nothing of ours is on any more."""

from __future__ import annotations

import pytest
from builders.ray_jobs import Start

pytestmark = pytest.mark.ray

INIT = ["ray.init", "its home", "a copy"]
SEAMS = ["_load_actor_class_from_gcs", "_make_actor_method_executor", "_wait_for_function"]


def test_ray_is_put_back(start: Start) -> None:
    pytest.importorskip("ray")

    said = start("undo").said

    assert said["left at the end"] == said["left then"] == []
    assert said["a copy made since is put back"]
    assert said["replaced again"]


def test_a_ray_whose_loader_is_another_is_reported(start: Start) -> None:
    pytest.importorskip("ray")

    notes = start("other_loader").said

    assert [note.split(":")[0] for note in notes] == ["this Ray has no FunctionActorManager._load_actor_class_from_gcs"]


def test_what_is_replaced_is_replaced_everywhere_and_once(start: Start) -> None:
    pytest.importorskip("ray")

    said = start("undo").said

    assert sorted(said["replaced"]) == sorted([*INIT, *SEAMS, "get_execution_info"])
    assert sorted(said["left while capture is on"]) == sorted([*INIT, *SEAMS])
    assert said["one layer"]
    assert said["signature is the same"]
