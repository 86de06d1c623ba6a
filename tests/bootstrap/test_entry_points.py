"""Entry points and the module for VERL_USE_EXTERNAL_MODULES: they do what was asked for, and nothing else."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from builders import interpreters, soak

LOADS = """
import sys
from importlib import metadata

def load(group):
    found = metadata.entry_points()
    found = found.select(group=group) if hasattr(found, 'select') else found.get(group, ())
    return [one.load() for one in found if one.value.startswith("mstxkit.")]
"""
SHOWS = """
from mstxkit.bootstrap import activation
print(activation.specify_autopatch() or "nothing")
"""
# As the frameworks do it; see the sources that the package's modules name.
AS_VERL = f"{LOADS}\nload('verl.plugins')\n{SHOWS}"
AS_VLLM = f"{LOADS}\nfor plugin in load('vllm.general_plugins') * 2: plugin()\n{SHOWS}"
AS_SGLANG = f"{LOADS}\nfor plugin in load('sglang.srt.plugins') * 2: plugin()\n{SHOWS}"
AS_EXTERNAL = f"""
import importlib, os
for name in os.environ["VERL_USE_EXTERNAL_MODULES"].split(","):
    importlib.import_module(name)
{SHOWS}
"""
EXTERNAL = {"VERL_USE_EXTERNAL_MODULES": "json,mstxkit.bootstrap.external"}
every_group = pytest.mark.parametrize("program", [AS_VERL, AS_VLLM, AS_SGLANG], ids=["verl", "vllm", "sglang"])


def declared() -> dict[str, dict[str, str]]:
    """The entry points of pyproject.toml."""
    tomllib = pytest.importorskip("tomllib")
    found: dict[str, dict[str, str]] = tomllib.loads((interpreters.ROOT / "pyproject.toml").read_text())["project"][
        "entry-points"
    ]
    return found


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder that makes this source tree an installed package with its entry points, for importlib.metadata."""
    groups = [f"[{group}]\n" + "".join(f"{n} = {v}\n" for n, v in named.items()) for group, named in declared().items()]
    files = {"METADATA": "Metadata-Version: 2.1\nName: mstxkit\nVersion: 0\n", "entry_points.txt": "\n".join(groups)}
    return interpreters.write(tmp_path, {f"mstxkit-0.dist-info/{name}": text for name, text in files.items()})


def says(installed: Path, program: str, **variables: str) -> str:
    """What a program prints that must go well, and say nothing else."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MSTXKIT_", "PYTHON", "VERL_"))}
    paths = os.pathsep.join([str(installed), str(interpreters.ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", program], env={**kept, "PYTHONPATH": paths, **variables}, cwd=installed,
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def test_what_is_declared_can_be_loaded() -> None:
    loaded = {group: [value.partition(":") for value in named.values()] for group, named in declared().items()}

    assert set(loaded) == {"verl.plugins", "vllm.general_plugins", "sglang.srt.plugins"}
    for ((module, _, name),) in loaded.values():
        found = importlib.import_module(module)
        assert callable(getattr(found, name)) if name else isinstance(found, ModuleType)


@every_group
def test_an_installed_package_changes_nothing_by_itself(installed: Path, program: str) -> None:
    assert says(installed, program) == "nothing"


@every_group
def test_a_run_alone_patches_nothing(installed: Path, program: str) -> None:
    assert says(installed, program, MSTXKIT_RUN=str(installed / "run")) == "nothing"


@every_group
def test_a_framework_that_is_asked_for_is_patched_once_however_often_it_is_called(
    installed: Path, program: str
) -> None:
    assert says(installed, program, MSTXKIT_AUTOPATCH="verl") == "verl"


@every_group
def test_off_is_off(installed: Path, program: str) -> None:
    assert says(installed, program, MSTXKIT_AUTOPATCH="verl", MSTXKIT_OFF="1") == "nothing"


def test_to_name_the_module_is_to_ask_for_everything(installed: Path) -> None:
    assert says(installed, AS_EXTERNAL, **EXTERNAL) == "all"


def test_to_name_the_module_is_to_ask_for_what_the_environment_says(installed: Path) -> None:
    assert says(installed, AS_EXTERNAL, MSTXKIT_AUTOPATCH="verl", **EXTERNAL) == "verl"


def test_the_module_does_not_fail_for_a_name_that_nobody_knows(installed: Path) -> None:
    """verl would not survive that."""
    quiet = "import logging; logging.getLogger('mstxkit').setLevel(logging.CRITICAL)\n"

    assert says(installed, quiet + AS_EXTERNAL, MSTXKIT_AUTOPATCH="verll", **EXTERNAL) == "nothing"


REPORTS = """
import verl, mstxkit
counts = mstxkit.patch_report().counts().get("verl", {})
print(counts.get("waiting", 0) + counts.get("applied", 0) > 0, counts.get("failed", 0))
"""


WAYS_OF_VERL = [
    pytest.param({}, False, id="unasked"),
    pytest.param({"MSTXKIT_AUTOPATCH": "verl"}, True, id="plugin"),
    pytest.param({**EXTERNAL, "VERL_USE_EXTERNAL_PLUGINS": "none"}, True, id="external module"),
]


@pytest.mark.frameworks
@pytest.mark.parametrize(("variables", "patches"), soak.rounds(WAYS_OF_VERL, []))
def test_the_real_verl_loads_it(installed: Path, variables: dict[str, str], patches: bool) -> None:
    done = says(installed, REPORTS, TORCH_DEVICE_BACKEND_AUTOLOAD="0", PYTHONWARNINGS="ignore", **variables)

    assert done.splitlines()[-1] == f"{patches} 0"
