"""vLLM's targets against what its recorded versions hold, and what its calls say of themselves."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from builders.recorded_surfaces import functions, versions

from mstxkit.patches import _vllm_calls, vllm_ascend
from mstxkit.patches.vllm import PATCH
from mstxkit.patching.declare import CORE, VALUE

NAME = "vllm"
BY_PATH = {target.path: target for target in PATCH.targets}
each_version = pytest.mark.parametrize("version", versions(NAME))


def test_every_target_is_in_the_newest_recorded_version_but_what_is_no_function() -> None:
    paths = {path for path, target in BY_PATH.items() if target.kind != VALUE}

    assert paths - functions(NAME, "0.32.0").keys() == set()


@each_version
def test_each_version_has_one_function_that_is_an_engine_step(version: str) -> None:
    steps = [target for target in PATCH.targets if target.boundary and target.path in functions(NAME, version)]

    assert [(one.qualname, one.boundary, one.stage, one.tier) for one in steps] == [
        ("Worker.execute_model", "decode_step", "actor_generate", CORE)
    ]


def test_what_is_vllms_own_is_the_same_target_in_both_patches() -> None:
    shared = [target for target in vllm_ascend.PATCH.targets if target.module.split(".")[0] == NAME]

    assert len(shared) > 5
    assert all(any(target is one for one in PATCH.targets) for target in shared)


def scheduled(tokens: dict[str, int], new: list[str], **cached: Any) -> Any:
    """Source: vLLM 0.32.0 v1/core/sched/output.py, `SchedulerOutput` and what is in it."""
    return SimpleNamespace(
        num_scheduled_tokens=tokens,
        total_num_scheduled_tokens=sum(tokens.values()),
        scheduled_new_reqs=[SimpleNamespace(req_id=name) for name in new],
        scheduled_cached_reqs=SimpleNamespace(**cached),
    )


def test_a_request_is_a_prefill_until_it_has_its_first_token() -> None:
    """`b` goes on with a long prompt, `c` has two tokens already."""
    output = scheduled({"a": 5, "b": 7, "c": 1}, ["a"], req_ids=["b", "c"], num_output_tokens=[0, 2])
    decodes = scheduled({"b": 1, "c": 1}, [], req_ids=["b", "c"], num_output_tokens=[1, 3])

    assert _vllm_calls.count_scheduled(None, output) == {
        "tokens": 13, "requests": 3, "new_requests": 1, "prefills": 2, "prefill_tokens": 12,
    }  # fmt: skip
    assert _vllm_calls.count_scheduled(None, decodes) == {
        "tokens": 2, "requests": 2, "new_requests": 0, "prefills": 0, "prefill_tokens": 0,
    }  # fmt: skip


def test_a_version_that_does_not_count_outputs_has_new_requests_as_prefills() -> None:
    found = _vllm_calls.count_scheduled(None, scheduled({"a": 5, "b": 7}, ["a"], req_ids=["b"]))

    assert (found["prefills"], found["prefill_tokens"]) == (1, 5)


def test_the_scheduler_says_who_runs_and_waits_and_what_came_out() -> None:
    class Scheduler:
        running, waiting = [1, 2], deque([3])

        def get_request_counts(self) -> tuple[int, int]:
            return len(self.running), len(self.waiting)

    output = scheduled({"a": 5, "b": 1}, ["a"])
    given = SimpleNamespace(sampled_token_ids=[[7], [8, 9]])

    assert _vllm_calls.count_sampled(Scheduler(), output, given) == {
        "running": 2, "waiting": 1, "tokens_in": 6, "tokens_out": 3,
    }  # fmt: skip


class Unknown:
    """What no version known here has."""


@pytest.mark.parametrize("ask", [_vllm_calls.count_scheduled, _vllm_calls.count_sampled])
def test_what_cannot_be_read_is_left_out(ask: Any) -> None:
    assert ask(Unknown(), Unknown(), Unknown()) == {}


def test_what_workers_are_asked_for_is_a_name_or_a_function() -> None:
    def reload_all() -> None: ...

    asked = [_vllm_calls.name_method(None, one) for one in ("sleep", reload_all, b"\x80")]

    assert [one["method"] for one in asked] == ["sleep", "reload_all", ""]


@pytest.mark.parametrize(("prompts", "count"), [(["a", "b"], 2), ("one prompt", 1), ({"prompt_token_ids": [1]}, 1)])
def test_prompts_are_counted_not_letters(prompts: Any, count: int) -> None:
    assert _vllm_calls.count_prompts(None, prompts) == {"sent": count}
