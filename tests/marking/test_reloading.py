"""Functions that are edited while they are held, as in a notebook: code and data of a wrapper are not parted.

Tools that reload give another function's code, defaults and attributes to the function that is held: IPython's
`superreload` (up to 8, and from 9 on where it must), pydevd. Some give its closure too, as IPython 9 and jurigged. Its
globals nobody can give.
"""

from __future__ import annotations

import gc
import importlib
import inspect
import os
import sys
import textwrap
import time
import weakref
from pathlib import Path
from types import FunctionType
from typing import Any, Callable

import pytest

from mstxkit.marking import signatures
from mstxkit.marking.ranges import mstx_timer, stage
from mstxkit.testing import captured

PLAIN = "def f(x):\n return x + HERE"
FORMS = {
    "plain": PLAIN,
    "decorated": f"@mstx_timer\n{PLAIN}",
    "of a name": f"@mstx_timer('other', stage='s')\n{PLAIN}",
    "with attributes": f"@mstx_timer(attributes=lambda x: {{'x': x}})\n{PLAIN}",
    "one more parameter": "@mstx_timer\ndef f(x, y=5, *, z=2):\n return x + y + z + HERE",
    "a generator": "@mstx_timer\ndef f(x):\n yield x + HERE",
    "a coroutine": "@mstx_timer\nasync def f(x):\n return x + HERE",
    "an async generator": "@mstx_timer\nasync def f(x):\n yield x + HERE",
    "names of our own": "@mstx_timer\ndef f(_site, _function=3):\n return _site + _function + HERE",
}


@pytest.fixture
def in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """IPython says so of itself by this name."""
    monkeypatch.setattr("builtins.__IPYTHON__", True, raising=False)


def given(held: Any, new: Any, has_closure: bool) -> Any:
    """`held` once a tool has given it all that it can of `new`."""
    closure = new.__closure__ if has_closure else held.__closure__
    edited = FunctionType(new.__code__, held.__globals__, held.__name__, new.__defaults__, closure)
    edited.__kwdefaults__ = new.__kwdefaults__
    edited.__dict__.update(new.__dict__)
    return edited


def answer(function: Any) -> Any:
    result = function(1)
    if inspect.iscoroutine(result) or inspect.isasyncgen(result):
        step = result if inspect.iscoroutine(result) else result.asend(None)
        try:
            step.send(None)
        except StopIteration as done:
            return done.value
    return list(result) if inspect.isgenerator(result) else result


@pytest.mark.usefixtures("in_a_notebook")
@pytest.mark.parametrize("has_closure", [False, True], ids=["code", "code and closure"])
@pytest.mark.parametrize("after", FORMS)
@pytest.mark.parametrize("before", FORMS)
def test_an_edit_runs_and_nothing_raises(before: str, after: str, has_closure: bool) -> None:
    module: dict[str, Any] = {"__name__": "edited", "mstx_timer": mstx_timer, "HERE": 100}
    exec(FORMS[before], module)
    held = module["f"]
    for is_recording in (False, True):
        exec(FORMS[after], module)
        edited = given(held, module["f"], has_closure)
        module["HERE"] += 1
        if is_recording:
            with captured():
                answers = answer(edited), answer(module["f"])
        else:
            answers = answer(edited), answer(module["f"])
        assert answers[0] == answers[1] and str(module["HERE"])[:2] in str(answers[0])


METHODS = {
    "plain": "def f(self, x):\n  return super().f(x) + HERE",
    "decorated": "@mstx_timer\n def f(self, x):\n  return super().f(x) + HERE",
    "staged": "@stage('s')\n def f(self, x):\n  return super().f(x) + HERE",
    "a generator": "@mstx_timer\n def f(self, x):\n  yield super().f(x) + HERE",
}


@pytest.mark.filterwarnings("ignore:Assigning a code object of non-matching type")  # CPython 3.13 warns of superreload
@pytest.mark.usefixtures("in_a_notebook")
@pytest.mark.parametrize("after", METHODS)
@pytest.mark.parametrize("before", METHODS)
def test_an_edited_method_has_its_class(before: str, after: str) -> None:
    """superreload gives the new code to the old method, and the old object the new class; IPython 9 executes the new
    method in a class of its own, and leaves the old closure where it is.
    """
    base = "class Base:\n def f(self, x): return x\n"
    module: dict[str, Any] = {"__name__": "edited", "mstx_timer": mstx_timer, "stage": stage, "HERE": 100}
    exec(f"{base}class C(Base):\n {METHODS[before]}", module)
    old, thing = module["C"], module["C"]()
    exec(f"class C(Base):\n {METHODS[after]}", module)
    old.f.__code__, thing.__class__ = module["C"].f.__code__, module["C"]
    answers = [answer(thing.f), answer(module["C"]().f)]
    exec(f"class __autoreload_class__:\n {METHODS[after]}", module)
    module["C"].f.__code__ = module["__autoreload_class__"].f.__code__
    answers.append(answer(thing.f))

    assert answers == [[101] if after == "a generator" else 101] * 3


@pytest.mark.usefixtures("in_a_notebook")
def test_code_that_holds_something_has_a_hash_whatever_that_is() -> None:
    """Profilers and torch.compile look things up by code."""

    class NoHash(dict[str, int]):
        def __call__(self, x: int) -> dict[str, int]:
            return {"x": x}

    for attributes in (NoHash(), {"n": 1}):
        f = mstx_timer(attributes=attributes, stream=[])(lambda x: x)  # type: ignore[arg-type]
        assert {f.__code__: 1}[f.__code__] == f(1)


@pytest.mark.usefixtures("in_a_notebook")
def test_what_is_made_again_and_again_is_freed_also_where_it_refers_to_itself() -> None:
    def made() -> Any:
        @mstx_timer
        def countdown(n: int) -> int:
            return countdown(n - 1) if n else 0

        class Local(list[int]):
            @mstx_timer
            def append(self, x: int) -> None:
                super().append(x)

        countdown(1), Local().append(1)
        return weakref.ref(countdown), weakref.ref(Local)

    gone = made()
    gc.collect()

    assert [reference() for reference in gone] == [None, None]


@pytest.mark.usefixtures("in_a_notebook")
def test_a_wrapper_made_there_is_ours_as_elsewhere() -> None:
    @mstx_timer("made there")
    def f(x: int) -> int:
        return x

    held = signatures.held_by(f)
    assert held is not None and held["site"].name == "made there" and held["function"] is f.__wrapped__
    assert mstx_timer("made there")(f) is f
    with captured() as got:
        f(1)
        signatures.silence_wrapper(f, lambda x: x + 1)
        silent = f(1)
    assert (silent, [found.name for found in got.ranges]) == (2, ["made there"])


def test_elsewhere_a_wrapper_is_no_closure() -> None:
    """CPython copies the cells of a closure at every call."""
    assert mstx_timer(lambda: None).__closure__ is None


@pytest.mark.parametrize("form", [form for form in FORMS if form not in ("plain",)])
def test_autoreload_of_ipython(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tool itself, where it is installed."""
    autoreload = pytest.importorskip("IPython.extensions.autoreload")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    name = f"edited_{sorted(FORMS).index(form)}"
    file = tmp_path / f"{name}.py"
    head = "from mstxkit import mstx_timer\nHERE = 100\n"
    file.write_text(head + FORMS["decorated"])
    module = importlib.import_module(name)
    held: Callable[..., Any] = module.f
    reloader = autoreload.ModuleReloader()
    reloader.enabled = reloader.check_all = True
    reloader.check(check_all=True)
    file.write_text(head + textwrap.dedent(FORMS[form]).replace("HERE", "HERE + 100"))
    os.utime(file, (time.time() + 5,) * 2)
    reloader.check(check_all=True)

    assert answer(held) == answer(module.f)
    assert "20" in str(answer(held))
