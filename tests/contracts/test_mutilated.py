"""A version that has changed where a target lies, or breaks while it is looked at: reported, and nothing harmed."""

from __future__ import annotations

import importlib
import sys
from typing import Any, Callable

import pytest
from builders import soak
from builders.contracts import surface
from builders.contracts.expected import Expected
from builders.contracts.installed import Installed, looked_up
from builders.contracts.installing import Install
from builders.contracts.versions import AFTER, BEFORE, calls, expectations, newest, patched, recorded

import mstxkit
from mstxkit.patching.declare import RANGE
from mstxkit.patching.report import APPLIED, FAILED, REASONS, WAITING, Reason

pytestmark = pytest.mark.days("odd")

Change = Callable[[dict[str, Any], str], None]


def _removed(held: dict[str, Any], name: str) -> None:
    del held[name]


def _renamed(held: dict[str, Any], name: str) -> None:
    held[f"{name}_now_otherwise"] = held.pop(name)


def _a_property(held: dict[str, Any], name: str) -> None:
    held[name] = {"kind": "def", "params": ["self"], "decorators": ["property"]}


def _asynchronous(held: dict[str, Any], name: str) -> None:
    held[name]["kind"] = "async"


def _a_generator(held: dict[str, Any], name: str) -> None:
    held[name]["kind"] = "gen"


def _a_kernel(held: dict[str, Any], name: str) -> None:
    held[name]["decorators"] = ["triton.jit"]


def _raising_when_looked_up(held: dict[str, Any], name: str) -> None:
    held[name] = {"kind": "hostile", "params": []}


CHANGES = [_removed, _renamed, _a_property, _asynchronous, _a_generator, _a_kernel, _raising_when_looked_up]
every_change = pytest.mark.parametrize(
    ("change", "order"),
    [
        pytest.param(change, order, id=f"{change.__name__.strip('_').replace('_', ' ')}-{order}")
        for change, order in soak.sample([(change, order) for change in CHANGES for order in (BEFORE, AFTER)], 4)
    ],
)


def a_method(whole: surface.Surface, wanted: list[Expected]) -> Expected:
    """A target that names a method of its own of a class that others do not inherit from, and that is not Ray's."""
    inherited = {base for module in whole.modules for one in whole.classes(module).values() for base in one["bases"]}
    return next(
        one
        for one in wanted
        if one.is_applied
        and one.target.kind == RANGE
        and not one.may_have_range
        and one.symbols[0].is_plain_method
        and one.symbols[0].key == one.target.path
        and one.target.qualname.split(".")[0] not in inherited
        and "decorators" not in whole.classes(one.target.module)[one.target.qualname.split(".")[0]]
    )


@every_change
@newest
def test_a_changed_target_is_reported_and_the_others_are_applied(
    version: str, change: Change, order: str, install: Install
) -> None:
    whole = surface.recorded(version).copy()
    chosen = a_method(whole, expectations(Installed(whole))).target
    cls, _, name = chosen.qualname.partition(".")
    change(whole.modules[chosen.module]["classes"][cls]["methods"], name)
    installed = install(whole.copy())

    report = patched(installed, order)

    wanted = expectations(installed)
    for state, one in zip(report.targets, wanted):
        assert state.reason in ("", *REASONS)
        if state.path != chosen.path:
            assert (state.state == APPLIED) == one.is_applied or one.may_have_range, state
            assert state.state != FAILED, state
    found, wanted_ranges = recorded(calls(installed, report))
    assert found == wanted_ranges
    state, one = next(pair for pair in zip(report.targets, wanted) if pair[0].path == chosen.path)
    assert state.state == APPLIED or state.reason, state
    # A property has none of the parameters that attributes may be declared by.
    assert (state.state == APPLIED) == one.is_applied or one.may_have_range or change is _a_property, state


@newest
def test_what_raises_when_looked_up_goes_on_doing_so(version: str, install: Install) -> None:
    whole = surface.recorded(version).copy()
    chosen = a_method(whole, expectations(Installed(whole))).target
    cls, _, name = chosen.qualname.partition(".")
    _raising_when_looked_up(whole.modules[chosen.module]["classes"][cls]["methods"], name)
    installed = install(whole.copy())
    installed.load()
    before = installed.holdings()

    patched(installed, AFTER)

    with pytest.raises(RuntimeError, match=r"^looked up$"):
        getattr(looked_up(f"{chosen.module}:{cls}"), name)
    mstxkit.unpatch()
    after = installed.holdings()
    assert [key for key in before if before[key] is not after[key]] == []


@newest
def test_a_module_that_raises_when_asked_for_what_it_lacks(version: str, install: Install) -> None:
    """As lazy modules do."""
    whole = surface.recorded(version).copy()
    chosen = a_method(whole, expectations(Installed(whole))).target
    whole.modules[chosen.module].update(classes={}, functions={}, hostile=True)
    importers = [one for one in whole.modules.values() if chosen.module in one.get("imports_from", {})]
    for importer in importers:
        del importer["imports_from"][chosen.module]
    installed = install(whole.copy())

    report = patched(installed, AFTER)

    states = [state for state in report.targets if state.path.startswith(f"{chosen.module}:")]
    assert {(state.state, state.reason) for state in states} == {(FAILED, Reason.FAILED)}
    assert all("looked up" in state.detail for state in states)
    found, wanted_ranges = recorded(calls(installed, report))
    assert found == wanted_ranges


@newest
def test_a_framework_whose_import_fails_fails_with_its_own_error(version: str, install: Install) -> None:
    whole = surface.recorded(version).copy()
    chosen = a_method(whole, expectations(Installed(whole))).target
    whole.modules[chosen.module]["raises"] = "libexample.so: cannot open shared object file"
    installed = install(whole.copy())
    mstxkit.autopatch(installed.surface.framework + "+extra")

    with pytest.raises(ImportError) as raised:
        importlib.import_module(chosen.module)

    assert raised.value.args == ("libexample.so: cannot open shared object file",)
    assert raised.traceback[-1].path.name == chosen.module.rpartition(".")[2] + ".py"
    assert chosen.module not in sys.modules
    states = mstxkit.patch_report().of(installed.surface.framework).targets
    assert {state.state for state in states if state.path == chosen.path} == {WAITING}
    del installed.surface.modules[chosen.module]["raises"]
    installed.write_again()
    installed.load()
    report = mstxkit.patch_report().of(installed.surface.framework)
    assert {state.state for state in report.targets if state.path == chosen.path} == {APPLIED}
    found, wanted_ranges = recorded(calls(installed, report))
    assert found == wanted_ranges
