"""The stand-in libraries are built once, aside, in a folder that only their user can write to."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.threads import on_threads

from mstxkit.errors import StandInError
from mstxkit.testing import Fail, StandIn


def test_a_second_build_uses_the_first(tmp_path: Path) -> None:
    first = StandIn.build(tmp_path)
    built = first.libraries.joinpath("libascendcl.so").stat().st_mtime_ns
    second = StandIn.build(tmp_path)

    assert second == first
    assert second.libraries.joinpath("libascendcl.so").stat().st_mtime_ns == built


def test_builds_at_the_same_time_all_succeed_and_leave_one_result(tmp_path: Path) -> None:
    found: list[StandIn] = []
    on_threads(3, lambda _: found.append(StandIn.build(tmp_path)))

    assert len(set(found)) == 1
    assert len(found) == 3
    assert list(tmp_path.iterdir()) == [found[0].home]


def test_every_library_that_torch_npu_needs_is_there(tmp_path: Path) -> None:
    """DT_NEEDED of torch_npu 2.13.0, and what it opens by name for mstx and profiling."""
    needed = "hccl ascendcl acl_op_compiler ge_runner graph acl_tdt_channel ascend_hal msprofiler ms_tools_ext profapi"

    found = {path.name for path in StandIn.build(tmp_path).libraries.glob("*.so")}

    assert {f"lib{name}.so" for name in needed.split()} <= found


def test_a_missing_compiler_is_an_error_that_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")

    with pytest.raises(StandInError, match=r"no-such-compiler.*install gcc"):
        StandIn.build(tmp_path)


def test_sources_that_do_not_compile_are_an_error_and_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "false")

    with pytest.raises(StandInError, match="could not build"):
        StandIn.build(tmp_path)

    assert list(tmp_path.iterdir()) == []


def test_a_cache_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)

    with pytest.raises(StandInError, match="written to by others"):
        StandIn.build(tmp_path)


def test_the_default_cache_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    assert StandIn.build().home.parent == tmp_path / "mstxkit"


def test_the_environment_puts_the_libraries_before_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/elsewhere")
    stand_in = StandIn(tmp_path)

    environment = stand_in.environment(fail=[Fail("aclprofStart", 7, at=2), Fail("mstxRangeStartA", 0)])

    assert environment["LD_LIBRARY_PATH"] == f"{tmp_path}/lib64:/elsewhere"
    assert environment["MSTXKIT_STANDIN_FAIL"] == "aclprofStart:2:7;mstxRangeStartA:0:0"
