"""vllm_ascend's targets against what its recorded versions hold, and vLLM's own scopes as ranges."""

from __future__ import annotations

import contextlib
import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, Iterator

import pytest
from builders.recorded_surfaces import functions, holders, versions

from mstxkit.patches.vllm_ascend import PATCH
from mstxkit.patching import registry
from mstxkit.patching.declare import CORE, Target
from mstxkit.patching.report import APPLIED, SKIPPED, Reason
from mstxkit.testing import captured

NAME, WORKER = "vllm_ascend", "vllm_ascend.worker.worker"
BY_PATH = {target.path: target for target in PATCH.targets}
# How vLLM gives its scopes: with a global that is None until the first call, and in older versions without.
WITH_GLOBAL = """
import contextlib

_PROFILER_FUNC = None


def record_function_or_nullcontext(name):
    global _PROFILER_FUNC
    if _PROFILER_FUNC is not None:
        return _PROFILER_FUNC(name)
    _PROFILER_FUNC = contextlib.nullcontext
    return _PROFILER_FUNC(name)
"""
WITHOUT_GLOBAL = """
import contextlib


def record_function_or_nullcontext(name):
    return contextlib.nullcontext()
"""
RUNNER = """
from vllm.v1.utils import record_function_or_nullcontext


def step():
    with record_function_or_nullcontext("prepare input"):
        pass
    with record_function_or_nullcontext("forward"):
        pass
"""
OWN_SCOPES = """
import contextlib


class ProfileExecuteDuration:
    @contextlib.contextmanager
    def capture_async(self, duration_tag):
        yield
"""


def test_every_target_of_its_own_is_in_a_recorded_version() -> None:
    held = {target.path for _, target, _ in holders(PATCH.targets, NAME)}
    own = {path for path in BY_PATH if path.startswith(NAME)}

    assert own - held == set()
    assert {path.split(".")[0] for path in BY_PATH.keys() - own} == {"vllm"}


@pytest.mark.parametrize("version", versions(NAME))
def test_each_version_has_one_function_that_is_an_engine_step(version: str) -> None:
    steps = [target for _, target, _ in holders(PATCH.targets, NAME) if target.boundary and held(version, target)]

    assert {target.qualname for target in steps} == {"NPUWorker.execute_model"}
    assert {(target.boundary, target.stage, target.tier) for target in steps} == {
        ("decode_step", "actor_generate", CORE)
    }


def held(version: str, target: Target) -> bool:
    return target.path in functions(NAME, version)


class OnDisk:
    """Packages `vllm` and `vllm_ascend` made of these modules."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, **sources: str) -> None:
        for name, source in sources.items():
            path = self.folder.joinpath(*name.split("__")).with_suffix(".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source)
        for path in self.folder.glob("*/**/"):
            path.joinpath("__init__.py").touch()
        importlib.invalidate_caches()

    def load(self, name: str) -> ModuleType:
        return importlib.import_module(name)

    def patched(self) -> dict[str, Any]:
        """Path to state of every target."""
        registry.install_patches([(PATCH, False)])
        return {state.path: state for state in registry.report_targets().targets}


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OnDisk]:
    roots = ("vllm", "vllm_ascend")
    aside = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] in roots}
    monkeypatch.syspath_prepend(str(tmp_path))
    yield OnDisk(tmp_path)
    registry.remove_patches()
    for name in [name for name in sys.modules if name.split(".")[0] in roots]:
        del sys.modules[name]
    sys.modules.update(aside)


def names(action: Callable[[], object]) -> list[tuple[str, str | None]]:
    with captured() as seen:
        action()
    return [(one.name, one.stage) for one in seen.ranges]


@pytest.mark.parametrize("used", [False, True], ids=["before its first scope", "after its first scope"])
def test_scopes_become_ranges_through_the_global_and_it_is_put_back(disk: OnDisk, used: bool) -> None:
    disk.write(vllm__v1__utils=WITH_GLOBAL, vllm__v1__runner=RUNNER)
    utils, runner = disk.load("vllm.v1.utils"), disk.load("vllm.v1.runner")
    if used:
        runner.step()
    before = utils._PROFILER_FUNC
    states = disk.patched()

    recorded = names(runner.step)
    registry.remove_patches()

    assert recorded == [("prepare input", None), ("forward", None)]
    assert states["vllm.v1.utils:_PROFILER_FUNC"].state == APPLIED
    assert states["vllm.v1.utils:record_function_or_nullcontext"].reason == Reason.SUPERSEDED
    assert utils._PROFILER_FUNC is before is (contextlib.nullcontext if used else None)
    assert names(runner.step) == []


@pytest.mark.parametrize("first", [False, True], ids=["patched after import", "patched before import"])
def test_scopes_become_ranges_in_a_vllm_without_the_global(disk: OnDisk, first: bool) -> None:
    disk.write(vllm__v1__utils=WITHOUT_GLOBAL, vllm__v1__runner=RUNNER)
    states = disk.patched() if first else {}
    runner = disk.load("vllm.v1.runner")
    states = disk.patched()

    recorded = names(runner.step)
    registry.remove_patches()

    assert recorded == [("prepare input", None), ("forward", None)]
    assert (states["vllm.v1.utils:_PROFILER_FUNC"].state, states["vllm.v1.utils:_PROFILER_FUNC"].reason) == (
        SKIPPED,
        Reason.ABSENT,
    )
    assert names(runner.step) == []


def test_a_scope_of_vllm_ascend_is_named_by_its_tag(disk: OnDisk) -> None:
    disk.write(vllm_ascend__utils=OWN_SCOPES)
    scopes = disk.load("vllm_ascend.utils").ProfileExecuteDuration
    disk.patched()

    def sample() -> None:
        with scopes().capture_async("Sample"):
            pass

    assert names(sample) == [("Sample", None)]


NPU_WORKER = """
class NPUWorker:
    def load_model(self):
        return "loaded"


class Trainer:
    def __init__(self):
        NPUWorker().load_model()

    def train(self):
        return "trained"
"""


WHAT_IT_IS = f"""
import importlib
import multiprocessing
import sys
from types import SimpleNamespace

import mstxkit
from mstxkit.host import identity
from mstxkit.testing import captured


class RayWorkerWrapper:
    pass


def train_in_an_actor():
    worker = SimpleNamespace(mode=1, actors=dict(one=RayWorkerWrapper()), actor_name="")
    sys.modules["ray._private.worker"] = SimpleNamespace(global_worker=worker)
    multiprocessing.process._parent_process = None  # as what Ray has begun
    train()


def train():
    module = importlib.import_module("{WORKER}")
    with captured():
        assert (module.NPUWorker().load_model(), module.Trainer().train()) == ("loaded", "trained")
    print(identity.read_current()["role"], flush=True)


sys.path.insert(0, sys.argv[1])
mstxkit.autopatch("vllm_ascend", targets=mstxkit.Target("{WORKER}:Trainer.train", process_role="trainer"))
for begun in (train, train_in_an_actor):
    child = multiprocessing.get_context("fork").Process(target=begun)
    child.start()
    child.join()
train()
"""


def test_a_process_that_holds_an_engine_is_a_rollout_only_if_vllm_has_begun_it(disk: OnDisk) -> None:
    """In the trainer's process it is loaded before anything trains: trl in colocate mode, verl up to 0.7.0."""
    disk.write(vllm_ascend__worker__worker=NPU_WORKER)
    command = [sys.executable, "-c", WHAT_IT_IS, str(disk.folder)]

    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["rollout", "rollout", "trainer"]
