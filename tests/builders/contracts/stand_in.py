"""Writes an importable package from a recorded surface: true names, signatures, decorators, aliases and inheritance.

Bodies only say that they ran (`outside.run`). What the record lacks is left out or made up as little as possible:
bases from other packages are empty classes, names of modules that are not recorded are stubs.

A test may add to the record of a module: `raises` (a text: its import fails at its end), `waits` (its import waits for
the test), `hostile` (looking up what it lacks raises RuntimeError); and give a method the kind `hostile`.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from builders.contracts.surface import PASSES_A_CONTEXT_ON, Surface, packages

_HEADER = '''"""Stand-in of {module}, {surface}."""
import abc as _abc, contextlib as _contextlib, functools as _functools
from builders.contracts import outside as _outside
'''
# What functions return or do that others are decorated with. Behaviour as in MindSpeed-RL 2.0.0 to master,
# mindspeed_rl/utils/utils.py, and verl 0.6.1 to 0.9.1, verl/single_controller/base/decorator.py.
_SPECIAL = {
    "mindspeed_rl.utils.utils:mstx_timer_decorator": '''
def mstx_timer_decorator(func):
    """Stand-in of mstx_timer_decorator."""
    @_functools.wraps(func)
    def wrapper(*args, **kwargs):
        _outside.upstream_ranges.append(func.__qualname__)
        return func(*args, **kwargs)
    return wrapper
''',
    "verl.single_controller.base.decorator:register": '''
MAGIC_ATTR = "attrs_3141562937"


def register({params}):
    """Stand-in of register."""
    def decorator(func):
        wrapper = _outside.wrapped(func)
        setattr(wrapper, MAGIC_ATTR, dict(dispatch_mode=dispatch_mode, execute_mode=execute_mode, blocking=blocking))
        return wrapper
    return decorator
''',
}
_DIRECT = {
    "staticmethod": "staticmethod", "classmethod": "classmethod", "property": "property",
    "abstractmethod": "_abc.abstractmethod", "contextmanager": "_contextlib.contextmanager",
    "contextlib.contextmanager": "_contextlib.contextmanager", "asynccontextmanager": "_contextlib.asynccontextmanager",
    "lru_cache": "_functools.lru_cache", "functools.lru_cache": "_functools.lru_cache",
    "functools.cache": "_functools.lru_cache(None)", "dataclass": "_outside.dataclass",
    "dataclasses.dataclass": "_outside.dataclass", "ray.remote": "_outside.ray.remote",
    "GPUMemoryLogger": "_outside.unnamed", "auto_await": "_outside.auto_await", "triton.jit": "_outside.Kernel",
    "triton.autotune": "",
}  # fmt: skip
# Special methods that may say that they ran, and how; what Python itself calls with expectations is left out.
_SAFE = {"__init__": "", "__new__": "return super().__new__(cls) or ", "__call__": "return ", "__enter__": "return "}
_WITH_ARGUMENTS = ("ray.remote", "dataclass", "dataclasses.dataclass", "lru_cache", "functools.lru_cache")


def write(surface: Surface, folder: Path) -> Path:
    """Write the package into `folder`, which then goes on `sys.path`."""
    stubs = _stubs(surface)
    names = {*surface.modules, *stubs}
    for name in names | packages(names):
        is_package = name in packages(names)
        path = folder.joinpath(*name.split("."), "__init__.py") if is_package else folder.joinpath(*name.split("."))
        path = path if is_package else path.with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_Module(surface, name, stubs.get(name, set())).text(), encoding="utf-8")
    return folder


def _stubs(surface: Surface) -> dict[str, set[str]]:
    """Modules that recorded ones import from and that are not recorded themselves, and the names asked for."""
    found: dict[str, set[str]] = {}
    known = {*surface.modules, *packages(surface.modules)}
    for module in surface.modules:
        for source, names in surface.modules[module].get("imports_from", {}).items():
            wanted = {name for name in names if name != "*" and f"{source}.{name}" not in known}
            if source not in surface.modules:
                found.setdefault(source, set()).update(wanted)
            else:
                missing = {name for name in wanted if not _has(surface, source, name)}
                if missing:
                    found.setdefault(source, set()).update(missing)
    return found


def _has(surface: Surface, source: str, name: str) -> bool:
    passed_on = any(name in names for names in surface.imports(source).values())
    return passed_on or surface.source_name(source, name) is not None


class _Module:
    """The text of one file."""

    def __init__(self, surface: Surface, name: str, stubs: set[str]) -> None:
        self.surface, self.name, self.stubs = surface, name, stubs
        self.record = surface.modules.get(name, {})
        self.imported = {one for names in surface.imports(name).values() for one in names}

    def text(self) -> str:
        parts = [_HEADER.format(module=self.name, surface=self.surface)]
        if self.record.get("waits"):
            parts.append("_outside.wait_in_import()\n")
        parts += [self._import(source, names) for source, names in self.surface.imports(self.name).items()]
        parts += self._stubs()
        parts += [self._function(name, record) for name, record in self.surface.functions(self.name).items()]
        parts += [self._class(name) for name in self._classes_in_order()]
        if self.record.get("hostile"):
            parts.append("def __getattr__(name):\n    raise RuntimeError(f'{name} looked up')\n")
        if "raises" in self.record:
            parts.append(f"raise ImportError({self.record['raises']!r})\n")
        return "\n".join(parts)

    def _import(self, source: str, names: list[str]) -> str:
        if "*" in names:
            return f"from {source} import *"
        listed = []
        for name in names:
            original = self.surface.source_name(source, name)
            listed.append(name if original in (None, name) else f"{original} as {name}")
        return f"from {source} import {', '.join(listed)}"

    def _stubs(self) -> list[str]:
        """Names of a file that is not recorded: passed on from the one module below that has it, or made up."""
        lazy = {name: origin for name in sorted(self.stubs) if (origin := self._origin_below(name)) is not None}
        lines = [f"{name} = _outside.stub(__name__, {name!r})" for name in sorted(self.stubs) if name not in lazy]
        if lazy:
            # As verl's packages pass names on, but when they are asked for: what is not recorded may hold circles.
            lines.append(
                f"_below = { ({name: module for name, (module, _) in lazy.items()})!r}\n\n\ndef __getattr__(name):\n"
                "    import importlib\n    if name not in _below:\n        raise AttributeError(name)\n"
                "    value = globals()[name] = getattr(importlib.import_module(_below[name]), name)\n    return value\n"
            )
        return lines

    def _origin_below(self, name: str) -> tuple[str, str] | None:
        return self.surface.origin(self.name, name) if self.name not in self.surface.modules else None

    def _classes_in_order(self) -> list[str]:
        """Bases first."""
        classes, ordered = self.surface.classes(self.name), []

        def add(name: str) -> None:
            if name not in ordered:
                for base in classes[name]["bases"]:
                    if base in classes and base != name:
                        add(base)
                ordered.append(name)

        for name in classes:
            add(name)
        return ordered

    def _class(self, name: str) -> str:
        record = self.surface.classes(self.name)[name]
        bases = ", ".join(self._base(text) for text in record["bases"])
        decorators = [text for text in record.get("decorators", ()) if text.startswith(_WITH_ARGUMENTS)]
        lines = [f"@{_decorator(text)}" for text in decorators]
        lines += [f"class {name}({bases}):", f'    """Stand-in of {name}."""']
        for method, one in record["methods"].items():
            text = self._function(method, one, owner=name)
            lines += [f"    {line}" if line else "" for line in text.splitlines()]
        return "\n".join(lines) + "\n"

    def _base(self, text: str) -> str:
        known = text in self.surface.classes(self.name) or text in self.imported
        return text if known else f"_outside.base({text!r})"

    def _function(self, name: str, record: dict[str, Any], owner: str = "") -> str:
        if record["kind"] == "hostile":
            return f"{name} = _outside.Hostile()"
        if name.startswith("__") and name not in _SAFE:
            return ""
        if name in PASSES_A_CONTEXT_ON:
            record = {**record, "decorators": ["contextmanager"], "kind": "gen"}
        qualname = f"{owner}.{name}" if owner else name
        special = _SPECIAL.get(f"{self.name}:{qualname}")
        parameters = ", ".join(_parameter(text) for text in record["params"])
        if special is not None:
            return special.replace("{params}", parameters)
        lines = [f"@{text}" for text in map(self._decorator, record.get("decorators", ())) if text]
        if any(text.endswith(".setter") for text in record.get("decorators", ())):
            lines = [
                "@property",
                f"def {name}(self):",
                f"    return _outside.run({self.name + ':' + qualname!r})",
                *lines,
            ]
        is_async, says = record["kind"].startswith("async"), "yield " if "gen" in record["kind"] else "return "
        lines += [
            f"{'async ' if is_async else ''}def {name}({parameters}):",
            f'    """Stand-in of {name}."""',
            f"    {_SAFE.get(name, says)}_outside.run({self.name + ':' + qualname!r})",
        ]
        return "\n".join(lines) + "\n"

    def _decorator(self, text: str) -> str:
        head = text.partition("(")[0]
        if head == "mstx_timer_decorator" and (head in self.imported or head in self.surface.functions(self.name)):
            return head
        if head == "register" and "dispatch_mode" in text and head in self.imported:
            return f"register(dispatch_mode={text!r})"
        return _decorator(text)


def _decorator(text: str) -> str:
    """The expression that stands for a recorded decorator; texts that were cut off lose their arguments."""
    head, opened, _ = text.partition("(")
    if text.endswith(".setter"):
        return text
    if head not in _DIRECT:
        return "_outside.wrapped"
    arguments = text[len(head) :] if opened and head in _WITH_ARGUMENTS and _is_whole(text) else ""
    return _DIRECT[head] + arguments


def _is_whole(text: str) -> bool:
    try:
        ast.literal_eval(f"({text.partition('(')[2][:-1] or 'None'})" if "=" not in text else "0")
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True


def _parameter(text: str) -> str:
    return f"{text}None" if text.endswith("=") else text
