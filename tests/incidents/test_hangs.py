"""Real ranks that hang, die or merely take long: named with rank, stage and range, or not alarmed."""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from builders import lives
from builders.hanging import HANG_S, Job, Start, follow, go_on, watchmen
from builders.mounts import frozen_disk  # noqa: F401

from mstxkit.incidents import folder
from mstxkit.incidents.folder import TOGETHER_NS
from mstxkit.store import documents, incidents, layout, run_file, verdicts, whereabouts

pytestmark = [pytest.mark.days("even"), pytest.mark.timeout(120)]
# Well beyond the limit, and the looks after that.
LONG_S = HANG_S + 3.0


@pytest.mark.parametrize(
    ("deed", "how"), [("lock", "waits for a lock"), ("native", "GIL"), ("stopped", "SIGSTOP"), ("sleeps", "own code")]
)
def test_a_rank_that_is_held_up_is_named_with_stage_and_range_and_who_waits_for_it(
    start: Start, deed: str, how: str
) -> None:
    incident = start(deed, "waits").incident()

    assert (incident.kind, incident.rank, incident.role) == ("hang", 0, "actor")
    assert (incident.stage, incident.range) == ("reward", "score")
    assert how in incident.reason
    assert incident.waits_for == "rank 1 actor waits for rank 0 actor in reward"


def test_it_is_named_within_its_limit_and_five_seconds(start: Start) -> None:
    job = start("sleeps", "waits")
    incident = job.incident()

    assert (incident.time_ns - job.began_ns) / 1e9 < HANG_S + 5


def test_the_stack_of_a_rank_whose_native_code_holds_the_gil_is_had_by_a_signal(start: Start) -> None:
    job = start("native", "waits", hang_s=3.0)
    incident = job.incident()
    (report,) = (report for report in job.reports() if report["rank"] == 0)

    assert report["stacks_by"] == "signal"
    assert incident.details["stack"][0].startswith("native at ")


def test_a_rank_that_waits_for_a_frozen_disk_is_named(start: Start, frozen_disk: Path) -> None:  # noqa: F811
    subprocess.run(["fsfreeze", "-f", frozen_disk], check=True)
    try:
        incident = start("waits", "disk", word=str(frozen_disk / "file")).incident()
    finally:
        subprocess.run(["fsfreeze", "-u", frozen_disk], check=True)

    assert (incident.kind, incident.rank, incident.range) == ("hang", 1, "score")
    assert "disk" in incident.reason


@pytest.mark.parametrize("deed", ["killed", "killed_later"])
def test_a_killed_rank_is_named_although_it_was_the_keeper(start: Start, deed: str) -> None:
    incident = start(deed, "waits", hang_s=3.0).incident()

    assert (incident.kind, incident.rank, incident.stage, incident.range) == ("killed", 0, "reward", "score")


def test_a_rank_that_ends_itself_with_an_error_inside_of_a_range_is_named_with_its_status(start: Start) -> None:
    incident = start("waits", "exits", word="3").incident()

    assert (incident.kind, incident.rank, incident.stage, incident.range) == ("killed", 1, "reward", "score")
    assert "os._exit(3)" in incident.reason


def test_of_a_rank_that_was_killed_because_memory_ran_out_that_is_said(start: Start) -> None:
    group = Path("/sys/fs/cgroup/memory") / f"mstxkit-{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        pytest.skip("this user limits nobody's memory")
    try:
        (group / "memory.limit_in_bytes").write_text(str(400 << 20))
        job = start("waits", "grows", word=str(group), hang_s=20.0)  # pages are given back first, and nobody goes on
        incident = job.incident(60)
        job.ranks[1].wait()
    finally:
        group.rmdir()

    assert (incident.kind, incident.rank, incident.range) == ("killed", 1, "score")
    assert "SIGKILL" in incident.reason
    assert "memory ran out" in incident.reason


def test_a_rank_that_crashes_leaves_its_signal_and_its_stack(start: Start) -> None:
    incident = start("waits", "crash").incident()

    assert (incident.kind, incident.rank, incident.range) == ("signal", 1, "score")
    assert "SIGSEGV" in incident.reason or "Segmentation fault" in incident.reason
    assert any(call.startswith("crash at ") for call in incident.details["stack"])


def test_an_exception_that_nobody_caught_is_named_with_the_range_that_it_left(start: Start) -> None:
    incident = start("waits", "raises").incident()

    assert (incident.kind, incident.rank, incident.range) == ("exception", 1, "score")
    assert "ValueError: no such reward" in incident.reason


def test_an_exception_that_ends_a_child_of_multiprocessing_is_named(start: Start) -> None:
    incident = start("waits", "child_raises", hang_s=10.0).incident(30)

    assert (incident.kind, incident.range) == ("exception", "worker's")
    assert "ValueError: no such reward" in incident.reason


def test_an_exception_in_a_thread_is_named_with_the_thread(start: Start) -> None:
    incident = start("waits", "raises_in_thread").incident()

    assert (incident.kind, incident.rank) == ("exception", 1)
    assert "in thread scorer" in incident.reason


def test_ranks_that_all_wait_for_others_of_which_none_works_are_told_of(start: Start) -> None:
    incident = start("waits", "waits").incident()

    assert incident.kind == "hang"
    assert "none that is recorded works" in incident.reason


@pytest.mark.parametrize("deed", ["progress", "computes", "builds", "checkpoint", "breakpoint_"])
def test_nobody_is_alarmed_by_what_merely_lasts_nor_by_who_waits_for_it(start: Start, deed: str) -> None:
    job = start(deed, "waits")
    time.sleep(LONG_S)

    assert job.incidents() == []


def test_a_rank_that_becomes_another_program_inside_of_a_range_has_left_and_is_stuck_nowhere(start: Start) -> None:
    """Its pid stays the same."""
    job = start("becomes_another", "progress", hang_s=3.0)
    assert lives.wait_until(lambda: {r["state"] for r in lives.processes(job.run)} >= {"left"}, 15)
    time.sleep(3)

    assert job.ranks[0].poll() is None
    assert incidents.list_names(job.run) == []
    assert lives.wait_until(lambda: len(list(job.run.glob("sealed/*"))) == 1), "what it left is sealed, as left"
    assert {row["state"] for row in lives.processes(job.run)} >= {"left"}


def test_nobody_is_alarmed_where_the_whole_host_stood_still(start: Start) -> None:
    """A machine that is paused or moved; and who watches may be the first that goes on."""
    job = start("progress", "progress")
    time.sleep(1)
    watching, pids = watchmen(job), [process.pid for process in job.ranks]
    for pid in [*pids, *watching]:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(2 * HANG_S + 0.5)
    for pid in [*watching, *pids]:
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.3 if pid in watching else 0)
    time.sleep(1.5)

    assert watching
    assert job.incidents() == []


def test_nobody_is_alarmed_by_a_pause_in_which_torch_compiles(start: Start) -> None:
    """Its compiler runs in processes of its own, one after the other, for which the rank only waits; and for longer
    than others may work.
    """
    pytest.importorskip("torch")
    job = start("compiles", "waits", TORCHINDUCTOR_FORCE_DISABLE_CACHES="1")
    time.sleep(10 * HANG_S + 3)

    assert job.incidents() == []
    assert job.ranks[0].poll() is None or not job.ranks[0].returncode


def test_nobody_is_alarmed_while_a_debugger_is_attached(start: Start) -> None:
    job = start("sleeps", "waits")
    if ctypes.CDLL(None).ptrace(0x4206, job.ranks[0].pid, 0, 0):  # PTRACE_SEIZE
        pytest.skip("this user may debug nobody")
    try:
        time.sleep(LONG_S)
        assert job.incidents() == []
    finally:
        os.kill(job.ranks[0].pid, signal.SIGKILL)  # at another signal it stops, which Popen takes for its end


def test_who_was_stopped_by_a_debugger_has_his_time_anew_once_it_lets_go(start: Start) -> None:
    job, libc = start("takes_four_seconds", "waits", hang_s=5.0), ctypes.CDLL(None)
    pid = job.ranks[0].pid
    if libc.ptrace(16, pid, 0, 0):  # PTRACE_ATTACH
        pytest.skip("this user may debug nobody")
    os.waitpid(pid, 0)
    time.sleep(10.5)
    libc.ptrace(17, pid, 0, 0)  # PTRACE_DETACH
    assert lives.wait_until(lambda: job.ranks[0].poll() is not None)

    assert job.incidents() == []


def two_hosts(folder: Path) -> list[Path]:
    """Where the ranks of each have their live files."""
    places = [folder / "a", folder / "b"]
    for place in places:
        place.mkdir()
    return places


def test_watchmen_of_several_hosts_make_one_incident_of_all_reports(start: Start, tmp_path: Path) -> None:
    job = start("waits", "lock", places=two_hosts(tmp_path))
    incident = job.incident(30)

    assert (incident.kind, incident.rank, incident.range) == ("hang", 1, "score")
    assert lives.wait_until(lambda: job.incidents()[0].reports == 2)
    assert len(job.incidents()) == 1
    assert job.incidents()[0].waits_for == "rank 0 actor waits for rank 1 actor in reward"


def test_a_host_whose_ranks_wait_for_another_host_that_works_leaves_nothing(start: Start, tmp_path: Path) -> None:
    job = start("waits", "progress", places=two_hosts(tmp_path))
    time.sleep(LONG_S + 2)

    assert job.incidents() == []


def test_a_hang_is_told_of_once_and_as_a_verdict(start: Start) -> None:
    job = start("sleeps", "waits")
    first = job.incident()
    time.sleep(LONG_S)
    (verdict,) = verdicts.read_verdicts(job.run)

    assert job.incidents() == [first]
    assert (verdict.kind, verdict.rank, verdict.stage) == ("hang", 0, "reward")
    assert verdict.waits_for == first.waits_for
    assert not verdict.withdrawn


@pytest.mark.parametrize("is_another", [False, True], ids=["the same watchman", "another one"])
def test_a_hang_that_goes_on_by_itself_is_withdrawn(start: Start, is_another: bool) -> None:
    job = start("goes_on", "waits")
    first = job.incident()
    assert lives.wait_until(lambda: bool(verdicts.read_verdicts(job.run)))  # it is written after the incident
    if is_another:
        follow(job)

    go_on(job)

    assert lives.wait_until(lambda: bool(job.incidents()[0].over_ns))
    over = {**first.details, "over": "it went on by itself"}
    assert job.incidents()[0] == first._replace(over_ns=job.incidents()[0].over_ns, details=over)
    assert lives.wait_until(lambda: verdicts.read_verdicts(job.run)[0].withdrawn == "it went on by itself")


def test_a_hang_whose_process_went_on_and_then_ended_in_order_is_withdrawn(start: Start) -> None:
    """Its range was the last thing that it did."""
    job = start("waits_seconds", "takes_four_seconds")
    job.incident()
    for process in job.ranks:
        assert process.wait(30) == 0

    assert lives.wait_until(lambda: bool(job.incidents()[0].over_ns))
    assert lives.wait_until(lambda: [v.withdrawn for v in verdicts.read_verdicts(job.run)] == ["it went on by itself"])


def test_what_a_validation_is_inside_of_may_last_as_long_as_the_validation(start: Start) -> None:
    job = start("validates", "validates")

    assert not lives.wait_until(lambda: bool(job.incidents()), 4 * HANG_S)


def test_a_hang_that_ends_with_its_process_is_not_withdrawn(start: Start) -> None:
    job = start("stopped", "waits")
    job.incident()
    job.ranks[0].send_signal(signal.SIGCONT)
    assert not lives.wait_until(lambda: bool(job.incidents()[0].over_ns), 3.0)  # it sleeps on in the same range
    job.ranks[0].send_signal(signal.SIGINT)  # and leaves it
    job.ranks[0].wait(30)

    assert not job.incidents()[0].over_ns  # ended is not gone on


def test_a_hang_whose_ranks_have_begun_anew_in_the_run_holds_no_more(start: Start) -> None:
    """As where an elastic launcher starts them again: the new ones hang nowhere."""
    first = start("sleeps", "waits")
    before = first.incident()
    assert lives.wait_until(lambda: bool(verdicts.read_verdicts(first.run)))
    for process in first.ranks:
        process.kill()
        process.wait()
    job = start("progress", "progress", run=first.run)

    assert lives.wait_until(lambda: bool(job.incidents()[0].over_ns), 20)
    assert lives.wait_until(lambda: verdicts.read_verdicts(job.run)[0].withdrawn == "its ranks have begun anew")
    assert "Its ranks have begun anew" in (job.run / before.page).read_text()


def test_a_rank_that_waits_logs_where_the_page_is(start: Start) -> None:
    job = start("sleeps", "waits")
    incident = job.incident()
    stream = job.ranks[1].stderr
    assert stream is not None

    line = stream.readline()

    assert "rank 0 actor hung in score of reward for" in line
    assert line.rstrip().endswith(str(job.run / incident.page))


def test_a_hang_is_told_of_once_although_another_watchman_takes_over(start: Start) -> None:
    job = start("sleeps", "waits")
    job.incident()
    assert lives.wait_until(lambda: bool(verdicts.read_verdicts(job.run)))
    files = contents(job)
    follow(job)
    time.sleep(LONG_S)

    assert contents(job) == files
    assert len(logged(job)) == 1


def test_a_hang_in_which_the_watchman_is_killed_is_told_of_by_the_next_one(start: Start) -> None:
    job = start("sleeps", "waits", hang_s=4.0)
    follow(job)
    incident = job.incident(30)
    time.sleep(LONG_S)

    assert job.incidents() == [incident]
    assert (incident.rank, incident.stage, incident.range) == (0, "reward", "score")


def test_a_hang_whose_watchman_was_killed_before_it_had_concluded_is_told_of_in_the_same_incident(
    start: Start,
) -> None:
    """Its successor finds an incident of its own host that came to nothing yet."""
    job = start("sleeps", "waits")
    first = job.incident()
    for pid in watchmen(job):
        os.kill(pid, signal.SIGKILL)
    (job.run / first.page).unlink()
    (job.run / first.page).with_name(layout.INCIDENT_FILE).unlink()

    again = job.incident(30)

    assert again.incident == first.incident
    assert (again.rank, again.range) == (0, "score")
    assert incidents.list_names(job.run) == [first.incident]


@pytest.mark.parametrize(("deed", "is_left"), [("killed", True), ("goes_on", False)], ids=["a death", "it is over"])
def test_what_a_killed_watchman_had_not_concluded_its_successor_does_or_nothing_stays(
    start: Start, deed: str, is_left: bool
) -> None:
    job = start(deed, *(["waits"] if is_left else []), hang_s=60.0 if is_left else 2.0)
    first = job.incident()
    for pid in watchmen(job):
        os.kill(pid, signal.SIGKILL)
    (job.run / first.page).unlink()
    (job.run / first.page).with_name(layout.INCIDENT_FILE).unlink()
    if not is_left:
        go_on(job)

    assert lives.wait_until(lambda: bool(job.incidents()) if is_left else not incidents.list_names(job.run), 40)
    assert [(incident.kind, incident.rank) for incident in job.incidents()] == [("killed", 0)] * is_left


@pytest.mark.parametrize("is_over", [False, True], ids=["as it is told of", "as it is over"])
def test_what_a_watchman_killed_after_the_incident_had_not_said_its_successor_says(start: Start, is_over: bool) -> None:
    job = start("goes_on", "waits")
    assert lives.wait_until(lambda: bool(verdicts.read_verdicts(job.run)))
    lines = said(job).read_bytes()
    if is_over:
        go_on(job)
        assert lives.wait_until(lambda: bool(verdicts.read_verdicts(job.run)[0].withdrawn))
    for pid in watchmen(job):
        os.kill(pid, signal.SIGKILL)
    said(job).write_bytes(lines * is_over)

    withdrawn = "it went on by itself" if is_over else ""
    assert lives.wait_until(lambda: [v.withdrawn for v in verdicts.read_verdicts(job.run)] == [withdrawn], 40)
    assert len(incidents.list_names(job.run)) == 1


def waited_for_by_another_host(start: Start, folder: Path, other: str = "waits") -> tuple[Job, int, int]:
    """Rank 0 sleeps on the one host, rank 1 waits for it on the other; and the pid of the watchman of either."""
    places = two_hosts(folder)
    job = start("sleeps", other, places=places)
    of_first, of_second = sorted(
        watchmen(job), key=lambda pid: f"{places[1]}/".encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    )
    return job, of_first, of_second


def test_a_host_that_is_gone_with_its_watchman_is_named_as_silent(start: Start, tmp_path: Path) -> None:
    job, gone, _ = waited_for_by_another_host(start, tmp_path)
    os.kill(gone, signal.SIGKILL)
    job.ranks[0].kill()
    incident = job.incident(40)

    assert (incident.rank, incident.reports) == (1, 1)
    assert re.search("\nSilent:   host .+, last .+ ago: rank 0 actor\n", (job.run / incident.page).read_text())


def test_what_a_host_that_is_gone_had_not_concluded_another_one_does(start: Start, tmp_path: Path) -> None:
    """Rank 0, the only process there, is gone with it, so nobody starts another watchman."""
    job, gone, lives_on = waited_for_by_another_host(start, tmp_path)
    os.kill(lives_on, signal.SIGSTOP)  # the other one waits for its reports
    assert lives.wait_until(lambda: bool(list(job.run.glob("incidents/*/hosts/*.json"))))
    os.kill(gone, signal.SIGKILL)
    job.ranks[0].kill()
    os.kill(lives_on, signal.SIGCONT)
    incident = job.incident(40)

    assert incidents.list_names(job.run) == [incident.incident]
    assert (incident.kind, incident.rank, incident.range, incident.reports) == ("hang", 0, "score", 2)
    assert lives.wait_until(lambda: [verdict.rank for verdict in verdicts.read_verdicts(job.run)] == [0])


def test_what_a_host_that_is_gone_had_concluded_and_not_said_another_one_says(start: Start, tmp_path: Path) -> None:
    job, gone, lives_on = waited_for_by_another_host(start, tmp_path)
    os.kill(lives_on, signal.SIGSTOP)
    assert lives.wait_until(lambda: bool(verdicts.read_verdicts(job.run)))
    os.kill(gone, signal.SIGKILL)
    job.ranks[0].kill()
    said(job).unlink()
    os.kill(lives_on, signal.SIGCONT)

    assert lives.wait_until(lambda: [verdict.rank for verdict in verdicts.read_verdicts(job.run)] == [0], 40)
    assert len(incidents.list_names(job.run)) == 1


def test_a_hang_of_a_host_that_is_gone_is_over_once_its_rank_has_begun_anew_on_any_host(
    start: Start, tmp_path: Path
) -> None:
    """Nobody is stuck on the host that has taken it over."""
    job, gone, lives_on = waited_for_by_another_host(start, tmp_path, "works_on")
    os.kill(lives_on, signal.SIGSTOP)
    assert lives.wait_until(lambda: bool(list(job.run.glob("incidents/*/hosts/*.json"))))
    os.kill(gone, signal.SIGKILL)
    job.ranks[0].kill()
    os.kill(lives_on, signal.SIGCONT)
    assert (job.incident(40).rank, job.incidents()[0].over_ns) == (0, 0)
    (tmp_path / "c").mkdir()
    start("works_on", run=job.run, places=[tmp_path / "c"])

    assert lives.wait_until(lambda: bool(job.incidents()[0].over_ns), 40)
    assert lives.wait_until(lambda: verdicts.read_verdicts(job.run)[0].withdrawn == "its ranks have begun anew")


def test_a_host_that_comes_back_leaves_alone_what_another_one_has_taken_over(start: Start, tmp_path: Path) -> None:
    """Its watchman was stopped while it waited for reports: what it makes of them then is nobody's any more."""
    job, late, other = waited_for_by_another_host(start, tmp_path)
    os.kill(other, signal.SIGSTOP)
    assert lives.wait_until(lambda: bool(list(job.run.glob("incidents/*/hosts/*.json"))))
    os.kill(late, signal.SIGSTOP)
    os.kill(other, signal.SIGCONT)
    try:
        file = (job.run / job.incident(40).page).with_name(layout.INCIDENT_FILE)
        before = documents.state_of(file)
    finally:
        os.kill(late, signal.SIGCONT)
    folder.ask_hosts(job.run)  # it answers that once it is through with the first one

    assert lives.wait_until(lambda: len(list(job.run.glob("incidents/*/hosts/*.json"))) == 4, 40)
    assert documents.state_of(file) == before
    assert len(list(job.run.glob("verdicts/hang-*"))) == 1


def test_an_exception_is_told_of_once_although_another_watchman_takes_over(start: Start) -> None:
    job = start("raises_in_thread", "waits", hang_s=60.0)
    first = job.incident()
    time.sleep(TOGETHER_NS / 1e9 + 1)  # what comes now is another incident
    follow(job)
    time.sleep(3)

    assert incidents.list_names(job.run) == [first.incident]


def test_when_the_watchman_is_killed_another_one_takes_over(start: Start) -> None:
    job = start("progress", "waits")

    assert follow(job)


def test_the_watchman_says_where_the_ranks_are_and_whoever_is_left_goes_on(start: Start) -> None:
    """No rank spends its time on it."""
    job = start("waits", "waits", hang_s=20.0)
    assert lives.wait_until(lambda: places(job)[1] == {0: "reward", 1: "reward"})
    before, _ = places(job)
    assert before in watchmen(job)

    os.kill(before, signal.SIGKILL)

    assert lives.wait_until(lambda: places(job)[0] != before, 20)
    assert places(job)[1] == {0: "reward", 1: "reward"}


def test_nobody_watches_on_once_all_ranks_were_killed_at_once(start: Start) -> None:
    """Their live files stay, as nobody is left to seal them."""
    job = start("sleeps", "waits")
    pids = watchmen(job)
    for process in job.ranks:
        process.kill()
        process.wait()

    assert pids
    assert lives.wait_until(lambda: not watchmen(job), 20)


def contents(job: Job) -> dict[Path, tuple[bytes, int]]:
    """All that is written of incidents, and when that was."""
    files = [*(job.run / "incidents").rglob("*.*"), *job.run.glob("verdicts/hang-*")]
    return {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in files if file.is_file()}


def said(job: Job) -> Path:
    """The verdicts of the only watchman that has said one."""
    (file,) = job.run.glob("verdicts/hang-*")
    return file


def logged(job: Job) -> list[str]:
    """What rank 1 has logged so far."""
    stream = job.ranks[1].stderr
    assert stream is not None
    os.set_blocking(stream.fileno(), False)
    return [line for line in (os.read(stream.fileno(), 1 << 16)).decode().splitlines() if line]


def places(job: Job) -> tuple[int, dict[int | None, str | None]]:
    """Who has said where the ranks are, and their stages."""
    (file,) = whereabouts.files_in(job.run) or [job.run / "now" / "nobody yet"]
    seen = whereabouts.in_file(file, run_file.id_of(job.run) or "")
    said = json.loads(file.read_text()) if file.exists() else {}
    return said.get("keeper", 0), {where.rank: where.stage for where in seen}
