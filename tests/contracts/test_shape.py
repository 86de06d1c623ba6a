"""What is patched looks and travels as before, and `unpatch` leaves every attribute as it was."""

from __future__ import annotations

import inspect
import pickle
import pydoc
import sys
from types import FunctionType
from typing import Any

import cloudpickle
import pytest
from builders.contracts import outside, surface
from builders.contracts.installed import Installed, instance, looked_up, modified_class
from builders.contracts.installing import Install
from builders.contracts.versions import (
    AFTER,
    BEFORE,
    both_orders,
    calls,
    every_version,
    expectations,
    patched,
    recorded,
)
from builders.holding import HOLDERS

import mstxkit
from mstxkit.marking import signatures
from mstxkit.patching import registry
from mstxkit.patching.declare import AROUND, CONTEXT, RANGE, WRAP
from mstxkit.patching.report import APPLIED
from mstxkit.testing import captured

pytestmark = pytest.mark.days("even")


def shape(value: Any) -> dict[str, Any]:
    """All that a framework, Ray or a reader may ask of a function."""
    function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
    names = ("__name__", "__qualname__", "__module__", "__doc__", "__annotations__")
    ours = ("__wrapped__", "__signature__", "__mstxkit_context__")
    marks = {key: one for key, one in vars(function).items() if key not in ours}
    return {
        **{name: getattr(function, name) for name in names},
        "type": type(value),
        "signature": str(inspect.signature(function)),
        "kinds": [
            ask(function)
            for ask in (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
        ],
        "marks": marks,
        "help": pydoc.plain(pydoc.render_doc(function)),
    }


def travelled(value: Any) -> Any:
    """How pickle takes it: as itself, not at all, or as something else."""
    try:
        return pickle.loads(pickle.dumps(value)) is value
    except (pickle.PicklingError, AttributeError, TypeError) as exc:
        return type(exc)


def applied_paths(installed: Installed, kinds: tuple[str, ...] = (RANGE,)) -> list[str]:
    """Paths of functions that a patch of the package turns into ranges."""
    report = mstxkit.patch_report().of(installed.surface.framework)
    return [
        one.target.path
        for state, one in zip(report.targets, expectations(installed))
        if state.state == APPLIED and one.target.kind in kinds and "*" not in one.target.path
    ]


@both_orders
@every_version
def test_a_patched_function_looks_and_travels_as_before(version: str, order: str, install: Install) -> None:
    installed = install(surface.recorded(version))
    patched(installed, order)
    paths = applied_paths(installed, (RANGE, CONTEXT))
    ours = {path: (shape(looked_up(path)), travelled(looked_up(path))) for path in paths}

    mstxkit.unpatch()

    assert paths
    for path in paths:
        theirs = shape(looked_up(path)), travelled(looked_up(path))
        # An inherited method has become one of the class itself, and says so: pickle looks it up by its names.
        inherited = {"__qualname__", "__module__", "help"} if theirs[0]["__qualname__"] != path.split(":")[1] else set()
        assert {key for key, one in ours[path][0].items() if theirs[0][key] != one} <= inherited, path
        assert ours[path][1] == theirs[1], path


@every_version
def test_what_others_hold_of_a_target_is_equal_found_and_pickled_as_before(version: str, install: Install) -> None:
    installed = install(surface.recorded(version))
    installed.load()
    kinds = (RANGE, CONTEXT, AROUND, WRAP)  # what is a value of ours, or the framework's own, is as declared
    targets = [one.target for one in expectations(installed) if one.is_applied and one.target.kind in kinds]
    functions = {one.path: looked_up(one.path) for one in targets if "*" not in one.path}
    # Of what is inherited the parent has the original on.
    own = {path: one for path, one in functions.items() if getattr(one, "__qualname__", "") == path.split(":")[1]}
    plain = {path: one for path, one in own.items() if _can_be_pickled(one)}
    kept = {path: {kind: HOLDERS[kind].make(one) for kind in HOLDERS} for path, one in plain.items()}
    table = {one: path for path, one in plain.items()}

    mstxkit.autopatch(installed.surface.framework + "+extra")

    for path, holders in kept.items():
        there = looked_up(path)
        assert table[there], path
        for kind, holder in holders.items():
            assert HOLDERS[kind].get(holder) is there, (path, kind)
        assert pickle.loads(pickle.dumps(holders["list"]))[1] is there, path
    mstxkit.unpatch()
    assert plain
    for path, holders in kept.items():
        for kind, holder in holders.items():
            assert HOLDERS[kind].get(holder) is plain[path], (path, kind)


def _can_be_pickled(value: Any) -> bool:
    return isinstance(value, FunctionType) and travelled(value) is True


@every_version
def test_a_patched_class_travels_by_value(version: str, install: Install) -> None:
    """As Ray sends a class under @ray.remote: what arrives has its ranges, one each."""
    installed = install(surface.recorded(version))
    patched(installed, AFTER)
    targets = [one for one in expectations(installed) if one.is_applied and one.target.kind == RANGE]
    plain = [one for one in targets if one.symbols[0].is_plain_method and one.symbols[0].record["kind"] == "def"]

    for one in plain[:40]:
        module, _, qualname = one.target.path.partition(":")
        holder = getattr(sys.modules[module], qualname.split(".")[0])
        copy = _by_value(modified_class(holder) or holder)
        with captured() as seen:
            getattr(copy, qualname.split(".")[1])(instance(copy), **_required(one.symbols[0].record["params"][1:]))

        assert len(seen.ranges) == 1 or one.target.coalesce, one.target
    assert plain


def _by_value(cls: type) -> Any:
    module = sys.modules[cls.__module__]
    cloudpickle.register_pickle_by_value(module)
    try:
        data = cloudpickle.dumps(cls)
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    return cloudpickle.loads(data)


def _required(parameters: list[str]) -> dict[str, str]:
    return {text: "x" for text in parameters if not text.startswith("*") and not text.endswith("=")}


@every_version
def test_unpatching_puts_back_every_attribute(version: str, install: Install) -> None:
    installed = install(surface.recorded(version))
    installed.load()
    before = installed.holdings()
    mstxkit.autopatch(installed.surface.framework + "+extra")
    while_patched = installed.holdings()

    mstxkit.unpatch()

    after = installed.holdings()
    changed = [key for key, value in while_patched.items() if before.get(key) is not value]
    assert len(changed) >= len(applied_paths(installed))
    assert before.keys() == after.keys()
    assert [key for key in before if before[key] is not after[key]] == []


@every_version
def test_unpatching_leaves_no_range_where_the_import_came_later(version: str, install: Install) -> None:
    installed = install(surface.recorded(version))
    made = list(calls(installed, patched(installed, BEFORE)))
    outside.upstream_ranges.clear()

    mstxkit.unpatch()

    found, _ = recorded(made)
    ours = [key for key, value in installed.holdings().items() if _has_range(value)]
    assert [name for _, name in ours] == []
    assert made
    assert found == []
    seam = registry.load_patch(installed.surface.framework).seam
    assert bool(outside.upstream_ranges) is (seam is not None)


def _has_range(value: Any) -> bool:
    return signatures.held_by(getattr(value, "__func__", getattr(value, "fget", value))) is not None


def test_the_walk_over_a_package_sees_a_change(install: Install) -> None:
    """So that the tests above cannot pass by looking at nothing."""
    installed = install(surface.recorded("sglang-0.5.23"))
    installed.load()
    before = installed.holdings()
    cls = sys.modules["sglang.srt.managers.scheduler"].Scheduler

    cls.run_batch = lambda self: None

    after = installed.holdings()
    changed = [key for key in before if before[key] is not after.get(key)]
    assert changed[0] == (id(cls), "run_batch")
    assert len(before) > 1000
