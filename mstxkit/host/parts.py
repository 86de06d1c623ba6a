"""What this process is to its rank: its trainer, a data-loader or pool worker of it, an actor or a driver of Ray, a
rollout replica.

Learnt from what the program has loaded by then; nothing is imported for it. A module that is not what it should be
says nothing.

Source:
- CPython 3.9 to 3.13, `multiprocessing/process.py`: a child's `current_process()` has `_identity` (which child of which
  it is), `_name`, `_target` and `_args`; of a main process `_identity` is empty. `multiprocessing/pool.py` and
  `concurrent/futures/process.py`: what the children of a pool run.
- torch 2.13.0 `utils/data/_utils/worker.py`, torchdata 0.11.0 `stateful_dataloader/worker.py`: `_worker_loop`, with an
  argument `worker_id`. `get_worker_info()` has it only later, and a child of a worker inherits its answer.
- Ray 2.42.1 and 2.60.0, `_private/worker.py`: `global_worker.mode` (0 a driver, 1 a worker), `actors`, `actor_name`.
- verl 0.6.1 to 0.9.1, `workers/rollout/*/*_async_server.py`: the names of a replica's server actors.
"""

from __future__ import annotations

import re
import sys
from types import CodeType, FunctionType
from typing import Any, Callable, NamedTuple

TRAINER, DRIVER, RAY_WORKER = "trainer", "driver", "ray worker"
# What a process works under: the reader knows by it who works beside its rank's own process (`BESIDE`).
RAY, RAY_DRIVER, POOL, DATALOADER, PROCESS, FORK = "ray", "ray driver", "pool", "dataloader", "process", "fork"
BESIDE = (POOL, DATALOADER, PROCESS, FORK)
WORKERS = "workers"  # what a controller says that it waits for, of its own

_DRIVER_MODE, _WORKER_MODE = 0, 1
# multiprocess, loky: the forks of multiprocessing that Hugging Face datasets and joblib bring.
_MULTIPROCESSING = ("multiprocessing.process", "multiprocess.process")
_POOL_WORKERS = {
    ("multiprocessing.pool", "worker"), ("multiprocess.pool", "worker"), ("torch.multiprocessing.pool", "clean_worker"),
    ("concurrent.futures.process", "_process_worker"), ("loky.process_executor", "_process_worker"),
}  # fmt: skip
_DATALOADER_WORKER, _WORKER_ID = "_worker_loop", "worker_id"
# As multiprocessing names a child that nobody names, and a main process.
_OWN_NAME = re.compile(r"(?:Fork|Spawn|ForkServer|Loky)?(Process|PoolWorker)-([\d:]+)")
_MAIN, _CHILD = "MainProcess", "child"
# "vllm_server_2_0": replica and node; "sglang_server_decode_2_1": what it does, replica and which one of those.
_SERVER = re.compile(r"\w+_server_(?:([a-z]+)_)?(\d{1,9})(?:_(\d{1,9}))?")


class Part(NamedTuple):
    """What a process is to its rank, and what it works under; None where it is not known."""

    text: str | None = None
    under: str | None = None


class _Remembered:
    """What stays true of this process once it is known."""

    is_forked = False
    process: Any = None  # of multiprocessing, the parent's, from before a fork
    starting = Part()  # as what it is being started, before multiprocessing says which child it is
    of_ray = Part()
    actor: str | None = None


_remembered = _Remembered()


def forget_parent() -> None:
    """In a forked child: it is not what its parent was."""
    _remembered.is_forked, _remembered.process = True, _process_of_multiprocessing() or _remembered.process
    _remembered.starting, _remembered.of_ray, _remembered.actor = Part(), Part(), None


def name_process(part: str | None, pid: int) -> str:
    """What a process without a rank is called: `process 3 (pid 4711)`."""
    return f"{'process' if part in (None, '', _CHILD) else part} (pid {pid})"


def forget_parts() -> None:
    """Drop what is remembered, for tests."""
    _remembered.__dict__.clear()


def find_part(rank: int | None, inherited_rank: Callable[[], int | None], replica: str | None) -> Part:
    """What this process is, as far as it is known by now.
    `rank`: its rank. `inherited_rank`: gives its parent's rank: a child with another one is a trainer of its own.
    `replica`: the rollout replica that it belongs to.
    """
    process = _process_of_multiprocessing()
    if process is not None or _remembered.is_forked:
        part = _of_child(process)
        if part.text is None and rank is not None and rank != inherited_rank():
            part = Part(TRAINER if replica is None else f"replica {replica}")
        elif part.text is None:
            part = Part(_CHILD, FORK) if process is None else Part(f"process {_number_child(process)}", PROCESS)
    else:
        part = next(filter(any, (_find_starting(), _of_ray())), Part(None if rank is None else TRAINER))
    if replica is None or part.text == TRAINER or (part.text or "").startswith("replica "):
        return part
    return part._replace(text=f"replica {replica} {part.text or ''}".rstrip())


def _process_of_multiprocessing() -> Any:
    """The child of multiprocessing that this process is; None where it is none, or has only forked from one.

    Source: CPython 3.9 to 3.13, `multiprocessing/process.py`: `current_process()` is this global, and raises while
        another thread is importing the module.
    """
    for name in _MULTIPROCESSING:
        process = getattr(sys.modules.get(name), "_current_process", None)
        identity = getattr(process, "_identity", None)
        if type(identity) is tuple and identity and process is not _remembered.process:
            return process
    return None


def _find_starting() -> Part:
    """As what a spawned child is started, while it imports its parent's main module and until more is known.

    Source: `multiprocessing/spawn.py` (`prepare` gives the main process the child's name) and `forkserver.py`.
    """
    main = getattr(sys.modules.get(_MULTIPROCESSING[0]), "_current_process", None)
    name = getattr(main, "_name", None)
    if getattr(main, "_inheriting", False) is True and type(name) is str:
        match = _OWN_NAME.fullmatch(name)
        kind = POOL if match is not None and match[1] == "PoolWorker" else PROCESS
        text = "fork server" if name == _MAIN else name if match is None else f"{kind} {match[2]}"
        _remembered.starting = Part(text, kind)
    return _remembered.starting


def _number_child(process: Any) -> str:
    """`3`; `1:2` for the second child of the first one."""
    return ":".join(map(str, process._identity))


def _of_child(process: Any) -> Part:
    """What a child of multiprocessing does, or is called; nothing for one of which nothing is said."""
    target = getattr(process, "_target", None)
    where, name = getattr(target, "__module__", None), getattr(target, "__name__", None)
    worker_id = _find_argument(process, target, _WORKER_ID) if name == _DATALOADER_WORKER else None
    if type(worker_id) is int:
        return Part(f"dataloader {worker_id}", DATALOADER)
    if type(where) is str and (where, name) in _POOL_WORKERS:
        return Part(f"pool {_number_child(process)}", POOL)
    own_name = getattr(process, "_name", None)
    is_telling = type(own_name) is str and own_name and not _OWN_NAME.fullmatch(own_name)
    return Part(own_name, PROCESS) if is_telling else Part()


def _find_argument(process: Any, target: Any, name: str) -> Any:
    """What a child's target was given for one of its positional arguments."""
    if type(target) is FunctionType:  # of a function of ours that stands for it: its own
        target = target.__dict__.get("__wrapped__", target)
    code, values = getattr(target, "__code__", None), getattr(process, "_args", None)
    if type(code) is not CodeType or type(values) is not tuple:
        return None
    names = code.co_varnames[: min(code.co_argcount, len(values))]
    return values[names.index(name)] if name in names else None


def _of_ray() -> Part:
    """Driver, worker or actor of a Ray job, also once Ray is shut down. Calls nothing of Ray's."""
    mode = getattr(_ray_worker(), "mode", None)
    if type(mode) is int and mode == _DRIVER_MODE:
        _remembered.of_ray = Part(DRIVER, RAY_DRIVER)
    elif type(mode) is int and mode == _WORKER_MODE:
        _remembered.of_ray = Part(_remembered.actor or RAY_WORKER, RAY)
    return _remembered.of_ray


def is_driving() -> bool:
    """Does the Ray job that this process has started still go on?"""
    return getattr(_ray_worker(), "mode", None) == _DRIVER_MODE


def _ray_worker() -> Any:
    return getattr(sys.modules.get("ray._private.worker"), "global_worker", None)


def learn_actor() -> None:
    """Ask Ray which actor this process is: its name, else its class.

    *Threads*: only in one that runs a task of Ray's. Where its core worker does not run, not yet or no longer, or in a
    fork, Ray ends the process instead of an answer (seen with 2.42.1 and 2.60.0).
    """
    if (cls := actor_class()) is not None:
        name = _ray_worker().actor_name
        _remembered.actor = _replica_of(name) if type(name) is str and name else cls


def actor_class() -> str | None:
    """The name of the class of the Ray actor that this process is; None where it is none. Calls nothing of Ray's."""
    worker = _ray_worker()
    actors = getattr(worker, "actors", None)
    if _remembered.is_forked or getattr(worker, "mode", None) != _WORKER_MODE or type(actors) is not dict or not actors:
        return None
    return type(next(iter(actors.values()))).__name__


def _replica_of(name: str) -> str:
    """`replica 2`, `replica 2 node 1`, `replica 2 decode 0` for a server of verl's; every other name as it is."""
    if (match := _SERVER.fullmatch(name)) is None:
        return name
    kind, replica, place = match.groups()
    place = "" if place in (None, "0") and kind != "decode" else place
    node = f" {place}" if kind == "decode" else f" node {place}" if place else ""
    return f"replica {int(replica)}{f' {kind}' if kind else ''}{node}"
