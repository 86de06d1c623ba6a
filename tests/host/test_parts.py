"""What a process is to its rank: learnt from modules that are loaded, whatever they are, and from nothing else."""

from __future__ import annotations

import multiprocessing
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Iterator
from unittest.mock import MagicMock

import pytest

from mstxkit import faults
from mstxkit.host import identity, parts

SERVERS = {
    "vllm_server_2_0": "replica 2", "sglang_server_11_1": "replica 11 node 1", "trtllm_server_3": "replica 3",
    "vllm_server_reward_0_0": "replica 0 reward", "sglang_server_teacher_1_2": "replica 1 teacher node 2",
    "sglang_server_decode_2_0": "replica 2 decode 0", "vllm_server_2_0_suffix": "vllm_server_2_0_suffix",
    "gen": "gen", "abcWorkerDict_0:3": "abcWorkerDict_0:3",
}  # fmt: skip
PROCESS = "multiprocessing.process"
VARIABLES = (*identity._RANK_VARIABLES, *identity._REPLICA_VARIABLES)


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No launcher, no Ray, no torch, and no child of multiprocessing: whatever this suite is run under."""
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    for module in ("torch.distributed", "ray._private.worker", "multiprocess.process", PROCESS):
        monkeypatch.setitem(sys.modules, module, None)
    identity.forget_learnt()
    yield
    identity.forget_learnt()


def child_of(monkeypatch: pytest.MonkeyPatch, process: Any, module: str = PROCESS) -> None:
    monkeypatch.setitem(sys.modules, module, SimpleNamespace(_current_process=process))


def process(name: str = "Process-3", target: Any = None, arguments: tuple[Any, ...] = (), **more: Any) -> Any:
    return SimpleNamespace(_identity=(3,), _name=name, _target=target, _args=arguments, **more)


class Actor:
    pass


def ray_worker(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> Any:
    worker = SimpleNamespace(**fields)
    monkeypatch.setitem(sys.modules, "ray._private.worker", SimpleNamespace(global_worker=worker))
    return worker


def found() -> tuple[str | None, str | None]:
    now = identity.read_current()
    return now["part"], now["under"] or None


def test_a_process_of_which_nothing_is_known_is_nothing() -> None:
    assert found() == (None, None)


def test_a_rank_and_nothing_else_is_a_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")

    assert found() == ("trainer", None)


def test_of_a_replica_it_is_the_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_DP_RANK", "1")
    assert found() == ("replica 1", None)

    monkeypatch.setenv("VERL_REPLICA_RANK", "4")
    child_of(monkeypatch, process("EngineCore_DP0"))
    assert found() == ("replica 4 dp 1 EngineCore_DP0", "process")


def test_a_trainer_that_also_rolls_out_stays_a_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_DP_RANK", "1")
    monkeypatch.setenv("RANK", "3")

    assert found() == ("trainer", None)


@pytest.mark.parametrize("module", [PROCESS, "multiprocess.process"])
@pytest.mark.parametrize("name", ["Process-3", "ForkProcess-3", "SpawnProcess-1:3", "ForkServerProcess-3"])
def test_a_child_that_nobody_named_has_its_number(monkeypatch: pytest.MonkeyPatch, name: str, module: str) -> None:
    child_of(monkeypatch, process(name), module)

    assert found() == ("process 3", "process")


def test_a_child_that_was_given_a_name_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    child_of(monkeypatch, process("VllmWorker-0"))

    assert found() == ("VllmWorker-0", "process")


@pytest.mark.parametrize("where", sorted(parts._POOL_WORKERS))
def test_who_runs_a_pools_work_is_of_a_pool(monkeypatch: pytest.MonkeyPatch, where: tuple[str, str]) -> None:
    child_of(monkeypatch, process("ForkPoolWorker-3", SimpleNamespace(__module__=where[0], __name__=where[1])))

    assert found() == ("pool 3", "pool")


def test_a_data_loader_worker_has_its_worker_id(monkeypatch: pytest.MonkeyPatch) -> None:
    def _worker_loop(dataset: object, worker_id: int, num_workers: int = 1) -> None:
        """As torch's and torchdata's."""

    child_of(monkeypatch, process(target=_worker_loop, arguments=([], 5)))

    assert found() == ("dataloader 5", "dataloader")


def test_another_loop_of_that_name_is_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def _worker_loop(queue: object) -> None:
        """Somebody's own."""

    child_of(monkeypatch, process(target=_worker_loop, arguments=([],)))

    assert found() == ("process 3", "process")


def test_a_spawned_child_is_known_while_it_imports_its_parents_program(monkeypatch: pytest.MonkeyPatch) -> None:
    main = SimpleNamespace(_identity=(), _name="SpawnPoolWorker-7", _inheriting=True)
    child_of(monkeypatch, main)
    early = found()
    del main._inheriting
    monkeypatch.setenv("RANK", "0")

    assert early == found() == ("pool 7", "pool")


def test_a_fork_server_that_imports_its_parents_program_is_that_and_no_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    child_of(monkeypatch, SimpleNamespace(_identity=(), _name="MainProcess", _inheriting=True))
    monkeypatch.setenv("RANK", "0")

    assert found() == ("fork server", "process")


@pytest.mark.parametrize("mode", [0, 1])
def test_a_driver_and_a_worker_of_ray_are_that_also_after_its_end(monkeypatch: pytest.MonkeyPatch, mode: int) -> None:
    worker = ray_worker(monkeypatch, mode=mode, actors={})
    monkeypatch.setenv("RANK", "0")
    expected = [("driver", "ray driver"), ("ray worker", "ray")][mode]
    during = found()
    worker.mode = None

    assert during == found() == expected


@pytest.mark.parametrize("name", SERVERS)
def test_an_actor_has_its_name_and_a_server_of_verls_its_replica(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    ray_worker(monkeypatch, mode=1, actors={"id": Actor()}, actor_name=name)
    identity.learn_actor()

    assert found() == (SERVERS[name], "ray")


def test_an_actor_without_a_name_has_its_class(monkeypatch: pytest.MonkeyPatch) -> None:
    ray_worker(monkeypatch, mode=1, actors={"id": Actor()}, actor_name="")
    identity.learn_actor()

    assert found() == ("Actor", "ray")


class Deadly:
    """Ray ends a process that asks where there is no actor."""

    def __init__(self, mode: int | None, actors: Any) -> None:
        self.mode, self.actors = mode, actors

    @property
    def actor_name(self) -> str:
        raise AssertionError("asked")


@pytest.mark.parametrize("worker", [Deadly(0, {}), Deadly(0, {"id": Actor()}), Deadly(None, {}), Deadly(1, {})])
def test_ray_is_asked_in_an_actor_only(monkeypatch: pytest.MonkeyPatch, worker: Deadly) -> None:
    monkeypatch.setitem(sys.modules, "ray._private.worker", SimpleNamespace(global_worker=worker))
    identity.learn_actor()
    identity.read_current()

    assert faults.counts == {}


def test_a_fork_of_an_actor_is_no_actor_and_asks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    ray_worker(monkeypatch, mode=1, actors={"id": Actor()}, actor_name="gen")
    identity.learn_actor()
    identity.identify(part="said before the fork", rank=2)
    identity.forget_part()
    monkeypatch.setitem(sys.modules, "ray._private.worker", SimpleNamespace(global_worker=Deadly(1, {"id": Actor()})))
    identity.learn_actor()

    assert found() == ("child", "fork")
    assert identity.read_current()["rank"] == 2


def test_a_fork_of_a_worker_is_not_that_worker_nor_is_a_fork_of_the_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    child_of(monkeypatch, process("VllmWorker-0"))
    before = found()
    identity.forget_part()
    first = found()
    identity.forget_part()

    assert (before, first, found()) == (("VllmWorker-0", "process"), ("child", "fork"), ("child", "fork"))


def test_a_child_with_a_rank_of_its_own_is_a_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    identity.forget_part()
    as_forked = found()
    monkeypatch.setenv("RANK", "1")

    assert (as_forked, found()) == (("child", "fork"), ("trainer", None))


def test_a_child_that_was_a_trainer_stays_one_when_its_group_is_destroyed(monkeypatch: pytest.MonkeyPatch) -> None:
    """`mp.spawn` without RANK: each rank ended as a helper beside its own trainer, whose steps count nowhere."""
    child_of(monkeypatch, process())
    before = found()
    group = SimpleNamespace(is_initialized=lambda: True, get_rank=lambda: 0, get_world_size=lambda: 2)
    monkeypatch.setitem(sys.modules, "torch.distributed", group)
    training = found()
    monkeypatch.setitem(sys.modules, "torch.distributed", SimpleNamespace(is_initialized=lambda: False))

    assert (before, training, found()) == (("process 3", "process"), ("trainer", None), ("trainer", None))


def test_a_spawned_child_compares_with_the_environment_it_was_started_in(monkeypatch: pytest.MonkeyPatch) -> None:
    child_of(monkeypatch, process())
    monkeypatch.setattr(identity, "_environment_at_start", lambda: {"RANK": "0"})
    monkeypatch.setenv("RANK", "0")
    helping = found()
    monkeypatch.setenv("RANK", "1")

    assert (helping, found()) == (("process 3", "process"), ("trainer", None))


def test_the_environment_at_start_is_the_kernels() -> None:
    os.environ["MSTXKIT_TEST_LATER"] = "1"
    try:
        at_start = identity._environment_at_start()
    finally:
        del os.environ["MSTXKIT_TEST_LATER"]

    assert at_start["PATH"]
    assert "MSTXKIT_TEST_LATER" not in at_start


@pytest.mark.parametrize("stranger", [SimpleNamespace(), MagicMock(), None, 5])
def test_modules_that_are_half_imported_or_stood_in_for_say_nothing(
    monkeypatch: pytest.MonkeyPatch, stranger: Any
) -> None:
    for module in (PROCESS, "multiprocess.process", "ray._private.worker"):
        monkeypatch.setitem(sys.modules, module, stranger)
    identity.learn_actor()

    assert found() == (None, None)
    assert faults.counts == {}


def test_what_another_thread_is_importing_says_nothing_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen with Ray 2.42.1, where a thread of ours looked just then."""
    of_python = Path(multiprocessing.process.__file__).read_text()
    begun = ModuleType(PROCESS)
    exec(of_python[: of_python.index("class BaseProcess")], vars(begun))
    monkeypatch.setitem(sys.modules, PROCESS, begun)

    with pytest.raises(NameError):
        begun.current_process()
    assert found() == (None, None)
    assert faults.counts == {}


def test_a_child_whose_fields_are_stood_in_for_has_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    child_of(monkeypatch, process(name=MagicMock(), target=MagicMock(__name__="_worker_loop")))

    assert found() == ("process 3", "process")
    assert faults.counts == {}


def test_what_raises_is_a_counted_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    class Raises:
        _current_process = property(lambda self: 1 / 0)

    monkeypatch.setitem(sys.modules, PROCESS, Raises())
    identity.forget_part()

    assert found() == (None, None)
    assert faults.counts == {"identity.part": 1, "identity.forked": 1}


def test_nothing_is_imported_for_it() -> None:
    before = set(sys.modules)
    identity.read_current()
    identity.learn_actor()

    assert set(sys.modules) == before


def test_multiprocessing_itself_has_what_is_asked_of_it() -> None:
    child = multiprocessing.get_context("spawn").Process(target=len, args=((),))

    assert (child._target, child._args) == (len, ((),))  # type: ignore[attr-defined]
    assert parts._OWN_NAME.fullmatch(child.name)
    assert parts._number_child(child) == child.name.partition("-")[2]
