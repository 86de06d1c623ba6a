"""`mstxkit top`: a job as it is now, in a terminal or a pipe, whoever judges it, whatever its files hold."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Iterator

import pytest

pytest.importorskip("numpy")
typer_testing = pytest.importorskip("typer.testing")

from builders import top_recording  # noqa: E402
from builders.shown_job import HOSTILE, ShownJob, role, verdict  # noqa: E402

import mstxkit.cli  # noqa: E402
from mstxkit.cli import _top_picture  # noqa: E402
from mstxkit.cli._top_picture import Paper  # noqa: E402
from mstxkit.judging.live_state import Judges, LiveReader  # noqa: E402
from mstxkit.reading.report.headline import make_headline  # noqa: E402
from mstxkit.store.incidents import Incident  # noqa: E402
from mstxkit.store.job_file import Latecomer  # noqa: E402
from mstxkit.store.verdicts import NOT_ENOUGH_EVIDENCE  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def job(tmp_path: Path) -> ShownJob:
    return ShownJob(tmp_path)


def shown(job: ShownJob, *words: str, **variables: str) -> Any:
    runner = typer_testing.CliRunner()
    return runner.invoke(mstxkit.cli.build_application("top"), ["top", str(job.run), *words], env=variables)


def picture(job: ShownJob, paper: Paper) -> Any:
    """What a terminal of that size shows of it."""
    live_state = LiveReader(job.run, job.run_id).look()
    return _top_picture.draw_lines(
        live_state, paper, make_headline(_top_picture.account_of(live_state, paper.folder))["matters"]
    )


def leave(job: ShownJob, incident: Incident) -> None:
    folder = job.run / "incidents" / incident.incident
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "incident.json").write_bytes(incident.as_json(job.run_id))


def test_a_job_is_shown_with_its_step_its_stages_and_who_is_blamed(job: ShownJob) -> None:
    job.say(role())
    job.blame(verdict(evidence={"is_work_told": True}))
    done = shown(job, COLUMNS="80")

    assert done.exit_code == 1, done.output
    assert "exp7 · step 41 · 16 ranks on 2 hosts · judged" in done.output
    assert "! rank 3 actor computes more slowly than the others in actor_generate" in done.output
    assert "24 % of each step is lost by it, since step 10" in done.output
    assert re.search(r"actor_update +█+░+ +1\.60 s +2\.00 s  rank 3", done.output)
    assert "late: rank 3 by 320 ms in actor_update" in done.output
    assert max(map(len, done.output.splitlines())) <= 80


def test_the_recording_in_the_guide_has_the_words_that_a_picture_has_now(job: ShownJob) -> None:
    job.say(role())
    job.blame(verdict(evidence={"is_work_told": True}))
    job.stand(0, range(4))
    cast = (top_recording.IMAGES / "top.cast").read_text(encoding="utf-8").splitlines()
    recorded = "".join(json.loads(line)[2] for line in cast[1:])
    recorded = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", recorded)
    fixed = r"█ median .*|^now ·.*|computes more slowly than.*in |of each step is lost by it, since step|next: mstxkit"

    words = re.findall(fixed, shown(job, COLUMNS="96").output, re.M)
    assert len(words) == 5
    assert [word for word in words if word.strip() not in recorded] == [], "run `make recording`"


def test_where_nobody_is_blamed_it_says_so_and_ends_with_0(job: ShownJob) -> None:
    job.say(role())
    done = shown(job)

    assert (done.exit_code, "healthy: no rank was seen to make others wait" in done.output) == (0, True)


@pytest.mark.parametrize(
    ("members", "judged_steps", "words"),
    [
        (16, None, "healthy: no rank was seen"), (16, 20, "healthy: no rank was seen"),
        (16, 3, "too few steps to judge who makes others wait: 3 count, 20 are needed"),
        (1, 0, "not judged: no two ranks have finished a step together"),
        (1, 500, "healthy: no rank was seen"),  # the last step of all was of one rank
    ],
)  # fmt: skip
def test_it_says_that_nobody_is_blamed_only_where_that_can_be_known(
    job: ShownJob, members: int, judged_steps: int | None, words: str
) -> None:
    job.say(role(members=members, judged_steps=judged_steps))

    assert words in shown(job).output


def test_where_no_step_is_over_it_does_not_say_that_ranks_are_missing(job: ShownJob) -> None:
    """Ranks there are; what lacks is a step, or stages in it."""
    job.say()

    assert "not judged: no step is over in which a stage has ended" in shown(job).output


def test_a_profile_that_did_not_come_is_said_in_the_picture_and_in_the_line(job: ShownJob) -> None:
    job.say(role())
    job.blame(verdict(request="12ab", no_request="rank 1 failed: nothing was written", waits_for=""))
    words = "request 12ab, which did not come: rank 1 failed: nothing was written"

    assert words in shown(job, COLUMNS="200").output
    assert words in typer_testing.CliRunner().invoke(
        mstxkit.cli.build_application("top"), ["top", str(job.run), "--once"]
    ).output  # fmt: skip


def test_verdicts_that_were_withdrawn_or_only_ask_for_more_blame_nobody(job: ShownJob) -> None:
    job.say(role())
    job.blame(verdict(withdrawn="it is gone"), verdict(id="b", kind=NOT_ENOUGH_EVIDENCE, rank=None))
    done = shown(job)

    assert done.exit_code == 0
    assert "\nall of actor take longer in actor_generate than earlier: nothing tells" in done.output
    assert "rank 3 actor computes" not in done.output


def test_as_json_it_is_one_object_with_a_schema(job: ShownJob) -> None:
    job.say(role(), hosts=3, silences=1, silent=("node-2",))
    job.blame(verdict())
    job.stand(0, range(2))
    document = json.loads(shown(job, "--json").stdout)

    assert (document["schema"], document["judged_by"], document["run"]) == (1, "another", job.run_id)
    assert document["job"]["roles"][0]["stages"][3]["max_s"] == 2.0
    assert [place["rank"] for place in document["now"]] == [0, 1]
    assert document["verdicts"][0]["rank"] == 3


def test_sixteen_ranks_have_a_line_each_and_more_of_them_one_for_all_that_do_the_same(job: ShownJob) -> None:
    job.say(role(members=16))
    job.stand(0, range(8))
    job.stand(1, range(8, 16), "reward")
    few = shown(job).output
    job.stand(2, range(16, 24), "reward")
    many = shown(job).output

    assert len(re.findall(r"^  rank \d+ +actor +step 41 ", few, re.MULTILINE)) == 16
    assert re.search(r"8 ranks: 0-7 +actor +step 41 +actor_update for up to 3.0 s", many)
    assert re.search(r"16 ranks: 8-23 +actor +step 41 +reward for up to 3.0 s", many)


def test_what_actors_of_ray_do_is_shown_and_whoever_has_no_rank_is_late_by_its_host(job: ShownJob) -> None:
    late = Latecomer(None, "node-0", "actor_update", 3.0)
    job.say(role("actor", members=2), role("rollout", members=2, late=(late,)))
    job.stand(0, range(2), part="WorkerDict_0:1", under="ray")
    output = shown(job).output

    assert "rank 1  actor  step 41  actor_update for 3.0 s" in output
    assert "late: a process of node-0 by 3.00 s in actor_update" in output


def test_who_has_not_been_seen_for_long_is_marked(job: ShownJob) -> None:
    job.say(role())
    job.stand(0, range(4), ago_s=90.0)

    assert "seen 90 s ago" in shown(job).output


def test_losses_silent_hosts_and_where_figures_go_are_said(job: ShownJob) -> None:
    job.say(
        role(), hosts=9, silences=5, silent=tuple(f"node-{n}" for n in range(5)), missed_rows=1_200, dropped_batches=1,
        notes=("metrics at http://127.0.0.1:9465/metrics",),
    )  # fmt: skip
    output = shown(job).output

    assert "5 hosts silent for a minute or more: node-0, node-1, node-2, node-3, …" in output
    assert "never reached who judges: 1,200 sums of stages and 1 batch" in output
    assert "metrics at http://127.0.0.1:9465/metrics" in output


def test_a_job_that_hangs_says_so_first_and_where_its_page_is(job: ShownJob) -> None:
    job.say(role())
    name = "20261124T101500.000"
    incident = Incident(name, time.time_ns() - 10**10, "hang", "reward", HOSTILE, 3, details={"who": "rank 3"})
    leave(job, incident)
    hanging = shown(job).output.splitlines()
    over = incident._replace(over_ns=time.time_ns())
    leave(job, over)

    assert hanging[2].startswith("! rank 3 hung in ")
    assert "\x1b" not in hanging[2]
    assert f"incidents/{name}/incident.txt" in "".join(line.strip() for line in hanging[3:6])
    assert "hung" not in shown(job).output


def test_a_hang_lasts_until_now_and_is_not_hidden_by_an_incident_that_somebody_asks_for(job: ShownJob) -> None:
    job.say(role())
    began_ns = time.time_ns() - 1300 * 10**9
    details = {"who": "rank 3"}
    hang = Incident(
        "20261124T101500.000", began_ns + 30 * 10**9, "hang", "reward", "score", 3, since_ns=began_ns, details=details
    )
    asked = Incident("20261124T103500.000", time.time_ns() - 10**10, "request")
    for incident in (hang, asked):
        leave(job, incident)
    hanging = shown(job).output.splitlines()
    over = hang._replace(over_ns=time.time_ns())
    leave(job, over)
    asked_only = shown(job).output

    assert hanging[2] == "! rank 3 hung in score of reward for 21 min"
    assert "hung" not in asked_only


def test_of_a_hang_no_share_of_a_step_is_lost_as_there_is_no_step_any_more(job: ShownJob) -> None:
    job.say(role())
    job.blame(verdict(kind="hang", impact_ratio=1.0))
    output = shown(job).output

    assert "nothing goes on" in output
    assert "100 %" not in output


def test_a_run_of_which_nothing_has_come_says_what_to_look_at(job: ShownJob) -> None:
    done = shown(job)

    assert done.exit_code == 0
    assert "nothing to judge yet" in done.output
    assert f"mstxkit status {job.run}" in done.output


def test_names_out_of_files_drive_no_terminal(job: ShownJob) -> None:
    stages = (HOSTILE, "actor_update")
    job.say(role(HOSTILE, stages=stages), silences=1, silent=(HOSTILE,), notes=(HOSTILE,))
    job.blame(verdict(stage=HOSTILE, role=HOSTILE, waits_for=HOSTILE, next=HOSTILE, request=HOSTILE))
    job.stand(0, range(3), HOSTILE, role=HOSTILE)
    output = shown(job).output

    assert "\x1b" not in output
    assert "\u202e" not in output
    assert "\\x1b[2Jx" in output


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"format":1,"run":"x"}', b'{"format":1,"roles":[[],{}]}'])
def test_a_damaged_file_of_the_judge_is_as_none(job: ShownJob, content: bytes) -> None:
    job.say(role())
    (job.run / "verdicts/job.json").write_bytes(content)

    assert shown(job).exit_code == 0


def test_values_that_nobody_could_have_measured_are_left_out(job: ShownJob) -> None:
    job.say(role())
    file = job.run / "verdicts/job.json"
    document = json.loads(file.read_text())
    document["roles"][0].update(step=-1, members=1 << 70, wait_ratio=1e400, begin_ns="x", late=[{"late_s": -1}])
    document["roles"][0]["stages"][0].update(max_s=float("nan"), median_s=[], slowest_rank=1 << 40)
    file.write_text(json.dumps(document))

    assert shown(job).exit_code == 0


def test_a_terminal_without_unicode_gets_bars_of_ascii(job: ShownJob) -> None:
    job.say(role(stages=("a_stage_with_a_name_that_is_longer_than_its_column", "actor_update")))
    paper = Paper(80, 40, True, "exp7", str(job.run))
    drawn = "\n".join(line.plain for line in picture(job, paper))

    assert drawn.isascii()
    assert "#-" in drawn
    assert "~" in drawn


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (40, 10), (200, 60), (80, 5)])
def test_the_picture_fits_the_terminal_however_large_the_job_is(job: ShownJob, columns: int, rows: int) -> None:
    stages = tuple(f"stage_{number}" * 5 for number in range(60))
    job.say(*(role(f"role {number}", stages=stages) for number in range(9)), silences=1, silent=("x",), missed_rows=1)
    job.blame(*(verdict(id=str(number)) for number in range(9)))
    for host in range(4):
        job.stand(host, range(8 * host, 8 * host + 8), f"stage {host}")
    drawn = picture(job, Paper(columns, rows, False, "exp7", "x"))

    assert len(drawn) <= rows
    assert max(line.cell_len for line in drawn) <= columns
    assert "rank 3" in drawn[2].plain, "who is blamed comes first"


@pytest.mark.parametrize("columns", [60, 80])
def test_a_narrow_terminal_cuts_off_neither_the_slowest_nor_whether_it_is_of_now(job: ShownJob, columns: int) -> None:
    job.say(role())
    incident = Incident("20261124T101500.000", time.time_ns(), "killed", details={"who": "rank 3"})
    leave(job, incident)
    paper = Paper(columns, 24, False, "grpo-qwen2.5-7b-with-a-long-name-of-its-own-retry-3", "x")
    drawn = [line.plain.rstrip() for line in picture(job, paper)]

    assert re.fullmatch(r"grpo-.*…? · step 41 · judged .* ago", drawn[0])
    assert any(line.endswith(incident.page) for line in drawn[3:5])
    assert any(re.search(r"actor_update .* rank 3$", line) for line in drawn)


def test_a_job_that_is_started_anew_is_not_over(job: ShownJob) -> None:
    """Its models are loaded for minutes before the first stage of a step."""
    job.say(role(), is_final=True, ended=2, written_ns=time.time_ns() - 10**12)
    job.stand(0, range(3))

    assert LiveReader(job.run, job.run_id).look().by != Judges.OVER


def test_what_the_job_was_at_its_end_is_shown_as_over(job: ShownJob) -> None:
    job.say(role(), is_final=True, ended=2)
    job.stand(0, range(3))
    output = shown(job).output

    assert "the job is over since" in output
    assert "rank 0 " not in output, "nobody is anywhere now"


def test_where_the_judge_has_died_the_job_is_judged_here_and_nothing_is_written(job: ShownJob) -> None:
    job.say(role(), written_ns=time.time_ns() - 10**12)
    before = sorted(job.run.rglob("*"))
    live_state = LiveReader(job.run, job.run_id).look()

    assert live_state.by == Judges.NOBODY
    assert sorted(job.run.rglob("*")) == before


class Terminal:
    """A terminal of 80 columns and 24 rows, and `top` in it."""

    def __init__(self, run: Path) -> None:
        import fcntl
        import termios

        self.own, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before = termios.tcgetattr(theirs)
        env = {**os.environ, "TERM": "xterm", "PYTHONPATH": str(ROOT), "MSTXKIT_JUDGE": "0"}
        env = {key: value for key, value in env.items() if key not in ("COLUMNS", "LINES")}
        command = [sys.executable, "-m", "mstxkit", "top", str(run)]
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=env, start_new_session=True
        )
        self.theirs, self.output = theirs, ""

    def until(self, text: str, within_s: float = 60.0) -> None:
        deadline = time.monotonic() + within_s
        while text not in self.output:
            assert time.monotonic() < deadline, self.output
            if select.select([self.own], [], [], 0.2)[0]:
                self.output += os.read(self.own, 65536).decode("utf-8", "replace")

    def mode(self) -> Any:
        import termios

        return termios.tcgetattr(self.theirs)

    def close(self) -> None:
        self.process.kill()
        self.process.wait(30)
        os.close(self.own)
        os.close(self.theirs)


@pytest.fixture
def terminal(job: ShownJob) -> Iterator[Terminal]:
    job.say(role(), written_ns=time.time_ns() + 10**10)
    opened = Terminal(job.run)
    yield opened
    opened.close()


ALTERNATE, NORMAL, CURSOR = "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h"


@pytest.mark.parametrize("way", ["q", "ctrl-c", "term"])
def test_the_terminal_is_as_it_was_however_it_is_ended(terminal: Terminal, way: str) -> None:
    terminal.until("q quits")
    ended_by = {"q": lambda: os.write(terminal.own, b"q"), "ctrl-c": lambda: _signal(terminal, signal.SIGINT)}
    ended_by.get(way, lambda: _signal(terminal, signal.SIGTERM))()
    terminal.until(NORMAL)
    status = terminal.process.wait(30)

    assert status == (143 if way == "term" else 0)
    assert terminal.mode() == terminal.before
    assert ALTERNATE in terminal.output
    assert terminal.output.rstrip().endswith(CURSOR) or CURSOR in terminal.output
    assert "Traceback" not in terminal.output


def _signal(terminal: Terminal, number: int) -> None:
    terminal.process.send_signal(number)


def test_when_the_job_ends_its_last_picture_stays_on_the_screen(terminal: Terminal, job: ShownJob) -> None:
    terminal.until("q quits")
    job.say(role(step=99), is_final=True)
    terminal.until("the job is over")

    assert terminal.process.wait(30) == 0
    assert "step 99" in terminal.output.rpartition(NORMAL)[2]


def test_a_run_that_is_removed_under_it_is_said_to_be_gone(terminal: Terminal, job: ShownJob) -> None:
    terminal.until("q quits")
    shutil.rmtree(job.run)
    terminal.until("is gone: somebody has removed it")

    assert terminal.process.wait(30) == 1
    assert terminal.mode() == terminal.before
