"""A target of kind `around`: one of our functions decides, in its range, and all of it goes with the patch."""

from __future__ import annotations

import inspect
from typing import Any, Callable

import pytest

from mstxkit.errors import PatchError
from mstxkit.patching import registry
from mstxkit.patching.declare import Target
from mstxkit.testing import captured

SOURCE = """
def started(config, role="data"):
    return [config, role]
"""
USER = "from ACME.profiler import started\n"
answers: list[Any] = []


def decide(upstream: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return answers[0] if answers else upstream(*args, **kwargs)


@pytest.fixture(autouse=True)
def _no_answers() -> Any:
    answers.clear()
    yield
    answers.clear()


def patched(acme: Any, install: Any) -> Any:
    acme.write("profiler", SOURCE)
    acme.write("worker", USER)
    worker = acme.load("worker")
    path = f"{decide.__module__}:decide"
    states = install(acme.patch(acme.target("ACME.profiler:started", kind="around", value=path)))
    assert states["started"].state == "applied", states
    return worker


def test_our_function_decides_in_the_range_of_the_frameworks(acme: Any, install: Any) -> None:
    worker = patched(acme, install)

    with captured() as seen:
        asked = worker.started("config", role="update")
        answers.append(None)
        refused = worker.started("config")

    assert (asked, refused) == (["config", "update"], None)
    assert [found.name for found in seen.ranges] == ["started", "started"]


def test_its_signature_is_the_frameworks(acme: Any, install: Any) -> None:
    worker = patched(acme, install)

    assert str(inspect.signature(worker.started)) == "(config, role='data')"


def test_it_goes_with_the_patch_also_from_copies_that_somebody_keeps(acme: Any, install: Any) -> None:
    worker = patched(acme, install)
    kept = worker.started
    original = kept.__wrapped__.__wrapped__
    registry.remove_patches()
    answers.append("ours")

    assert worker.started is acme.load("profiler").started is original
    assert kept("config") == ["config", "data"]


def test_a_function_of_ours_that_is_not_there_is_a_failed_target(acme: Any, install: Any) -> None:
    acme.write("profiler", SOURCE)
    states = install(acme.patch(acme.target("ACME.profiler:started", kind="around", value="mstxkit.absent:f")))
    module = acme.load("profiler")
    states = {one.path.partition(":")[2]: one for one in registry.report_targets().targets}

    assert states["started"].state == "failed"
    assert module.started("config") == ["config", "data"]


@pytest.mark.parametrize("fields", [{"kind": "around"}, {"value": "a:b"}])
def test_it_needs_to_be_said_which_function(fields: dict[str, Any]) -> None:
    with pytest.raises(PatchError, match="goes with kind value, around or wrap"):
        Target("a.b:f", **fields)


def test_a_dummy_without_a_boundary_is_a_mistake() -> None:
    with pytest.raises(PatchError, match="goes with boundary"):
        Target("a.b:f", dummy="x == 0")
