"""What a configuration becomes: requests with their steps, the same on every rank, or an error with a place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders.escalated_run import control, empty_run

import mstxkit
from mstxkit.config import configuring, sources
from mstxkit.errors import ConfigError
from mstxkit.escalation import planning
from mstxkit.store import messages
from mstxkit.store.request import Planned, Request

RL = """
profiler_config:
  integrated:
    profile: true
    stage: [actor_update, actor_generate]
    profile_level: level1
    profile_step_start: 3
    profile_step_end: 6
    profile_ranks: [1, 3]
"""


def planned(text: str) -> planning.Plan:
    understood = configuring.understand_source(sources.from_yaml(text, "train.yaml"))
    return planning.plan_of(understood.read.config, understood.read.places, "train.yaml")


def own(fields: str) -> planning.Plan:
    return planned(f"mstxkit: {{enabled: true, {fields}}}")


def windows(plan: planning.Plan) -> list[tuple[int, int | None]]:
    return [(request.planned.first_step, request.steps) for request in plan.requests if request.planned]


def test_a_window_is_one_request_of_its_stages_and_ranks() -> None:
    (request,) = planned(RL).requests

    assert request.stages == ("actor_generate", "actor_update")
    assert (request.ranks, request.steps) == ((1, 3), 3)
    assert request.planned == Planned(3, "process", "mindspeed_rl")
    assert dict(request.options)["level"] == "level1"
    assert dict(request.options)["activities"] == ("cpu", "npu")


def test_every_rank_plans_the_same_requests() -> None:
    assert [request.id for request in planned(RL).requests] == [request.id for request in planned(RL).requests]


@pytest.mark.parametrize(
    ("window", "steps"),
    [
        ("{first_step: 4}", [(4, 1)]),
        ("{first_step: 4, steps: 2, wait: 3, repeat: 3}", [(4, 2), (9, 2), (14, 2)]),
        ("{first_step: 2, steps: 2, more_steps: [7, 9]}", [(2, 2), (7, 1), (9, 1)]),
        ("{first_step: 2, steps: null}", [(2, planning.COUNT_AT_MOST)]),
    ],
)
def test_each_window_begins_at_its_step(window: str, steps: list[tuple[int, int]]) -> None:
    assert windows(own(f"window: {window}")) == steps


def test_without_an_end_the_first_windows_are_planned_and_that_is_told() -> None:
    plan = own("window: {first_step: 4, steps: 1, wait: 3, repeat: 0}")

    assert len(plan.requests) == planning.WINDOWS_AT_MOST
    assert plan.notes == (f"the first {planning.WINDOWS_AT_MOST} windows are planned, no more",)


def test_limits_and_sampling_are_those_of_each_request() -> None:
    (request,) = own("stages: [actor_update], limits: {seconds: 9}, sampling: {per: micro_batch, skip: 2}").requests

    assert (request.limits.seconds, request.limits.bytes) == (9, None)
    assert request.sample == ("micro_batch", 2, 1)


def test_whole_steps_are_asked_for_where_no_stage_is_named() -> None:
    (request,) = own("ranks: [0]").requests

    assert request.stages == ("all",)


def test_what_is_not_enabled_plans_nothing() -> None:
    assert planned("mstxkit: {stages: [reward]}") == planning.Plan()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ("l2_cache: true", "train.yaml:1: mstxkit.l2_cache=True: a session of mstxkit's does not record this"),
        ("stages: [gen], replicas: [0]", "mstxkit.replicas=(0,): mstxkit chooses by global ranks"),
    ],
)
def test_what_no_session_can_record_is_refused_with_its_place(fields: str, words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        own(fields)

    assert words in str(raised.value)


def test_who_carries_it_out_by_itself_is_kept_with_the_request_unless_we_take_over() -> None:
    taken = planned(RL + "mstxkit: {takes_over: true}\n")

    assert [request.planned and request.planned.framework for request in taken.requests] == [""]
    assert (taken.requests[0].steps, taken.takes_over) == (3, ("mindspeed_rl",))


def test_our_own_section_beside_an_enabled_one_of_a_framework_gives_way_and_beside_an_idle_one_not() -> None:
    section = "mstxkit: {enabled: true, stages: [reward]}\n"
    beside = planned(RL + section)
    alone = planned(RL.replace("profile: true", "profile: false") + section)

    assert [request.planned and request.planned.framework for request in beside.requests] == ["mindspeed_rl"]
    assert [request.planned and request.planned.framework for request in alone.requests] == [""]


def test_a_framework_that_cannot_be_kept_from_its_own_section_is_not_taken_over() -> None:
    config = mstxkit.configure({"training": {"profile": True, "profile_ranks": [0]}}, "mindspeed_llm_fsdp2")
    config = config.model_copy(update={"takes_over": True})
    config._own_of = ("torch_npu",)

    with pytest.raises(ConfigError, match="torch_npu cannot be kept from its own section"):
        planning.plan_of(config)


def left(run: Path) -> list[Request]:
    received = [messages.read_message(message) for message in control(run).messages()]
    return [message.request for message in received if isinstance(message, messages.RequestReceived)]


def test_a_plan_lies_in_the_run_once_however_many_leave_it(tmp_path: Path) -> None:
    run, plan = empty_run(tmp_path / "run"), own("window: {first_step: 4, steps: 2, wait: 3, repeat: 3}")
    for _ in range(3):
        planning.leave_requests(run, control(run).run_id, plan)

    assert [request.id for request in left(run)] == [request.id for request in plan.requests]
    assert [request.planned for request in left(run)] == [request.planned for request in plan.requests]


def test_requests_without_a_plan_have_the_ids_that_they_always_had() -> None:
    fields: dict[str, Any] = {"created_ns": 1, "expires_ns": 2}

    assert Request(("actor_update",), (1,), **fields).id == "e3fff0890bc2652b"
