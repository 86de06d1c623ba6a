"""`mstxkit.pth`: who joins a run at the start of an interpreter, who does not, and that it never does any harm."""

from __future__ import annotations

import shutil
import sys
import textwrap
from pathlib import Path

import pytest
from builders import interpreters, lives
from builders.interpreters import USES_IT, Program

from mstxkit.bootstrap import pth
from mstxkit.patching import registry

pytest.importorskip("polars")

pytestmark = pytest.mark.days("odd")

IS_LOADED = "import sys; print('mstxkit' in sys.modules)"
WAITS = "import sys; print([type(f).__name__ for f in sys.meta_path if type(f).__module__ == 'mstxkit.bootstrap.pth'])"
FIT = "Trainer.fit"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return interpreters.make(tmp_path_factory.mktemp("python") / "venv")


@pytest.fixture
def program(python: Path, tmp_path: Path) -> Program:
    return Program(python, tmp_path)


@pytest.mark.parametrize(
    "variables",
    [
        {"MSTXKIT_RUN": "", "MSTXKIT_AUTOPATCH": ""},
        {"MSTXKIT_OFF": "1"},
        {"MSTXKIT_OFF": "yes", "MSTXKIT_AUTOPATCH": "all"},
    ],
)
def test_nothing_happens_unless_it_is_asked_for(program: Program, variables: dict[str, str]) -> None:
    assert program.says(WAITS, **variables) == "[]"
    assert program.says(f"import toyrl; {IS_LOADED}", **variables) == "False"
    assert not program.run_folder.exists()


def test_a_process_that_imports_no_framework_loads_nothing_and_leaves_no_trace(program: Program) -> None:
    """pip, and what a shell script asks of Python, are no part of a training."""
    assert program.says(f"import json, logging, subprocess; {IS_LOADED}") == "False"
    assert not program.run_folder.exists()


def test_a_process_joins_when_it_imports_what_is_to_be_patched(program: Program) -> None:
    program.says(USES_IT)

    assert program.recorded() == [(FIT, 1)]


def test_a_second_framework_is_patched_too(program: Program) -> None:
    other = "targets:\n  - path: other:work\n"
    interpreters.write(program.folder, {"other.py": "def work(): pass\n", "other.yaml": other})
    asked = f"{program.folder / 'targets.yaml'},{program.folder / 'other.yaml'}"
    program.says(f"import other\n{USES_IT}other.work()", MSTXKIT_AUTOPATCH=asked)
    rows = interpreters.mstxkit.open_run(program.run_folder).ranges().to_dicts()

    assert sorted(row["name"] for row in rows) == [FIT, "work"]


def test_what_another_pth_file_has_imported_is_patched_too(tmp_path: Path) -> None:
    program = Program(interpreters.make(tmp_path / "venv"), tmp_path)
    (interpreters.site_of(tmp_path / "venv") / "b-early.pth").write_text("import toyrl\n")
    program.says(USES_IT)

    assert program.recorded() == [(FIT, 1)]


def test_a_run_without_autopatch_records_what_imports_mstxkit_and_patches_nothing(program: Program) -> None:
    program.says(USES_IT, MSTXKIT_AUTOPATCH="")
    program.says(f"import mstxkit\nwith mstxkit.mstx_range('own'):\n    pass\n{USES_IT}", MSTXKIT_AUTOPATCH="")

    assert program.recorded() == [("own", 1)]


def test_patches_without_a_run_leave_no_files(program: Program) -> None:
    shown = f"{USES_IT}import mstxkit\nprint(mstxkit.patch_report().counts()['toyrl']['applied'])"

    assert program.says(shown, MSTXKIT_RUN="") == "1"
    assert not program.run_folder.exists()


def test_the_file_placed_twice_waits_once(tmp_path: Path) -> None:
    program = Program(interpreters.make(tmp_path / "venv"), tmp_path)
    site = interpreters.site_of(tmp_path / "venv")
    (site / "zz-again.pth").write_bytes(interpreters.PTH.read_bytes())

    assert program.says(WAITS) == "['Waiting']"


@pytest.mark.parametrize(("options", "waits"), [("-E", True), ("-I", True), ("-s", True), ("-S", False)])
def test_isolation_does_not_keep_it_out_but_an_interpreter_without_site_does(
    program: Program, options: str, waits: bool
) -> None:
    assert program.says(WAITS, options) == ("['Waiting']" if waits else "[]")


def test_the_line_is_one_and_names_only_the_standard_library() -> None:
    lines = interpreters.PTH.read_text().splitlines()

    assert len(lines) == 1
    assert lines[0].startswith("import os; ")


NO_PTH_MODULE = {"mstxkit/__init__.py": ""}
BROKEN_PTH_MODULE = {"mstxkit/__init__.py": "", "mstxkit/bootstrap/pth.py": "not Python"}
FAILING_BOOT = {"mstxkit/__init__.py": "", "mstxkit/bootstrap/pth.py": "def boot(): raise RuntimeError"}


@pytest.mark.parametrize(
    "installed", [{}, NO_PTH_MODULE, BROKEN_PTH_MODULE, FAILING_BOOT], ids=["missing", "older", "broken", "failing"]
)
def test_a_missing_or_broken_mstxkit_is_not_noticed(tmp_path: Path, installed: dict[str, str]) -> None:
    program = Program(interpreters.make(tmp_path / "venv", source=False), tmp_path)
    interpreters.write(interpreters.site_of(tmp_path / "venv"), installed)

    assert program.says(f"{USES_IT}print('fine')") == "fine"


def test_an_mstxkit_that_cannot_be_loaded_is_said_where_it_is_missed(tmp_path: Path) -> None:
    program = Program(interpreters.make(tmp_path / "venv", source=False), tmp_path)
    site = interpreters.site_of(tmp_path / "venv")
    own = {"mstxkit/__init__.py": "raise RuntimeError('half installed')", "mstxkit/patches/__init__.py": ""}
    interpreters.write(site, {**own, "mstxkit/bootstrap/pth.py": Path(pth.__file__).read_text()})
    done = program.run("-c", USES_IT)

    assert program.says("print('fine')") == "fine"
    assert done.returncode == 0
    assert "mstxkit: cannot be loaded" in done.stderr
    assert "half installed" in done.stderr


def test_who_asks_for_an_unknown_framework_is_told_where_a_known_one_is_imported(program: Program) -> None:
    interpreters.write(program.folder, {"verl/__init__.py": "x = 1\n"})
    done = program.run("-c", "import verl; print(verl.x)", MSTXKIT_AUTOPATCH="verll")

    assert program.says("print('quiet')", MSTXKIT_AUTOPATCH="verll") == "quiet"
    assert done.stdout == "1\n"
    assert "did you mean verl" in done.stderr


def test_an_import_that_fails_fails_with_its_own_error(program: Program) -> None:
    interpreters.write(program.folder, {"toyrl/__init__.py": "raise LookupError('its own')"})
    for asked, error in (("toyrl", "LookupError: its own"), ("verl", "ModuleNotFoundError: No module named 'verl'")):
        done = program.run("-c", f"import {asked}", MSTXKIT_AUTOPATCH=f"{program.folder / 'targets.yaml'},verl")

        assert done.stderr.splitlines()[-1] == error


def test_an_import_that_failed_may_be_tried_again(program: Program) -> None:
    trying = "import sys\ntry: import toyrl\nexcept ImportError: sys.path.append('later')\n"
    (program.folder / "later").mkdir()
    (program.folder / "toyrl").rename(program.folder / "later" / "toyrl")
    program.says(trying + USES_IT)

    assert program.recorded() == [(FIT, 1)]


def test_an_import_that_raised_may_be_tried_again(program: Program) -> None:
    raises_once = "import os\nif os.environ.pop('FAILS', ''): raise ImportError\nfrom .trainer import Trainer\n"
    interpreters.write(program.folder, {"toyrl/__init__.py": raises_once})
    program.says(f"try: import toyrl\nexcept ImportError: pass\n{USES_IT}", FAILS="1")

    assert program.recorded() == [(FIT, 1)]


def test_to_ask_whether_a_framework_is_installed_is_no_reason_to_join(program: Program) -> None:
    asks = f"from importlib.util import find_spec; spec = find_spec('toyrl'); {IS_LOADED}"

    assert program.says(asks) == "False"
    assert program.says(f"{asks}\n{USES_IT}print(type(spec.loader).__name__)") == "False\nSourceFileLoader"
    assert program.recorded() == [(FIT, 1)]


@pytest.mark.parametrize(
    "framework",
    [
        {"toyrl.py": "class Trainer:\n    def fit(self):\n        return 42\n"},
        {"toyrl/trainer.py": interpreters.FRAMEWORK["toyrl/trainer.py"]},
    ],
    ids=["a single module", "a namespace package"],
)
def test_a_framework_need_not_be_a_package(python: Path, tmp_path: Path, framework: dict[str, str]) -> None:
    program = Program(python, tmp_path)
    shutil.rmtree(program.folder / "toyrl")
    interpreters.write(program.folder, framework)
    module = "toyrl" if "toyrl.py" in framework else "toyrl.trainer"
    interpreters.write(program.folder, {"targets.yaml": f"targets:\n  - path: {module}:Trainer.fit\n"})
    program.says(f"from {module} import Trainer\nTrainer().fit()")

    assert program.recorded() == [(FIT, 1)]


def test_a_loader_is_left_as_it_was(program: Program) -> None:
    shows = "import toyrl\nprint(vars(toyrl.__spec__.loader), toyrl.__loader__ is toyrl.__spec__.loader)\n"

    assert program.says(shows) == program.says(shows, MSTXKIT_OFF="1")


def test_all_waits_for_what_is_patched_by_default() -> None:
    defaults = {name for name in registry.list_frameworks() if registry.load_patch(name).default}

    assert {name for name in registry.list_frameworks() if pth.is_default(name)} == defaults


CHILDREN = """
import multiprocessing, sys

def work():
    from toyrl import Trainer
    Trainer().fit()

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    children = [context.Process(target=work) for _ in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join()
        assert child.exitcode == 0
"""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_children_of_multiprocessing_are_recorded_once_each_and_its_helpers_are_not(
    program: Program, method: str
) -> None:
    interpreters.write(program.folder, {"main.py": CHILDREN})
    done = program.run("main.py", method)

    assert (done.returncode, done.stderr) == (0, "")
    assert program.recorded() == [(FIT, 1), (FIT, 1)]
    assert len(set(program.pids())) == 2


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_a_parent_that_takes_part_is_recorded_beside_its_children(program: Program, method: str) -> None:
    takes_part = '"__main__":\n    work()\n' + textwrap.indent(lives.PATIENT, "    ")
    interpreters.write(program.folder, {"main.py": CHILDREN.replace('"__main__":\n', takes_part)})
    done = program.run("main.py", method)

    assert (done.returncode, done.stderr) == (0, "")
    assert program.recorded() == [(FIT, 1)] * 3


WAYS = {
    "a copied environment": "import os, subprocess, sys\n"
    "subprocess.run([sys.executable, '-c', 'import toyrl; toyrl.Trainer().fit()'], env=dict(os.environ), check=True)\n",
    "another folder": "import os, subprocess, sys\n"
    "subprocess.run([sys.executable, '-c', 'import toyrl; toyrl.Trainer().fit()'], cwd='/', check=True)\n",
    "a module": "import subprocess, sys\nsubprocess.run([sys.executable, '-m', 'work'], check=True)\n",
    "exec": "import os, sys\nos.execv(sys.executable, [sys.executable, 'work.py'])\n",
    "a shell": "import os\nassert os.system('$PYTHON work.py') == 0\n",
    "a fork": "import os, sys\nif os.fork() == 0:\n    import work\n    sys.exit()\nelse:\n    os.wait()\n",
}


@pytest.mark.parametrize("way", WAYS)
def test_a_process_is_recorded_whatever_way_it_was_started(program: Program, way: str) -> None:
    interpreters.write(program.folder, {"main.py": WAYS[way], "work.py": USES_IT})
    done = program.run("main.py", PYTHON=str(program.python))

    assert (done.returncode, done.stderr) == (0, "")
    assert program.recorded() == [(FIT, 1)]


def test_ranks_of_a_launcher_are_recorded_with_their_ranks(program: Program) -> None:
    """As torchrun starts them: one interpreter a rank, told by RANK and WORLD_SIZE; the launcher is none."""
    launcher = """
        import os, subprocess, sys
        ranks = [subprocess.Popen([sys.executable, "-u", *sys.argv[1:]], env={**os.environ, "RANK": str(rank)})
                 for rank in range(3)]
        sys.exit(max(rank.wait() for rank in ranks))
    """
    interpreters.write(program.folder, {"launch.py": launcher, "work.py": USES_IT})
    done = program.run("-m", "launch", "work.py", WORLD_SIZE="3")
    processes = interpreters.mstxkit.open_run(program.run_folder).processes().to_dicts()

    assert (done.returncode, done.stderr) == (0, "")
    assert sorted((one["rank"], one["world_size"]) for one in processes) == [(0, 3), (1, 3), (2, 3)]
    assert program.recorded() == [(FIT, 1)] * 3


LOADED_AFTER_RAY = "import ray, sys; print('mstxkit' in sys.modules, ray.__file__ is not None)\n"
RAY = {
    "ray/__init__.py": "def init(*args, **kwargs): pass\n",
    "ray/dashboard/__init__.py": "",
    "ray/dashboard/agent.py": LOADED_AFTER_RAY,
    "ray/_private/log_monitor.py": LOADED_AFTER_RAY,
    "ray/_private/workers/setup_worker.py": LOADED_AFTER_RAY,
    "ray/_private/workers/default_worker.py": LOADED_AFTER_RAY,
    "bin/ray": LOADED_AFTER_RAY,
    "train.py": LOADED_AFTER_RAY,
    "home/ray/train.py": LOADED_AFTER_RAY,
}
JOIN = {"ray/_private/workers/default_worker.py", "train.py", "home/ray/train.py"}


@pytest.mark.parametrize("script", [*list(RAY)[2:], "-m ray.dashboard.agent"])
def test_of_rays_own_processes_only_the_workers_take_part(program: Program, script: str) -> None:
    interpreters.write(program.folder, RAY)
    done = program.run(*script.split(), MSTXKIT_AUTOPATCH="all")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == [str(script in JOIN), "True"]


def test_the_first_interpreter_takes_away_the_mark_of_mstxkit_run(program: Program) -> None:
    program.run_folder.mkdir()
    (program.run_folder / pth.UNREACHED).touch()
    program.says("pass", "-S")
    there_without_site = (program.run_folder / pth.UNREACHED).exists()
    program.says("pass")

    assert there_without_site
    assert not (program.run_folder / pth.UNREACHED).exists()


def test_this_test_process_was_not_reached() -> None:
    """What runs the tests is no part of what they test."""
    assert not [finder for finder in sys.meta_path if type(finder).__name__ == pth.Waiting.__name__]
