"""What is replaced in Ray: `ray.init` gets our set-up hook and variables, and a worker patches what arrives by value.

Works in the process that starts the job, and in its workers. Neither Ray nor a framework is imported, and nothing of
ours ever ends a worker or fails a `ray.init`.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any, Callable, Iterator

from .. import faults
from ..cluster import ray_link
from ..host import environment, identity, imports
from ..marking import ranges
from . import ray_environment
from .ray_environment import INJECTED

if TYPE_CHECKING:
    from ..patching.replacements import Replacement

# Ray 2.42.1 and 2.60.0, `ray/_private/function_manager.py`: a worker's loader of what arrives by value.
_LOADER, _LOADER_CLASS = "ray._private.function_manager", "FunctionActorManager"
_STARTED_BEFORE = (
    "Ray was started before mstxkit was told {what}: its workers are not reached; call autopatch and capture before "
    "ray.init, or set MSTXKIT_AUTOPATCH and MSTXKIT_RUN before `ray start`"
)
_NO_SEAM = (
    "this Ray has no {name}: what a class or function under @ray.remote brings by value may be not patched where it "
    "arrives, and roles and ranks of actors may stay unknown"
)


class _Replaced:
    """What this module has replaced here, and for whom."""

    askers: set[str] = set()
    changes: list[Replacement] = []
    sent: dict[str, str] = {}
    notes: list[str] = []


_ways = _Replaced()


def arrange_ray(asker: str = "autopatch") -> tuple[str, ...]:
    """Make every `ray.init` from now on reach the job's workers, until `restore_ray` of each asker; also one by Ray
    itself. Gives notes on what cannot be reached, and what to do.
    """
    if ranges.is_off:
        return ()
    _ways.askers.add(asker)
    imports.when_imported("ray", _wrap_init)
    imports.when_imported(_LOADER, _wrap_loader)
    return list_unreachable()


def restore_ray(asker: str = "autopatch") -> None:
    """Put Ray's own functions back, once nobody asks for ours any more. Workers that run already keep theirs."""
    _ways.askers.discard(asker)
    if _ways.askers:
        return
    imports.forget_hook("ray", _wrap_init)
    imports.forget_hook(_LOADER, _wrap_loader)
    atexit.unregister(ray_link.end_link)  # else each `arrange_ray` would leave one more
    for change in reversed(_ways.changes):
        change.undo()
    copied = {id(change.after): (change.after, change.before) for change in _ways.changes}
    _ways.changes.clear()
    _ways.notes.clear()
    if copied:
        _replace_everywhere(copied)
        _ways.changes.clear()


def list_unreachable() -> tuple[str, ...]:
    """What of this job cannot be reached from here, at this moment; () in a worker, which has been."""
    worker = getattr(sys.modules.get("ray._private.worker"), "global_worker", None)
    # A driver's are None: Ray Client; 0: SCRIPT_MODE; 2: LOCAL_MODE.
    if not _is_initialized() or getattr(worker, "mode", None) not in (None, 0, 2):
        return tuple(_ways.notes)
    named = {environment.RUN: "where to record", environment.AUTOPATCH: "what to patch"}
    wanted = ray_environment.pick_variables(os.environ)
    missing = [what for name, what in named.items() if wanted.get(name) and wanted[name] != _ways.sent.get(name)]
    late = [_STARTED_BEFORE.format(what=" and ".join(missing))] if missing else []
    return (*late, *_ways.notes)


def _is_initialized() -> bool:
    # Missing while Ray is still being imported.
    is_initialized = getattr(sys.modules.get("ray"), "is_initialized", None)
    try:
        return is_initialized is not None and bool(is_initialized())
    except Exception as exc:
        faults.note_fault("asking whether Ray runs", exc)
        return False


def _wrap_init(ray: ModuleType) -> None:
    original, shutdown = ray.init, getattr(ray, "shutdown", None)

    @functools.wraps(original)
    def init(*args: Any, **kwargs: Any) -> Any:
        with _reach_workers(kwargs, args[0] if args else kwargs.get("address")) as arguments:
            done = original(*args, **arguments)
        if identity.on_learnt is not None:  # it drives a job from here on: a quiet process is seldom looked at
            identity.on_learnt()
        return done

    wrappers = {id(original): (original, init)}
    if shutdown is not None:  # else no Ray that anybody runs

        @functools.wraps(shutdown)
        def shut_down_quietly(*args: Any, **kwargs: Any) -> Any:
            # No call of ours may be under way in a thread while Ray takes itself down: it would end the process.
            with ray_link.keep_quiet():
                return shutdown(*args, **kwargs)

        wrappers[id(shutdown)] = shutdown, shut_down_quietly
        atexit.register(ray_link.end_link)  # Ray's own is registered by now: the last comes first
    _replace_everywhere(wrappers)  # both in one search of thousands of modules


def _replace_everywhere(replaced: dict[int, tuple[Any, Any]]) -> None:
    """Replace functions under every name that they have in a module."""
    from ..patching import replacements

    for change in replacements.in_modules(replaced, replacements.loaded_modules(), may_be_remote=False):
        change.make()
        _ways.changes.append(change)


@contextmanager
def _reach_workers(arguments: dict[str, Any], address: Any) -> Iterator[dict[str, Any]]:
    """What `ray.init` is called with instead; for as long as it runs, also what it reads from the environment."""
    before = os.environ.get(INJECTED)
    try:
        if address is None or address == "auto":  # as `ray.init` decides it
            address = os.environ.get("RAY_ADDRESS") or address
        changed, text = _change_arguments(arguments, before, "://" in str(address))
    except Exception as exc:
        faults.note_fault("arranging for Ray's workers", exc)
        changed, text = arguments, before
    if text is None or text == before:
        yield changed
        return
    os.environ[INJECTED] = text
    try:
        yield changed
    finally:
        os.environ[INJECTED] = str(before)


def _change_arguments(
    arguments: dict[str, Any], injected: str | None, is_client: bool
) -> tuple[dict[str, Any], str | None]:
    """New arguments of `ray.init`, and of the variable that `ray job submit` sets."""
    ours = ray_environment.pick_variables(os.environ)
    if not ours or _is_initialized():
        return arguments, injected
    environment, config = arguments.get("runtime_env"), arguments.get("job_config")
    if injected is not None and not is_client:
        is_overriding = os.environ.get("RAY_OVERRIDE_JOB_RUNTIME_ENV") == "1"
        injected, made = ray_environment.inject_into_job(injected, environment, ours, is_overriding)
    else:
        theirs = environment or getattr(config, "runtime_env", None)
        made = ray_environment.compose_environment(theirs, ours, is_client=is_client)
    _ways.sent, _ways.notes[:] = ours, [*dict.fromkeys([*_ways.notes, *made.notes])]
    changed = {**arguments, "runtime_env": made.environment}
    if config is not None:  # Ray writes into it
        import copy

        changed["job_config"] = copied = copy.copy(config)
        copied.metadata = dict(config.metadata)
    return changed, injected


def _wrap_loader(module: ModuleType) -> None:
    """Hear of actor classes that arrive, and of actors that have been made."""
    from ..patching.replacements import Replacement

    loader = getattr(module, _LOADER_CLASS, None)
    for name, (act, fault) in _SEAMS.items():
        original = vars(loader).get(name) if isinstance(loader, type) else None
        if callable(original):
            change = Replacement(loader, name, original, _call_after(original, act, fault))
            change.make()
            _ways.changes.append(change)
        else:
            _ways.notes.append(_NO_SEAM.format(name=f"{_LOADER_CLASS}.{name}"))


def _call_after(original: Callable[..., Any], act: Callable[..., Any], fault: str) -> Callable[..., Any]:
    """Ray's function, whose answer and arguments go to `act`, which gives the answer; a fault of ours changes none."""

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        answer = original(*args, **kwargs)
        try:
            return act(answer, *args, **kwargs)
        except Exception as exc:
            faults.note_fault(fault, exc)
            return answer

    return wrapper


def _patch_class(cls: Any, *_: Any, **__: Any) -> Any:
    """An actor class arrives, to be made here or with a handle: patch it before Ray looks at its methods."""
    from ..patching import registry

    # Ray's own subclass repeats the methods of the user's class: what it has captured of them is replaced too.
    registry.patch_travelled(getattr(cls, "__ray_actor_class__", cls))
    return cls


def _patch_function(answer: Any, manager: Any, function_descriptor: Any, *_: Any, **__: Any) -> Any:
    """A function arrives, which is now run for the first time: it is run with its range."""
    from ..patching import registry

    if not function_descriptor.is_actor_method():
        functions, key = manager._function_execution_info, function_descriptor.function_id
        info = functions.get(key)
        patched = None if info is None else registry.patched_copy(info.function)
        if info is not None and patched is not info.function:
            functions[key] = info._replace(function=patched)
    return answer


def _tell_actor(executor: Any, _: Any, method_name: str, *__: Any, **___: Any) -> Any:
    """Around an actor's `__init__`, the one sign that this process is that actor: its name and role are learnt before,
    and its rank, which that may have set, written down before anything can end it.
    """
    if method_name != "__init__":
        return executor

    @functools.wraps(executor)
    def tell(*args: Any, **kwargs: Any) -> Any:
        identity.learn_actor()
        try:
            from ..patching import registry

            actor = next(iter(args), None)
            cls = getattr(type(actor), "__ray_actor_class__", type(actor))
            if not identity.has_role():
                identity.identify(role=registry.list_roles().get(cls.__name__, cls.__name__))
        except Exception as exc:
            faults.note_fault("the role of an actor", exc)
        try:
            return executor(*args, **kwargs)
        finally:
            if identity.on_learnt is not None:
                identity.on_learnt()

    return tell


# What a worker does with an actor class, each method of it, and a function, before their first run.
_SEAMS: dict[str, tuple[Callable[..., Any], str]] = {
    "_load_actor_class_from_gcs": (_patch_class, "a class that arrived by value"),
    "_make_actor_method_executor": (_tell_actor, "an actor that is made"),
    "_wait_for_function": (_patch_function, "a function that arrived by value"),
}
