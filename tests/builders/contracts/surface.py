"""What a version of a framework holds, read from its recorded surface, and what of a patch it should therefore take.

Nothing here asks mstxkit's patching: names, aliases and inheritance are resolved from the record alone.
"""

from __future__ import annotations

import copy
import json
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, Iterable, Iterator, NamedTuple

from builders.contracts.where import SURFACES

from mstxkit.patching.declare import Target

# Plain functions that give the context manager of another one.
PASSES_A_CONTEXT_ON = ("disable_adapter", "record_function_or_nullcontext")
# Objects of these decorators are no Python functions any more.
KERNELS = ("triton.jit", "triton.autotune")


class Symbol(NamedTuple):
    """A function or method of a surface, where it is defined.

    Args:
        module: Full name.
        qualname: `function` or `Class.method`.
        record: `kind`, `params`, `decorators`.
    """

    module: str
    qualname: str
    record: dict[str, Any]

    @property
    def key(self) -> str:
        """`module:qualname`."""
        return f"{self.module}:{self.qualname}"

    @property
    def decorators(self) -> list[str]:
        """Their texts, the outermost first."""
        return list(self.record.get("decorators", ()))

    @property
    def is_plain_method(self) -> bool:
        """A method of instances, and called with them."""
        kinds = ("staticmethod", "classmethod", "property")
        return "." in self.qualname and not any(text in kinds or text.endswith(".setter") for text in self.decorators)

    @property
    def is_property(self) -> bool:
        return "property" in self.decorators or any(text.endswith(".setter") for text in self.decorators)

    @property
    def gives_a_context(self) -> bool:
        """Does a call give a context manager, whose body runs later?"""
        is_said = any("contextmanager" in text for text in self.decorators)
        return is_said or self.qualname.rpartition(".")[2] in PASSES_A_CONTEXT_ON

    @property
    def is_function(self) -> bool:
        """Is it a Python function, plain, static or of a class?"""
        is_object = self.record["kind"] == "hostile" or any(text.startswith(KERNELS) for text in self.decorators)
        return not is_object and not self.is_property


class Surface:
    """A recorded version.

    Args:
        framework: Its import root.
        version: As recorded.
        modules: Module to `classes`, `functions`, `imports_from`.
    """

    def __init__(self, framework: str, version: str, modules: dict[str, dict[str, Any]]) -> None:
        self.framework, self.version, self.modules = framework, version, modules
        self._imports = _top_level_imports(self)

    def __repr__(self) -> str:
        return f"{self.framework}-{self.version}"

    def copy(self) -> Surface:
        """One that may be mutilated."""
        return Surface(self.framework, self.version, copy.deepcopy(self.modules))

    @property
    def uses_ray(self) -> bool:
        """Is anything decorated by Ray?"""
        return '"ray.remote' in json.dumps(self.modules)

    def classes(self, module: str) -> dict[str, dict[str, Any]]:
        """By name."""
        return dict(self.modules.get(module, {}).get("classes", {}))

    def functions(self, module: str) -> dict[str, dict[str, Any]]:
        """By name."""
        return dict(self.modules.get(module, {}).get("functions", {}))

    def imports(self, module: str) -> dict[str, list[str]]:
        """What it imports when it is executed: source to names. What closes a circle is taken for an import inside a
        function, which the record does not tell apart.
        """
        return self._imports.get(module, {})

    def source_name(self, source: str, name: str) -> str | None:
        """What `name` is called in the module it comes from: `from x import y as y_of_x` is recorded as `y_of_x`."""
        known = [*self.classes(source), *self.functions(source)]
        if name in known or f"{source}.{name}" in self.modules:
            return name
        return max((one for one in known if len(one) > 3 and name.startswith(one)), key=len, default=None)

    def origin(self, module: str, name: str, depth: int = 0) -> tuple[str, str] | None:
        """Module and name of where `name`, as seen in `module`, is defined; None outside the record."""
        if name in self.classes(module) or name in self.functions(module):
            return module, name
        if depth > 10:
            return None
        if module not in self.modules:
            return self._below(module, name)
        for source, names in reversed(list(self.imports(module).items())):  # the last one stays
            if name in names:
                return self.origin(source, self.source_name(source, name) or name, depth + 1)
        return None

    def _below(self, package: str, name: str) -> tuple[str, str] | None:
        """A package whose own file is not recorded passes on the names of its modules."""
        found = [
            one
            for one in self.modules
            if one.startswith(f"{package}.") and (name in self.classes(one) or name in self.functions(one))
        ]
        is_module = f"{package}.{name}" in self.modules
        return (found[0], name) if len(found) == 1 and not is_module else None

    def symbol(self, path: str) -> Symbol | None:
        """What `module:qualname` names, where it is defined; through aliases and base classes."""
        module, _, qualname = path.partition(":")
        if module not in self.modules:
            return None
        parent, _, last = qualname.rpartition(".")
        if not parent:
            origin = self.origin(module, last)
            record = origin and self.functions(origin[0]).get(origin[1])
            return Symbol(origin[0], origin[1], record) if origin and record else None
        origin = self.origin(module, parent)
        return self._member(origin, last) if origin and origin[1] in self.classes(origin[0]) else None

    def has(self, path: str) -> bool:
        """Does it hold this function, method or class?"""
        module, _, name = path.partition(":")
        origin = self.origin(module, name) if module in self.modules and "." not in name else None
        return self.symbol(path) is not None or bool(origin and origin[1] in self.classes(origin[0]))

    def _member(self, owner: tuple[str, str], name: str) -> Symbol | None:
        for module, cls in self.bases(owner):
            record = self.classes(module)[cls]["methods"].get(name)
            if record is not None:
                return Symbol(module, f"{cls}.{name}", record)
        return None

    def bases(self, owner: tuple[str, str]) -> Iterator[tuple[str, str]]:
        """A class and those it inherits from, in about the order that Python looks."""
        module, cls = owner
        yield owner
        for base in self.classes(module)[cls]["bases"]:
            origin = self.origin(module, base)
            if origin and origin != owner and origin[1] in self.classes(origin[0]):
                yield from self.bases(origin)

    def symbols(self, target: Target) -> list[Symbol]:
        """What a target names in this version; several for a wildcard, none if nothing."""
        if "*" not in target.qualname:
            found = self.symbol(target.path)
            return [found] if found is not None else []
        parent, _, pattern = target.qualname.rpartition(".")
        origin = self.origin(target.module, parent) if parent else (target.module, "")
        if origin is None:
            return []
        module, cls = origin
        held = self.classes(module).get(cls, {}).get("methods", {}) if parent else self.functions(module)
        prefix = f"{cls}." if parent else ""
        found = [
            Symbol(module, f"{prefix}{name}", record) for name, record in sorted(held.items()) if _fits(name, pattern)
        ]
        return [one for one in found if one.is_function]


def _fits(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) and (pattern[0] == "_" or not name.startswith("_"))


@cache
def recorded(name: str) -> Surface:
    """The surface `<framework>-<version>`. Not to be changed: `copy()` it first."""
    text = json.loads((SURFACES / f"{name}.json").read_text(encoding="utf-8"))
    return Surface(text["framework"], text["version"], text["modules"])


def names() -> list[str]:
    """All recorded surfaces, sorted."""
    return sorted(path.name[: -len(".json")] for path in Path(SURFACES).glob("*.json"))


def packages(modules: Iterable[str]) -> set[str]:
    """Every package that these modules are in."""
    found: set[str] = set()
    for module in modules:
        parts = module.split(".")
        found.update(".".join(parts[:count]) for count in range(1, len(parts)))
    return found


def _top_level_imports(surface: Surface) -> dict[str, dict[str, list[str]]]:
    """The recorded imports without those that would close a circle; what a class or decorator needs stays."""
    graph: dict[str, set[str]] = {module: set() for module in surface.modules}
    kept: dict[str, dict[str, list[str]]] = {module: {} for module in surface.modules}
    wanted = [(m, s, n) for m in sorted(surface.modules) for s, ns in imports_of(surface, m) for n in ns]
    for is_needed in (True, False):
        for module, source, name in wanted:
            if (name in _needed_at_once(surface.modules[module])) is not is_needed:
                continue
            loaded = _loaded_by(surface, module, source, name)
            if not is_needed and any(_reaches(graph, one, module) for one in loaded):
                continue
            graph[module].update(loaded)
            kept[module].setdefault(source, []).append(name)
    return kept


def imports_of(surface: Surface, module: str) -> list[tuple[str, list[str]]]:
    """Where a module has its names from: as recorded, and for base classes also what the record leaves out."""
    record = surface.modules[module]
    known = {name for names in record.get("imports_from", {}).values() for name in names}
    return sorted([*record.get("imports_from", {}).items(), *_relative_imports(surface, module, known)])


def _relative_imports(surface: Surface, module: str, known: set[str]) -> list[tuple[str, list[str]]]:
    """`from .base import X` is not recorded: a base class that comes from nowhere is that of the nearest module."""
    wanted = {base for one in surface.classes(module).values() for base in one["bases"]} - known
    found = []
    for name in sorted(wanted - set(surface.classes(module))):
        holders = [one for one in surface.modules if name in surface.classes(one)]
        near = sorted((one for one in holders if _shared(one, module) > 1), key=lambda one: _shared(one, module))[-2:]
        if near and (len(near) == 1 or _shared(near[1], module) > _shared(near[0], module)):
            found.append((near[-1], [name]))
    return found


def _shared(one: str, other: str) -> int:
    """How many packages two modules have in common."""
    pairs = list(zip(one.split("."), other.split(".")))
    return next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))


def _needed_at_once(record: dict[str, Any]) -> set[str]:
    classes, functions = record.get("classes", {}), record.get("functions", {})
    bases = {base for one in classes.values() for base in one["bases"]}
    methods = [method for one in classes.values() for method in one["methods"].values()]
    decorated = [text for one in [*methods, *functions.values()] for text in one.get("decorators", ())]
    return bases | {text.partition("(")[0] for text in decorated}


def _loaded_by(surface: Surface, module: str, source: str, name: str) -> set[str]:
    """Recorded modules that one import statement executes, the packages above it included."""
    below = f"{source}.{name}"
    loaded = {one for one in (source, below, *packages([source])) if one in surface.modules}
    if source not in surface.modules:
        loaded.update(one for one in surface.modules if one.startswith(f"{source}.") and name in _defined(surface, one))
    return {one for one in loaded if not f"{module}.".startswith(f"{one}.") or one == module}


def _defined(surface: Surface, module: str) -> set[str]:
    return {*surface.classes(module), *surface.functions(module)}


def _reaches(graph: dict[str, set[str]], start: str, goal: str) -> bool:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        one = waiting.pop()
        if one == goal:
            return True
        if one not in seen:
            seen.add(one)
            waiting += graph.get(one, ())
    return False
