"""The direct way into mstx: open where a launcher attached a tool, never a call too early, never twice."""

from __future__ import annotations

import pytest

from mstxkit.testing import CannRun, Fail, StandIn, run_under_cann

SCRIPT = """
from mstxkit import mark, mstx_range, sinks, stage
sinks.install_all()
print(sinks.describe_all()["cann"])
with stage("rollout"), mstx_range("decode", domain="engine"):
    mark("here"); mark("there", domain="engine")
"""
ON = "on: a tool was attached by a launcher"


def with_injection() -> dict[str, str]:
    return {"MSTX_INJECTION_PATH": str(StandIn.build().injection)}


@pytest.mark.parametrize("launcher", ["MSTX_INJECTION_PATH", "LD_PRELOAD", "PROFILER_SAMPLECONFIG", "PROFILING_MODE"])
def test_ranges_and_marks_reach_a_tool_that_a_launcher_attached(launcher: str) -> None:
    value = "dynamic" if launcher.startswith("PROFIL") else str(StandIn.build().injection)

    run = run_under_cann(SCRIPT, env={launcher: value}, mstx="on")

    assert run.stdout.strip() == ON
    assert [(found.message, found.domain, found.balanced) for found in run.ranges()] == [
        ("rollout", "default", True),
        ("decode", "engine", True),
    ]
    assert [(call.message, call.domain) for call in run.marks()] == [("here", "default"), ("there", "engine")]


@pytest.mark.parametrize(
    ("env", "reason"),
    [
        ({}, "no launcher attached a tool"),
        ({"LD_PRELOAD": "libm.so.6"}, "no launcher attached a tool"),
        ({"MSTX_INJECTION_PATH": "/no/such/tool.so"}, "no mstx tool that can be loaded"),
        ({"MSTX_INJECTION_PATH": "libm.so.6"}, "no mstx tool that can be loaded"),
    ],
)
def test_without_a_tool_not_one_call_is_made(env: dict[str, str], reason: str) -> None:
    """The first one would deafen mstx for the life of the process, torch_npu's own too."""
    run = run_under_cann(SCRIPT, env=env, mstx="on")

    assert run.returncode == 0
    assert reason in run.stdout
    assert run.calls == ()


def test_started_by_msprof_but_without_cann_it_says_so() -> None:
    run = run_under_cann(SCRIPT, env={"PROFILER_SAMPLECONFIG": "x", "LD_LIBRARY_PATH": ""}, mstx="on")

    assert "there is no libprofapi.so" in run.stdout
    assert run.calls == ()


def test_a_tool_that_does_not_listen_hears_no_ends() -> None:
    run = run_under_cann(SCRIPT, env=with_injection(), mstx="off")

    assert [call.id for call in run.named("mstxRangeStartA", "mstxDomainRangeStartA")] == [0, 0]
    assert run.named("mstxRangeEnd", "mstxDomainRangeEnd") == []


@pytest.mark.parametrize("id", [1 << 32, (1 << 40) + 7, (1 << 62) + 1])
@pytest.mark.parametrize("native", ["", "0"])
def test_the_id_of_a_range_comes_back_whole_and_no_python_object_is_a_stream(id: int, native: str) -> None:
    """CANN's own module for Python gives 32 bits of the 64, and passes on the address of what it took for a stream."""
    wide = [Fail("mstxRangeStartA", id), Fail("mstxDomainRangeStartA", id + 1)]
    script = SCRIPT.replace('domain="engine")', 'domain="engine", stream=object())')

    run = run_under_cann(script, env={**with_injection(), "MSTXKIT_NATIVE": native}, mstx="on", fail=wide)

    assert [call.id for call in run.named("mstxDomainRangeEnd", "mstxRangeEnd")] == [id + 1, id]
    assert [call.stream for call in (*run.named("mstxRangeStartA", "mstxDomainRangeStartA"), *run.marks())] == [
        False
    ] * 4


def test_while_a_framework_sends_ranges_itself_the_direct_way_is_closed() -> None:
    run = _run("""
        with mstx_range("direct"): pass
        cann.give_way("a"); cann.give_way("b")
        with mstx_range("of the framework"): pass
        cann.take_back("a")
        with mstx_range("still of the framework"): print(cann.describe_state())
        cann.take_back("b")
        with mstx_range("direct again"): pass
    """)

    assert run.stdout.strip() == "gives way to b"
    assert [found.message for found in run.ranges()] == ["direct", "direct again"]


def test_a_range_that_is_open_when_the_way_closes_is_ended_all_the_same() -> None:
    run = _run("""
        with mstx_range("crossing"): cann.give_way("a")
    """)

    assert [(found.message, found.balanced) for found in run.ranges()] == [("crossing", True)]


def test_a_forked_child_is_silent() -> None:
    run = _run("""
        import os
        with mstx_range("of the parent"):
            pid = os.fork()
            if pid == 0:
                with mstx_range("of the child"): mark("of the child")
                print(cann.describe_state(), flush=True)
            else: os.waitpid(pid, 0)
        if pid == 0: os._exit(0)
        with mstx_range("afterwards"): pass
    """)

    assert run.stdout.strip() == "off: closed in this process"
    assert len({call.pid for call in run.calls}) == 1
    assert [(found.message, found.balanced) for found in run.ranges()] == [
        ("of the parent", True),
        ("afterwards", True),
    ]


def test_uninstalled_it_sends_nothing_and_can_be_installed_again() -> None:
    run = _run("""
        sinks.uninstall_all()
        with mstx_range("off"): pass
        sinks.install_all()
        with mstx_range("on again"): pass
    """)

    assert [found.message for found in run.ranges()] == ["on again"]


def _run(body: str) -> CannRun:
    """The body, under a tool that listens and with the sinks installed."""
    lines = [line[8:] for line in body.splitlines()]
    head = "from mstxkit import mark, mstx_range, sinks\nfrom mstxkit.sinks import cann\nsinks.install_all()\n"
    run = run_under_cann(head + "\n".join(lines), env=with_injection(), mstx="on")
    assert (run.returncode, run.stderr) == (0, "")
    return run
