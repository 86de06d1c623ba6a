"""torch.compile over marked code: one full graph, and nothing compiled anew when recording is switched on or off."""

from __future__ import annotations

from typing import Any, Callable

import pytest

torch = pytest.importorskip("torch")

from mstxkit import at_step, current_step, mark, mstx_range, mstx_timer, stage, step  # noqa: E402
from mstxkit.testing import captured  # noqa: E402


class Compiled:
    """A function compiled by a backend that counts its graphs."""

    def __init__(self, function: Callable[..., Any], fullgraph: bool = True) -> None:
        self.graphs = 0
        torch._dynamo.reset()
        self.call = torch.compile(function, backend=self._backend, fullgraph=fullgraph)

    def _backend(self, graph: Any, inputs: Any) -> Any:
        self.graphs += 1
        return graph.forward


@mstx_timer
def plain(x: Any) -> Any:
    return x.sin() + 1


@mstx_timer("outer", stage="s", attributes=lambda x, k: {"rows": x.shape[0]})
def nested(x: Any, *, k: int = 2) -> Any:
    return plain(x) * k


@mstx_range("ranged", tokens=1)
def ranged(x: Any) -> Any:
    return x + 1


class Model(torch.nn.Module):  # type: ignore[misc]
    @mstx_timer(stage="forward")
    def forward(self, x: Any) -> Any:
        with stage("inner"):
            return x.cos()


def with_range(x: Any) -> Any:
    with mstx_range("x", tokens=3) as r:
        y = x + 1
        r.set(k=1)
    return y * 2


def with_everything(x: Any) -> Any:
    with stage("s", n=1), at_step(3), mstx_range(f"of {x.shape[0]}", domain="d", stream=None):
        mark("inside", n=1)
        return nested(with_range(x), k=3)


def over_generator(x: Any) -> Any:
    return sum(numbers(x))


@mstx_timer
def numbers(x: Any) -> Any:
    for i in range(3):
        yield x + i


FUNCTIONS = [plain, nested, ranged, Model(), with_range, with_everything, over_generator]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: getattr(f, "__name__", type(f).__name__))
def test_marked_code_is_one_full_graph_that_switching_never_recompiles(function: Any) -> None:
    compiled = Compiled(function)
    x = torch.ones(2)
    expected = function(x)

    for _ in range(20):
        with captured():
            assert torch.equal(compiled.call(x), expected)
        assert torch.equal(compiled.call(x), expected)

    assert compiled.graphs == 1


OF_A_NOTEBOOK = """
@mstx_timer("outer", stage="s", attributes=lambda x: {"rows": x.shape[0]})
def f(x):
    return inner(x) * 2

@mstx_timer
def inner(x):
    return x.sin()

class Base(torch.nn.Module):
    def forward(self, x):
        return x + 1

class Deep(Base):
    @mstx_timer
    def forward(self, x):
        return super().forward(inner(x))
"""


@pytest.mark.parametrize("name", ["f", "Deep"])
def test_what_a_notebooks_wrapper_holds_in_its_code_is_traced(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builtins.__IPYTHON__", True, raising=False)
    module: dict[str, Any] = {"__name__": "a_notebook", "torch": torch, "mstx_timer": mstx_timer}
    exec(OF_A_NOTEBOOK, module)
    function = module[name]() if name == "Deep" else module[name]
    compiled, x = Compiled(function), torch.ones(2)
    for _ in range(3):
        with captured():
            assert torch.equal(compiled.call(x), function(x))

    assert compiled.graphs == 1


def test_code_that_was_compiled_while_recording_is_not_compiled_again() -> None:
    compiled = Compiled(with_everything)
    with captured():
        compiled.call(torch.ones(2))
    compiled.call(torch.ones(2))

    assert compiled.graphs == 1


def test_a_range_around_compiled_code_is_recorded() -> None:
    compiled = Compiled(lambda x: x + 1)
    with captured() as got:
        with mstx_range("around"):
            compiled.call(torch.ones(2))

    assert [r.name for r in got.ranges] == ["around"]


def test_eager_code_is_recorded_as_before_torch_was_loaded() -> None:
    with captured() as got:
        with_everything(torch.ones(2))

    assert {r.name for r in got.ranges} == {"s", "of 2", "x", "outer", plain.__qualname__}


def test_a_graph_break_in_a_decorated_function_leaves_the_rest_compiled() -> None:
    @mstx_timer
    def breaks(x: Any) -> Any:
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    compiled = Compiled(breaks, fullgraph=False)
    answer = compiled.call(torch.ones(2))

    assert answer.tolist() == [4, 4]
    assert compiled.graphs == 2


def test_a_range_that_is_kept_breaks_the_graph_and_is_recorded() -> None:
    """torch enters a context manager of C in the graph only where the graph has made it."""
    kept = mstx_range("kept")

    def uses_it(x: Any) -> Any:
        with kept:
            return x + 1

    compiled = Compiled(uses_it, fullgraph=False)
    with captured() as got:
        answer = compiled.call(torch.ones(2))

    assert (answer.tolist(), compiled.graphs) == ([2, 2], 0)
    assert [r.name for r in got.ranges] == ["kept"]


def test_a_step_in_compiled_code_really_counts() -> None:
    """It breaks the graph: leaving it out would leave all that follows at the wrong step."""

    def train(x: Any) -> Any:
        y = x + 1
        step(8)
        return y * 2, current_step()

    compiled = Compiled(train, fullgraph=False)
    with captured() as got:
        answers = [compiled.call(torch.ones(2))[1] for _ in range(3)]
        with mstx_range("after"):
            pass

    assert answers == [8, 8, 8]
    assert [r.step for r in got.ranges] == [8]


def test_an_exception_in_a_traced_range_is_the_programs_own() -> None:
    def fails(x: Any) -> Any:
        with mstx_range("x"):
            y = x + 1
            raise ValueError("mine")
        return y

    with pytest.raises(ValueError, match="mine"):
        Compiled(fails, fullgraph=False).call(torch.ones(2))
