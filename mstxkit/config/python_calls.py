"""Calls of a profiler in a Python file, read from its syntax tree and never run.

Literals are values, and so are names that are assigned one literal once. Members of the profiler's enumerations are
texts (`Level1`), its own calls mappings of their arguments. All else is `NotKnown`: only the running program knows it.
"""

from __future__ import annotations

import ast
from typing import Any, Iterable, Iterator, NamedTuple

from ..errors import ConfigError
from .documents import Path
from .shell_commands import BranchChoice

# By what they are called with: the parameters that may be given by position.
_SCHEDULE = ("wait", "active", "warmup", "repeat", "skip_first", "skip_first_wait")
_HANDLER = ("dir_name", "worker_name", "analyse_flag", "async_mode")
POSITIONS: dict[str, tuple[str, ...]] = {
    "torch_npu.profiler.schedule": _SCHEDULE, "torch_npu.profiler.tensorboard_trace_handler": _HANDLER,
    "mindspore.profiler.schedule": _SCHEDULE, "mindspore.profiler.tensorboard_trace_handler": _HANDLER,
    "mindspore.profiler.profile": ("activities", "with_stack"), "torch_npu.profiler.profile": (),
    "mindspore.profiler.Profiler": (), "torch_npu.profiler._ExperimentalConfig": ("profiler_level", "aic_metrics"),
    "mindspore.profiler._ExperimentalConfig": ("profiler_level", "aic_metrics"),
}  # fmt: skip
# What is at hand under more than one name.
_MOVED = {"mindspore.Profiler": "mindspore.profiler.Profiler"}
# MindSpore up to 2.5: what it is given as it is, for a call without arguments; and what it calls an argument.
_UNCALLED = {"mindspore.profiler.tensor_board_trace_handler": "mindspore.profiler.tensorboard_trace_handler"}
_OLDER = {("mindspore.profiler.schedule", "warm_up"): "warmup"}
PROFILERS = ("torch_npu.profiler.profile", "mindspore.profiler.profile", "mindspore.profiler.Profiler")
_MODULES = ("torch_npu.profiler", "mindspore.profiler")
CALL = "()"  # in a mapping of arguments: what is called
_MOST_STEPS = 20  # from name to name


class Member(str):
    """A member of one of the profiler's enumerations, which is no text to every profiler."""


class NotKnown(NamedTuple):
    """What a value is given as, where only the running program knows it."""

    text: str
    line: int
    why: str


def find_calls(text: str, name: str, chosen: Iterable[BranchChoice] = ()) -> tuple[dict[str, Any], dict[Path, int]]:
    """The one call of a profiler, `{"torch_npu.profiler.profile": {argument: value}}`, with the line of each argument;
    empty where there is none.
    Raises: ConfigError where the file is no Python, or holds several calls and none, or more, of them are chosen.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as exc:
        raise ConfigError(f"{name}:{getattr(exc, 'lineno', None) or 1}: not Python: {exc.args[0]}") from None
    file = _PythonFile(tree)
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and file.dotted(node.func) in PROFILERS]
    call = _choose_call(sorted(nodes, key=lambda node: node.lineno), name, tuple(chosen))
    if call is None:
        return {}, {}
    profiler = file.dotted(call.func)
    values = {profiler: file.arguments(call, profiler, (profiler,))}
    file.lines[(profiler,)] = call.lineno
    return values, file.lines


def _choose_call(nodes: list[ast.Call], name: str, chosen: tuple[BranchChoice, ...]) -> ast.Call | None:
    choices = {
        call: {choice.is_taken for choice in chosen if call.lineno <= choice.line <= (call.end_lineno or call.lineno)}
        for call in nodes
    }
    is_one_taken = any(choice.is_taken for choice in chosen)
    left = [call for call in nodes if False not in choices[call] and (True in choices[call] or not is_one_taken)]
    lines = ", ".join(str(call.lineno) for call in nodes)
    if nodes and not left:
        raise ConfigError(f"{name}: no call of a profiler is in a chosen line; they are in {lines}")
    if len(left) > 1:
        options = " or ".join(f"--branch {call.lineno}" for call in left)
        raise ConfigError(f"{name}: several calls of a profiler, in lines {lines}: choose one with {options}")
    return left[0] if left else None


class _PythonFile:
    """One file: what its names stand for."""

    def __init__(self, tree: ast.Module) -> None:
        self.lines: dict[Path, int] = {}
        self.imported: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    root = alias.name.partition(".")[0]
                    self.imported[alias.asname or root] = alias.name if alias.asname else root
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    self.imported[alias.asname or alias.name] = _MOVED.get(whole, whole)
        # Every name that is bound, with the value where that is certain: None under a condition, in a loop, as a
        # parameter, or where it is changed.
        self.assigned: dict[str, list[ast.expr | None]] = {}
        certain = {id(node) for node in _walk_straight(tree)}
        for node in ast.walk(tree):
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            for target in filter(None, targets):
                is_plain = isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(target, ast.Name)
                value = getattr(node, "value", None) if is_plain and id(node) in certain else None
                for name in (part.id for part in ast.walk(target) if isinstance(part, ast.Name)):
                    self.assigned.setdefault(name, []).append(value)
            if isinstance(node, ast.arg):
                self.assigned.setdefault(node.arg, []).append(None)

    def dotted(self, node: ast.expr) -> str:
        """The full name of what an expression names, as imported; empty where it names nothing."""
        if isinstance(node, ast.Name):
            return self.imported.get(node.id, "")
        above = self.dotted(node.value) if isinstance(node, ast.Attribute) else ""
        whole = f"{above}.{node.attr}" if isinstance(node, ast.Attribute) and above else ""
        return _MOVED.get(whole, whole)

    def arguments(self, call: ast.Call, called: str, path: Path) -> dict[str, Any]:
        values: dict[str, Any] = {}
        positions = POSITIONS.get(called, ())
        for number, node in enumerate(call.args):
            name = positions[number] if number < len(positions) else f"argument {number + 1}"
            values[name] = self.value(node, (*path, name))
        for keyword in call.keywords:
            name = _OLDER.get((called, keyword.arg or ""), keyword.arg or "**")
            values[name] = self.value(keyword.value, (*path, name))
        return values

    def value(self, node: ast.expr, path: Path, steps: int = 0) -> Any:
        self.lines.setdefault(path, node.lineno)
        if isinstance(node, ast.Constant) and isinstance(node.value, (str, int, float, bool, type(None))):
            return node.value
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            return [self.value(inner, (*path, number), steps) for number, inner in enumerate(node.elts)]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            return -node.operand.value if isinstance(node.operand.value, (int, float)) else self.not_known(node)
        if isinstance(node, ast.Name) and node.id in self.assigned and node.id not in self.imported:
            values = self.assigned[node.id]
            if len(values) == 1 and values[0] is not None and steps < _MOST_STEPS:
                return self.value(values[0], path, steps + 1)
            return self.not_known(node, "it has several values: write the one that is meant")
        called = self.dotted(node.func if isinstance(node, ast.Call) else node)
        if called in _UNCALLED:
            return {CALL: _UNCALLED[called]}
        if isinstance(node, ast.Call) and called in POSITIONS:
            return {CALL: called, **self.arguments(node, called, path)}
        module, _, member = called.rpartition(".")
        is_member = module.rpartition(".")[0] in _MODULES and not isinstance(node, ast.Call)
        return Member(member) if is_member else self.not_known(node)

    def not_known(self, node: ast.expr, why: str = "only the running program knows it: write its value") -> NotKnown:
        return NotKnown(ast.unparse(node), node.lineno, why)


def _walk_straight(node: ast.AST) -> Iterator[ast.AST]:
    """Statements that run whenever their function, class or file does."""
    for child in getattr(node, "body", []):
        yield child
        is_block = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.With, ast.AsyncWith))
        if is_block or (isinstance(child, ast.If) and ast.unparse(child.test).startswith("__name__ == ")):
            yield from _walk_straight(child)
