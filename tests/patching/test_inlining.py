"""What a wrapper's own code reads of a call: as expressions say it, safely, at the cost of nothing else."""

from __future__ import annotations

import asyncio
import functools
import inspect
import itertools
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable

import pytest
from builders.hostile import Sprung, everything, trapped

from mstxkit import Target, faults, mstx_range, stage, step
from mstxkit.marking import signatures, state
from mstxkit.marking.wrapping import RangeSettings, decorate_target
from mstxkit.patching import apply, entry
from mstxkit.patching.entry import Entry
from mstxkit.patching.expressions import compile_expression
from mstxkit.testing import captured

ROOT = str(Path(__file__).resolve().parents[2])


def patched(function: Callable[..., Any], **fields: Any) -> Any:
    """The function as a target with these fields would replace it."""
    target = Target("acme.trainer:update", **fields)
    its_entry = Entry(target, inspect.signature(function))
    new = decorate_target(tuple(RangeSettings("update", target.stage, "default", None, its_entry)), function)
    apply.settle_site(target, new)
    return new


class Trainer:
    def __init__(self) -> None:
        self.n, self.config = 5, {"lr": {"max": 0.5}}

    @property
    def made(self) -> int:
        raise AssertionError("asked")


def update(self, a=1, *rest, k=2, **more):
    """What most tests patch."""
    return a


def attributes(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Those of the range of one call."""
    with captured() as got:
        function(*args, **kwargs)
    return got.ranges[-1].attributes


def read(text: str, *args: Any, **kwargs: Any) -> Any:
    """What a wrapper records as attribute x; None where it leaves it out."""
    return attributes(patched(update, attributes={"x": text}), *args, **kwargs).get("x")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", 7), ("k", 2), ("self.n", 5), ("self.config['lr']['max']", 0.5), ("len(self.config)", 1),
        ("rest[0]", 8), ("len(rest)", 2), ("more['z']", "zed"), ("len(more)", 1), ("'lit'", "lit"), ("len('four')", 4),
        ("-3", -3),
    ],
)  # fmt: skip
def test_an_expression_reads_what_the_call_has(text: str, expected: object) -> None:
    assert read(text, Trainer(), 7, 8, 9, z="zed") == expected


@pytest.mark.parametrize("text", ["self.made", "self.missing", "self.config", "self.config['no']", "rest[5]", "len(k)"])
def test_what_cannot_be_read_is_left_out_counted_and_logged_once(text: str, caplog: pytest.LogCaptureFixture) -> None:
    function = patched(update, attributes={"x": text, "a": "a"})

    with captured() as got:
        answers = [function(Trainer(), 3) for _ in range(5)]

    assert answers == [3] * 5
    assert [one.attributes for one in got.ranges] == [{"a": 3}] * 5
    assert faults.counts == {"attribute x of acme.trainer:update": 5}
    assert len([record for record in caplog.records if "x is left out" in record.message]) == 1


def test_what_failed_a_hundred_times_in_a_row_is_not_asked_again_but_read_where_it_is_plain() -> None:
    function = patched(update, attributes={"x": "a"})

    with captured() as got:
        for _ in range(150):
            function(None, [])
        function(None, 4)

    assert faults.counts == {"attribute x of acme.trainer:update": 100}
    assert got.ranges[-1].attributes == {"x": 4}


class Tensor:
    """Whatever is asked of it would wait for its device."""

    def asked(self, *args: Any) -> Any:
        raise Sprung

    __len__ = __int__ = __index__ = __float__ = __bool__ = __eq__ = __getattr__ = item = asked  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize("text", ["a", "len(a)", "a[0]", "a.shape[0]", "a.item"])
def test_a_tensor_is_not_asked(text: str) -> None:
    assert read(text, None, Tensor()) is None


@pytest.mark.parametrize("index", range(13))
@pytest.mark.parametrize("text", ["self", "self.step", "self.size", "self.inner[1].step", "len(self)", "self['a']"])
def test_whoever_is_handed_in_is_read_as_its_expression_says_and_never_asked(text: str, index: int) -> None:
    """The wrapper's code beside the expression itself."""
    hostile, expression = everything()[index], compile_expression(text, inspect.signature(update))
    function = patched(lambda self: None, attributes={"x": text})

    with captured() as got, trapped():
        function(hostile)
        try:
            expected = expression((hostile,), {})
        except Exception:
            expected = None

    assert got.ranges[-1].attributes.get("x") == expected


def test_an_int_of_more_than_64_bits_is_recorded_as_its_type() -> None:
    assert read("a", None, 1 << 80) == "int"


def test_not_a_number_is_one_and_none_is_nothing() -> None:
    assert math.isnan(read("a", None, math.nan))
    assert attributes(patched(update, attributes={"x": "a"}), None, None) == {}
    assert not faults.counts


@pytest.mark.parametrize(("make", "expected"), [(lambda: 3.5, {"role": 3.5}), (list, {}), (object, {}), (Tensor, {})])
def test_a_role_of_another_type_changes_nothing_but_the_role(make: Callable[[], Any], expected: Any) -> None:
    function = patched(update, attributes={"role": "a", "k": "k"})

    assert attributes(function, None, make()) == {**expected, "k": 2}


def test_a_role_is_the_targets_the_stages_or_that_of_the_stage_around() -> None:
    fixed, own = patched(update, role="critic"), patched(update, role="stage", stage="actor_update")
    around, with_more = patched(update, role="stage"), patched(update, role="stage", attributes={"a": "a"})

    with captured() as got, stage("reward"):
        for function in (fixed, own, around, with_more):
            function(None)

    found = [one.attributes for one in got.ranges[:-1]]
    assert found == [{"role": "critic"}, {"role": "actor"}, {"role": "reward"}, {"a": 1, "role": "reward"}]
    assert attributes(around, None) == {} and attributes(with_more, None) == {"a": 1}


def test_a_targets_role_goes_before_an_attribute_of_that_name() -> None:
    of_stage = patched(update, role="stage", attributes={"role": "a"})

    with captured() as got, stage("reward"):
        of_stage(None, "x")

    assert got.ranges[0].attributes == {"role": "reward"}
    assert attributes(of_stage, None, "x") == {"role": "x"}
    assert attributes(patched(update, role="actor", attributes={"role": "a"}), None, None) == {"role": "actor"}


@pytest.mark.parametrize(
    ("number", "expected"), [(7, 7), (0, 0), (-1, 3), (True, 3), (None, 3), (2.0, 3), ("7", 3), (1 << 40, 3)]
)
@pytest.mark.filterwarnings("ignore")
def test_the_step_is_what_the_call_says_if_that_is_a_step(number: Any, expected: int) -> None:
    function = patched(update, step="a", role="actor")

    with captured() as got:
        step(3)
        function(None, number)

    assert [(one.step, one.attributes) for one in got.ranges] == [(expected, {"role": "actor"})]


def test_a_step_that_cannot_be_read_is_counted_and_the_rest_is_recorded() -> None:
    function = patched(update, step="a.step", role="actor")

    with captured() as got:
        step(3)
        function(None, Tensor())

    assert [(one.step, one.attributes) for one in got.ranges] == [(3, {"role": "actor"})]
    assert faults.counts == {"attribute step of acme.trainer:update": 1}


def test_an_exception_of_the_function_passes_and_its_range_has_error_and_attributes() -> None:
    def failing(a: int) -> None:
        raise ValueError(a)

    function = patched(failing, role="actor", attributes={"a": "a"})

    with captured() as got, pytest.raises(ValueError, match="3") as raised:
        function(3)

    assert [(one.error, one.attributes) for one in got.ranges] == [(True, {"a": 3, "role": "actor"})]
    assert raised.traceback[-1].name == "failing"


def test_a_fault_of_ours_is_counted_and_the_range_goes_without_attributes(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> bool:
        raise RuntimeError("ours")

    monkeypatch.setattr(entry.identity, "has_role", broken)
    function = patched(update, process_role="actor", attributes={"a": "a"})

    with captured() as got:
        answer = function(None, 3)

    assert answer == 3
    assert [(one.name, one.error, one.attributes) for one in got.ranges] == [("update", False, {})]
    assert faults.counts == {"entry of a patched call": 1}


def test_the_callers_own_interrupt_is_not_held_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(entry.identity, "has_role", interrupted)

    with captured(), pytest.raises(KeyboardInterrupt):
        patched(update, process_role="actor")(None)


_NAMES = "_value _value_0 _kind _began _fault _attributes _site _timed type int next NotImplemented Exception"


@pytest.mark.parametrize("name", _NAMES.split())
def test_a_parameter_may_have_any_name(name: str) -> None:
    scope: dict[str, Any] = {}
    exec(f"def function({name}, k=3): return {name}", scope)
    function = patched(scope["function"], role="actor", attributes={"x": name, "k": "k"}, step="k")

    with captured() as got:
        answer = function(4)

    assert answer == 4
    assert [(one.step, one.attributes) for one in got.ranges] == [(3, {"x": 4, "k": 3, "role": "actor"})]


@pytest.mark.parametrize(
    "name", ["it's", 'a "quoted"', "{site}", "line\nbreak", "x'] = __import__('os')  #", "\\", "é"]
)
def test_the_name_and_the_text_of_an_attribute_are_data(name: str) -> None:
    fields = {name: "a", "text": repr(name), "key": f"more[{name!r}]"}

    assert attributes(patched(update, attributes=fields), None, 3, **{name: 4}) == {name: 3, "text": name, "key": 4}


def test_a_name_that_is_a_str_of_somebodys_own_becomes_no_code() -> None:
    class Name(str):
        def __repr__(self) -> str:
            raise Sprung

    assert attributes(patched(update, attributes={Name("x"): "a"}), None, 3) == {"x": 3}


def test_a_function_below_a_decorator_is_read_by_the_names_that_its_signature_has() -> None:
    @functools.wraps(update)
    def outer(*args: Any, **kwargs: Any) -> Any:
        return update(*args, **kwargs)

    found = {"a": "a", "k": "k", "n": "self.n", "first": "rest[0]", "z": "more['z']"}

    assert attributes(patched(outer, attributes=found), Trainer(), 3, 4, z=5) == {
        "a": 3, "k": 2, "n": 5, "first": 4, "z": 5,
    }  # fmt: skip


async def coroutine(a: int) -> int:
    return a


def generator(a: int) -> Any:
    yield a


async def async_generator(a: int) -> Any:
    yield a


async def _collected(pieces: Any) -> list[int]:
    return [one async for one in pieces]


@pytest.mark.parametrize(
    ("function", "run"),
    [
        (coroutine, lambda made: [asyncio.run(made)]),
        (generator, list),
        (async_generator, lambda made: asyncio.run(_collected(made))),
    ],
)
def test_every_kind_of_function_stays_one_and_is_read(function: Any, run: Callable[[Any], list[int]]) -> None:
    new = patched(function, role="actor", step="a", attributes={"a": "a"})
    before = run(new(3))
    with captured() as got:
        during = run(new(4))

    assert before == [3] and during == [4]
    assert signatures.interface_of(new).kind == signatures.interface_of(function).kind
    assert inspect.signature(new) == inspect.signature(function) and new.__wrapped__ is function
    assert [(one.step, one.attributes) for one in got.ranges] == [(4, {"a": 4, "role": "actor"})]


def test_while_nothing_records_nothing_is_read() -> None:
    patched(update, step="a", attributes={"x": "a"})(None, [])

    assert not faults.counts


def test_a_decorators_constant_attributes_are_those_of_each_call() -> None:
    function = mstx_range("act", role="actor", n=1)(lambda depth: depth and function(depth - 1))

    with captured() as got:
        function(2)

    assert [one.attributes for one in got.ranges] == [{"role": "actor", "n": 1}] * 3


def test_what_reading_takes_is_added_to_the_site_by_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    costs: list[tuple[str, int]] = []
    monkeypatch.setattr(state, "add_cost", lambda site, ns: costs.append((site.name, ns)))
    readings = itertools.accumulate(itertools.chain([1], *[(ns, 0) for ns in (1_000, 200_000)]))
    monkeypatch.setattr(entry, "thread_time_ns", lambda: next(readings))
    function = patched(update, attributes={"x": "a"})

    with captured():
        for _ in range(130):
            function(None)

    assert costs == [("update", 64_000), ("update", 200_000)], "a dear one stands for itself"


def test_targets_of_one_shape_share_their_code() -> None:
    compilations = signatures._compile_wrapper.cache_info().misses
    for place in range(100):
        patched(lambda a, *, b_of_this_test=1: a, role=f"role {place}", step="a")

    assert signatures._compile_wrapper.cache_info().misses <= compilations + 1


MAKE = """
import sys
import cloudpickle
from mstxkit import Patch, Target
from mstxkit.patching import registry

class Trainer:
    def __init__(self): self.n = 5
    def update(self, a, k=2): return a

import types
module = sys.modules["acme"] = types.ModuleType("acme")
module.Trainer = Trainer
fields = dict(step="k", attributes={"a": "a", "n": "self.n"})
registry.install_patches([(Patch("acme", "any", (Target("acme:Trainer.update", role="stage", **fields),)), False)])
sys.stdout.buffer.write(cloudpickle.dumps(Trainer))
"""
RUN = """
import sys
import cloudpickle
from mstxkit import stage
from mstxkit.testing import captured
trainer = cloudpickle.load(sys.stdin.buffer)()
with captured() as got, stage("reward"):
    assert trainer.update(3) == 3
print([(one.step, one.attributes) for one in got.ranges][0])
"""


def _run(script: str, stdin: bytes = b"", **environment: str) -> bytes:
    env = {**os.environ, "PYTHONPATH": ROOT, **environment}
    done = subprocess.run([sys.executable, "-c", script], input=stdin, capture_output=True, env=env, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@pytest.mark.parametrize("native", ["0", ""])
def test_a_class_shipped_by_value_is_read_by_the_engine_that_it_meets(native: str) -> None:
    pytest.importorskip("cloudpickle")

    answer = _run(RUN, _run(MAKE), MSTXKIT_NATIVE=native)

    assert answer.decode().strip() == str((2, {"a": 3, "n": 5, "role": "reward"}))


def test_a_class_shipped_by_value_runs_where_mstxkit_is_off() -> None:
    pytest.importorskip("cloudpickle")
    script = "import cloudpickle, sys; print(cloudpickle.load(sys.stdin.buffer)().update(3))"

    assert _run(script, _run(MAKE), MSTXKIT_OFF="1").strip() == b"3"
