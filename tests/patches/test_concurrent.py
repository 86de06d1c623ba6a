"""Work that is submitted to a real ThreadPoolExecutor belongs to the stage and step of its submitter."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import subprocess
import sys
import threading
import traceback
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.thread import ThreadPoolExecutor as Defined
from typing import Any, Callable, Iterator

import pytest
from builders import engines
from builders.fresh_engine import run_fresh

import mstxkit
from mstxkit import at_step, current_stage, current_step, mstx_range, stage, step
from mstxkit.testing import captured

UNPATCHED = Defined.submit
variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="nobody's")


@pytest.fixture(autouse=True)
def _patched() -> Iterator[None]:
    mstxkit.autopatch("concurrent")
    yield
    mstxkit.unpatch()
    assert Defined.submit is UNPATCHED


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def where(*_: object, **__: object) -> tuple[str | None, int | None]:
    with mstx_range("work"):
        return current_stage(), current_step()


def test_it_is_among_what_autopatch_patches_without_a_name() -> None:
    assert mstxkit.autopatch().counts()["concurrent"]["applied"] == 4


def test_work_is_of_the_stage_and_step_in_which_it_is_submitted(pool: ThreadPoolExecutor) -> None:
    with captured() as seen:
        step(3)
        with stage("reward"):
            found = [pool.submit(where).result(), *pool.map(where, range(2))]
        outside = pool.submit(where).result()

    assert found == [("reward", 3)] * 3
    assert outside == (None, 3)
    works = [(one.stage, one.step, one.depth) for one in seen.ranges if one.name == "work"]
    assert works == [("reward", 3, 0)] * 3 + [(None, 3, 0)]


def test_it_stays_so_for_work_that_runs_after_the_stage_and_the_step(pool: ThreadPoolExecutor) -> None:
    go = threading.Event()
    with captured():
        step(3)
        with stage("reward"):
            pool.submit(go.wait)
            late = pool.submit(where)
        step(4)
        go.set()
        found = late.result(), pool.submit(where).result()

    assert found == (("reward", 3), (None, 4))


def test_two_submitters_have_a_context_each(pool: ThreadPoolExecutor) -> None:
    with captured():
        step(1)
        with stage("a"), at_step(50):
            first = pool.submit(where)
        with stage("b"):
            second = pool.submit(where)

        assert (first.result(), second.result()) == (("a", 50), ("b", 1))


def test_work_that_submits_hands_on_what_it_is_inside_of(pool: ThreadPoolExecutor) -> None:
    with captured(), ThreadPoolExecutor(1) as other, stage("reward"):
        assert pool.submit(lambda: other.submit(where).result()).result()[0] == "reward"


def test_an_executor_that_calls_threadpoolexecutors_submit_is_one_of_them() -> None:
    class Counting(ThreadPoolExecutor):
        count = 0

        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
            self.count += 1
            return super().submit(fn, *args, **kwargs)

    with captured(), Counting(1) as pool, stage("reward"):
        assert pool.submit(where, a=1, fn=2).result()[0] == "reward"
        assert pool.count == 1


def test_the_loops_own_executor_is_one_of_them() -> None:
    async def main() -> list[Any]:
        loop = asyncio.get_running_loop()
        with stage("reward"):
            return [await loop.run_in_executor(None, where), await asyncio.to_thread(where)]

    with captured():
        step(3)
        assert asyncio.run(main()) == [("reward", 3)] * 2


@pytest.mark.parametrize(("is_patched", "in_executor"), [(True, ("reward", 3)), (False, (None, 4))])
def test_what_asyncio_hands_to_a_thread_after_the_step(is_patched: bool, in_executor: tuple[str | None, int]) -> None:
    """`to_thread` has the stage by the context that it copies, and the step in force when it begins."""
    if not is_patched:
        mstxkit.unpatch()
    go = threading.Event()

    def late() -> tuple[str | None, int | None]:
        go.wait()
        return where()

    async def main() -> list[Any]:
        step(3)
        with stage("reward"):
            first = asyncio.create_task(asyncio.to_thread(late))
            second = asyncio.get_running_loop().run_in_executor(None, late)
            await asyncio.sleep(0)
        step(4)
        go.set()
        return [await first, await second]

    with captured():
        assert asyncio.run(main()) == [("reward", 4), in_executor]


def test_what_work_raises_comes_out_as_it_is(pool: ThreadPoolExecutor) -> None:
    def fails() -> None:
        raise ValueError("mine")

    with captured(), stage("reward"):
        error = pool.submit(fails).exception()
        after = pool.submit(where).result()[0]

    assert isinstance(error, ValueError) and error.args == ("mine",)
    assert traceback.extract_tb(error.__traceback__)[-1].name == "fails"
    assert after == "reward"


def test_a_wrong_call_and_a_pool_that_is_closed_raise_as_before(pool: ThreadPoolExecutor) -> None:
    with captured(), stage("reward"):
        with pytest.raises(TypeError, match="fn"):
            pool.submit()  # type: ignore[call-arg]
        pool.shutdown()
        with pytest.raises(RuntimeError, match="after shutdown"):
            pool.submit(where)


def test_no_other_context_variable_travels_and_those_of_the_thread_stay(pool: ThreadPoolExecutor) -> None:
    with captured(), stage("reward"):
        variable.set("the submitter's")
        pool.submit(variable.set, "the thread's").result()
        assert pool.submit(variable.get).result() == "the thread's"


def test_while_nothing_is_recorded_the_function_itself_is_submitted(pool: ThreadPoolExecutor) -> None:
    import sys

    with stage("reward"):
        assert pool.submit(lambda: sys._getframe(1).f_code.co_name).result() == "run"


def test_processes_of_a_pool_are_not_inside_of_it() -> None:
    import multiprocessing

    with captured(), stage("reward"):
        step(3)
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            assert pool.submit(where).result() == (None, None)


def test_it_stays_a_function_of_the_same_signature() -> None:
    assert inspect.isfunction(Defined.submit) and Defined.submit.__wrapped__ is UNPATCHED  # type: ignore[attr-defined]
    assert str(inspect.signature(Defined.submit)) == str(inspect.signature(UNPATCHED))
    assert (Defined.submit.__module__, Defined.submit.__qualname__) == (UNPATCHED.__module__, UNPATCHED.__qualname__)


@pytest.mark.parametrize("which", list(engines.MODULES))
def test_both_engines_carry_it(which: str) -> None:
    found = run_fresh(
        engines.load(which),
        """
        from concurrent.futures import ThreadPoolExecutor
        import mstxkit
        mstxkit.autopatch("concurrent")
        def where():
            with mstxkit.mstx_range("work"):
                return mstxkit.current_stage(), mstxkit.current_step()
        written = Written(engine)
        engine.step(3)
        with ThreadPoolExecutor(1) as pool:
            with mstxkit.stage("s"):
                inside = [pool.submit(where) for _ in range(4)]
            engine.step(4)
            inside = [one.result() for one in inside]
            outside = [pool.submit(where).result() for _ in range(3)]
        works = [(one.stage, one.step) for one in written.ranges if one.name == "work"]
        result = [inside, outside, works == inside + outside]
        """,
    )

    assert found == [[["s", 3]] * 4, [[None, 4]] * 3, True]


def test_a_queue_of_asyncio_is_patched_also_where_our_first_hook_brings_asyncio() -> None:
    """The first hook loads wrapt, and that loads asyncio before it is through itself."""
    program = "import mstxkit; mstxkit.autopatch('concurrent'); import queue, asyncio; print(mstxkit.patch_report())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)

    assert "2 applied, 2 waiting" in done.stdout and "asyncio" not in done.stdout, done.stdout + done.stderr
