"""Functions that are edited while they are held, as in a notebook: code and data of a wrapper are not parted.

Tools that reload give another function's code, closure, defaults and attributes to the function that is held. Its
globals they cannot give.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import textwrap
import time
from pathlib import Path
from types import FunctionType
from typing import Any, Callable

import pytest

from mstxkit.marking import signatures
from mstxkit.marking.ranges import mstx_timer
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


def given(held: Any, new: Any) -> Any:
    """`held` once a tool has given it all that it can of `new`."""
    edited = FunctionType(new.__code__, held.__globals__, held.__name__, new.__defaults__, new.__closure__)
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
@pytest.mark.parametrize("after", FORMS)
@pytest.mark.parametrize("before", FORMS)
def test_an_edit_runs_and_nothing_raises(before: str, after: str) -> None:
    module: dict[str, Any] = {"__name__": "edited", "mstx_timer": mstx_timer, "HERE": 100}
    exec(FORMS[before], module)
    held = module["f"]
    for is_recording in (False, True):
        exec(FORMS[after], module)
        edited = given(held, module["f"])
        module["HERE"] += 1
        if is_recording:
            with captured():
                answers = answer(edited), answer(module["f"])
        else:
            answers = answer(edited), answer(module["f"])
        assert answers[0] == answers[1] and str(module["HERE"])[:2] in str(answers[0])


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
        signatures.silence(f, lambda x: x + 1)
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
