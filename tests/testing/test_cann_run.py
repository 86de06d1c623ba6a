"""A script under the stand-in: its calls come back as data, and go wrong where asked."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from mstxkit.errors import StandInError
from mstxkit.testing import CannCall, Fail, StandIn, run_under_cann
from mstxkit.testing.cann_run import read_calls

# A program that makes the C calls itself: what torch_npu does, without its eight seconds of import.
LOAD = """
import ctypes, time
acl = ctypes.CDLL("libascendcl.so")
acl.aclprofCreateConfig.restype = ctypes.c_void_p
def load_profiler():
    ctypes.CDLL("libmsprofiler.so", ctypes.RTLD_GLOBAL)
def load_mstx():
    mstx = ctypes.CDLL("libms_tools_ext.so")
    mstx.mstxRangeStartA.restype = mstx.mstxDomainRangeStartA.restype = ctypes.c_uint64
    mstx.mstxDomainCreateA.restype = ctypes.c_void_p
    return mstx
def start(path, types=0x80):
    acl.aclprofInit(path.encode(), len(path))
    config = ctypes.c_void_p(acl.aclprofCreateConfig(None, 0, 0, None, ctypes.c_uint64(types)))
    return acl.aclprofStart(config), config
def stop(config):
    return acl.aclprofStop(config), acl.aclprofFinalize()
"""
SESSION = (
    LOAD
    + """
load_profiler(); code, config = start("."); mstx = load_mstx()
outer = mstx.mstxRangeStartA(b"outer", None)
domain = ctypes.c_void_p(mstx.mstxDomainCreateA(b"mine"))
inner = mstx.mstxDomainRangeStartA(domain, b'say "hi"', ctypes.c_void_p(8))
mstx.mstxDomainMarkA(domain, b"here", None)
mstx.mstxDomainRangeEnd(domain, ctypes.c_uint64(inner)); mstx.mstxRangeEnd(ctypes.c_uint64(outer)); stop(config)
"""
)


def test_calls_come_back_in_order_and_typed(tmp_path: Path) -> None:
    run = run_under_cann(SESSION, cwd=tmp_path)

    names = "aclprofInit aclprofCreateConfig aclprofStart InitInjectionMstx mstxRangeStartA mstxDomainCreateA"
    names += " mstxDomainRangeStartA mstxDomainMarkA mstxDomainRangeEnd mstxRangeEnd aclprofStop aclprofFinalize"
    assert (run.returncode, run.stderr) == (0, "")
    assert [call.call for call in run.calls] == names.split()
    assert [call.t_ns for call in run.calls] == sorted(call.t_ns for call in run.calls)
    start = run.named("mstxDomainRangeStartA")[0]
    assert start == CannCall("mstxDomainRangeStartA", start.t_ns, start.pid, start.tid, 'say "hi"', "mine", True, 2)
    assert (run.named("aclprofStart")[0].types, run.named("aclprofStart")[0].code) == (0x80, 0)


def test_starts_and_ends_are_paired_by_id_and_domain(tmp_path: Path) -> None:
    run = run_under_cann(SESSION, cwd=tmp_path)

    outer, inner = run.ranges()
    assert (outer.message, outer.domain, outer.stream, outer.balanced) == ("outer", "default", False, True)
    assert (inner.message, inner.domain, inner.stream, inner.balanced) == ('say "hi"', "mine", True, True)
    assert outer.start_ns < inner.start_ns < inner.end_ns < outer.end_ns  # type: ignore[operator]
    assert [(mark.message, mark.domain) for mark in run.marks()] == [("here", "mine")]
    assert run.unbalanced() == []


def test_a_start_without_end_and_an_end_without_start_are_listed() -> None:
    script = LOAD + (
        "load_profiler(); mstx = load_mstx(); mstx.mstxRangeStartA(b'left open', None)\n"
        "mstx.mstxRangeEnd(ctypes.c_uint64(77))"
    )

    run = run_under_cann(script, mstx="on")

    assert [(found.message, found.id, found.start_ns is None, found.end_ns is None) for found in run.unbalanced()] == [
        ("left open", 1, False, True),
        (None, 77, True, False),
    ]


def test_mstx_is_taken_only_while_a_profiler_with_mstx_runs(tmp_path: Path) -> None:
    script = LOAD + (
        "load_profiler(); mstx = load_mstx(); ids = []\n"
        "def ask(): ids.append(mstx.mstxRangeStartA(b'x', None))\n"
        "ask(); _, c = start('.'); ask(); stop(c); ask(); _, c = start('.', types=1); ask(); stop(c); print(ids)"
    )

    run = run_under_cann(script, cwd=tmp_path)

    assert run.stdout.split("\n")[0] == "[0, 1, 0, 0]"


@pytest.mark.parametrize(("mstx", "first_id"), [("on", "1"), ("off", "0")])
def test_a_tool_may_listen_always_or_never(mstx: str, first_id: str) -> None:
    script = LOAD + "load_profiler(); print(load_mstx().mstxRangeStartA(b'x', None))"

    assert run_under_cann(script, mstx=mstx).stdout.strip() == first_id


def test_a_first_call_before_the_tool_is_visible_deafens_mstx_for_good() -> None:
    """As in CANN: the reason why mstxkit makes no such call by itself."""
    script = LOAD + "mstx = load_mstx(); a = mstx.mstxRangeStartA(b'x', None); load_profiler()\n"
    script += "print(a, mstx.mstxRangeStartA(b'x', None))"

    run = run_under_cann(script, mstx="on")

    assert run.stdout.split() == ["0", "0"]
    assert run.calls == ()


def test_a_launcher_can_attach_the_tool_by_environment() -> None:
    script = LOAD + "print(load_mstx().mstxRangeStartA(b'x', None))"

    run = run_under_cann(script, env={"MSTX_INJECTION_PATH": str(StandIn.build().injection)}, mstx="on")

    assert run.stdout.strip() == "1"


def test_a_call_fails_at_the_use_that_was_asked_for(tmp_path: Path) -> None:
    script = LOAD + (
        "load_profiler(); codes = []\nfor _ in range(3): code, c = start('.'); codes.append(code); stop(c)\n"
        "print(codes, [acl.aclrtSetDevice(0) for _ in range(2)])"
    )

    run = run_under_cann(script, cwd=tmp_path, fail=[Fail("aclprofStart", 507, at=2), Fail("aclrtSetDevice", 9)])

    assert run.stdout.strip() == "[0, 507, 0] [9, 9]"
    assert [call.code for call in run.named("aclprofStart")] == [0, 507, 0]
    assert len(run.prof_folders) == 2


def test_a_second_init_is_refused_as_by_cann(tmp_path: Path) -> None:
    script = LOAD + "print(acl.aclprofInit(b'.', 1), acl.aclprofInit(b'.', 1))"

    assert run_under_cann(script, cwd=tmp_path).stdout.split() == ["0", "100002"]


def test_a_session_writes_a_folder_that_grows_at_its_rate(tmp_path: Path) -> None:
    script = LOAD + "load_profiler(); _, c = start('.'); time.sleep(0.2); stop(c)"

    run = run_under_cann(script, cwd=tmp_path, rate=1e6, start_bytes=5000)

    before, after = run.named("aclprofCreateConfig", "aclprofStop")
    (folder,) = run.prof_folders
    size = sum(path.stat().st_size for path in (tmp_path / folder).rglob("*") if path.is_file())
    assert folder.name.startswith("PROF_000001_")
    assert 5000 + 0.2e6 <= size <= 5000 + (after.t_ns - before.t_ns) / 1e9 * 1e6


def test_told_to_write_nothing_a_session_leaves_empty_folders_and_no_error(tmp_path: Path) -> None:
    run = run_under_cann(SESSION, cwd=tmp_path, start_bytes=0)

    (folder,) = run.prof_folders
    assert (tmp_path / folder / "device_0" / "data").is_dir()
    assert [path for path in (tmp_path / folder).rglob("*") if path.is_file()] == []


def test_each_session_has_a_folder_of_its_own(tmp_path: Path) -> None:
    script = LOAD + "load_profiler()\nfor _ in range(3): _, c = start('.'); stop(c)"

    assert len(set(run_under_cann(script, cwd=tmp_path).prof_folders)) == 3


def test_a_script_may_be_source_a_file_or_a_command(tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text("print('file')")

    assert run_under_cann("print('source')").stdout == "source\n"
    assert run_under_cann(file).stdout == "file\n"
    assert run_under_cann([sys.executable, "-c", "print('command')"]).stdout == "command\n"


def test_a_script_that_fails_is_reported_not_raised() -> None:
    run = run_under_cann("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)")

    assert (run.returncode, run.stdout, run.stderr) == (3, "out\n", "err\n")


def test_the_script_sees_this_mstxkit_and_no_switch_against_torch_npu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    import mstxkit

    run = run_under_cann("import mstxkit, os; print(mstxkit.__file__, 'TORCH_DEVICE_BACKEND_AUTOLOAD' in os.environ)")

    assert run.stdout.split() == [mstxkit.__file__, "False"]


def test_a_script_that_does_not_end_is_killed_with_its_children(tmp_path: Path) -> None:
    script = (
        "import os, time\nfrom pathlib import Path\npid = os.fork()\n"
        "if pid: Path('child').write_text(str(pid))\ntime.sleep(600)"
    )

    with pytest.raises(StandInError, match=r"did not end within 1.0 s"):
        run_under_cann(script, timeout_s=1.0, cwd=tmp_path)

    assert _is_gone(int((tmp_path / "child").read_text()))


def test_a_log_that_ends_in_half_a_line_is_read_up_to_there(tmp_path: Path) -> None:
    log = tmp_path / "calls.jsonl"
    log.write_bytes(
        b'{"t_ns": 1, "pid": 2, "tid": 3, "call": "mstxMarkA", "message": "\xff", "stream": 0}\n{"t_ns": 4, "pi'
    )

    calls = read_calls(log)

    assert [(call.call, call.message, call.domain) for call in calls] == [("mstxMarkA", "\ufffd", "default")]


def _is_gone(pid: int) -> bool:
    """Dead, or dead and not yet reaped by the process that inherited it."""
    for _ in range(500):
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.01)
    return False
