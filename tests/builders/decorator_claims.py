"""Claims that a decorator can be held to: what suites of decorators check, and what other people's code relies on.

`CLAIMS` has a function for each, which is given a decorator and says whether the claim holds: those that fit in a line
stand there, each other one is a function `claim_...` named for it.
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


# What it makes of `base`.
OF_BASE: dict[str, Callable[[Any], bool]] = {
    "name": lambda made: made.__name__ == "base",
    "qualname": lambda made: made.__qualname__ == "base",
    "module": lambda made: made.__module__ == __name__,
    "doc": lambda made: made.__doc__ == "doc",
    "annotations": lambda made: made.__annotations__ == base.__annotations__,
    "own attributes": lambda made: made.mark == "m",
    "__wrapped__": lambda made: made.__wrapped__ is base,
    "signature": lambda made: inspect.signature(made) == inspect.signature(base),
    "getfullargspec": lambda made: inspect.getfullargspec(made) == inspect.getfullargspec(base),
    "own code says its parameters": lambda made: made.__code__.co_varnames[: made.__code__.co_argcount] == ("a", "b"),
    "defaults attribute": lambda made: made.__defaults__ == ("x",) and made.__kwdefaults__ == {"c": 3},
    "getsource": lambda made: inspect.getsource(made) == inspect.getsource(base),
    "getsourcefile is a file": lambda made: os.path.exists(inspect.getsourcefile(made) or ""),
    "get_type_hints": lambda made: typing.get_type_hints(made)["b"] is str,
    "isfunction": lambda made: inspect.isfunction(made),
    "isinstance FunctionType": lambda made: isinstance(made, types.FunctionType),
    "equal to what it wraps": lambda made: made == base and hash(made) == hash(base),
    "weakref": lambda made: weakref.ref(made)() is made,
    "deepcopy is itself": lambda made: copy.deepcopy(made) is made,
}


def is_static(put: Any) -> bool:
    """Is what is put into a class called without an instance?"""

    class A:
        @put
        def f(x):
            return x

    return A.f(1) == 1 and A().f(1) == 1


def is_of_the_class(put: Any) -> bool:
    """Is what is put into a class given the class, or the subclass?"""

    class A:
        @put
        def f(c, x):
            return (c, x)

    class B(A):
        pass

    return A.f(1) == (A, 1) and B().f(1) == (B, 1)


def has_property(put: Any, kept: type = object) -> bool:
    """Is what is put into a class read as a property, and an object of that type?"""

    class A:
        @put
        def p(s):
            return 4

    return A().p == 4 and isinstance(vars(A)["p"], kept)


def pair():
    yield 1
    yield 2


async def async_pair():
    yield 1
    yield 2


async def returned(x):
    await asyncio.sleep(0)
    return x


def raises(exc):
    raise exc


def cleaning(notes):
    """A generator that notes its end."""
    try:
        yield 1
    finally:
        notes.append(1)


async def async_cleaning(notes):
    """The same, which may be awaited."""
    try:
        yield 1
    finally:
        await asyncio.sleep(0)
        notes.append(1)


class Called:
    """A callable object."""

    def __call__(s, x):
        return x


class AsyncCalled:
    """One whose call is awaited."""

    async def __call__(s):
        return 1


class Richer(Called):
    """One that can do more."""

    def other(s):
        return 4

    def __getitem__(s, g):
        return (s, g)


def decorated_class(deco: Any) -> type:
    @deco
    class A:
        def f(s):
            return 1

    return A


def recurses(deco: Any, times: int) -> bool:
    @deco
    def f(n):
        return n and f(n - 1)

    return f(times) == 0


IN_A_LINE: dict[str, Callable[[Any], bool]] = {
    "staticmethod below": lambda deco: is_static(lambda f: deco(staticmethod(f))),
    "staticmethod above": lambda deco: is_static(lambda f: staticmethod(deco(f))),
    "classmethod below": lambda deco: is_of_the_class(lambda f: deco(classmethod(f))),
    "classmethod above": lambda deco: is_of_the_class(lambda f: classmethod(deco(f))),
    "property below": lambda deco: has_property(lambda f: deco(property(f)), property),
    "property above": lambda deco: has_property(lambda f: property(deco(f))),
    "partial": lambda deco: deco(functools.partial(base, 1, c=9))("q") == (1, "q", (), 9, {}),
    "builtin": lambda deco: deco(len)([1]) == 1,
    "bound method of C": lambda deco: deco([].append)(1) is None,
    "callable object": lambda deco: deco(Called())(3) == 3,
    "callable object keeps its other methods": lambda deco: deco(Richer()).other() == 4,
    "callable object keeps subscript": lambda deco: deco(Richer())[1][1] == 1,
    "callable object keeps isinstance": lambda deco: isinstance(deco(Called()), Called),
    "async callable object": lambda deco: run(deco(AsyncCalled())()) == 1,
    "decorated twice": lambda deco: deco(deco(base))(1) == base(1),
    "iscoroutinefunction": lambda deco: (
        inspect.iscoroutinefunction(deco(returned)) and asyncio.iscoroutinefunction(deco(returned))
    ),
    "coroutine result": lambda deco: run(deco(returned)(3)) == 3,
    "isgeneratorfunction": lambda deco: inspect.isgeneratorfunction(deco(pair)),
    "generator values": lambda deco: list(deco(pair)()) == [1, 2],
    "pytest like fixture generator fixture is one": lambda deco: inspect.isgeneratorfunction(
        inspect.unwrap(deco(pair))
    ),
    "isasyncgenfunction": lambda deco: inspect.isasyncgenfunction(deco(async_pair)),
    "stopiteration from a plain function": lambda deco: outcome(deco(raises), StopIteration(5))[1] is StopIteration,
    "systemexit and keyboardinterrupt pass": lambda deco: (
        outcome(deco(raises), SystemExit(3))[1] is SystemExit
        and outcome(deco(raises), KeyboardInterrupt())[1] is KeyboardInterrupt
    ),
    "recursion to 900 of 1000": lambda deco: recurses(deco, 900),
    "recursion to 450 of 1000": lambda deco: recurses(deco, 450),
}


def claim_class_below_still_a_class_isinstance(deco: Any) -> bool:
    made = decorated_class(deco)
    return isinstance(made, type) and isinstance(made(), made) and (made().f() == 1)


def claim_class_below_subclass(deco: Any) -> bool:
    made = decorated_class(deco)

    class B(made):
        pass

    return B().f() == 1 and issubclass(B, made)


def claim_attribute_set_later_is_seen_on_it(deco: Any) -> bool:
    made = deco(base)
    made.later = 1
    return made.later == 1


def claim_pickles_by_name(deco: Any) -> bool:
    made = deco(base)
    m = sys.modules[__name__]
    o = m.base
    m.base = made
    try:
        return pickle.loads(pickle.dumps(made)) is made
    finally:
        m.base = o


def claim_wrong_arguments_typeerror_names_the_function(deco: Any) -> bool:

    @deco
    def f(a):
        pass

    r = outcome(f, 1, 2)
    return r[1] is TypeError and "f()" in r[2]


def claim_keyword_self(deco: Any) -> bool:

    @deco
    def f(self, wrapped=1, args=2, instance=3, name=4, func=5, site=6, span=7):
        return (self, wrapped, args, instance, name, func, site, span)

    return f(self=0, args=9, name=8, func=7) == (0, 1, 9, 3, 8, 7, 6, 7)


def claim_method(deco: Any) -> bool:

    class A:
        @deco
        def f(s, x):
            return (s, x)

    a = A()
    return a.f(1) == (a, 1) and A.f(a, 1) == (a, 1) and (a.f.__self__ is a)


def claim_setter_kept(deco: Any) -> bool:

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


def claim_cached_property_below(deco: Any) -> bool:
    n = []

    class A:
        @deco
        @functools.cached_property
        def p(s):
            n.append(1)
            return 4

    a = A()
    return a.p == 4 and a.p == 4 and (n == [1])


def claim_super(deco: Any) -> bool:

    class A:
        @deco
        def f(s):
            return ["A"]

    class B(A):
        @deco
        def f(s):
            return super().f() + ["B"]

    return B().f() == ["A", "B"]


def claim_call_and_other_dunder_methods(deco: Any) -> bool:

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


def claim_init_new(deco: Any) -> bool:

    class A:
        @deco
        def __new__(c, *a):
            return super().__new__(c)

        @deco
        def __init__(s, x):
            s.x = x

    return A(3).x == 3


def claim_slots(deco: Any) -> bool:

    class A:
        __slots__ = ("x",)

        @deco
        def f(s):
            s.x = 1
            return s.x

    return A().f() == 1


def claim_abstract_stays_abstract(deco: Any) -> bool:

    class A(abc.ABC):
        @deco
        @abc.abstractmethod
        def f(s): ...

    return outcome(A)[0] == "x" and A.__abstractmethods__ == {"f"}


def claim_enum_method_is_no_member(deco: Any) -> bool:

    class E(enum.Enum):
        A = 1

        @deco
        def f(s):
            return s.value

    return list(E) == [E.A] and E.A.f() == 1


def claim_dataclass_method(deco: Any) -> bool:

    @dataclasses.dataclass
    class A:
        x: int

        @deco
        def f(s):
            return s.x

    return A(3).f() == 3 and [f.name for f in dataclasses.fields(A)] == ["x"]


def claim_bound_method_stored_called_later(deco: Any) -> bool:

    class A:
        @deco
        def f(s):
            return 1

    m = A().f
    return m() == 1


def claim_assigned_to_an_instance_does_not_bind(deco: Any) -> bool:

    class A:
        pass

    a = A()
    a.f = deco(lambda x: x)
    return a.f(3) == 3


def claim_partial_in_a_class_does_not_bind(deco: Any) -> bool:

    class A:
        f = deco(functools.partial(lambda x: x))

    return A().f(3) == 3 if sys.version_info < (3, 14) else True


def claim_partialmethod(deco: Any) -> bool:

    class A:
        def g(s, a, b):
            return (a, b)

        f = deco(functools.partialmethod(g, 1))

    return A().f(2) == (1, 2)


def claim_lru_cache_below_keeps_controls(deco: Any) -> bool:
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


def claim_singledispatch_below(deco: Any) -> bool:

    @deco
    @functools.singledispatch
    def f(x):
        return "d"

    @f.register
    def _(x: int):
        return "i"

    return f(1) == "i" and f("") == "d" and (f.dispatch(int) is not None)


def claim_singledispatch_registers_it(deco: Any) -> bool:

    @functools.singledispatch
    def f(x):
        return "d"

    @f.register
    @deco
    def _(x: int):
        return "i"

    return f(1) == "i"


def claim_singledispatchmethod(deco: Any) -> bool:

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


def claim_descriptor_with_get_below_binds_as_itself(deco: Any) -> bool:

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


def claim_coroutine_exception_is_the_same_object(deco: Any) -> bool:
    e = ValueError()

    @deco
    async def f():
        raise e

    r = []
    try:
        run(f())
    except ValueError as x:
        return x is e


def claim_coroutine_is_not_run_when_not_awaited(deco: Any) -> bool:
    n = []

    @deco
    async def f():
        n.append(1)

    c = f()
    c.close()
    return n == []


def claim_cancelling(deco: Any) -> bool:

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


def claim_async_method(deco: Any) -> bool:

    class A:
        @deco
        async def f(s):
            return s

    a = A()
    return run(a.f()) is a and inspect.iscoroutinefunction(a.f)


def claim_types_coroutine(deco: Any) -> bool:

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


def claim_markcoroutinefunction(deco: Any) -> bool:
    if sys.version_info < (3, 12):
        return True

    @deco
    @inspect.markcoroutinefunction
    def f():

        async def g():
            return 2

        return g()

    return inspect.iscoroutinefunction(f) and run(f()) == 2


def claim_generator_is_lazy(deco: Any) -> bool:
    n = []

    @deco
    def f():
        n.append(1)
        yield

    g = f()
    a = n == []
    next(g)
    return a and n == [1]


def claim_generator_return_value(deco: Any) -> bool:

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


def claim_generator_send(deco: Any) -> bool:

    @deco
    def f():
        x = yield 0
        while True:
            x = yield (x * 2)

    g = f()
    next(g)
    return g.send(4) == 8


def claim_generator_throw(deco: Any) -> bool:

    @deco
    def f():
        try:
            yield 1
        except KeyError:
            yield "c"

    g = f()
    next(g)
    return g.throw(KeyError) == "c"


def claim_generator_close_runs_finally(deco: Any) -> bool:
    n = []
    g = deco(cleaning)(n)
    next(g)
    g.close()
    return n == [1]


def claim_generator_dropped_runs_finally(deco: Any) -> bool:
    n = []
    g = deco(cleaning)(n)
    next(g)
    del g
    gc.collect()
    return n == [1]


def claim_generator_that_refuses_to_close(deco: Any) -> bool:

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


def claim_generator_raising_stopiteration_inside(deco: Any) -> bool:

    @deco
    def f():
        yield 1
        raise StopIteration

    g = f()
    next(g)
    return outcome(next, g)[1] is RuntimeError


def claim_contextmanager_above(deco: Any) -> bool:
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


def claim_contextmanager_below(deco: Any) -> bool:

    @deco
    @contextlib.contextmanager
    def f():
        yield 3

    with f() as v:
        pass
    return v == 3


def claim_async_generator_values(deco: Any) -> bool:
    async def m():
        return [x async for x in deco(async_pair)()]

    return run(m()) == [1, 2]


def claim_async_generator_asend(deco: Any) -> bool:

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


def claim_async_generator_athrow(deco: Any) -> bool:

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


def claim_async_generator_aclose_runs_finally(deco: Any) -> bool:
    n = []

    async def m():
        g = deco(async_cleaning)(n)
        await g.__anext__()
        await g.aclose()
        return n == [1]

    return run(m())


def claim_asynccontextmanager_above_body_raises(deco: Any) -> bool:
    n = []

    async def m():
        try:
            async with contextlib.asynccontextmanager(deco(async_cleaning))(n):
                raise ValueError
        except ValueError:
            return n == [1]

    return run(m())


def claim_break_out_of_async_for_cleaned_up_by_the_loop(deco: Any) -> bool:
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


def claim_exception_is_the_same_cause_and_notes_kept(deco: Any) -> bool:
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


def claim_bare_raise_and_context_inside_except(deco: Any) -> bool:

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


def claim_sys_exc_info_seen_inside(deco: Any) -> bool:

    @deco
    def f():
        return sys.exc_info()[0]

    try:
        raise KeyError
    except KeyError:
        return f() is KeyError


def claim_no_reference_cycle_through_a_traceback(deco: Any) -> bool:

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


def claim_arguments_freed_after_the_call(deco: Any) -> bool:

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


def claim_at_most_one_more_frame_in_a_traceback(deco: Any) -> bool:

    @deco
    def f():
        raise ValueError

    try:
        f()
    except ValueError as e:
        return len(traceback.extract_tb(e.__traceback__)) <= 3


def claim_threads_at_once(deco: Any) -> bool:
    n = []

    @deco
    def f(x):
        n.append(x)

    ts = [threading.Thread(target=f, args=(i,)) for i in range(20)]
    [t.start() for t in ts]
    [t.join() for t in ts]
    return sorted(n) == list(range(20))


def claim_warning_with_stacklevel_2_names_the_caller(deco: Any) -> bool:

    @deco
    def f():
        warnings.warn("q", stacklevel=2)

    with warnings.catch_warnings(record=True) as w:
        warnings.simplefilter("always")
        f()
    return w[-1].filename == __file__


def claim_callee_sees_a_name_in_its_caller(deco: Any) -> bool:

    @deco
    def f():
        return "__name__" in sys._getframe(1).f_globals

    return f()


def claim_cloudpickle_by_value(deco: Any) -> bool:
    import cloudpickle

    def mk():
        k = 3

        @deco
        def f(x):
            return x + k

        return f

    return pickle.loads(cloudpickle.dumps(mk()))(1) == 4


CLAIMS: dict[str, Callable[[Any], bool]] = {
    **{text: lambda deco, holds=holds: holds(deco(base)) for text, holds in OF_BASE.items()},
    **IN_A_LINE,
    **{
        name[len("claim_") :].replace("_", " "): holds
        for name, holds in list(globals().items())
        if name.startswith("claim_")
    },
}

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
