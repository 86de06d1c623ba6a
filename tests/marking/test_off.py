"""What `import mstxkit` does, and what MSTXKIT_OFF=1 leaves of it: each in a fresh process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = str(Path(__file__).resolve().parents[2])


def run(script: str, **environment: str) -> str:
    env = {**os.environ, "PYTHONPATH": ROOT, **environment}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    return done.stdout


def test_off_decorators_return_the_function_itself() -> None:
    run(
        """
from functools import partial, partialmethod, cached_property
from mstxkit import mstx_range, mstx_timer, stage

def function(): pass
targets = [function, staticmethod(function), classmethod(function), property(function), partial(function),
           partialmethod(function), cached_property(function), type("Class", (), {"method": function})]
for target in targets:
    for decorate in (mstx_timer, mstx_timer("x"), mstx_timer(stage="s"), mstx_range("x", n=1), stage("s")):
        assert decorate(target) is target, (decorate, target)
assert vars(targets[-1])["method"] is function
assert mstx_range(function) is stage(function) is function
assert stage(targets[1]) is targets[1]
""",
        MSTXKIT_OFF="1",
    )


@pytest.mark.parametrize("variable", ["MSTXKIT_OFF", "MSTXKIT_NATIVE"])
def test_an_attribute_may_have_any_name_on_or_off(variable: str) -> None:
    """Also that of the first argument: what runs while mstxkit is on must not raise while it is off."""
    run(
        """
from mstxkit import mark, mstx_range, stage
mark("m", message=1)
with mstx_range("x", name=1, self=2), stage("s", key=3), mstx_range(name="y"), stage(key="z") as r:
    r.set(name=4, self=5)
""",
        **{variable: "1"},
    )


def test_off_ranges_do_nothing_in_every_form() -> None:
    run(
        """
import asyncio, contextlib, mstxkit
with mstxkit.mstx_range("x", stage="s", domain="d", stream=3, n=1) as r, mstxkit.stage("s", n=1), mstxkit.at_step(3):
    r.set(n=2)
    mstxkit.mark("m", n=1)
assert mstxkit.mstx_range("x") is r
async def main():
    async with mstxkit.mstx_range("x") as r:
        r.set(n=2)
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(mstxkit.stage("s"))
asyncio.run(main())
try:
    with mstxkit.stage("s"):
        raise ValueError
except ValueError:
    pass
else:
    raise AssertionError("swallowed")
assert mstxkit.step() is mstxkit.step(5) is mstxkit.current_step() is mstxkit.current_stage() is None
""",
        MSTXKIT_OFF="1",
    )


def test_off_loads_no_engine_and_watches_no_import() -> None:
    run(
        """
import sys
before = list(sys.meta_path)
import mstxkit
hot = ("mstxkit.recorder", "mstxkit.engine", "mstxkit.marking.wrapping")
assert not [m for m in sys.modules if m.startswith(hot)]
assert sys.meta_path == before
""",
        MSTXKIT_OFF="1",
    )


@pytest.mark.parametrize("value", ["", "0"])
def test_only_a_value_that_says_so_switches_off(value: str) -> None:
    run("import mstxkit, sys; assert 'mstxkit.engine.choose' in sys.modules", MSTXKIT_OFF=value)


def test_public_names_that_load_more_are_loaded_when_first_used() -> None:
    run(
        """
import sys, mstxkit
assert set(mstxkit.__all__) == set(dir(mstxkit))
assert "mstxkit.bootstrap.capture" not in sys.modules
assert "mstxkit.reading.run" not in sys.modules
mstxkit.capture
assert "mstxkit.bootstrap.capture" in sys.modules
try:
    mstxkit.no_such_name
except AttributeError as exc:
    assert "no_such_name" in str(exc)
else:
    raise AssertionError
"""
    )
