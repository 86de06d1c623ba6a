"""Claims that a decorator can be held to: what suites of decorators check, and what other people's code relies on.

`CLAIMS` has a function for each, which is given a decorator and says whether the claim holds.
"""

# ruff: noqa: B007, E742, F841, SIM, C4, PT, PIE, RET, B
from __future__ import annotations

import abc
import asyncio
import contextlib
import copy
import dataclasses
import enum
import functools
import gc
import inspect
import os
import pickle
import sys
import threading
import traceback
import types
import typing
import warnings
import weakref
from typing import Any, Callable

CLAIMS: dict[str, Callable[[Any], bool]] = {}


def claim(text: str) -> Callable[[Any], Any]:
    """Put a claim into the table."""

    def add(function: Any) -> Any:
        CLAIMS[text] = function
        return function

    return add


def outcome(function: Any, *args: Any, **kwargs: Any) -> Any:
    """What a call gives: ("v", value), or ("x", type, text) of what it raises."""
    try:
        return ("v", function(*args, **kwargs))
    except BaseException as exc:
        return ("x", type(exc), str(exc))


def run(coroutine: Any) -> Any:
    """In an event loop of its own."""
    return asyncio.run(coroutine)


def base(a: int, b: str = "x", *args, c=3, **kw) -> float:
    """doc"""
    return (a, b, args, c, kw)


base.mark = "m"


@claim("name")
def _name(deco: Any) -> bool:
    made = deco(base)
    return made.__name__ == "base"


@claim("qualname")
def _qualname(deco: Any) -> bool:
    made = deco(base)
    return made.__qualname__ == "base"


@claim("module")
def _module(deco: Any) -> bool:
    made = deco(base)
    return made.__module__ == __name__


@claim("doc")
def _doc(deco: Any) -> bool:
    made = deco(base)
    return made.__doc__ == "doc"


@claim("annotations")
def _annotations(deco: Any) -> bool:
    made = deco(base)
    return made.__annotations__ == base.__annotations__


@claim("own attributes")
def _own_attributes(deco: Any) -> bool:
    made = deco(base)
    return made.mark == "m"


@claim("attribute set later is seen on it")
def _attribute_set_later_is_seen_on_it(deco: Any) -> bool:
    made = deco(base)
    made.later = 1
    return made.later == 1


@claim("__wrapped__")
def _wrapped(deco: Any) -> bool:
    made = deco(base)
    return made.__wrapped__ is base


@claim("signature")
def _signature(deco: Any) -> bool:
    made = deco(base)
    return inspect.signature(made) == inspect.signature(base)


@claim("getfullargspec")
def _getfullargspec(deco: Any) -> bool:
    made = deco(base)
    return inspect.getfullargspec(made) == inspect.getfullargspec(base)


@claim("own code says its parameters")
def _own_code_says_its_parameters(deco: Any) -> bool:
    made = deco(base)
    return made.__code__.co_varnames[: made.__code__.co_argcount] == ("a", "b")


@claim("defaults attribute")
def _defaults_attribute(deco: Any) -> bool:
    made = deco(base)
    return made.__defaults__ == ("x",) and made.__kwdefaults__ == {"c": 3}


@claim("getsource")
def _getsource(deco: Any) -> bool:
    made = deco(base)
    return inspect.getsource(made) == inspect.getsource(base)


@claim("getsourcefile is a file")
def _getsourcefile_is_a_file(deco: Any) -> bool:
    made = deco(base)
    return os.path.exists(inspect.getsourcefile(made) or "")


@claim("get_type_hints")
def _get_type_hints(deco: Any) -> bool:
    made = deco(base)
    return typing.get_type_hints(made)["b"] is str


@claim("isfunction")
def _isfunction(deco: Any) -> bool:
    made = deco(base)
    return inspect.isfunction(made)


@claim("isinstance FunctionType")
def _isinstance_functiontype(deco: Any) -> bool:
    made = deco(base)
    return isinstance(made, types.FunctionType)


@claim("equal to what it wraps")
def _equal_to_what_it_wraps(deco: Any) -> bool:
    made = deco(base)
    return made == base and hash(made) == hash(base)


@claim("weakref")
def _weakref(deco: Any) -> bool:
    made = deco(base)
    return weakref.ref(made)() is made


@claim("pickles by name")
def _pickles_by_name(deco: Any) -> bool:
    made = deco(base)
    m = sys.modules[__name__]
    o = m.base
    m.base = made
    try:
        return pickle.loads(pickle.dumps(made)) is made
    finally:
        m.base = o


@claim("deepcopy is itself")
def _deepcopy_is_itself(deco: Any) -> bool:
    made = deco(base)
    return copy.deepcopy(made) is made


@claim("wrong arguments: TypeError names the function")
def _wrong_arguments_typeerror_names_the_function(deco: Any) -> bool:

    @deco
    def f(a):
        pass

    r = outcome(f, 1, 2)
    return r[1] is TypeError and "f()" in r[2]


@claim("keyword self")
def _keyword_self(deco: Any) -> bool:

    @deco
    def f(self, wrapped=1, args=2, instance=3, name=4, func=5, site=6, span=7):
        return (self, wrapped, args, instance, name, func, site, span)

    return f(self=0, args=9, name=8, func=7) == (0, 1, 9, 3, 8, 7, 6, 7)


@claim("method")
def _method(deco: Any) -> bool:

    class A:
        @deco
        def f(s, x):
            return (s, x)

    a = A()
    return a.f(1) == (a, 1) and A.f(a, 1) == (a, 1) and (a.f.__self__ is a)


@claim("staticmethod below")
def _staticmethod_below(deco: Any) -> bool:

    class A:
        @deco
        @staticmethod
        def f(x):
            return x

    return A.f(1) == 1 and A().f(1) == 1


@claim("staticmethod above")
def _staticmethod_above(deco: Any) -> bool:

    class A:
        @staticmethod
        @deco
        def f(x):
            return x

    return A.f(1) == 1 and A().f(1) == 1


@claim("classmethod below")
def _classmethod_below(deco: Any) -> bool:

    class A:
        @deco
        @classmethod
        def f(c, x):
            return (c, x)

    class B(A):
        pass

    return A.f(1) == (A, 1) and B().f(1) == (B, 1)


@claim("classmethod above")
def _classmethod_above(deco: Any) -> bool:

    class A:
        @classmethod
        @deco
        def f(c, x):
            return (c, x)

    class B(A):
        pass

    return A.f(1) == (A, 1) and B().f(1) == (B, 1)


@claim("property below")
def _property_below(deco: Any) -> bool:

    class A:
        @deco
        @property
        def p(s):
            return 4

    return A().p == 4 and isinstance(vars(A)["p"], property)


@claim("property above")
def _property_above(deco: Any) -> bool:

    class A:
        @property
        @deco
        def p(s):
            return 4

    return A().p == 4


@claim("setter kept")
def _setter_kept(deco: Any) -> bool:

    class A:
        @deco
        @property
        def p(s):
            return s._p

        @p.setter
        def p(s, v):
            s._p = v

    a = A()
    a.p = 3
    return a.p == 3


@claim("cached_property below")
def _cached_property_below(deco: Any) -> bool:
    n = []

    class A:
        @deco
        @functools.cached_property
        def p(s):
            n.append(1)
            return 4

    a = A()
    return a.p == 4 and a.p == 4 and (n == [1])


@claim("super()")
def _super(deco: Any) -> bool:

    class A:
        @deco
        def f(s):
            return ["A"]

    class B(A):
        @deco
        def f(s):
            return super().f() + ["B"]

    return B().f() == ["A", "B"]


@claim("__call__ and other dunder methods")
def _call___and_other_dunder_methods(deco: Any) -> bool:

    class A:
        @deco
        def __call__(s, x):
            return x

        @deco
        def __len__(s):
            return 3

        @deco
        def __eq__(s, o):
            return True

        __hash__ = None

    return A()(5) == 5 and len(A()) == 3 and (A() == 1)


@claim("__init__, __new__")
def _init_____new(deco: Any) -> bool:

    class A:
        @deco
        def __new__(c, *a):
            return super().__new__(c)

        @deco
        def __init__(s, x):
            s.x = x

    return A(3).x == 3


@claim("slots")
def _slots(deco: Any) -> bool:

    class A:
        __slots__ = ("x",)

        @deco
        def f(s):
            s.x = 1
            return s.x

    return A().f() == 1


@claim("abstract stays abstract")
def _abstract_stays_abstract(deco: Any) -> bool:

    class A(abc.ABC):
        @deco
        @abc.abstractmethod
        def f(s): ...

    return outcome(A)[0] == "x" and A.__abstractmethods__ == {"f"}


@claim("enum method is no member")
def _enum_method_is_no_member(deco: Any) -> bool:

    class E(enum.Enum):
        A = 1

        @deco
        def f(s):
            return s.value

    return list(E) == [E.A] and E.A.f() == 1


@claim("dataclass method")
def _dataclass_method(deco: Any) -> bool:

    @dataclasses.dataclass
    class A:
        x: int

        @deco
        def f(s):
            return s.x

    return A(3).f() == 3 and [f.name for f in dataclasses.fields(A)] == ["x"]


@claim("bound method stored, called later")
def _bound_method_stored_called_later(deco: Any) -> bool:

    class A:
        @deco
        def f(s):
            return 1

    m = A().f
    return m() == 1


@claim("assigned to an instance does not bind")
def _assigned_to_an_instance_does_not_bind(deco: Any) -> bool:

    class A:
        pass

    a = A()
    a.f = deco(lambda x: x)
    return a.f(3) == 3


@claim("class below: still a class, isinstance")
def _class_below_still_a_class_isinstance(deco: Any) -> bool:

    @deco
    class A:
        def f(s):
            return 1

    return isinstance(A, type) and isinstance(A(), A) and (A().f() == 1)


@claim("class below: subclass")
def _class_below_subclass(deco: Any) -> bool:

    @deco
    class A:
        def f(s):
            return 1

    class B(A):
        pass

    return B().f() == 1 and issubclass(B, A)


@claim("partial")
def _partial(deco: Any) -> bool:
    return deco(functools.partial(base, 1, c=9))("q") == (1, "q", (), 9, {})


@claim("partial in a class does not bind")
def _partial_in_a_class_does_not_bind(deco: Any) -> bool:

    class A:
        f = deco(functools.partial(lambda x: x))

    return A().f(3) == 3 if sys.version_info < (3, 14) else True


@claim("partialmethod")
def _partialmethod(deco: Any) -> bool:

    class A:
        def g(s, a, b):
            return (a, b)

        f = deco(functools.partialmethod(g, 1))

    return A().f(2) == (1, 2)


@claim("builtin")
def _builtin(deco: Any) -> bool:
    return deco(len)([1]) == 1


@claim("bound method of C")
def _bound_method_of_c(deco: Any) -> bool:
    return deco([].append)(1) is None


@claim("callable object")
def _callable_object(deco: Any) -> bool:

    class K:
        def __call__(s, x):
            return x

    return deco(K())(3) == 3


@claim("callable object keeps its other methods")
def _callable_object_keeps_its_other_methods(deco: Any) -> bool:

    class K:
        def __call__(s, x):
            return x

        def other(s):
            return 4

    return deco(K()).other() == 4


@claim("callable object keeps subscript")
def _callable_object_keeps_subscript(deco: Any) -> bool:

    class K:
        def __call__(s, x):
            return x

        def __getitem__(s, g):
            return (s, g)

    return deco(K())[1][1] == 1


@claim("callable object keeps isinstance")
def _callable_object_keeps_isinstance(deco: Any) -> bool:

    class K:
        def __call__(s, x):
            return x

    return isinstance(deco(K()), K)


@claim("lru_cache below keeps controls")
def _lru_cache_below_keeps_controls(deco: Any) -> bool:
    n = []

    @deco
    @functools.lru_cache
    def f(x):
        n.append(x)
        return x

    f(1)
    f(1)
    f.cache_clear()
    f(1)
    return n == [1, 1] and f.cache_info().misses == 1


@claim("singledispatch below")
def _singledispatch_below(deco: Any) -> bool:

    @deco
    @functools.singledispatch
    def f(x):
        return "d"

    @f.register
    def _(x: int):
        return "i"

    return f(1) == "i" and f("") == "d" and (f.dispatch(int) is not None)


@claim("singledispatch registers it")
def _singledispatch_registers_it(deco: Any) -> bool:

    @functools.singledispatch
    def f(x):
        return "d"

    @f.register
    @deco
    def _(x: int):
        return "i"

    return f(1) == "i"


@claim("singledispatchmethod")
def _singledispatchmethod(deco: Any) -> bool:

    class A:
        @functools.singledispatchmethod
        @deco
        def f(s, x):
            return "d"

        @f.register
        @deco
        def _(s, x: int):
            return "i"

    return A().f(1) == "i" and A().f("") == "d"


@claim("descriptor with __get__ below binds as itself")
def _descriptor_with___get___below_binds_as_itself(deco: Any) -> bool:

    class Desc:
        def __init__(s, f):
            s.f = f

        def __get__(s, o, t=None):
            return functools.partial(s.f, o, "extra")

        def __call__(s, *a):
            return s.f(*a)

    class A:
        @deco
        @Desc
        def f(s, e, x):
            return (e, x)

    return A().f(3) == ("extra", 3)


@claim("decorated twice")
def _decorated_twice(deco: Any) -> bool:

    @deco
    @deco
    def f():
        return 1

    return f() == 1


@claim("iscoroutinefunction")
def _iscoroutinefunction(deco: Any) -> bool:

    @deco
    async def f():
        return 1

    return inspect.iscoroutinefunction(f) and asyncio.iscoroutinefunction(f)


@claim("coroutine result")
def _coroutine_result(deco: Any) -> bool:

    @deco
    async def f(x):
        await asyncio.sleep(0)
        return x

    return run(f(3)) == 3


@claim("coroutine exception is the same object")
def _coroutine_exception_is_the_same_object(deco: Any) -> bool:
    e = ValueError()

    @deco
    async def f():
        raise e

    r = []
    try:
        run(f())
    except ValueError as x:
        return x is e


@claim("coroutine is not run when not awaited")
def _coroutine_is_not_run_when_not_awaited(deco: Any) -> bool:
    n = []

    @deco
    async def f():
        n.append(1)

    c = f()
    c.close()
    return n == []


@claim("cancelling")
def _cancelling(deco: Any) -> bool:

    @deco
    async def f():
        await asyncio.sleep(9)

    async def m():
        t = asyncio.create_task(f())
        await asyncio.sleep(0)
        t.cancel()
        try:
            await t
        except asyncio.CancelledError:
            return True

    return run(m())


@claim("async callable object")
def _async_callable_object(deco: Any) -> bool:

    class K:
        async def __call__(s):
            return 1

    return run(deco(K())()) == 1


@claim("async method")
def _async_method(deco: Any) -> bool:

    class A:
        @deco
        async def f(s):
            return s

    a = A()
    return run(a.f()) is a and inspect.iscoroutinefunction(a.f)


@claim("types.coroutine")
def _types_coroutine(deco: Any) -> bool:

    @deco
    @types.coroutine
    def f():
        yield
        return 1

    async def m():
        return await f()

    c = m()
    c.send(None)
    try:
        c.send(None)
    except StopIteration as s:
        return s.value == 1


@claim("markcoroutinefunction")
def _markcoroutinefunction(deco: Any) -> bool:
    if sys.version_info < (3, 12):
        return True

    @deco
    @inspect.markcoroutinefunction
    def f():

        async def g():
            return 2

        return g()

    return inspect.iscoroutinefunction(f) and run(f()) == 2


@claim("isgeneratorfunction")
def _isgeneratorfunction(deco: Any) -> bool:

    @deco
    def f():
        yield

    return inspect.isgeneratorfunction(f)


@claim("generator values")
def _generator_values(deco: Any) -> bool:

    @deco
    def f():
        yield 1
        yield 2

    return list(f()) == [1, 2]


@claim("generator is lazy")
def _generator_is_lazy(deco: Any) -> bool:
    n = []

    @deco
    def f():
        n.append(1)
        yield

    g = f()
    a = n == []
    next(g)
    return a and n == [1]


@claim("generator return value")
def _generator_return_value(deco: Any) -> bool:

    @deco
    def f():
        yield
        return 5

    def o():
        return (yield from f())

    g = o()
    next(g)
    try:
        next(g)
    except StopIteration as s:
        return s.value == 5


@claim("generator send")
def _generator_send(deco: Any) -> bool:

    @deco
    def f():
        x = yield 0
        while True:
            x = yield (x * 2)

    g = f()
    next(g)
    return g.send(4) == 8


@claim("generator throw")
def _generator_throw(deco: Any) -> bool:

    @deco
    def f():
        try:
            yield 1
        except KeyError:
            yield "c"

    g = f()
    next(g)
    return g.throw(KeyError) == "c"


@claim("generator close runs finally")
def _generator_close_runs_finally(deco: Any) -> bool:
    n = []

    @deco
    def f():
        try:
            yield 1
        finally:
            n.append(1)

    g = f()
    next(g)
    g.close()
    return n == [1]


@claim("generator dropped runs finally")
def _generator_dropped_runs_finally(deco: Any) -> bool:
    n = []

    @deco
    def f():
        try:
            yield 1
        finally:
            n.append(1)

    g = f()
    next(g)
    del g
    gc.collect()
    return n == [1]


@claim("generator that refuses to close")
def _generator_that_refuses_to_close(deco: Any) -> bool:

    @deco
    def f():
        try:
            yield 1
        except GeneratorExit:
            yield 2

    g = f()
    next(g)
    r = outcome(g.close)
    g = None
    return r[1] is RuntimeError


@claim("generator raising StopIteration inside")
def _generator_raising_stopiteration_inside(deco: Any) -> bool:

    @deco
    def f():
        yield 1
        raise StopIteration

    g = f()
    next(g)
    return outcome(next, g)[1] is RuntimeError


@claim("contextmanager above")
def _contextmanager_above(deco: Any) -> bool:
    n = []

    @contextlib.contextmanager
    @deco
    def f():
        try:
            yield 3
        except KeyError:
            n.append("k")
        finally:
            n.append("f")

    with f() as v:
        raise KeyError
    return v == 3 and n == ["k", "f"]


@claim("contextmanager below")
def _contextmanager_below(deco: Any) -> bool:

    @deco
    @contextlib.contextmanager
    def f():
        yield 3

    with f() as v:
        pass
    return v == 3


@claim("pytest-like fixture: generator fixture is one")
def _pytest_like_fixture_generator_fixture_is_one(deco: Any) -> bool:

    @deco
    def fx(a):
        yield a

    return inspect.isgeneratorfunction(inspect.unwrap(fx)) and list(fx(2)) == [2]


@claim("isasyncgenfunction")
def _isasyncgenfunction(deco: Any) -> bool:

    @deco
    async def f():
        yield

    return inspect.isasyncgenfunction(f)


@claim("async generator values")
def _async_generator_values(deco: Any) -> bool:

    @deco
    async def f():
        yield 1
        yield 2

    async def m():
        return [x async for x in f()]

    return run(m()) == [1, 2]


@claim("async generator asend")
def _async_generator_asend(deco: Any) -> bool:

    @deco
    async def f():
        x = yield 0
        while True:
            x = yield ((x or 0) * 2)

    async def m():
        g = f()
        await g.__anext__()
        v = await g.asend(4)
        await g.aclose()
        return v

    return run(m()) == 8


@claim("async generator athrow")
def _async_generator_athrow(deco: Any) -> bool:

    @deco
    async def f():
        try:
            yield 1
        except KeyError:
            yield "c"

    async def m():
        g = f()
        await g.__anext__()
        v = await g.athrow(KeyError())
        await g.aclose()
        return v

    return run(m()) == "c"


@claim("async generator aclose runs finally")
def _async_generator_aclose_runs_finally(deco: Any) -> bool:
    n = []

    @deco
    async def f():
        try:
            yield 1
        finally:
            await asyncio.sleep(0)
            n.append(1)

    async def m():
        g = f()
        await g.__anext__()
        await g.aclose()
        return n == [1]

    return run(m())


@claim("asynccontextmanager above, body raises")
def _asynccontextmanager_above_body_raises(deco: Any) -> bool:
    n = []

    @contextlib.asynccontextmanager
    @deco
    async def f():
        try:
            yield 1
        finally:
            n.append(1)

    async def m():
        try:
            async with f():
                raise ValueError
        except ValueError:
            return n == [1]

    return run(m())


@claim("break out of async for, cleaned up by the loop")
def _break_out_of_async_for_cleaned_up_by_the_loop(deco: Any) -> bool:
    n = []

    @deco
    async def f():
        try:
            yield 1
            yield 2
        finally:
            n.append(1)

    async def m():
        async for x in f():
            break

    run(m())
    gc.collect()
    return n == [1]


@claim("exception is the same, cause and notes kept")
def _exception_is_the_same_cause_and_notes_kept(deco: Any) -> bool:
    e = ValueError("q")
    e.__cause__ = KeyError()
    if sys.version_info >= (3, 11):
        e.add_note("n")

    @deco
    def f():
        raise e

    try:
        f()
    except ValueError as x:
        return x is e and type(x.__cause__) is KeyError and (x.__context__ is None)


@claim("bare raise and context inside except")
def _bare_raise_and_context_inside_except(deco: Any) -> bool:

    @deco
    def f():
        raise

    try:
        try:
            raise KeyError("a")
        except KeyError:
            f()
    except KeyError as k:
        return True


@claim("sys.exc_info seen inside")
def _sys_exc_info_seen_inside(deco: Any) -> bool:

    @deco
    def f():
        return sys.exc_info()[0]

    try:
        raise KeyError
    except KeyError:
        return f() is KeyError


@claim("SystemExit and KeyboardInterrupt pass")
def _systemexit_and_keyboardinterrupt_pass(deco: Any) -> bool:

    @deco
    def f(e):
        raise e

    return outcome(f, SystemExit(3))[1] is SystemExit and outcome(f, KeyboardInterrupt())[1] is KeyboardInterrupt


@claim("StopIteration from a plain function")
def _stopiteration_from_a_plain_function(deco: Any) -> bool:

    @deco
    def f():
        raise StopIteration(5)

    return outcome(f)[1] is StopIteration


@claim("no reference cycle through a traceback")
def _no_reference_cycle_through_a_traceback(deco: Any) -> bool:

    class O:
        pass

    @deco
    def f(o):
        raise ValueError

    gc.collect()
    gc.disable()
    try:
        o = O()
        r = weakref.ref(o)
        try:
            f(o)
        except ValueError:
            pass
        del o
        return r() is None
    finally:
        gc.enable()


@claim("arguments freed after the call")
def _arguments_freed_after_the_call(deco: Any) -> bool:

    class O:
        pass

    @deco
    def f(o):
        pass

    gc.disable()
    try:
        o = O()
        r = weakref.ref(o)
        f(o)
        del o
        return r() is None
    finally:
        gc.enable()


@claim("at most one more frame in a traceback")
def _at_most_one_more_frame_in_a_traceback(deco: Any) -> bool:

    @deco
    def f():
        raise ValueError

    try:
        f()
    except ValueError as e:
        return len(traceback.extract_tb(e.__traceback__)) <= 3


@claim("recursion to 900 of 1000")
def _recursion_to_900_of_1000(deco: Any) -> bool:

    @deco
    def f(n):
        return n and f(n - 1)

    return f(900) == 0


@claim("recursion to 450 of 1000")
def _recursion_to_450_of_1000(deco: Any) -> bool:

    @deco
    def f(n):
        return n and f(n - 1)

    return f(450) == 0


@claim("threads at once")
def _threads_at_once(deco: Any) -> bool:
    n = []

    @deco
    def f(x):
        n.append(x)

    ts = [threading.Thread(target=f, args=(i,)) for i in range(20)]
    [t.start() for t in ts]
    [t.join() for t in ts]
    return sorted(n) == list(range(20))


@claim("warning with stacklevel 2 names the caller")
def _warning_with_stacklevel_2_names_the_caller(deco: Any) -> bool:

    @deco
    def f():
        warnings.warn("q", stacklevel=2)

    with warnings.catch_warnings(record=True) as w:
        warnings.simplefilter("always")
        f()
    return w[-1].filename == __file__


@claim("callee sees a __name__ in its caller")
def _callee_sees_a___name___in_its_caller(deco: Any) -> bool:

    @deco
    def f():
        return "__name__" in sys._getframe(1).f_globals

    return f()


@claim("cloudpickle by value")
def _cloudpickle_by_value(deco: Any) -> bool:
    import cloudpickle

    def mk():
        k = 3

        @deco
        def f(x):
            return x + k

        return f

    return pickle.loads(cloudpickle.dumps(mk()))(1) == 4


# What nobody asks of a decorator: a frame that costs nothing, and an object that says it is another one.
NOT_WANTED = {"recursion to 900 of 1000", "equal to what it wraps"}


def broken(deco: Any) -> list[str]:
    """The claims that do not hold of a decorator."""
    frames = len(inspect.stack(0))
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(1000 + frames)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return [text for text, holds in CLAIMS.items() if outcome(holds, deco) != ("v", True)]
    finally:
        sys.setrecursionlimit(limit)
