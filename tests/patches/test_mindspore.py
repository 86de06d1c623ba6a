"""MindSpore's targets against its recorded version, and which step its loops are in, as the cited source runs them."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any, Callable, Iterator

import pytest
from builders.contracts import surface
from builders.contracts.installed import instance
from builders.contracts.installing import Install, install, written  # noqa: F401
from builders.recorded_surfaces import functions
from builders.watched_pieces import watched

import mstxkit
from mstxkit.patches import _mindspore_calls as calls
from mstxkit.patches.mindspore import PATCH
from mstxkit.testing import captured

NAME = "mindspore"


def test_every_target_is_in_it_but_what_a_cell_inherits() -> None:
    paths = {target.path for target in PATCH.targets}

    assert {path.rpartition(".")[2] for path in paths - functions(NAME, "2.10.0").keys()} == {"__call__"}


@pytest.fixture(autouse=True)
def untold(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No step was told in this process, nor is afterwards."""
    monkeypatch.setattr(calls, "_told", SimpleNamespace(step=None, by_others=False, before=0, cells=set()))
    yield
    assert getattr(calls._here, "step", None) is None


class Loop:
    """`Model._train` and what it runs: train/model.py:1035, 1104 (sink), 1221; each call of a patched function is made
    as the patch makes it. `network` is called in each step.
    """

    def __init__(self, batches: int, network: Callable[[int], None] = lambda step: None) -> None:
        self.batches, self.network = batches, network

    def train(self, epochs: int, initial_epoch: int = 0, sink_size: int = 1) -> None:
        given = {"initial_epoch": initial_epoch} if initial_epoch else {}
        calls.run_steps(lambda model, **_: self.run(epochs, initial_epoch, sink_size), self, **given)

    def run(self, epochs: int, initial_epoch: int, sink_size: int) -> None:
        loop = SimpleNamespace(cur_step_num=0, batch_num=self.batches)
        context = SimpleNamespace(original_args=lambda: loop)
        for epoch in range(initial_epoch, epochs):
            loop.cur_epoch_num = epoch + 1
            for _ in range(self.batches // sink_size):
                loop.cur_step_num += sink_size
                calls.begin_step(lambda callbacks, run_context: None, self, context)
                self.network(loop.cur_step_num)
                calls.end_step(lambda callbacks, run_context: None, self, context)


def steps_in(seen: Any, name: str = "train_step") -> list[Any]:
    return [found.step for found in seen.ranges if found.name == name]


def test_steps_count_from_1_over_all_epochs_also_before_the_initial_one() -> None:
    with captured() as seen:
        Loop(batches=3).train(epochs=4, initial_epoch=2)

    assert steps_in(seen) == [7, 8, 9, 10, 11, 12]


def test_a_training_that_begins_anew_goes_on_counting() -> None:
    """`for _ in range(2): model.train(1, …); model.eval(…)`."""
    with captured() as seen:
        for _ in range(2):
            Loop(batches=2).train(epochs=1)

    assert steps_in(seen) == [1, 2, 3, 4]


def test_a_call_of_a_sink_is_the_last_of_its_steps() -> None:
    """model.py:1160: `cur_step_num` grows by `sink_size` before the callbacks hear of it; `batch_num` is that size."""
    with captured() as seen:
        Loop(batches=20).train(epochs=3, sink_size=20)

    assert steps_in(seen) == [20, 40, 60]


def test_a_step_is_one_stage_from_its_first_callback_to_its_last() -> None:
    with captured() as seen, watched("micro_batch") as pieces:
        Loop(2, lambda step: pieces.append("network")).train(epochs=1)

    assert pieces == ["+train_step", "network", "-train_step"] * 2
    names = [found.name for found in seen.ranges if found.stage == "train_step"]
    assert names == ["on_train_step_begin", "on_train_step_end", "train_step"] * 2


def test_a_step_that_fails_ends_with_its_training_and_the_next_one_is_whole() -> None:
    def fail(step: int) -> None:
        if step == 2:
            raise MemoryError

    with captured() as seen:
        with pytest.raises(MemoryError):
            Loop(3, fail).train(epochs=1)
        Loop(batches=1).train(epochs=1)

    assert seen.open == []
    steps = [found for found in seen.ranges if found.name == "train_step"]
    assert [(found.step, found.error) for found in steps] == [(1, False), (2, True), (3, False)]


def test_a_training_inside_of_a_handler_has_no_failed_steps() -> None:
    with captured() as seen:
        try:
            raise KeyError
        except KeyError:
            Loop(batches=2).train(epochs=1)

    assert [found.error for found in seen.ranges] == [False] * 6


def test_steps_that_the_program_tells_itself_are_left_alone() -> None:
    with captured() as seen:
        Loop(4, lambda step: mstxkit.step(step - 1) and None).train(epochs=1)

    assert steps_in(seen) == [1, 0, 1, 2]


@pytest.fixture
def cell(install: Install) -> Callable[[], Any]:  # noqa: F811
    """Makes a TrainOneStepCell, whose class is patched."""
    install(surface.recorded("mindspore-2.10.0"))
    mstxkit.autopatch(NAME)
    module = importlib.import_module("mindspore.nn.wrap.cell_wrapper")
    return lambda: instance(module.TrainOneStepCell)


def test_a_cell_that_is_called_in_no_stage_counts_steps(cell: Callable[[], Any]) -> None:
    generator, critic = cell(), cell()
    with captured() as seen:
        Loop(batches=2).train(epochs=1)
        for _ in range(3):
            critic("x")
            generator("x")

    found = [(found.step, found.stage) for found in seen.ranges if found.name == "TrainOneStepCell"]
    assert found == [(step, "train_step") for step in (3, 3, 4, 4, 5, 5)]


def test_a_cell_in_a_stage_is_of_its_step(cell: Callable[[], Any]) -> None:
    train_net = cell()
    with captured() as seen, watched("micro_batch") as pieces:
        Loop(2, lambda step: train_net("x")).train(epochs=1)
        with mstxkit.stage("actor_update"):
            train_net("x")

    assert pieces[:4] == ["+train_step", "-train_step"] * 2
    assert steps_in(seen, "TrainOneStepCell") == [1, 2, 2]


def test_what_is_no_loop_of_mindspores_is_called_as_before() -> None:
    with captured() as seen:
        begun = calls.begin_step(lambda *args: args, "callbacks", "run_context", "more")
        ended = calls.end_step(lambda *args: args, "callbacks", "run_context")

    assert (begun, ended) == (("callbacks", "run_context", "more"), ("callbacks", "run_context"))
    assert seen.ranges == []
