"""What a decorated function still is: the same signature, the same marks, the same kind; and each call is a range."""

from __future__ import annotations

import enum
import functools
import inspect
import itertools
import sys
import traceback
from types import ModuleType
from typing import Any, Callable

import pytest
from builders.threads import on_threads

from mstxkit import faults, mstx_range, mstx_timer, stage, step
from mstxkit.testing import captured


def names(got: Any) -> list[str]:
    return [r.name for r in got.ranges]


@mstx_timer
def module_level(a: int) -> int:
    return a + 1


def test_a_plain_decorated_function_is_a_range_named_by_its_qualname() -> None:
    with captured() as got:
        answer = module_level(1)

    assert answer == 2
    assert names(got) == ["module_level"]


def test_every_argument_of_the_decorator_reaches_the_range() -> None:
    @mstx_timer("score", stage="reward", domain="rl", attributes=lambda batch, scale=1: {"n": len(batch) * scale})
    def score(batch: list[int], scale: int = 1) -> int:
        return sum(batch)

    with captured() as got:
        score([1, 2], scale=3)

    (found,) = got.ranges
    assert (found.name, found.stage, found.domain, found.attributes) == ("score", "reward", "rl", {"n": 6})


def test_a_stage_alone_keeps_the_functions_own_name() -> None:
    @mstx_timer(stage="actor_update")
    def update() -> None:
        pass

    with captured() as got:
        update()

    (found,) = got.ranges
    assert (found.name, found.stage) == (update.__qualname__, "actor_update")


def test_ranges_and_stages_decorate_too() -> None:
    @mstx_range("a", tokens=3)
    def ranged() -> None:
        pass

    @stage("b")
    def staged() -> None:
        pass

    with captured() as got:
        ranged()
        staged()

    assert [(r.name, r.stage, r.attributes or {}) for r in got.ranges] == [("a", None, {"tokens": 3}), ("b", "b", {})]


@pytest.mark.parametrize("decorator", [mstx_timer("a", "b"), mstx_range("a", stage="b")])
def test_every_named_decorator_takes_methods_and_properties(decorator: Any) -> None:
    class Worker:
        bound = decorator(classmethod(lambda cls: cls))
        free = decorator(staticmethod(lambda: 2))
        read = decorator(property(lambda self: 3))

    with captured() as got:
        assert (Worker.bound(), Worker.free(), Worker().read) == (Worker, 2, 3)

    assert [(r.name, r.stage) for r in got.ranges] == [("a", "b")] * 3


def test_without_a_name_ranges_and_stages_decorate_under_the_functions_own() -> None:
    """`@stage` for `@stage("actor_update")`: the function runs as before, whatever it is called with."""

    @mstx_range
    def ranged(a: int, b: int, c: int) -> int:
        return a + b + c

    class Worker:
        @stage
        @staticmethod
        def update() -> str:
            return "updated"

    with captured() as got:
        assert (ranged(1, 2, 3), Worker.update()) == (6, "updated")
        with mstx_range(ranged.__name__), mstx_range(Worker):  # type: ignore[call-overload]
            pass

    worker = Worker.update.__qualname__
    assert [(r.name, r.stage) for r in got.ranges[:2]] == [(ranged.__qualname__, None), (worker, worker)]
    assert [r.name for r in got.ranges[2:]] == ["<type>", "ranged"]
    assert got.open == []


def plain(a: int, b: int = 2) -> Any:
    return locals()


def only_positional(a: int, b: int = 5, /) -> Any:
    return locals()


def only_keywords(*, a: int, b: Any = ()) -> Any:
    return locals()


def everything(a: int, /, b: int, *rest: int, c: int, d: int = 4, **more: int) -> Any:
    return locals()


def colliding(
    state: int, site: int, function: int, _state: int = 1, _site_: int = 2, *_function: int, **_flow: int
) -> Any:
    return locals()


@pytest.mark.parametrize(
    ("function", "args", "kwargs"),
    [
        (plain, (1,), {}),
        (plain, (), {"b": 3, "a": 1}),
        (only_positional, (1,), {}),
        (only_keywords, (), {"a": 1}),
        (everything, (1, 2, 3, 4), {"c": 5, "z": 6}),
        (colliding, (1, 2, 3, 4, 5, 6), {"attributes": 7}),
        (lambda *args, **kwargs: (args, kwargs), (1,), {"self": 2}),
    ],
)
def test_a_wrapper_takes_the_same_arguments(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Any) -> None:
    wrapper = mstx_timer("x", attributes=lambda *a, **k: {})(function)

    assert wrapper(*args, **kwargs) == function(*args, **kwargs)
    assert inspect.signature(wrapper) == inspect.signature(function)
    assert (
        inspect.signature(wrapper, follow_wrapped=False).parameters.keys()
        == inspect.signature(function).parameters.keys()
    )


def test_defaults_are_the_same_objects() -> None:
    shared: list[int] = []

    def append(item: int, to: list[int] = shared, *, also: list[int] = shared) -> list[int]:
        to.append(item)
        return also

    wrapper = mstx_timer(append)

    assert wrapper(1) is shared
    assert shared == [1]
    assert wrapper.__defaults__ == append.__defaults__
    assert wrapper.__kwdefaults__ == append.__kwdefaults__


def test_a_traceback_says_where_it_passed_a_wrapper() -> None:
    @mstx_timer
    def fails() -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine") as raised:
        fails()

    frames = [(frame.filename, frame.name, frame.line) for frame in traceback.extract_tb(raised.value.__traceback__)]
    assert [frame for frame in frames if frame[1] == "fails"] == [
        (__file__, "fails", "@mstx_timer"), (__file__, "fails", 'raise ValueError("mine")'),
    ]  # fmt: skip


def test_a_function_that_raises_ends_its_range_with_error() -> None:
    @mstx_timer("fails")
    def fails() -> None:
        raise ValueError

    with captured() as got:
        with pytest.raises(ValueError):
            fails()

    assert [(r.name, r.error) for r in got.ranges] == [("fails", True)]


class Worker:
    @mstx_timer("method")
    def method(self, a: int) -> int:
        return a

    @mstx_timer("static outside")
    @staticmethod
    def static_outside(a: int) -> int:
        return a

    @staticmethod
    @mstx_timer("static inside")
    def static_inside(a: int) -> int:
        return a

    @mstx_timer("class outside")
    @classmethod
    def class_outside(cls, a: int) -> Any:
        return cls, a

    @classmethod
    @mstx_timer("class inside")
    def class_inside(cls, a: int) -> Any:
        return cls, a

    partial_method = functools.partialmethod(method, 5)
    timed_partial_method = mstx_timer("partial method")(functools.partialmethod(lambda self, a: a, 6))

    def __init__(self) -> None:
        self._size = 0

    @property
    def size(self) -> int:
        return self._size

    @size.setter
    def size(self, value: int) -> None:
        self._size = value

    size = mstx_timer("size")(size)  # type: ignore[assignment, arg-type]

    @mstx_timer("cached")
    @functools.cached_property
    def cached(self) -> object:
        return object()


def test_methods_of_every_kind_keep_their_binding() -> None:
    worker = Worker()
    with captured() as got:
        answers = (worker.method(1), worker.static_outside(2), Worker.static_inside(3))
        classes = (worker.class_outside(4), Worker.class_inside(5))
        partials = (worker.partial_method(), worker.timed_partial_method())

    assert answers == (1, 2, 3)
    assert classes == ((Worker, 4), (Worker, 5))
    assert partials == (5, 6)
    assert names(got) == [
        "method", "static outside", "static inside", "class outside", "class inside", "method", "partial method"
    ]  # fmt: skip


def test_a_property_stays_a_property_with_a_range_per_access() -> None:
    worker = Worker()
    with captured() as got:
        worker.size = 4
        size = worker.size

    assert size == 4
    assert isinstance(vars(Worker)["size"], property)
    assert names(got) == ["size", "size"]


def test_a_cached_property_is_computed_once() -> None:
    worker = Worker()
    with captured() as got:
        same = worker.cached is worker.cached

    assert same
    assert names(got) == ["cached"]


def test_a_class_gets_ranges_on_its_own_public_methods_only() -> None:
    class Base:
        def inherited(self) -> None:
            pass

    @mstx_timer
    class Trainer(Base):
        class Nested:
            def method(self) -> None:
                pass

        def __call__(self) -> None:
            pass

        def fit(self) -> str:
            return self._private()

        def _private(self) -> str:
            return "fitted"

        @staticmethod
        def static() -> None:
            pass

        @classmethod
        def made(cls) -> Any:
            return cls()

        @property
        def loss(self) -> float:
            return 0.0

        @mstx_timer("its own name")
        def named(self) -> None:
            pass

    with captured() as got:
        trainer = Trainer.made()
        answer = trainer.fit()
        trainer.static()
        trainer.inherited()
        trainer()
        Trainer.Nested().method()
        assert trainer.loss == 0.0
        trainer.named()

    assert answer == "fitted"
    assert [name.rpartition(".")[2] for name in names(got)] == ["made", "fit", "static", "its own name"]


def test_a_class_decorated_with_a_name_prefixes_its_methods_with_it() -> None:
    @mstx_timer("actor")
    class Actor:
        def act(self) -> None:
            pass

    with captured() as got:
        Actor().act()

    assert names(got) == ["actor.act"]


def test_super_and_subclasses_work_through_a_decorated_class() -> None:
    class Base:
        def hello(self) -> str:
            return "hello"

    @mstx_timer("derived")
    class Derived(Base):
        def hello(self) -> str:
            return super().hello() + " again"

    assert Derived().hello() == "hello again"


def test_an_enum_can_be_decorated() -> None:
    @mstx_timer("color")
    class Color(enum.Enum):
        RED = 1

        def shout(self) -> str:
            return self.name

    with captured() as got:
        shouted = Color.RED.shout()

    assert shouted == "RED"
    assert names(got) == ["color.shout"]


def test_decorating_twice_with_the_same_name_is_once() -> None:
    with captured() as got:
        mstx_timer("x")(mstx_timer("x")(plain))(1)
        mstx_timer("x")(mstx_timer("y")(mstx_timer("x")(plain)))(1)

    assert names(got) == ["x", "x", "y"]


def test_decorating_with_two_names_is_two_ranges() -> None:
    with captured() as got:
        mstx_timer("outer")(mstx_timer("inner")(plain))(1)

    assert sorted((r.depth, r.name) for r in got.ranges) == [(0, "outer"), (1, "inner")]


def test_attributes_copied_from_a_timed_function_do_not_pass_for_decoration() -> None:
    timed = mstx_timer("x")(plain)

    @functools.wraps(timed)
    def retried(*args: Any, **kwargs: Any) -> Any:
        timed(*args, **kwargs)
        return timed(*args, **kwargs)

    with captured() as got:
        mstx_timer("x")(retried)(1)

    assert sorted(r.depth for r in got.ranges) == [0, 1, 1]


def test_a_decorator_that_injects_an_argument_below_keeps_working() -> None:
    """Its reported signature, that of what it wraps, is not how it is called."""

    def inject(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function("injected", *args, **kwargs)

        return wrapper

    @mstx_timer
    @inject
    def takes_two(first: str, second: int) -> Any:
        return first, second

    assert takes_two(2) == ("injected", 2)  # type: ignore[call-arg, arg-type]


def test_builtins_and_other_callables_can_be_decorated() -> None:
    class Adder:
        def __call__(self, a: int, b: int = 1) -> int:
            return a + b

    with captured() as got:
        answers = (
            mstx_timer("builtin")(len)([1]),
            mstx_timer("no signature")(max)(1, 2),
            mstx_timer("method of a type")(str.upper)("a"),
            mstx_timer("bound")(Adder().__call__)(1),
            mstx_timer("partial")(functools.partial(plain, 7))()["a"],
        )

    assert answers == (1, 2, "A", 2, 7)
    assert names(got) == ["builtin", "no signature", "method of a type", "bound", "partial"]


def test_what_can_be_called_and_is_no_function_is_left_alone_and_told(caplog: pytest.LogCaptureFixture) -> None:
    """A compiled kernel takes its grid by subscript, a task has methods, a descriptor binds in its own way."""

    class Kernel:
        def __call__(self) -> int:
            return 1

        def __getitem__(self, grid: int) -> Callable[[], int]:
            return self.__call__

    class Task(Kernel):
        def delay(self) -> str:
            return "later"

    kernel, task, counter = Kernel(), Task(), itertools.count()
    with captured() as got:
        assert mstx_timer(kernel) is kernel and mstx_timer("named")(kernel) is kernel
        assert mstx_timer(stage="s")(task) is task and mstx_range("r")(task) is task
        assert mstx_timer(counter.__next__)() == 0
        partial = mstx_timer("partial of one")(functools.partial(kernel))
        assert type(partial) is functools.partial and partial.func is kernel

    told = [record.getMessage() for record in caplog.records]
    assert [line.split()[2] for line in told] == ["Kernel", "Task"]
    assert all("decorate the function that it calls" in line for line in told)
    assert len(names(got)) == 1


def test_an_alias_in_a_class_stays_the_function_that_it_is() -> None:
    class Other:
        def of_another(self) -> None:
            pass

    def make() -> Callable[..., None]:
        def inner(self: object) -> None:
            pass

        return inner

    @mstx_timer
    class Layer:
        activation = staticmethod(plain)
        of_another = Other.of_another
        made = make()
        short = lambda self: None  # noqa: E731

        def own(self) -> None:
            pass

    assert Layer.activation is plain and Layer.of_another is Other.of_another
    with captured() as got:
        Layer().made()
        Layer().short()
        Layer().own()

    assert [name.rpartition(".")[2] for name in names(got)] == ["inner", "<lambda>", "own"]


def test_a_wrapper_says_where_its_function_is() -> None:
    @mstx_timer
    def asks() -> tuple[Any, Any]:
        caller = sys._getframe(1)
        return caller.f_globals["__name__"], caller.f_code.co_filename

    assert inspect.getsourcefile(asks) == __file__
    assert inspect.getsourcefile(mstx_timer(functools.wraps)) == functools.__file__
    assert asks() == (__name__, __file__)
    assert isinstance(asks()[0], str) and asks()[0].startswith("test") is __name__.startswith("test")


def test_a_partial_stays_a_partial_and_a_class_in_it_is_only_called() -> None:
    class Thing:
        def __init__(self, a: int) -> None:
            self.a = a

        def method(self) -> None:
            pass

    original = functools.partial(Thing, 3)
    wrapper = mstx_timer("make")(original)
    with captured() as got:
        wrapper().method()

    assert isinstance(wrapper, functools.partial)
    assert inspect.signature(wrapper) == inspect.signature(original)
    assert names(got) == ["make"]


def test_a_cached_function_keeps_its_cache_and_its_controls() -> None:
    @mstx_timer("square")
    @functools.lru_cache(maxsize=8)
    def square(a: int) -> int:
        return a * a

    with captured() as got:
        square(2)
        square(2)

    assert square.cache_info().hits == 1
    assert names(got) == ["square", "square"]


def test_what_cannot_be_decorated_is_returned_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    thing = object()
    for _ in range(2):
        assert mstx_timer("x")(thing) is thing  # type: ignore[type-var]

    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert faults.counts["decorating"] == 2


def test_a_name_of_any_type_decorates() -> None:
    with captured() as got:
        mstx_timer(5)(plain)(1)  # type: ignore[call-overload]

    assert names(got) == ["<int>"]


def test_attributes_are_asked_for_only_while_recording() -> None:
    asked = []

    @mstx_timer("x", attributes=lambda a: asked.append(a) or {"a": a})
    def function(a: int) -> None:
        pass

    function(1)
    with captured() as got:
        function(2)
    function(3)

    assert asked == [2]
    assert [r.attributes for r in got.ranges] == [{"a": 2}]


def test_attributes_that_raise_are_a_fault_and_the_range_is_recorded_without() -> None:
    @mstx_timer("x", attributes=lambda a: {"a": a.missing})
    def function(a: int) -> int:
        return a

    with captured() as got:
        answer = function(2)

    assert answer == 2
    assert [(r.name, r.error, r.attributes or {}) for r in got.ranges] == [("x", False, {})]
    assert faults.counts == {"attributes of a decorated function": 1}


def test_attributes_are_asked_before_the_clock_starts() -> None:
    """What a range measures does not include asking for its attributes."""

    def ask() -> dict[str, Any]:
        with mstx_range("asking"):
            return {}

    with captured() as got:
        mstx_timer("x", attributes=ask)(lambda: None)()

    assert [(r.name, r.depth) for r in got.ranges] == [("asking", 0), ("x", 0)]


def test_a_recursive_function_is_a_range_per_call_on_every_thread() -> None:
    @mstx_timer("fibonacci")
    def fibonacci(n: int) -> int:
        return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

    with captured() as got:
        on_threads(3, lambda _: fibonacci(5))

    assert len(got.ranges) == 3 * 15
    assert max(r.depth for r in got.ranges) == 4


def test_a_wrapper_keeps_the_step_at_its_begin() -> None:
    with captured() as got:
        step(5)
        mstx_timer("next")(step)()

    assert [(r.name, r.step) for r in got.ranges] == [("next", 5)]


def test_wrappers_of_one_shape_share_their_code() -> None:
    """Decorating a thousand functions compiles one."""
    from mstxkit.marking import signatures

    compiled = signatures._compile_wrapper.cache_info().misses
    for _ in range(1000):
        mstx_timer(lambda a, *, b_of_this_test=1: a)

    assert signatures._compile_wrapper.cache_info().misses <= compiled + 1


@pytest.mark.ray
def test_what_ray_has_made_of_a_class_or_a_function_stays_what_it_is() -> None:
    """Its type is Ray's, or derived from Ray's and named as a class of the program's."""
    ray = pytest.importorskip("ray")
    for made in (ray.remote(type("Worker", (), {"work": lambda self: 1})), ray.remote(lambda: 1)):
        assert mstx_timer(made) is made
        assert mstx_timer("named")(made) is made


def test_what_is_said_above_and_ray_does_not_see_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Ray reads it of the innermost function (`ray/actor.py`, `_ActorClassMethodMetadata.create`)."""
    monkeypatch.setitem(sys.modules, "ray.actor", ModuleType("ray.actor"))

    def fetch() -> None: ...

    def two() -> None: ...

    fetch.__ray_concurrency_group__ = "io"  # type: ignore[attr-defined]
    mstx_timer(fetch)
    mstx_timer(two).__ray_num_returns__ = 2  # type: ignore[attr-defined]
    mstx_timer(lambda: 0)
    told = [record.getMessage() for record in caplog.records if "@ray.method" in record.getMessage()]

    assert told == [f"mstxkit: put @mstx_timer above @ray.method, which Ray does not see below {two.__qualname__}"]
