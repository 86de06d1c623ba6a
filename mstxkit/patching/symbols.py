"""What symbols a package holds, and so which targets, without importing any of it: its source is read with `ast`.

`Symbols` follows names as Python would: `from x import y`, base classes, aliases, modules that pass names on. Where it
gets its modules from is up to who makes it: `find_symbols` reads the source files of what is installed here, tests read
recorded surfaces. What only running code can tell (a name made by `setattr`, a lazy `__getattr__`) it does not see.
"""

from __future__ import annotations

import ast
import functools
from functools import partial
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping, NamedTuple

from . import presence
from .declare import VALUE, Patch, Target
from .reach import fits_pattern
from .report import Reason, TargetState

# A state that only looking at the source can give: the symbol is there; whether it can be replaced shows at its import.
HELD, SKIPPED = "held", "skipped"
_DEEPEST = 30


class ClassSymbols(NamedTuple):
    """A class: its bases as written, and the names in it, as `ModuleSymbols.names`."""

    bases: tuple[str, ...] = ()
    members: Mapping[str, str] = {}


class ModuleSymbols(NamedTuple):
    """A module: what it defines, and what it imports."""

    classes: Mapping[str, ClassSymbols] = {}
    names: Mapping[str, str] = {}  # of functions, with ""; of what is assigned, with its other name, else "="
    imports: Mapping[str, tuple[str, str]] = {}  # local name to (module, name there); "" for the module itself
    stars: tuple[str, ...] = ()  # modules of which it imports everything


class _Symbol(NamedTuple):
    """Where a name leads: a module (`name` ""), or a name in one; `of_class` where that is a class."""

    module: str
    name: str = ""
    of_class: ClassSymbols | None = None


class Symbols:
    """What a package and those that it builds on hold; `module` tells it of each by full name, None for no module."""

    def __init__(self, module: Callable[[str], ModuleSymbols | None]) -> None:
        self.module = module

    def states(self, patch: Patch) -> list[TargetState]:
        """Every target of a patch: held, or skipped with a reason."""
        states = []
        for target in patch.targets:
            reason = detail = ""
            if self.module(target.module.partition(".")[0]) is None and self.module(target.module) is None:
                reason = Reason.NOT_INSTALLED
            elif not self.holds(target):
                reason = Reason.ABSENT
            elif target.unless is not None and self.has(target.unless):
                reason, detail = Reason.SUPERSEDED, target.unless
            states.append(TargetState.of(patch.framework, target, SKIPPED if reason else HELD, reason, detail))
        return states

    def holds(self, target: Target) -> bool:
        """Is there what a target names? A class is not: its methods would be."""
        parents, _, last = target.qualname.rpartition(".")
        if "*" in last:
            return any(fits_pattern(name, last) for name in self._list_names(target.module, parents))
        symbol, here = self._find_symbol(target.module, target.qualname), self.module(target.module)
        if symbol is None and target.kind == VALUE and parents and here is not None:
            compiled, _ = here.imports.get(parents, ("", ""))
            return bool(compiled) and self.module(compiled) is None  # a class in C: importing it tells its methods
        return symbol is not None and (symbol.of_class is None or target.kind == VALUE)

    def has(self, path: str) -> bool:
        """Is there a symbol `package.module:Class.method`, whatever it is?"""
        module, _, qualname = path.partition(":")
        return self._find_symbol(module, qualname) is not None

    def _list_names(self, module: str, parents: str) -> list[str]:
        """What a wildcard may match: functions that a module or class defines itself."""
        if not parents:
            here = self.module(module)
            return [] if here is None else [name for name, other in here.names.items() if not other]
        holder = self._find_symbol(module, parents)
        members = {} if holder is None or holder.of_class is None else holder.of_class.members
        return [name for name, other in members.items() if not other]

    def _find_symbol(self, module: str, dotted: str, depth: int = 0) -> _Symbol | None:
        first, *rest = dotted.split(".")
        symbol = self._in_module(module, first, depth)
        for part in rest:
            if symbol is None:
                return None
            if symbol.of_class is not None:
                symbol = self._in_class(symbol, part, depth)
            else:
                symbol = self._in_module(symbol.module, part, depth) if not symbol.name else None
        return symbol

    def _in_module(self, module: str, name: str, depth: int) -> _Symbol | None:
        here = self.module(module)
        if here is None or depth > _DEEPEST:
            return None
        if name in here.classes:
            return _Symbol(module, name, here.classes[name])
        if name in here.names:
            other = here.names[name]
            return (self._find_symbol(module, other, depth + 1) if other else None) or _Symbol(module, name)
        if name in here.imports:
            source, original = here.imports[name]
            if not original:
                return _Symbol(source) if self.module(source) is not None else None
            return self._in_module(source, original, depth + 1)
        for source in here.stars:
            symbol = self._in_module(source, name, depth + 1)
            if symbol is not None:
                return symbol
        below = f"{module}.{name}"
        return _Symbol(below) if self.module(below) is not None else None

    def _in_class(self, owner: _Symbol, name: str, depth: int) -> _Symbol | None:
        """A member, the class's own or an inherited one."""
        assert owner.of_class is not None
        if depth > _DEEPEST:
            return None
        if name in owner.of_class.members:
            return _Symbol(owner.module, f"{owner.name}.{name}")
        bases = (self._find_symbol(owner.module, base, depth + 1) for base in owner.of_class.bases)
        classes = (base for base in bases if base is not None and base.of_class is not None)
        return next(filter(None, (self._in_class(base, name, depth + 1) for base in classes)), None)


def find_symbols(first: str = "") -> Symbols:
    """The symbols of what is installed here; each module is read when it is asked for, once. `first`: a folder that is
    looked into before `sys.path`, as `python -m` does with the one it is started in.
    """
    root_spec = functools.cache(partial(presence.spec_of, first=first))
    return Symbols(functools.cache(lambda name: _read_source(name, root_spec(name.partition(".")[0]))))


def _read_source(name: str, spec: Any) -> ModuleSymbols | None:
    """What the source file of a module holds. Of its package, `spec`, only the folder is looked up."""
    parts = name.split(".")[1:]
    if spec is None:
        return None
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    if not parts and not folders:
        return _parse_file(Path(spec.origin or ""), name, is_package=False)
    for folder in folders:
        path = folder.joinpath(*parts)
        if path.is_dir():
            return _parse_file(path / "__init__.py", name, is_package=True)
        if parts and path.with_name(path.name + ".py").is_file():
            return _parse_file(path.with_name(path.name + ".py"), name, is_package=False)
    return None


def _parse_file(path: Path, name: str, is_package: bool) -> ModuleSymbols:
    """What a source file holds; nothing where it is missing (a namespace package) or cannot be parsed."""
    try:
        statements = list(_walk_statements(ast.parse(path.read_bytes()).body))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return ModuleSymbols()
    package = name.split(".") if is_package else name.split(".")[:-1]
    classes: dict[str, ClassSymbols] = {}
    imports: dict[str, tuple[str, str]] = {}
    stars = []
    for node in statements:
        if isinstance(node, ast.ClassDef):
            bases = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]  # `Base[T]`: Base
            members = dict(_list_names(list(_walk_statements(node.body))))
            classes[node.name] = ClassSymbols(tuple(filter(None, map(_write_dotted, bases))), members)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                whole = alias.name if alias.asname else alias.name.partition(".")[0]
                imports[alias.asname or whole] = (whole, "")
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*above, *([node.module] if node.module else [])])
            stars += [source for alias in node.names if alias.name == "*"]
            imports.update({alias.asname or alias.name: (source, alias.name) for alias in node.names})
    return ModuleSymbols(classes, dict(_list_names(statements)), imports, tuple(stars))


def _walk_statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module or class, and those under its conditions; both branches count."""
    for node in body:
        yield node
        if isinstance(node, (ast.If, ast.Try, ast.With, ast.For, ast.While)):
            for field in ("body", "orelse", "finalbody"):
                yield from _walk_statements(getattr(node, field, []))
            for handler in getattr(node, "handlers", ()):
                yield from _walk_statements(handler.body)


def _list_names(statements: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    """Functions, and names that are assigned, as `ModuleSymbols.names`."""
    for node in statements:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, ""
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield target.id, _write_dotted(node.value) or "="
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            yield node.target.id, _write_dotted(node.value) or "="


def _write_dotted(node: ast.AST) -> str:
    """`a.b.c` as text; "" for anything else."""
    text = ast.unparse(node) if isinstance(node, (ast.Name, ast.Attribute)) else ""
    return text if all(map(str.isidentifier, text.split("."))) else ""
