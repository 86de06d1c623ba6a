"""Physical devices: what the visible-device variables and the device nodes of a container make of an index."""

from __future__ import annotations

import pytest

from mstxkit.profiling.guard import physical_device


@pytest.mark.parametrize(
    ("index", "visible", "physical"),
    [
        (0, None, 0),
        (3, None, 3),
        (0, "", 0),
        (0, "4,5,6", 4),
        (2, "4,5,6", 6),
        (1, "1, 2,3", 1),  # CANN stops reading at the space: index 1 is none that it gave
        (0, "5,x", 5),
        (0, "npu", 0),
        (7, "4,5", 7),
        (-1, "4,5", -1),
    ],
)
def test_ascend_rt_visible_devices_picks_by_order(index: int, visible: str | None, physical: int) -> None:
    environment = {} if visible is None else {"ASCEND_RT_VISIBLE_DEVICES": visible}

    assert physical_device(index, environment, nodes=()) == physical


@pytest.mark.parametrize(
    ("given", "devices"),
    [
        ("4,6", [4, 6]),
        ("4-6", [4, 5, 6]),
        ("0-2,4", [0, 1, 2, 4]),
        ("6,4", [4, 6]),
        ("Ascend910-1,Ascend910-3", [1, 3]),
        ("Ascend310P-2", [2]),
        ("void", [0, 1]),
        ("", [0, 1]),
        ("1;3", [0, 1]),
        ("9-2", [0, 1]),
    ],
)
def test_in_a_container_the_devices_that_it_was_given_are_counted(given: str, devices: list[int]) -> None:
    environment = {"ASCEND_VISIBLE_DEVICES": given}

    assert [physical_device(i, environment, nodes=()) for i in range(len(devices))] == devices


def test_what_a_process_sees_is_a_part_of_what_its_container_has() -> None:
    environment = {"ASCEND_VISIBLE_DEVICES": "4-7", "ASCEND_RT_VISIBLE_DEVICES": "2,3"}

    assert [physical_device(i, environment, nodes=()) for i in (0, 1)] == [6, 7]


def test_the_nodes_that_there_are_say_more_than_the_variable() -> None:
    """The variable may be exported on the host itself, where it hides nothing."""
    environment = {"ASCEND_VISIBLE_DEVICES": "4,5"}

    assert physical_device(1, environment, nodes=range(8)) == 1
    assert physical_device(1, environment, nodes=(7, 5, 4)) == 5


def test_two_jobs_that_see_one_device_by_other_indices_mean_the_same() -> None:
    whole = physical_device(5, {}, nodes=range(8))
    part = physical_device(1, {"ASCEND_RT_VISIBLE_DEVICES": "4,5"}, nodes=range(8))
    container = physical_device(0, {}, nodes=(5, 6))

    assert whole == part == container == 5


def test_by_default_it_is_this_process_and_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.listdir", lambda path: ["davinci_manager", "davinci6", "davinci10", "null", "davinci7"])
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "1,2")

    assert [physical_device(i) for i in (0, 1)] == [7, 10]
