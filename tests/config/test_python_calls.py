"""Profiler calls in Python files: read from the syntax tree, never run; what only the program knows is refused."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

import pytest
from builders import soak
from builders.any_config import configs, differing, refusal
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mstxkit.config import configuring, sources
from mstxkit.config.adapters import mindspore_python, torch_npu, torch_npu_python
from mstxkit.config.configuring import Understood
from mstxkit.config.model import Config, Window
from mstxkit.config.shell_commands import read_choices
from mstxkit.errors import ConfigError
from mstxkit.testing import run_under_cann

TORCH_NPU = """\
import os
import torch_npu
from torch_npu import profiler as prof

os.abort()
LEVEL = prof.ProfilerLevel.Level1
deep = prof._ExperimentalConfig(
    profiler_level=LEVEL, export_type=prof.ExportType.Db, mstx=True, mstx_domain_exclude=["communication"],
)

def train(steps):
    with prof.profile(
        activities=[prof.ProfilerActivity.NPU],
        schedule=prof.schedule(wait=1, warmup=1, active=2, repeat=1, skip_first=7),
        on_trace_ready=torch_npu.profiler.tensorboard_trace_handler("./out", analyse_flag=False),
        profile_memory=True,
        experimental_config=deep,
    ) as profiler:
        for step in range(steps):
            profiler.step()
"""

MINDSPORE = """\
import mindspore
from mindspore.profiler import ProfilerActivity, ProfilerLevel, profile, schedule, tensorboard_trace_handler

config = mindspore.profiler._ExperimentalConfig(profiler_level=ProfilerLevel.Level2, mstx=True,
                                                export_type=[mindspore.profiler.ExportType.Text])
profiler = profile([ProfilerActivity.CPU, ProfilerActivity.NPU], with_stack=True,
                   schedule=schedule(wait=0, active=1, skip_first=4, repeat=2),
                   on_trace_ready=tensorboard_trace_handler("./data"), experimental_config=config)
"""


def understood(text: str, *branches: Any) -> Understood:
    return configuring.understand_source(sources.from_python(text, "train.py", read_choices(branches)))


def test_a_call_of_torch_npu_is_read_and_the_file_is_not_run() -> None:
    found = understood(TORCH_NPU)

    assert found.flavour == "torch_npu_python"
    assert differing(found.read.config) == {
        "enabled": True, "window.first_step": 10, "window.steps": 2, "window.warmup": 1, "window.wait": 1,
        "window.counted_from": "process", "level": "level1", "activities": ("npu",), "mstx": True, "memory": True,
        "domains_exclude": ("communication",), "aic_metrics": "PipeUtilization", "export": "db", "path": "./out",
    }  # fmt: skip
    assert (found.read.places["window.steps"].line, found.read.places["level"].line) == (14, 8)


def test_a_call_of_mindspore_is_read() -> None:
    config = understood(MINDSPORE).read.config

    assert config.window == Window(first_step=5, steps=1, counted_from="process", repeat=2)
    assert (config.level, config.mstx, config.stacks, config.analysis) == ("level2", True, True, "sync")


def test_its_older_profiler_takes_everything_at_once() -> None:
    text = """from mindspore import Profiler\nfrom mindspore.profiler import ProfilerLevel as P
Profiler(profiler_level=P.Level0, output_path="/data/out", data_process=True)\n"""

    config = understood(text).read.config

    assert (config.path, config.window.steps) == ("/data/out", None)
    assert config.extras == {"mindspore_python": {"data_process": True}}


def test_without_a_schedule_it_records_from_start_to_stop() -> None:
    found = understood("import torch_npu\nwith torch_npu.profiler.profile():\n    pass\n")

    assert found.read.config.window.steps is None
    assert found.read.notes == ("without a schedule it records from start() to stop(), whatever steps these are",)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("schedule=S(wait=0, active=args.steps)", "train.py:5: schedule.active='args.steps': only the running program"),
        ("schedule=S(wait=0, active=N)", "train.py:5: schedule.active='N': only the running program knows it"),
        ("schedule=S(wait=0, active=M)", "schedule.active='M': it has several values: write the one that is meant"),
        ("schedule=S(wait=0, active=K)", "schedule.active='K': it has several values"),
        ("schedule=make_schedule()", "train.py:5: schedule='make_schedule()': only the running program knows it"),
        ("schedule=S(wait=0, active=0)", "train.py:5: schedule.active=0: must be 1 or more"),
        ("schedule=S(wait=0, activ=1)", "schedule.activ: unknown key"),
        ("schedule=E()", "schedule='torch_npu.profiler._ExperimentalConfig': a call of schedule is needed"),
        ("record_shapes=1", "record_shapes=1: not a flag; allowed: true, false"),
        ("with_stacks=True", "with_stacks: unknown key; did you mean with_stack?"),
        ("**options", "train.py:5: **='options': only the running program knows it"),
        ("experimental_config=E(profiler_level='Level9')", "profiler_level='Level9': not one of its values"),
        ("experimental_config=E(profiler_level=prof.ProfilerLevel.Level_5)", "profiler_level='Level_5': not one"),
    ],
)  # fmt: skip
def test_what_is_wrong_or_known_to_the_program_alone_is_refused(code: str, message: str) -> None:
    text = f"""\
from torch_npu import profiler as prof
from torch_npu.profiler import _ExperimentalConfig as E, schedule as S
M = 1; M = 2; K = 1
for K in []: pass
prof.profile({code})
"""

    with pytest.raises(ConfigError) as caught:
        understood(text)
    assert message in str(caught.value)


def test_mindspore_takes_no_texts_for_its_enumerations() -> None:
    text = "import mindspore.profiler as p\np.profile(experimental_config=p._ExperimentalConfig('Level1'))\n"

    with pytest.raises(ConfigError, match="profiler_level='Level1': a member of its enumeration is needed"):
        understood(text)


def test_a_handler_of_the_programs_own_is_told() -> None:
    notes = understood("import torch_npu\ntorch_npu.profiler.profile(on_trace_ready=lambda prof: None)\n").read.notes

    assert (
        "on_trace_ready is the program's own: where the data goes, and what becomes of it, is not known here" in notes
    )


TWO = """\
from torch_npu import profiler
if deep:
    profiler.profile(with_stack=True)
else:
    profiler.profile()
"""


def test_one_of_several_calls_is_chosen_by_its_line(tmp_path: Path) -> None:
    assert refusal(("train.py", TWO), tmp_path) == (
        "train.py: several calls of a profiler, in lines 3, 5: choose one with --branch 3 or --branch 5"
    )
    assert [understood(TWO, branch).read.config.stacks for branch in (3, 5, "not:3")] == [True, False, False]
    with pytest.raises(ConfigError, match="no call of a profiler is in a chosen line; they are in 3, 5"):
        understood(TWO, 4)


@pytest.mark.parametrize("text", ["def", "\0", "(" * 5000, "x = 1\n", "import torch\ntorch.profiler.profile()\n"])
def test_a_file_without_such_a_call_is_no_configuration(text: str, tmp_path: Path) -> None:
    assert refusal(("train.py", text), tmp_path)


@pytest.mark.parametrize("adapter", [torch_npu_python, mindspore_python])
def test_what_is_written_is_python_that_calls_the_profiler(adapter: Any) -> None:
    @settings(max_examples=soak.rounds(300, 15), deadline=None, suppress_health_check=list(HealthCheck))
    @given(configs())
    def check(config: Config) -> None:
        text = adapter.write(config).text

        compile(text, "written.py", "exec")
        assert text.count(".profile(\n") == 1

    check()


def test_the_file_and_the_call_of_torch_npu_say_the_same_in_their_own_ways() -> None:
    config = understood(TORCH_NPU).read.config

    lost = {one.field for one in torch_npu.write(config).lost}

    assert lost == {"window.wait"}


tokens = st.sampled_from(
    ["import torch_npu\n", "prof = torch_npu.profiler\n", "torch_npu.profiler.profile(", ")", "schedule=", "x", "=",
     "[", "]", "\n", "lambda: ", "**x", "*x", ", ", "1", "'a'", "if x:\n ", "torch_npu.profiler.schedule(", "-"]
)  # fmt: skip


@settings(max_examples=soak.rounds(3000, 100), deadline=None)
@given(st.lists(tokens, max_size=12).map("".join))
def check_any(text: str) -> None:
    with contextlib.suppress(ConfigError):
        understood("import torch_npu\n" + text)


def test_whatever_a_file_is_it_is_read_or_refused() -> None:
    check_any()


IN_TORCH_NPU = """
import sys
source = open(sys.argv[1]).read()
exec(compile(source, sys.argv[1], "exec"))
deep = prof.prof_if.experimental_config
print([step + 1 for step in range(40) if "RECORD" in prof.schedule(step).name])
print(deep._profiler_level, deep._aic_metrics, deep._mstx, deep._export_type, prof.prof_if.with_modules)
"""


@pytest.mark.npu
def test_the_real_torch_npu_takes_the_call_that_is_written(tmp_path: Path) -> None:
    config = understood(TORCH_NPU).read.config.model_copy(update={"aic_metrics": "MemoryUB", "modules": True})
    (tmp_path / "written.py").write_text(torch_npu_python.write(config).text)
    (tmp_path / "run.py").write_text(IN_TORCH_NPU)

    run = run_under_cann([sys.executable, str(tmp_path / "run.py"), str(tmp_path / "written.py")])

    assert run.stdout.splitlines()[-2:] == ["[10, 11]", "Level1 ACL_AICORE_MEMORY_UB True ['db'] True"], run.stderr
