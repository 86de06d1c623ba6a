"""Is what was applied still in its place, and was it called? Looked at again, not written down once."""

from __future__ import annotations

import functools
import importlib
import sys
from typing import Any, Callable

import pytest

from mstxkit.patching import registry
from mstxkit.patching.report import Reason, TargetState
from mstxkit.testing import captured

SOURCE = """
class Optimizer:
    def step(self): return self.inner()
    def inner(self): return "stepped"
    async def wait(self): return 1
def work(x): return x
"""
STEP = "ACME.optim:Optimizer.step"


def state_of(path: str) -> TargetState:
    return next(one for one in registry.report_targets().targets if one.path.endswith(path))


@pytest.fixture
def optim(acme: Any) -> Any:
    acme.write("optim", SOURCE)
    return acme.load("optim")


def test_calls_are_counted_for_each_target(acme: Any, install: Any, optim: Any) -> None:
    install(acme.patch(STEP, "ACME.optim:work"))

    with captured():
        for _ in range(3):
            optim.Optimizer().step()
        states = [(one.state, one.calls) for one in registry.report_targets().targets]

    assert states == [("applied", 3), ("applied", 0)]


def test_calls_before_it_was_patched_again_are_not_counted(acme: Any, install: Any, optim: Any) -> None:
    with captured():
        install(acme.patch(STEP))
        optim.Optimizer().step()
        registry.remove_patches()
        install(acme.patch(STEP))

        assert state_of("step").calls == 0


def test_targets_that_share_a_name_have_no_count_of_their_own(acme: Any, install: Any, optim: Any) -> None:
    named = [acme.target(f"ACME.optim:Optimizer.{name}", name="one name") for name in ("step", "inner")]
    install(acme.patch(*named))

    with captured():
        optim.Optimizer().inner()
        states = [(one.state, one.calls) for one in registry.report_targets().targets]

    assert states == [("applied", None)] * 2


def theirs(self: object) -> str:
    return "theirs"


REPLACEMENTS: dict[str, Callable[[Any, Any], None]] = {
    "a method": lambda module, _: setattr(module.Optimizer, "step", theirs),
    "a lambda": lambda module, _: setattr(module.Optimizer, "step", lambda self: 1),
    "an object": lambda module, _: setattr(module.Optimizer, "step", functools.partial(theirs, None)),
    "the class": lambda module, _: setattr(module, "Optimizer", type("Optimizer", (), {"step": theirs})),
}


@pytest.mark.parametrize("kind", REPLACEMENTS)
def test_what_somebody_else_has_replaced_since_says_so_and_by_whom(
    acme: Any, install: Any, optim: Any, kind: str
) -> None:
    install(acme.patch(STEP))
    REPLACEMENTS[kind](optim, None)

    state = state_of("step")

    assert (state.state, state.reason) == ("failed", Reason.REPLACED)
    assert __name__ in state.detail or "partial" in state.detail


def test_what_is_gone_says_so(acme: Any, install: Any, optim: Any) -> None:
    install(acme.patch(STEP))
    del optim.Optimizer

    assert (state_of("step").state, state_of("step").reason) == ("failed", Reason.REPLACED)


ORIGINAL: list[Any] = []


def around_by_a_closure(function: Any) -> Any:
    return lambda self: function(self)


def around_by_a_default(function: Any) -> Any:
    def step(self: Any, inner: Any = function) -> Any:
        return inner(self)

    return step


def around_by_a_global(function: Any) -> Any:
    namespace = {"kept": function}
    exec("def step(self): return kept(self)", namespace)
    return namespace["step"]


def around_twice(function: Any) -> Any:
    return around_by_a_closure(functools.wraps(function)(around_by_a_default(function)))


def around_by_a_partialmethod(function: Any) -> Any:
    return around_by_a_closure(functools.partial(function))


@pytest.mark.parametrize(
    "around",
    [around_by_a_closure, around_by_a_default, around_by_a_global, around_twice, around_by_a_partialmethod],
)
def test_what_calls_ours_leaves_it_in_place(acme: Any, install: Any, optim: Any, around: Any) -> None:
    install(acme.patch(STEP))
    optim.Optimizer.step = around(optim.Optimizer.step)

    with captured() as recorded:
        optim.Optimizer().step()
        for _ in range(3):
            registry.look_at_targets(mends=True)
        state = state_of("step")
        optim.Optimizer().step()

    assert (state.state, state.calls) == ("applied", 1)
    assert len(recorded.ranges) == 2


def test_what_calls_ours_unseen_is_known_by_its_calls(acme: Any, install: Any, optim: Any) -> None:
    install(acme.patch(STEP))
    ORIGINAL[:] = [optim.Optimizer.step]
    optim.Optimizer.step = lambda self: ORIGINAL[0](self)

    with captured() as recorded:
        for _ in range(4):
            registry.look_at_targets(mends=True)
            optim.Optimizer().step()
        state = state_of("step")

    assert state.state == "applied"
    assert len(recorded.ranges) == 4


def test_what_does_not_call_ours_becomes_a_range_at_the_second_look_once(acme: Any, install: Any, optim: Any) -> None:
    install(acme.patch(STEP))
    optim.Optimizer.step = theirs

    with captured() as recorded:
        for _ in range(3):
            registry.look_at_targets(mends=True)
            assert optim.Optimizer().step() == "theirs"
        again = state_of("step")
        optim.Optimizer.step = lambda self: "third"
        for _ in range(3):
            registry.look_at_targets(mends=True)
            assert optim.Optimizer().step() == "third"
        third = state_of("step")

    assert len(recorded.ranges) == 2
    assert (again.state, again.calls) == ("applied", 2)
    assert f"theirs of {__name__}" in again.detail
    assert (third.state, third.reason) == ("failed", Reason.REPLACED)


def test_their_function_is_there_when_ours_around_it_is_undone(acme: Any, install: Any, optim: Any) -> None:
    install(acme.patch(STEP))
    optim.Optimizer.step = theirs
    with captured():
        for _ in range(2):
            registry.look_at_targets(mends=True)
        assert optim.Optimizer.step is not theirs

    registry.remove_patches()

    assert optim.Optimizer.step is theirs


@pytest.mark.parametrize("other", [len, functools.partial(theirs, None), property(theirs), staticmethod(theirs)])
def test_what_is_no_function_of_the_same_kind_is_left_alone(acme: Any, install: Any, optim: Any, other: Any) -> None:
    install(acme.patch("ACME.optim:Optimizer.wait"))
    optim.Optimizer.wait = other
    with captured():
        for _ in range(3):
            registry.look_at_targets(mends=True)

    assert vars(optim.Optimizer)["wait"] is other
    assert state_of("wait").reason == Reason.REPLACED


def test_a_class_whose_module_is_not_imported_here_stays_in_place_and_its_calls_count(acme: Any, install: Any) -> None:
    """As in a worker of Ray to which its class came by value: a look at it was a fault of ours."""
    arrived: dict[str, Any] = {"__name__": f"{acme.name}.optim"}
    exec("class Arrived:\n    def step(self): return 'stepped'\n", arrived)

    install(acme.patch("ACME.optim:Arrived.step"))
    registry.patch_travelled(arrived["Arrived"])
    with captured() as recorded:
        arrived["Arrived"]().step()
        registry.look_at_targets(mends=True)
        state = state_of("step")

    assert (state.state, state.calls) == ("applied", 1)
    assert len(recorded.ranges) == 1


def executed_again(module: Any) -> Any:
    return importlib.reload(module)


def imported_anew(module: Any) -> Any:
    del sys.modules[module.__name__]
    return importlib.import_module(module.__name__)


@pytest.mark.parametrize("again", [executed_again, imported_anew])
def test_a_module_that_is_executed_again_is_patched_again_each_time(
    acme: Any, install: Any, optim: Any, again: Callable[[Any], Any]
) -> None:
    install(acme.patch(STEP, "ACME.optim:work"))
    module = optim
    for _ in range(3):
        module = again(module)
        plain = module.work
        assert {one.reason for one in registry.report_targets().targets} == {Reason.REPLACED}
        registry.look_at_targets(mends=True)
        with captured() as recorded:
            module.Optimizer().step(), module.work(1)

        assert [one.name for one in recorded.ranges] == ["Optimizer.step", "work"]
        assert {one.state for one in registry.report_targets().targets} == {"applied"}
    registry.remove_patches()
    assert module.work is plain
    assert not hasattr(module.Optimizer.step, "__wrapped__")


def test_autopatch_asked_again_patches_what_was_executed_again(acme: Any, install: Any, optim: Any) -> None:
    patch = acme.patch(STEP)
    install(patch)
    importlib.reload(optim)

    states = install(patch)

    assert states["Optimizer.step"].state == "applied"
