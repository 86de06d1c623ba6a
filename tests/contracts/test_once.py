"""Patching twice, from two threads, or while another thread imports the framework: once."""

from __future__ import annotations

import threading

from builders.contracts import outside, surface
from builders.contracts.installing import Install
from builders.contracts.versions import AFTER, calls, expectations, newest, patched, recorded

import mstxkit


@newest
def test_patching_again_changes_nothing(version: str, install: Install) -> None:
    installed = install(surface.recorded(version))
    first = patched(installed, AFTER)
    before = installed.holdings()

    again = mstxkit.autopatch(installed.surface.framework + "+extra").of(installed.surface.framework)

    after = installed.holdings()
    assert [state[:4] for state in again.targets] == [state[:4] for state in first.targets]
    assert [key for key in before if before[key] is not after[key]] == []


@newest
def test_the_extra_tier_can_be_added_later(version: str, install: Install) -> None:
    installed = install(surface.recorded(version))
    patched(installed, AFTER, extra="")

    report = mstxkit.autopatch(installed.surface.framework + "+extra").of(installed.surface.framework)

    found, wanted_ranges = recorded(calls(installed, report))
    assert found == wanted_ranges
    assert [state.path for state in report.targets if state.reason == "disabled tier"] == []


@newest
def test_two_threads_patch_once(version: str, install: Install) -> None:
    installed = install(surface.recorded(version))
    installed.load()
    name, start = installed.surface.framework + "+extra", threading.Barrier(4)
    threads = [threading.Thread(target=lambda: (start.wait(), mstxkit.autopatch(name))) for _ in range(4)]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    found, wanted_ranges = recorded(calls(installed, mstxkit.patch_report().of(installed.surface.framework)))
    assert found == wanted_ranges


@newest
def test_patching_while_another_thread_is_in_the_middle_of_the_import(version: str, install: Install) -> None:
    slow = surface.recorded(version).copy()
    wanted = [one for one in expectations(install(slow)) if one.is_applied]
    slow.modules[wanted[0].target.module]["waits"] = True
    installed = install(slow.copy())
    importing = threading.Thread(target=installed.load)
    importing.start()
    assert outside.is_waiting.wait(60)

    mstxkit.autopatch(installed.surface.framework + "+extra")
    outside.may_go_on.set()
    importing.join()

    report = mstxkit.patch_report().of(installed.surface.framework)
    assert wanted[0].target.path in [state.path for state in report.targets if state.state == "applied"]
    found, wanted_ranges = recorded(calls(installed, report))
    assert found == wanted_ranges
