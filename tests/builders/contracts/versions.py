"""Which recorded versions a test runs over, and the two orders of patching and importing."""

from __future__ import annotations

from typing import Any, Iterable, Iterator

import pytest
from builders import soak
from builders.contracts import expected, surface
from builders.contracts.installed import Called, Installed, called, flush
from builders.contracts.surface import Symbol

import mstxkit
from mstxkit.patching import registry
from mstxkit.patching.declare import VALUE
from mstxkit.patching.report import APPLIED
from mstxkit.testing import captured

BEFORE, AFTER = "before its import", "after its import"
# One version of each framework, for what does not depend on the version.
NEWEST = (
    "mindspeed_llm-master-c77308a1",
    "mindspeed_rl-master-05a90d7",
    "mindspore-2.10.0",
    "openrlhf-0.11.2",
    "sglang-0.5.23",
    "verl-0.9.1",
    "vllm-0.32.0",
    "vllm_ascend-0.23.0",
)


def _marked(name: str) -> Any:
    """Where Ray decorates something, a real Ray is needed."""
    of_ray = [pytest.mark.frameworks] if surface.recorded(name).uses_ray else []
    return pytest.param(name, marks=[*of_ray, pytest.mark.soak])


def _some(names: list[str]) -> list[str]:
    """The newest of each framework, and two of the others a day; all in soak."""
    older = soak.sample([name for name in names if name not in NEWEST], 2)
    return [name for name in names if name in NEWEST or name in older]


every_version = pytest.mark.parametrize("version", [_marked(name) for name in _some(surface.names())])
newest = pytest.mark.parametrize("version", [_marked(name) for name in NEWEST])
both_orders = pytest.mark.parametrize("order", [BEFORE, AFTER])


def patched(installed: Installed, order: str, extra: str = "+extra") -> mstxkit.PatchReport:
    """Patch the framework before or after all of it is imported."""
    if order == AFTER:
        installed.load()
    mstxkit.autopatch(installed.surface.framework + extra)
    if order == BEFORE:
        installed.load()
    return mstxkit.patch_report().of(installed.surface.framework)


def calls(installed: Installed, report: mstxkit.PatchReport) -> Iterator[tuple[expected.Expected, Symbol, Called]]:
    """How to call every function of every target that is applied."""
    for state, one in zip(report.targets, expectations(installed)):
        if state.state == APPLIED and one.target.kind != VALUE:
            for symbol in one.symbols:
                yield one, symbol, called(one.target, symbol)


def recorded(made: Iterable[tuple[expected.Expected, Symbol, Called]]) -> tuple[list[Any], list[Any]]:
    """Make calls: name, stage and error of the ranges that they record, and of those that they should, in order."""
    wanted = []
    with captured() as seen:
        for _, _, call in made:
            call.call()
            flush()
            wanted += call.ranges
    return [(found.name, found.stage, found.error) for found in seen.ranges], wanted


def expectations(installed: Installed, extra: bool = True) -> list[expected.Expected]:
    """What should become of each target of the package's patch."""
    return expected.expected(installed.surface, registry.load_patch(installed.surface.framework), extra)
