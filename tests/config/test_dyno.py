"""msMonitor's commands: `dyno nputrace` and `dyno npu-monitor` are read, refused where wrong, and written again."""

from __future__ import annotations

from typing import Any

import pytest
from builders.any_config import differing, refusal

from mstxkit.config import configuring, sources
from mstxkit.config.adapters import dyno, torch_npu
from mstxkit.config.configuring import Understood
from mstxkit.config.model import Config, Window

NEEDED = "dyno --certs-dir NO_CERTS nputrace --start-step 10 --iterations 2 --log-file /tmp/trace"
MONITOR = "dyno --certs-dir NO_CERTS npu-monitor --npu-monitor-start"


def understood(text: str) -> Understood:
    return configuring.understand_source(sources.from_shell(f"{text}\n", "trace.sh"))


def read(text: str) -> Config:
    return understood(text).read.config


def test_a_trace_begins_behind_its_step_as_in_torch_npus_own_file() -> None:
    config = read(NEEDED)
    own = sources.from_json('{"start_step": 10, "active": 2, "prof_dir": "/tmp/trace"}', "own.json")

    assert differing(config, torch_npu.read(own).config) == {"extras": {"dyno": {"certs-dir": "NO_CERTS"}}}
    assert config.window == Window(first_step=11, steps=2, counted_from="process")


def test_every_option_has_its_field() -> None:
    config = read(
        f"{NEEDED} --activities NPU --profiler-level Level1 --aic-metrics MemoryUB --export-type=Db --l2-cache "
        "--analyse --async-mode --msprof-tx --mstx-domain-include a,b --host-sys cpu,mem --rank-list 0,3 "
        "--profile-memory --data-simplification false"
    )

    assert (config.activities, config.level, config.aic_metrics, config.export) == (
        ("npu",),
        "level1",
        "MemoryUB",
        "db",
    )
    assert (config.l2_cache, config.memory, config.mstx, config.data_simplification) == (True, True, True, False)
    assert (config.analysis, config.domains_include, config.host_sys) == ("async", ("a", "b"), ("cpu", "mem"))
    assert config.ranks == (0, 3)


@pytest.mark.parametrize(
    "text",
    [
        f"{NEEDED} --gc-detect-threshold 0.5 --op-attr --export-type Db --job-id 4",
        f"{NEEDED} --profiler-level Level_none",
        f"{MONITOR} --duration 30 --mspti-activity-kind Marker,Kernel --log-file /tmp/db --filter 'Kernel:Mul'",
        f"{MONITOR} --export-type Jsonl --json-rotate-log-files -1",
        "dyno npu-monitor --npu-monitor-stop",
    ],
)
def test_what_is_read_is_written_again(text: str) -> None:
    config = read(text)

    written = dyno.write(config)

    assert written.lost == ()
    assert read(written.text) == config


def test_monitoring_goes_on_until_it_is_stopped() -> None:
    config = read(f"{MONITOR} --mspti-activity-kind Marker,AclAPI --duration 30")

    assert (config.enabled, config.window.steps, config.level, config.mstx) == (True, None, "level1", True)
    assert config.limits is not None and config.limits.seconds == 30
    assert read(MONITOR).level == "none"
    assert not read("dyno npu-monitor --npu-monitor-stop").enabled


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dyno nputrace --iterations 2 --log-file /t", "trace.sh:1: --start-step: missing: dyno refuses the command"),
        (f"{NEEDED} --profiler-level level1", "--profiler-level='level1': not one of its values; did you mean Level1?"),
        (f"{NEEDED} --rank-list a,b", "--rank-list=['a', 'b']: a list of ranks is needed"),
        (f"{NEEDED} --rank-lists 0", "--rank-lists: unknown option; did you mean --rank-list?"),
        (f"{NEEDED} --start-step 0", "--start-step=0: step 0 is over when step() is first called"),
        (f"{NEEDED} --iterations 0", "--iterations='0': must be 1 or more"),
        (f"{NEEDED} --export-type text", "--export-type='text': not one of its values; did you mean Text?"),
        (f"{NEEDED} --host-sys numa", "--host-sys='numa': not one of its values"),
        (f"{NEEDED} --gc-detect-threshold -1", "--gc-detect-threshold='-1': milliseconds are needed"),
        (f"{NEEDED} --log-file $(mktemp)", "$(mktemp): what this command yields is known only when it runs"),
        (f"{MONITOR} --mspti-activity-kind Kernels", "--mspti-activity-kind='Kernels': not one of its values"),
        (f"{MONITOR} --duration soon", "--duration='soon': seconds are needed"),
        (f"{NEEDED}\n{MONITOR}", "trace.sh: several commands of dyno, in lines 1, 2: keep the one that is meant"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused(text: str, message: str, tmp_path: Any) -> None:
    assert message in refusal(("trace.sh", f"{text}\n"), tmp_path)
