"""The shape of the package, read from its source: layers, names, sizes, cost of an import.

The layers are drawn in docs/internals/architecture.md.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Callable, Iterable, Iterator, TypeVar

import pytest

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "mstxkit"
FILES = sorted(PACKAGE.rglob("*.py"))
TESTS = ROOT / "tests"
# Folders of tests that are not of one room of the package.
OF_NO_ROOM = {"builders", "contracts", "frameworks", "golden", "mindspore_jobs", "packaging", "processes", "ray_jobs"}
OF_NO_ROOM |= {"situations", "typing"}

# First part of a module's name below mstxkit -> its layer; "" is the package itself, whose public names the faces use.
LAYERS = {
    **dict.fromkeys(("errors", "faults", "stages", "host"), 0),
    **dict.fromkeys(("store",), 1),
    **dict.fromkeys(("engine", "recorder", "sinks"), 2),
    **dict.fromkeys(("marking", "pieces"), 3),
    **dict.fromkeys(("patching", "patches", "config", "profiling"), 4),
    **dict.fromkeys(("escalation", "cluster"), 5),
    **dict.fromkeys(("capturing", "process_status", "bootstrap"), 6),
    **dict.fromkeys(("reading", "parsing", "judging", "telemetry", "triggers", "incidents"), 7),
    **dict.fromkeys(("cli", "testing", "demo", "__main__", ""), 8),
}
OFFLINE, OFFLINE_MAY_IMPORT = 7, (0, 1, 7)
ROOMS_AT_MOST = 46

# Imports inside functions, by what is imported, and why that is not loaded at the top.
LATE = {
    "atexit": "who records only; `import mstxkit` is counted in modules",
    "ctypes": "the twin and CANN only; `import mstxkit` is counted in modules",
    "dis": "a stage that begins in a generator only",
    "difflib": "an error's suggestion only",
    "hashlib": "texts that are too long, and names of a host's files only",
    "functools": "a Python that counts threads at a fork only",
    "importlib": "what is loaded by name, when it is asked for",
    "json": "not on the way to a first range",
    "logging": "a fault only",
    "re": "the `.pth`, which every interpreter reads at its start",
    "copy": "a job config of Ray's only",
    "pkgutil": "plug-ins within an archive only",
    "traceback": "an exception that nobody caught only",
}
# Files that import modules of ours inside functions, and why.
LATE_OURS = {
    "bootstrap/activation.py": "patching is loaded by who patches; with MSTXKIT_OFF=1 nothing is",
    "bootstrap/capture.py": "with MSTXKIT_OFF=1 no recorder and no engine are loaded",
    "bootstrap/entry_points.py": "an entry point of a process that patches nothing loads nothing",
    "bootstrap/pth.py": "every interpreter reads it at its start",
    "bootstrap/settings.py": "who names no figures loads nothing of them",
    "bootstrap/ray_job.py": "patching is loaded by who patches",
    "capturing.py": "what is done once, at the end of the interpreter",
    "cli": "a verb loads what it works with; `mstxkit --help` nothing heavy",
    "cluster/beside.py": "who names no figures loads nothing of them",
    "cluster/agent.py": "Ray, a judge and what it says, once they are there",
    "engine/choose.py": "one of two engines",
    "engine/twin/hot.py": "who records has blocks; `import mstxkit` is counted in modules",
    "escalation/duty/standby.py": "a process that enters no stage goes on no duty",
    "escalation/duty/sentry.py": "parallel groups and HCCL, where they are",
    "escalation/duty/settings.py": "who sets none of that loads nothing of it",
    "escalation/escalate.py": "who asks from outside of a run needs no engine",
    "host/identity.py": "parallel groups, where they are",
    "host/names.py": "a stage that begins in a generator only",
    "marking/ranges.py": "decoration, torch.compile, and what MSTXKIT_OFF=1 does without",
    "process_status.py": "with MSTXKIT_OFF=1 no engine is loaded",
    "recorder/keeper.py": "a process that is alone has nobody to watch or to seal",
    "recorder/last_words.py": "a sub-interpreter, which is not recorded, can load no faulthandler",
    "recorder/process.py": "a disk of the host's own, and the first block, once there is one",
    "recorder/sealer.py": "what a tick needs is loaded by the first one, in the sealer's thread",
    "reading": "numpy and polars are loaded when a table is asked for",
    "store/lookout.py": "where the watchman looks, nobody else does",
    "testing/judge.py": "numpy is loaded by who has tables judged",
}

HEAVY = {"torch", "torch_npu", "numpy", "polars", "pydantic", "wrapt", "ray", "asyncio", "mindspore"}
HEAVY |= {"zstandard", "typer", "rich", "yaml", "omegaconf", "perfetto", "prometheus_client", "opentelemetry"}
HEAVY |= {"google", "duckdb"}
# Who may import what at module level all the same: modules that nobody loads unless they want just that.
MAY_IMPORT = {
    "cli": {"typer", "rich"},
    "config": {"pydantic"},
    "demo": {"torch", "numpy", "rich"},
    "judging": {"numpy"},
    "reading": {"numpy", "polars", "rich"},
    "testing/job_tables.py": {"numpy"},  # loaded by `testing.judge` when it is called
    "testing/simulator": {"numpy"},  # makes arrays to be judged; `mstxkit.testing` does not load it
    "triggers": {"numpy"},
}

# Files in which a fault must not reach user code, and is noted instead.
MAY_CATCH_EVERYTHING = {
    "profiling/backends/__init__.py",
    "profiling/backends/_session.py",
    "bootstrap/entry_points.py",
    "bootstrap/pth.py",
    "bootstrap/activation.py",
    "bootstrap/patch_record.py",
    "bootstrap/ray_job.py",
    "bootstrap/ray.py",
    "bootstrap/ray_ranges.py",
    "marking/calls.py",
    "cli/_importing.py",
    "cluster/agent.py",
    "cluster/ray_actor.py",
    "cluster/ray_link.py",
    "escalation/duty/caretaker.py",
    "escalation/duty/first_step.py",
    "escalation/duty/standby.py",
    "escalation/duty/watcher.py",
    "faults.py",
    "host/identity.py",
    "host/imports.py",
    "host/parallel.py",
    "process_status.py",
    "profiling/theirs.py",
    "patches/_verl_critic.py",
    "patching/presence.py",
    "patching/trainer_settings.py",
    "patching/reach.py",
    "patching/active.py",
    "patching/registry.py",
    "patching/seams.py",
    "parsing/parser_process.py",
    "profiling/profilers.py",
    "profiling/session.py",
    "recorder/exits.py",
    "recorder/handing_over.py",
    "recorder/keeper.py",
    "recorder/last_words.py",
    "recorder/watchman.py",
    "recorder/background.py",
    "recorder/process.py",
    "recorder/entries.py",
    "recorder/rings.py",
    "recorder/forking.py",
    "recorder/sealer.py",
    "engine/twin/hot.py",
    "engine/twin/interruptions.py",
    "engine/twin/listeners.py",
    "engine/twin/ranges.py",
    "sinks/cann.py",
    "sinks/seams.py",
    "telemetry/outlets.py",
    "capturing.py",
    "bootstrap/capture.py",
    "marking/wrapping.py",
}

# Nouns that say nothing of the thing: names of variables, parameters and fields.
VAGUE_NOUNS = {"one", "found", "told", "said", "given", "known"}
BANNED_WORDS = {"utils", "util", "helpers", "helper", "manager", "common", "core", "misc"}
LINES_AT_MOST = 450
MEDIAN_LINES, NINE_IN_TEN_LINES = 118, 270
# More than typing, re and contextlib have. The twin is what runs where C could not be built: ten modules of its own,
# and what they need.
MODULES_AT_MOST, MODULES_AT_MOST_ON_THE_TWIN = 16, 50


def in_files(looked_for: Callable[[Path], T]) -> dict[str, T]:
    """What is found in each file of the package where anything is."""
    found = {str(path.relative_to(PACKAGE)): looked_for(path) for path in FILES}
    return {path: what for path, what in found.items() if what}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """All of a file, in no order to rely on."""
    return list(ast.walk(tree(path)))


def part(module: str) -> str:
    """`mstxkit.recorder.live` -> `recorder`."""
    return (module.split(".") + [""])[1]


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path, nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Full names of what import statements among `nodes` load; `from . import x` names x where x is a module."""
    package = module_name(path) if path.name == "__init__.py" else module_name(path).rpartition(".")[0]
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for name in (f"{base}.{alias.name}" for alias in node.names):
                if name != "mstxkit.__version__":  # the one value of the package itself that anybody may read
                    yield name if is_module(name) else base


@cache
def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or path.is_dir() or name == "mstxkit.engine.native.hot"


def at_module_level(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """Statements that run at import; `if TYPE_CHECKING` does not."""
    for node in body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            yield from at_module_level(node.orelse)
        elif isinstance(node, (ast.If, ast.Try, ast.With, ast.For, ast.While, ast.ClassDef)):
            for field in ("body", "orelse", "finalbody"):
                yield from at_module_level(getattr(node, field, []))
            for handler in getattr(node, "handlers", []):
                yield from at_module_level(handler.body)
        else:
            yield node


def test_imports_point_to_the_same_layer_or_below() -> None:
    def upwards(path: Path) -> list[str]:
        own = LAYERS[part(module_name(path))]
        loaded = {name for name in imports(path, nodes_of(path)) if name.split(".")[0] == "mstxkit"}
        allowed = OFFLINE_MAY_IMPORT if own == OFFLINE else range(own + 1)
        return sorted(name for name in loaded if LAYERS[part(name)] not in allowed)

    assert in_files(upwards) == {}


def but_type_checking(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those that only a type checker sees."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            yield from (inner for other in child.orelse for inner in [other, *but_type_checking(other)])
        else:
            yield child
            yield from but_type_checking(child)


def test_no_modules_know_each_other_in_a_circle_nor_by_their_types_nor_from_inside_of_functions() -> None:
    edges = {module_name(path): set(imports(path, nodes_of(path))) - {module_name(path)} for path in FILES}
    while leaves := {name for name, targets in edges.items() if not targets & edges.keys()}:
        edges = {name: targets for name, targets in edges.items() if name not in leaves}

    assert not edges


def test_a_newcomer_has_few_rooms_to_learn() -> None:
    """Modules at the top and packages at any depth."""
    packages = {path.parent for path in FILES if path.name == "__init__.py"} - {PACKAGE}
    modules = set(PACKAGE.glob("*.py"))

    assert len(packages) + len(modules) <= ROOMS_AT_MOST


def test_most_files_are_short() -> None:
    sizes = sorted(len(path.read_text(encoding="utf-8").splitlines()) for path in FILES)

    assert sizes[len(sizes) // 2] <= MEDIAN_LINES
    assert sizes[len(sizes) * 9 // 10] <= NINE_IN_TEN_LINES


def test_one_class_name_has_one_meaning() -> None:
    found = Counter(node.name for path in FILES for node in nodes_of(path) if isinstance(node, ast.ClassDef))

    assert [name for name, count in found.items() if count > 1] == []


def test_nothing_heavy_is_imported_at_module_level() -> None:
    def heavy(path: Path) -> set[str]:
        names = {name.split(".")[0] for name in imports(path, at_module_level(tree(path).body))}
        folder = str(path.parent.relative_to(PACKAGE))
        places = (part(module_name(path)), folder, str(path.relative_to(PACKAGE)))
        return (names & HEAVY).difference(*(MAY_IMPORT.get(place, set()) for place in places))

    assert in_files(heavy) == {}


def in_functions(path: Path) -> Iterator[ast.AST]:
    for node in but_type_checking(tree(path)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from ast.walk(node)


def test_a_function_imports_only_what_is_listed_with_a_reason() -> None:
    def unlisted(path: Path) -> set[str]:
        inside = str(path.relative_to(PACKAGE))
        is_listed = inside in LATE_OURS or inside.split("/")[0] in LATE_OURS
        roots = {name.split(".")[0] for name in imports(path, in_functions(path))}
        return roots - HEAVY - set(LATE) - ({"mstxkit"} if is_listed else set())

    assert in_files(unlisted) == {}


def test_a_module_opens_with_its_promise() -> None:
    def first_words(path: Path) -> str:
        """Of a docstring whose first sentence has no end, or of none."""
        text = ast.get_docstring(tree(path)) or ""
        is_whole = text.split("\n\n")[0].rstrip().endswith((".", ":", "`"))
        return "" if is_whole or not tree(path).body else text[:80] or "no docstring"

    assert in_files(first_words) == {}


def catches_everything(node: ast.AST) -> bool:
    """Is it `except Exception` or wider, and not just there to tidy up and raise again? Or `faults.noted` as wide?"""
    if isinstance(node, ast.ExceptHandler):
        last = node.body[-1]
        if isinstance(last, ast.Raise) and last.exc is None:
            return False
        kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
    elif isinstance(node, ast.Call) and ast.unparse(node.func) == "faults.noted":
        given = [*node.args[1:], *(keyword.value for keyword in node.keywords)] or [None]
        kinds = given[0].elts if isinstance(given[0], ast.Tuple) else given
    else:
        return False
    return any(kind is None or getattr(kind, "id", "") in ("Exception", "BaseException") for kind in kinds)


def test_only_listed_files_catch_everything() -> None:
    catching = {str(path.relative_to(PACKAGE)) for path in FILES for node in nodes_of(path) if catches_everything(node)}

    assert catching == MAY_CATCH_EVERYTHING


def test_print_is_for_the_command_line_and_the_demo() -> None:
    def prints(path: Path) -> bool:
        return any(isinstance(node, ast.Name) and node.id == "print" for node in nodes_of(path))

    assert {part(module_name(path)) for path in FILES if prints(path)} <= {"cli", "demo"}


def test_names_say_what_a_thing_is() -> None:
    def banned(path: Path) -> set[str]:
        named = [n.name for n in nodes_of(path) if isinstance(n, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))]
        words = {word.lower() for name in [path.stem, *named] for word in re.findall(r"[A-Z]?[a-z]+", name)}
        return words & BANNED_WORDS

    assert in_files(banned) == {}


def test_a_variable_is_named_by_the_thing_it_holds() -> None:
    def vague(path: Path) -> set[str]:
        nodes = nodes_of(path)
        names = {node.id for node in nodes if isinstance(node, ast.Name)}
        return (names | {node.arg for node in nodes if isinstance(node, ast.arg)}) & VAGUE_NOUNS

    assert in_files(vague) == {}


def test_a_file_is_short_enough_to_read() -> None:
    def too_long(path: Path) -> int:
        lines = len(path.read_text(encoding="utf-8").splitlines())
        return lines if lines > LINES_AT_MOST else 0

    assert in_files(too_long) == {}


def names_imported(path: Path) -> Iterator[str]:
    """Each name that an import statement has, dotted in full as far as it is written."""
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module or ''}.{alias.name}" for alias in node.names)


def test_no_test_imports_another_one() -> None:
    """What tests share is in `tests/builders`, or a fixture of a conftest.py, which only pytest loads."""
    imported = [(path.name, name) for path in sorted(TESTS.rglob("*.py")) for name in names_imported(path)]

    assert [one for one in imported if re.search(r"(^|\.)(test_\w+|conftest)(\.|$)", one[1])] == []


def test_tests_mirror_the_package() -> None:
    folders = {path.parent.relative_to(TESTS) for path in TESTS.rglob("test_*.py")}
    rooms = [folder for folder in folders if folder.parts and folder.parts[0] not in OF_NO_ROOM]

    assert [str(room) for room in rooms if not (PACKAGE / room / "__init__.py").exists()] == []


def loaded_modules(statement: str) -> set[str]:
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); {statement}; print(*sys.modules)"
    return set(
        subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )


@pytest.mark.twin
def test_importing_mstxkit_loads_little_and_nothing_heavy() -> None:
    before = loaded_modules("import contextlib, re, typing")
    more = loaded_modules("from mstxkit import mstx_range, mstx_timer") - before
    limit = MODULES_AT_MOST if "mstxkit.engine.native.hot" in more else MODULES_AT_MOST_ON_THE_TWIN

    assert len(more) <= limit, sorted(more)
    assert not {name.split(".")[0] for name in more} & HEAVY
