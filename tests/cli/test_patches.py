"""`mstxkit doctor --patches`: what is read from source, what importing shows, what is wrong use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("typer")
pytest.importorskip("rich")

from builders import readme_tables, soak
from builders.contracts import surface

import mstxkit
from mstxkit.patching import registry
from mstxkit.patching.declare import EXTRA

pytestmark = pytest.mark.days("odd")

SOURCES = {
    "acme_rl/__init__.py": "print('noise of the framework')\n",
    "acme_rl/trainer.py": """
        class Trainer:
            def fit(self): ...
            def save(self): ...
        """,
    "acme_rl/broken.py": "def f(): ...\nraise ImportError('needs an accelerator')\n",
    "acme_rl/deadly.py": "import os\ndef f(): ...\nprint('last words', flush=True)\nos._exit(7)\n",
    "acme_rl/leaving.py": "import sys\ndef f(): ...\nsys.exit('leaving')\n",
    "mine.yaml": """
        targets:
          - {path: "acme_rl.trainer:Trainer.fit", stage: train_step}
          - {path: "acme_rl.trainer:Trainer.save", tier: extra}
          - acme_rl.trainer:Trainer.gone
          - acme_rl.broken:f
          - acme_rl.leaving:f
        """,
    "deadly.yaml": "targets: [acme_rl.deadly:f]\n",
    "wrong.yaml": "targets:\n  - {path: 'acme_rl.trainer:f', stagee: x}\n  - path: no\n",
    "absent.yaml": "targets: [no_such_framework.a:f]\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a framework of the user's own, and files of targets for it."""
    for name, text in SOURCES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
    return tmp_path


def patches(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """As in a shell, in this folder."""
    root = str(Path(mstxkit.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": root, "COLUMNS": "160"}
    command = [sys.executable, "-W", "error", "-m", "mstxkit", "doctor", "--patches", *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, timeout=100)


def states(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    """Path of a target to what the JSON says of it."""
    [framework] = json.loads(done.stdout)["frameworks"]
    return {one["path"].partition(".")[2]: one for one in framework["targets"]}


def test_every_known_framework_has_a_row(folder: Path) -> None:
    done = patches(folder)

    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == registry.list_frameworks()
    assert done.stderr == ""


def test_targets_of_a_file_are_held_or_skipped_without_an_import(folder: Path) -> None:
    found = states(patches(folder, "mine.yaml", "--json"))

    assert {path: (one["state"], one["reason"]) for path, one in found.items()} == {
        "trainer:Trainer.fit": ("held", ""),
        "trainer:Trainer.save": ("held", ""),
        "trainer:Trainer.gone": ("skipped", "absent in this version"),
        "broken:f": ("held", ""),
        "leaving:f": ("held", ""),
    }


def test_a_named_framework_is_shown_target_by_target(folder: Path) -> None:
    lines = [line.split() for line in patches(folder, "mine.yaml").stdout.splitlines()]

    assert ["acme_rl", "source", "3", "of", "4", "1", "of", "1"] in lines
    assert ["held", "Trainer.fit", "train_step"] in lines
    assert ["skipped", "Trainer.gone", "absent", "in", "this", "version"] in lines
    assert ["held", "Trainer.save"] in lines


def test_targets_of_the_extra_tier_are_said_to_be_off_unless_it_is_asked_for(folder: Path) -> None:
    extra = [one for one in registry.load_patch("mindspeed_rl").targets if one.tier == EXTRA]
    target = next(one for one in extra if "*" not in one.path and "." in one.qualname)
    path = folder.joinpath(*target.module.split(".")).with_suffix(".py")
    path.parent.mkdir(parents=True)
    (folder / "mindspeed_rl" / "__init__.py").touch()
    cls, _, function = target.qualname.partition(".")
    path.write_text(f"class {cls}:\n    def {function}(self): ...\n", encoding="utf-8")

    off, on = (patches(folder, name).stdout for name in ("mindspeed_rl", "mindspeed_rl+extra"))

    assert "off unless mindspeed_rl+extra is asked for" in off
    assert "held" in on
    assert "off unless" not in on


def test_import_shows_what_becomes_of_each_target_and_why_a_module_cannot_be_imported(folder: Path) -> None:
    found = states(patches(folder, "mine.yaml", "--json", "--import"))

    assert {path: (one["state"], one["detail"]) for path, one in found.items()} == {
        "trainer:Trainer.fit": ("applied", ""),
        "trainer:Trainer.save": ("applied", ""),
        "trainer:Trainer.gone": ("skipped", ""),
        "broken:f": ("waiting", "its import fails: ImportError: needs an accelerator"),
        "leaving:f": ("waiting", "its import fails: SystemExit: leaving"),
    }


def test_an_import_that_ends_the_process_is_told_with_its_last_words(folder: Path) -> None:
    done = patches(folder, "deadly.yaml", "--import")

    assert done.returncode == 0
    assert "importing it ended the process (status 7): last words" in done.stdout


def test_what_is_not_installed_is_a_row_that_says_so(folder: Path) -> None:
    for words in (["absent.yaml"], ["absent.yaml", "--import"]):
        done = patches(folder, *words)

        assert done.returncode == 0
        assert done.stdout.splitlines()[1].split() == ["no_such_framework", "not", "installed"]


def test_an_unknown_framework_is_wrong_use_and_the_nearest_are_named(folder: Path) -> None:
    done = patches(folder, "mindspeed-rl-2")

    assert done.returncode == 2
    assert "did you mean mindspeed_rl" in done.stderr
    assert done.stdout == ""


def test_a_wrong_file_is_wrong_use_and_every_mistake_is_a_line(folder: Path) -> None:
    done = patches(folder, "wrong.yaml")

    assert done.returncode == 2
    assert [line.split(": ")[1] for line in done.stderr.splitlines()] == ["wrong.yaml:2", "wrong.yaml:3"]
    assert "did you mean stage?" in done.stderr


def test_a_run_in_the_environment_does_not_get_the_processes_of_this_command(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = folder / "run"
    monkeypatch.setenv("MSTXKIT_RUN", str(run))

    assert patches(folder, "mine.yaml", "--import").returncode == 0
    assert {path.name for path in run.rglob("*") if path.is_file()} <= {"run.json"}


@pytest.mark.frameworks
@pytest.mark.parametrize("framework", soak.sample(["trl", "torch"], 1))
def test_what_the_source_holds_is_what_is_applied(folder: Path, framework: str) -> None:
    """Of real packages whose modules can all be imported here."""
    read = states(patches(folder, f"{framework}+extra", "--json"))
    imported = states(patches(folder, f"{framework}+extra", "--json", "--import"))

    held = {path for path, one in read.items() if one["state"] == "held"}
    applied = {path for path, one in imported.items() if one["state"] == "applied"}
    twice = {path for path, one in imported.items() if one["reason"] == "has a range of mstxkit already"}
    assert held == applied | twice
    assert len(applied) > 10


def test_the_guides_table_has_every_recorded_version_in_order() -> None:
    rows = [row.split(" | ")[:2] for row in readme_tables.table().splitlines()[2:]]

    assert len(rows) == len(list(readme_tables.SURFACES.glob("*.json")))
    assert rows.index(["| sglang", "0.5.9"]) < rows.index(["| sglang", "0.5.11"])
    assert rows.index(["| mindspeed_rl", "2.3.0"]) < rows.index(["| mindspeed_rl", "master-05a90d7"])


@pytest.mark.parametrize("name", surface.names())
def test_the_guide_counts_what_an_independent_reading_of_the_record_finds(name: str) -> None:
    framework, _, version = name.partition("-")
    ours, other = readme_tables.recorded(framework, version), surface.recorded(name)
    targets = [one for one in registry.load_patch(framework).targets if one.module in other.modules]

    assert [one.path for one in targets if ours.holds(one) != bool(other.symbols(one))] == []
    assert any(ours.holds(one) for one in targets)
