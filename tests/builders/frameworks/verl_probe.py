"""Run in a process of its own: patch one version of verl, import what imports on a CPU, put back, and tell as JSON.

Usage: python verl_probe.py before|after     (patched before or after its modules are imported)
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
import warnings
from types import FunctionType, ModuleType
from typing import Any, Iterator

from mstxkit.marking import signatures
from mstxkit.patches.verl import PATCH
from mstxkit.patching import apply, registry
from mstxkit.patching.declare import Target

# What is at the attribute that verl's `register` sets: verl 0.6.1 to 0.9.1, single_controller/base/decorator.py.
MAGIC_ATTR = "attrs_3141562937"
ABSENT = object()


def main(order: str) -> dict[str, Any]:
    """What was found; see the tests."""
    if order == "before":
        registry.install_patches([(PATCH, True)])
        missing = import_all()
        before = snapshot = None
    else:
        missing = import_all()
        snapshot, before = take_snapshot(), {target.path: describe(target) for target in PATCH.targets}
        registry.install_patches([(PATCH, True)])
    states = {state.path: [state.state, state.reason, state.detail] for state in registry.report_targets().targets}
    patched = {target.path: describe(target) for target in PATCH.targets}
    ours = sorted(names_of_ours())
    registry.remove_patches()
    after = {target.path: describe(target) for target in PATCH.targets}
    return {
        "missing": missing,
        "states": states,
        "held": [path for path, found in after.items() if found is not None],
        "changed": [path for path in patched if patched[path] != (before or after)[path]],
        "patched": ours,
        "left": sorted(names_of_ours()),
        "not put back": differences(snapshot, take_snapshot()) if snapshot is not None else [],
    }


def import_all() -> dict[str, str]:
    """Import every module that has a target; which could not be, and why."""
    missing = {}
    for name in dict.fromkeys(target.module for target in PATCH.targets):
        try:
            importlib.import_module(name)
        except (ImportError, ValueError) as exc:  # ValueError: verl's own, where vllm and sglang are missing
            missing[name] = f"{type(exc).__name__}: {exc}"
    return missing


def stored(target: Target) -> Any:
    """What a target names, found without the engine that patches; ABSENT where there is nothing."""
    found: Any = sys.modules.get(target.module, ABSENT)
    for part in target.qualname.split("."):
        found = user_class(inspect.getattr_static(found, part, ABSENT))
    return found


def user_class(value: Any) -> Any:
    """The class under `@ray.remote`, the function under it, or the value itself."""
    if type(value).__name__ == "RemoteFunction":
        return value._function
    if type(value).__name__.startswith("ActorClass"):
        return value.__ray_metadata__.modified_class.__ray_actor_class__
    return value


def describe(target: Target) -> list[Any] | None:
    """What must not change: kind, signature, coroutine-ness, dispatch marks, name, text, and that pickle finds it."""
    raw = stored(target)
    if raw is ABSENT:
        return None
    function = getattr(raw, "__func__", raw)
    if target.kind == "value":
        return [type(raw).__name__]
    return [
        type(raw).__name__, str(inspect.signature(function)), inspect.iscoroutinefunction(function),
        repr(sorted(getattr(function, MAGIC_ATTR, {}).items(), key=str)), function.__name__, function.__doc__,
        _is_found_by_its_names(function),
    ]  # fmt: skip


def _is_found_by_its_names(function: Any) -> bool:
    """As pickle looks for it."""
    found: Any = sys.modules.get(function.__module__, ABSENT)
    for part in function.__qualname__.split("."):
        found = user_class(inspect.getattr_static(found, part, ABSENT))
    return getattr(found, "__func__", found) is function


def holders() -> Iterator[tuple[str, Any]]:
    """verl's modules and their classes, those under `@ray.remote` and Ray's own subclasses of them included."""
    seen: set[int] = set()
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] != "verl" or not isinstance(module, ModuleType):
            continue
        yield name, module
        for value in list(vars(module).values()):
            for one in [user_class(value), *_subclasses(user_class(value))]:
                if isinstance(one, type) and id(one) not in seen:
                    seen.add(id(one))
                    yield f"{one.__module__}:{one.__qualname__}", one


def _subclasses(value: Any) -> list[type]:
    return type.__subclasses__(value) if isinstance(value, type) and value.__module__.startswith("verl") else []


def contents() -> Iterator[tuple[str, Any]]:
    """All that modules and classes hold, by name; of Ray's method copies what they captured."""
    for holder, values in holders():
        for name, value in list(vars(values).items()):
            if not name.startswith("__") and name not in ("_abc_impl", "_registry"):
                yield f"{holder}.{name}", value
                for index, cell in enumerate((isinstance(value, FunctionType) and value.__closure__) or ()):
                    yield f"{holder}.{name}[{index}]", getattr(cell, "cell_contents", None)
                if type(value).__name__ == "RemoteFunction":
                    yield f"{holder}.{name}()", value._function


def names_of_ours() -> Iterator[str]:
    """Where a wrapper of mstxkit is held."""
    for name, value in contents():
        function = getattr(value, "__func__", value)
        if isinstance(function, FunctionType) and (
            signatures.held_by(function) is not None or apply.CONTEXT_MARK in vars(function)
        ):
            yield name


def take_snapshot() -> dict[str, Any]:
    """Name to object: identity is what counts, and the objects are kept alive so that it does."""
    return dict(contents())


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Names that hold another object than before, or are there only once."""
    keys = before.keys() | after.keys()
    return sorted(key for key in keys if before.get(key, ABSENT) is not after.get(key, ABSENT))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.stdout.write("PROBE " + json.dumps(main(sys.argv[1])) + "\n")
