"""SGLang's targets against what its recorded versions hold."""

from __future__ import annotations

from enum import IntEnum, auto
from types import SimpleNamespace

import pytest
from builders.recorded_surfaces import functions, holders, versions

from mstxkit.patches.sglang import PATCH
from mstxkit.patching.expressions import compile_expression

NAME = "sglang"
BY_PATH = {target.path: target for target in PATCH.targets}
# The surfaces leave this module out. Its methods were read from the wheels 0.5.4.post1, 0.5.9 and 0.5.11.
UNRECORDED = "sglang.srt.managers.scheduler_update_weights_mixin"

each_version = pytest.mark.parametrize("version", versions(NAME))


def test_every_target_is_in_a_recorded_version() -> None:
    recorded = {target.path for _, target, _ in holders(PATCH.targets, NAME)}

    assert {path.partition(":")[0] for path in BY_PATH.keys() - recorded} == {UNRECORDED}


@each_version
def test_each_version_has_a_batch_a_forward_pass_and_its_sampling(version: str) -> None:
    generation = {
        target.qualname for target in PATCH.targets if target.stage == "actor_generate" and held(version, target.path)
    }

    assert generation == {
        "Scheduler.run_batch", "Scheduler.process_batch_result", "ModelRunner.forward", "ModelRunner.sample"
    }  # fmt: skip


@each_version
def test_each_version_has_one_place_where_requests_are_received_and_it_is_polled(version: str) -> None:
    receiving = [target for path, target in BY_PATH.items() if path.endswith(".recv_requests") and held(version, path)]

    assert [target.coalesce for target in receiving] == [True]


def held(version: str, path: str) -> bool:
    return path in functions(NAME, version)


class ForwardMode(IntEnum):
    EXTEND = auto()
    DECODE = auto()


def read(path: str, *arguments: object) -> dict[str, object]:
    """What a call says of itself, with plain objects in the place of the newest version's."""
    attributes, signature = BY_PATH[path].attributes, functions(NAME, "0.5.23")[path].signature()
    assert not callable(attributes)
    return {name: compile_expression(text, signature)(arguments, {}) for name, text in attributes.items()}


def test_a_batch_says_whether_it_is_prefill_and_who_runs_and_waits() -> None:
    batch = SimpleNamespace(reqs=["a", "b"], forward_mode=ForwardMode.EXTEND)
    scheduler = SimpleNamespace(running_batch=SimpleNamespace(reqs=["c", "d", "e"]), waiting_queue=["f"])

    assert read("sglang.srt.managers.scheduler:Scheduler.run_batch", scheduler, batch) == {
        "requests": 2, "mode": "EXTEND", "running": 3, "waiting": 1
    }  # fmt: skip


def test_mode_and_number_of_a_forward_pass_are_read_from_plain_attributes() -> None:
    class ForwardBatch:
        forward_mode = ForwardMode.EXTEND

        def __init__(self) -> None:
            self.forward_mode, self.batch_size = ForwardMode.DECODE, 4

    class ModelRunner:
        def __init__(self) -> None:
            self.forward_pass_id, self.is_draft_worker = 7, False

    path = "sglang.srt.model_executor.model_runner:ModelRunner.forward"

    assert read(path, ModelRunner(), ForwardBatch()) == {
        "forward_pass": 7, "mode": "DECODE", "requests": 4, "is_draft": False
    }  # fmt: skip
