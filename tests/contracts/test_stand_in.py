"""Generated packages hold what was recorded: without that, the other tests here would test nothing."""

from __future__ import annotations

import ast
import inspect
import sys
from pathlib import Path
from typing import Any

import pytest
from builders.contracts import surface
from builders.contracts.installed import modified_class
from builders.contracts.installing import Install
from builders.contracts.surface import Surface
from builders.contracts.versions import every_version
from builders.contracts.where import FRAMEWORKS_PYTHON, INSTALLED_VERL, OLDER_VERL, verl_paths

# What Python itself calls is left out of stand-ins.
SPECIAL = ("__init__", "__new__", "__call__", "__enter__")


def _class(module: str, name: str) -> Any:
    value = getattr(sys.modules[module], name)
    return modified_class(value) or value


@every_version
def test_methods_take_the_recorded_parameters(version: str, install: Install) -> None:
    one = surface.recorded(version)
    install(one).load()

    for module in one.modules:
        for name, cls in one.classes(module).items():
            for method, record in cls["methods"].items():
                if method.startswith("__") and method not in SPECIAL:
                    continue
                raw = inspect.getattr_static(_class(module, name), method)
                found = inspect.unwrap(getattr(raw, "__func__", getattr(raw, "fget", raw)))
                if hasattr(found, "__code__") and found.__name__ == method and not isinstance(raw, property):
                    assert _parameters(found) == [p.strip("=*") for p in record["params"] if p != "*"], (name, method)


def _parameters(function: Any) -> list[str]:
    signature = inspect.signature(function, follow_wrapped=False)
    return [name for name in signature.parameters if name != "_ray_trace_ctx"]


@every_version
def test_names_imported_from_elsewhere_are_the_same_objects(version: str, install: Install) -> None:
    one = surface.recorded(version)
    install(one).load()
    compared = 0

    for module in one.modules:
        for names in one.imports(module).values():
            for name in names:
                origin = one.origin(module, name)
                if origin is not None:
                    defined = getattr(sys.modules[origin[0]], origin[1])
                    assert getattr(sys.modules[module], name) is defined, (module, name)
                    compared += 1

    assert compared


@every_version
def test_classes_inherit_as_recorded(version: str, install: Install) -> None:
    one = surface.recorded(version)
    install(one).load()

    for module in one.modules:
        for name in one.classes(module):
            for base in one.bases((module, name)):
                assert issubclass(_class(module, name), _class(*base)), (module, name, base)


def test_verl_marks_are_where_verl_looks_for_them(install: Install) -> None:
    install(surface.recorded("verl-0.9.1")).load()

    method = _class("verl.workers.engine_workers", "ActorRolloutRefWorker").update_weights

    assert set(method.attrs_3141562937) == {"dispatch_mode", "execute_mode", "blocking"}
    assert inspect.iscoroutinefunction(method)


def test_upstream_ranges_are_wrappers_of_the_file_that_upstream_has(install: Install) -> None:
    install(surface.recorded("mindspeed_rl-2.2.0")).load()

    code = _class("mindspeed_rl.workers.base_worker", "BaseWorker").all_consumed.__code__

    assert code.co_name == "wrapper"
    assert code.co_filename.endswith("mindspeed_rl/utils/utils.py")


@pytest.mark.frameworks
@pytest.mark.parametrize("version", [*OLDER_VERL, INSTALLED_VERL])
def test_what_was_recorded_of_verl_is_what_its_wheel_holds(version: str) -> None:
    one = surface.recorded(f"verl-{version}")
    site = FRAMEWORKS_PYTHON.parents[1] / f"lib/python3.{sys.version_info.minor}/site-packages"
    root = Path(verl_paths(version)[0] if version in OLDER_VERL else site)

    for module in one.modules:
        assert _of_source(root, module) == _of_record(one, module), module


def _of_source(root: Path, module: str) -> dict[str, list[str]]:
    folder = root.joinpath(*module.split("."))
    path = folder.with_suffix(".py") if folder.with_suffix(".py").exists() else folder / "__init__.py"
    found: dict[str, list[str]] = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        for prefix, one in _functions(node):
            names = [*one.args.posonlyargs, *one.args.args, one.args.vararg, *one.args.kwonlyargs, one.args.kwarg]
            found[prefix + one.name] = [name.arg for name in names if name is not None]
    return found


def _functions(node: ast.stmt) -> list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    if isinstance(node, ast.ClassDef):
        return [(f"{node.name}.", one) for child in node.body for _, one in _functions(child)]
    if isinstance(node, ast.If):
        return [one for child in [*node.body, *node.orelse] for one in _functions(child)]
    return [("", node)] if isinstance(node, kinds) else []


def _of_record(one: Surface, module: str) -> dict[str, list[str]]:
    methods = {f"{name}.{m}": r for name, cls in one.classes(module).items() for m, r in cls["methods"].items()}
    held = {**methods, **one.functions(module)}
    return {name: [p.strip("=*") for p in record["params"] if p != "*"] for name, record in held.items()}
