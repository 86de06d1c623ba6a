"""A hook runs once, after its module is there, whatever way the import takes, and never breaks it."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, Iterator

import pytest
from builders.threads import on_threads

from mstxkit import faults
from mstxkit.host import imports


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Writes modules into a folder that can be imported from, and forgets them afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(**sources: str) -> None:
        for name, source in sources.items():
            stem, _, folder = name.partition("_in_")
            path = tmp_path / folder / f"{stem}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(source)
        importlib.invalidate_caches()

    before = set(sys.modules)
    yield write
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


@pytest.fixture
def when_imported() -> Iterator[Callable[[str, Callable[[Any], object]], Callable[[], None]]]:
    """`imports.when_imported`, undone afterwards."""
    undos: list[Callable[[], None]] = []

    def register(name: str, hook: Callable[[ModuleType], object]) -> Callable[[], None]:
        undos.append(imports.when_imported(name, hook))
        return undos[-1]

    yield register
    for undo in undos:
        undo()


def test_a_hook_runs_at_the_end_of_the_import(made: Any, when_imported: Any) -> None:
    made(late_one="value = 1\nvalue = 2")
    seen: list[int] = []

    when_imported("late_one", lambda module: seen.append(module.value))
    before = list(seen)
    importlib.import_module("late_one")

    assert before == []
    assert seen == [2]


def test_a_hook_for_a_module_that_is_there_runs_at_once(made: Any, when_imported: Any) -> None:
    made(early_one="value = 3")
    importlib.import_module("early_one")
    seen: list[int] = []

    when_imported("early_one", lambda module: seen.append(module.value))

    assert seen == [3]


def test_a_submodule_can_be_watched_alone(made: Any, when_imported: Any) -> None:
    made(__init___in_pack="", inner_in_pack="value = 4", other_in_pack="")
    seen: list[str] = []
    when_imported("pack.inner", lambda module: seen.append(module.__name__))

    importlib.import_module("pack.other")
    before = list(seen)
    exec("import pack.inner")

    assert before == []
    assert seen == ["pack.inner"]


def test_a_package_that_registers_a_hook_for_itself_gets_it_after_it_is_complete(made: Any) -> None:
    """As a plugin does that is loaded by the very package it wants to patch."""
    made(
        __init___in_ring="from . import plugin\nvalue = 5",
        plugin_in_ring=(
            "from mstxkit.host import imports\nseen = []\n"
            "imports.when_imported('ring', lambda module: seen.append(module.value))\nseen.append('registered')"
        ),
    )

    ring: Any = importlib.import_module("ring")

    assert ring.plugin.seen == ["registered", 5]


def test_a_package_that_registers_for_itself_and_fails_is_served_at_the_next_attempt(made: Any) -> None:
    made(half="from mstxkit.host import imports\nimport half_seen\nimports.when_imported('half', half_seen.hook)\n1/0")
    made(half_seen="names = []\ndef hook(module): names.append(module.value)")
    with pytest.raises(ZeroDivisionError):
        importlib.import_module("half")
    made(half="value = 6  # another length, so that no stale byte code is taken")
    importlib.import_module("half")

    assert sys.modules["half_seen"].names == [6]


def test_two_modules_that_import_each_other_are_both_complete_for_their_hooks(made: Any, when_imported: Any) -> None:
    made(left_one="import right_one\nvalue = 7", right_one="import left_one\nvalue = 8")
    seen: list[int] = []
    when_imported("left_one", lambda module: seen.append(module.value))
    when_imported("right_one", lambda module: seen.append(module.value))

    importlib.import_module("left_one")

    assert seen == [8, 7]


def test_the_same_hook_runs_once_however_often_it_is_registered(made: Any, when_imported: Any) -> None:
    made(twice_one="")
    seen: list[str] = []

    def hook(module: Any) -> None:
        seen.append(module.__name__)

    when_imported("twice_one", hook)
    when_imported("twice_one", hook)
    importlib.import_module("twice_one")
    when_imported("twice_one", hook)

    assert seen == ["twice_one"]


def test_several_hooks_of_one_module_run_in_their_order(made: Any, when_imported: Any) -> None:
    made(many_one="")
    seen: list[int] = []
    for number in range(3):
        when_imported("many_one", lambda module, number=number: seen.append(number))

    importlib.import_module("many_one")

    assert seen == [0, 1, 2]


def test_an_undone_hook_does_not_run(made: Any, when_imported: Any) -> None:
    made(undone_one="")
    seen: list[str] = []
    undo = when_imported("undone_one", lambda module: seen.append("undone"))
    when_imported("undone_one", lambda module: seen.append("kept"))

    undo()
    importlib.import_module("undone_one")

    assert seen == ["kept"]


def test_a_hook_that_raises_is_a_fault_and_no_error_of_the_import(made: Any, when_imported: Any) -> None:
    made(fine_one="value = 9")
    seen: list[int] = []
    when_imported("fine_one", lambda module: 1 / 0)
    when_imported("fine_one", lambda module: seen.append(module.value))

    module: Any = importlib.import_module("fine_one")

    assert module.value == 9
    assert seen == [9]
    assert faults.counts == {"the hook on the import of fine_one": 1}


def test_an_import_that_fails_raises_its_own_error_and_runs_no_hook(made: Any, when_imported: Any) -> None:
    made(broken_one="raise LookupError('mine')")
    seen: list[str] = []
    when_imported("broken_one", lambda module: seen.append("ran"))

    with pytest.raises(LookupError, match="mine"):
        importlib.import_module("broken_one")

    assert seen == []


def test_a_module_that_does_not_exist_is_still_reported_as_such(made: Any, when_imported: Any) -> None:
    when_imported("no_such_module_anywhere", lambda module: None)

    with pytest.raises(ModuleNotFoundError, match="no_such_module_anywhere"):
        importlib.import_module("no_such_module_anywhere")


def test_asking_where_a_watched_module_is_does_not_use_up_its_hook(made: Any, when_imported: Any) -> None:
    """Many packages look with find_spec whether another one is installed."""
    made(asked_one="")
    seen: list[str] = []
    when_imported("asked_one", lambda module: seen.append(module.__name__))

    found = importlib.util.find_spec("asked_one")
    before = list(seen)
    importlib.import_module("asked_one")

    assert found is not None
    assert before == []
    assert seen == ["asked_one"]


def test_a_module_imported_by_many_threads_at_once_runs_its_hook_once(made: Any, when_imported: Any) -> None:
    made(shared_one="import time\ntime.sleep(0.05)\nvalue = 10")
    seen: list[int] = []
    start = threading.Barrier(8)

    def work(number: int) -> None:
        start.wait()
        if number % 2:
            when_imported("shared_one", hook)
        importlib.import_module("shared_one")

    def hook(module: Any) -> None:
        seen.append(module.value)

    on_threads(8, work)

    assert seen == [10]


def test_an_import_that_is_past_the_finders_and_has_no_module_yet_runs_the_hook_at_its_end(
    made: Any, when_imported: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is slow to answer where the file lies: whoever registers meanwhile finds no module, and no finder is
    asked any more.
    """
    made(searched_one="value = 13")
    is_asked, may_answer, seen = threading.Event(), threading.Event(), []

    class Slow:
        def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
            if name == "searched_one":
                is_asked.set()
                may_answer.wait(60)

    monkeypatch.setattr(sys, "meta_path", [imports._finder, Slow(), *sys.meta_path])
    thread = threading.Thread(target=importlib.import_module, args=("searched_one",))
    thread.start()
    is_asked.wait(60)
    when_imported("searched_one", lambda module: seen.append(module.value))
    before = list(seen)
    may_answer.set()
    thread.join()

    assert before == []
    assert seen == [13]
    assert not imports._under_way


def test_wrapt_is_loaded_only_when_a_watched_module_is_imported(tmp_path: Path) -> None:
    (tmp_path / "watched_one.py").write_text("value = 11")
    script = (
        "import sys; from mstxkit.host import imports; seen = []\n"
        "imports.when_imported('watched_one', lambda module: seen.append(module.value))\n"
        "import decimal; print('wrapt' in sys.modules); import watched_one; print('wrapt' in sys.modules, seen)"
    )

    shown = _run(script, tmp_path)

    assert shown.split() == ["False", "True", "[11]"]


def test_without_wrapt_the_import_works_and_the_fault_is_counted_once(tmp_path: Path) -> None:
    (tmp_path / "watched_one.py").write_text("value = 12")
    (tmp_path / "watched_two.py").write_text("")
    script = (
        "import sys; sys.modules['wrapt'] = None; from mstxkit import faults; from mstxkit.host import imports\n"
        "for name in ('watched_one', 'watched_two'): imports.when_imported(name, lambda module: print('ran'))\n"
        "import watched_one, watched_two; print(watched_one.value, sum(faults.counts.values()))"
    )

    shown = _run(script, tmp_path)

    assert shown.split() == ["12", "1"]


def _run(script: str, folder: Path) -> str:
    root = Path(imports.__file__).parent.parent
    command = [sys.executable, "-c", f"import sys; sys.path[:0] = [{str(root)!r}, {str(folder)!r}]\n{script}"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


FORKS_MEANWHILE = """
    import importlib, os, sys, threading, mstxkit
    mstxkit.__path__.append(sys.argv[1])
    threading.Thread(target=lambda: importlib.import_module("mstxkit.takes_long"), daemon=True).start()
    importlib.import_module("mstxkit.begun").event.wait(30)
    pid = os.fork()
    if not pid:
        sys.argv.append("in the child")
        done = threading.Thread(target=lambda: print(importlib.import_module("mstxkit.takes_long").by, flush=True))
        done.start()
        done.join(20)
        os._exit(done.is_alive())
    print(os.waitpid(pid, 0)[1])
"""
TAKES_LONG = """
    import sys, threading
    from mstxkit import begun, needed
    begun.event.set()
    if len(sys.argv) < 3: threading.Event().wait(60)
    by = sys.argv[2]
"""


def test_what_a_thread_was_importing_as_a_process_forked_can_be_imported_in_the_child(tmp_path: Path) -> None:
    """The thread is not there, and would hold the module's lock for ever."""
    for name, text in {
        "begun": "import threading; event = threading.Event()",
        "needed": "",
        "takes_long": TAKES_LONG,
    }.items():
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
    program = [sys.executable, "-c", textwrap.dedent(FORKS_MEANWHILE), str(tmp_path)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout.split("\n") == ["in the child", "0", ""]
