"""HCCL's time-outs as environments have them, and what they leave for a session."""

from __future__ import annotations

import math

import pytest

from mstxkit.store import hccl


@pytest.mark.parametrize("text", ["", "many", "-1", "1e9", "9" * 40, "²", " 5"])
def test_what_is_no_number_of_seconds_is_none(text: str) -> None:
    assert hccl.read_seconds({hccl.EXEC: text}, hccl.EXEC) is None


def test_0_is_for_ever_for_a_collective_and_nothing_for_a_connection() -> None:
    zeros = {hccl.EXEC: "0", hccl.CONNECT: "0"}

    assert hccl.read_seconds(zeros, hccl.EXEC) == math.inf
    assert hccl.read_seconds(zeros, hccl.CONNECT) is None


def test_only_the_two_variables_are_told_of_an_environment() -> None:
    environment = {hccl.EXEC: "60", "SECRET": "x", hccl.CONNECT: "9" * 1000}

    assert hccl.set_here(environment) == {hccl.EXEC: "60", hccl.CONNECT: "9" * 12}


@pytest.mark.parametrize(
    ("variables", "is_connecting", "seconds", "source"),
    [
        ({}, False, 1836, "HCCL_EXEC_TIMEOUT, CANN's default"),
        ({}, True, 120, "HCCL_CONNECT_TIMEOUT, CANN's default"),
        ({hccl.EXEC: "60"}, True, 60, "HCCL_EXEC_TIMEOUT, here"),
        ({hccl.EXEC: "0"}, True, 120, "HCCL_CONNECT_TIMEOUT, CANN's default"),
        ({hccl.EXEC: "0", hccl.CONNECT: "7200"}, True, 7200, "HCCL_CONNECT_TIMEOUT, here"),
    ],
)
def test_the_shorter_one_that_holds_counts(
    variables: dict[str, str], is_connecting: bool, seconds: float, source: str
) -> None:
    patience = hccl.find_patience(variables, "here", is_connecting, {})

    assert (patience.seconds, patience.source) == (seconds, source)


def test_half_of_it_is_left_for_a_session_less_its_start_and_stop() -> None:
    patience = hccl.Patience(60, "here", {"full": 4.0})

    assert (patience.bound_s("full"), patience.bound_s("light")) == (26, 30)
    assert not patience.refusal("full")
    assert "less 4 s for its start and stop" in patience.why("full")


def test_where_start_and_stop_alone_come_near_nothing_is_left() -> None:
    assert "start and stop of a session alone took 30 s" in hccl.Patience(60, "here", {"deep": 30.0}).refusal("deep")
