"""Every recorded version of every framework: the targets that it holds are applied, and each call is one range."""

from __future__ import annotations

import importlib

import pytest
from builders.contracts import outside, surface
from builders.contracts.installed import flush, looked_up
from builders.contracts.installing import Install
from builders.contracts.versions import AFTER, both_orders, calls, every_version, expectations, patched

from mstxkit.patching.declare import VALUE
from mstxkit.patching.report import APPLIED, FAILED, REASONS, Reason
from mstxkit.testing import captured


@pytest.mark.parametrize("extra", ["", "+extra"])
@both_orders
@every_version
def test_the_targets_that_a_version_holds_are_applied(version: str, order: str, extra: str, install: Install) -> None:
    installed = install(surface.recorded(version))
    wanted = expectations(installed, bool(extra))

    report = patched(installed, order, extra)

    assert [state.path for state in report.targets] == [one.target.path for one in wanted]
    for state, one in zip(report.targets, wanted):
        allowed = {(APPLIED, "")} if one.is_applied else {(state.state, reason) for reason in REASONS}
        if one.may_have_range:
            allowed.add((state.state, Reason.HAS_RANGE))
        assert (state.state, state.reason) in allowed, state
        assert state.state != FAILED, state
    # Of targets that name the same function at least one is applied.
    applied = [one for state, one in zip(report.targets, wanted) if state.state == APPLIED]
    reached = {symbol.key for one in applied for symbol in one.symbols}
    assert {symbol.key for one in wanted for symbol in one.symbols} <= reached
    assert reached


@both_orders
@every_version
def test_each_call_is_one_range_and_gives_what_it_gave(version: str, order: str, install: Install) -> None:
    installed = install(surface.recorded(version))
    report = patched(installed, order)

    wanted = []
    with captured() as seen:
        for one, symbol, call in calls(installed, report):
            given = call.call()
            flush()
            wanted += call.ranges
            assert given in (symbol.key, [symbol.key]) or symbol.gives_a_context, (one.target, given)
            assert outside.upstream_ranges == [], one.target

    assert [(found.name, found.stage, found.error) for found in seen.ranges] == wanted


@both_orders
@pytest.mark.parametrize("version", [pytest.param("verl-0.9.1", marks=pytest.mark.frameworks)])
def test_a_replaced_global_is_what_is_declared(version: str, order: str, install: Install) -> None:
    installed = install(surface.recorded(version))
    report = patched(installed, order)
    replaced = [
        one.target
        for state, one in zip(report.targets, expectations(installed))
        if state.state == APPLIED and one.target.kind == VALUE
    ]

    for target in replaced:
        module, _, name = str(target.value).partition(":")
        declared = getattr(importlib.import_module(module), name)
        assert looked_up(target.path) is declared
    assert replaced


@every_version
def test_a_body_that_raises_closes_its_range(version: str, install: Install) -> None:
    installed = install(surface.recorded(version))
    report = patched(installed, AFTER)
    may_lack_error = {one.target.name or one.target.qualname for one in expectations(installed) if one.target.coalesce}

    wanted = []
    with captured() as seen:
        for _, symbol, call in calls(installed, report):
            if not symbol.gives_a_context:
                outside.failing.add(symbol.key)
                with pytest.raises(outside.Boom):
                    call.call()
                flush()
                wanted += [(name, stage, True) for name, stage, _ in call.ranges]
                outside.failing.clear()

    assert seen.open == []
    recorded = [(found.name, found.stage, found.error or found.name in may_lack_error) for found in seen.ranges]
    assert recorded == wanted
