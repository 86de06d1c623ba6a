"""`mstxkit top --once`, `--follow` and `--set`: verdicts on a run, by the command itself where nobody else judges."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Iterator

import pytest

pytest.importorskip("numpy")
typer_testing = pytest.importorskip("typer.testing")

import mstxkit.cli  # noqa: E402
from mstxkit.cli import top as verb  # noqa: E402
from mstxkit.judging import run_judge as judge_module  # noqa: E402
from mstxkit.judging import watching  # noqa: E402
from mstxkit.store import batches, job_file, layout, run_file, settings_file, verdicts  # noqa: E402
from mstxkit.store.batches import HandingProcess  # noqa: E402
from mstxkit.store.job_file import JobState  # noqa: E402
from mstxkit.store.settings_file import Figures  # noqa: E402
from mstxkit.store.summaries import StageSummary  # noqa: E402
from mstxkit.store.verdicts import COMPUTE, HANG, LINK, Verdict  # noqa: E402

MS = 10**6
HOSTILE = "\x1b[2Jx\u202e<b>"


class Watched:
    """A run whose hosts have handed over steps; rank 1 of three is slow."""

    def __init__(self, folder: Path) -> None:
        self.run, self.run_id = run_file.open_run_folder(folder / "run")

    def hand_over(
        self, steps: int, slow: int = 1, role: str = "actor", host: str = "h0", ago_s: float = 100.0,
        alone_from: int = 1000,
    ) -> None:  # fmt: skip
        (self.run / layout.SUMMARIES).mkdir(exist_ok=True)
        began = time.time_ns() - int(ago_s * 1e9)
        stages = ("actor_generate", "actor_update")
        for step in range(steps):
            begin = 10**12 + step * 100 * MS
            processes = [HandingProcess(rank, f"p{rank}", rank, role, stages=stages).as_json() for rank in range(3)]
            head = {
                "run": self.run_id, "host": host, "boot": "b", "sender": "s", "number": step, "processes": processes,
                "clock": [begin + 100 * MS, began + step * 100 * MS, 500],
            }  # fmt: skip
            there = range(3 if step < alone_from else 1)
            parts = [(batches.STAGES, rank, rows(step, rank, slow, begin)) for rank in there]
            with open(self.run / layout.SUMMARIES / f"{host}-0.mxb", "ab") as stream:
                stream.write(batches.encode_batch(head, parts))

    def judged(self, *of: Verdict, who: str = "controller", **figures: Any) -> None:
        (self.run / layout.VERDICTS).mkdir(exist_ok=True, mode=0o700)
        lines = b"".join(verdict.line() for verdict in of)
        (self.run / layout.VERDICTS / f"{who}.jsonl").write_bytes(lines)
        content = Figures(5, **{"written_ns": time.time_ns() + 10**9, **figures}).as_json(self.run_id)
        (self.run / layout.VERDICTS / layout.FIGURES).write_bytes(content)

    def top(self, *words: str) -> Any:
        command = ["top", str(self.run), *words]
        return typer_testing.CliRunner().invoke(mstxkit.cli.build_application("top"), command)


def rows(step: int, rank: int, slow: int, begin: int) -> bytes:
    took = (45 if rank == slow else 30) * MS + (step * 7 + rank * 3) % 5 * MS // 10
    first = StageSummary(step, 1, 1, begin, begin + took, took, None, took, 100)
    second = StageSummary(step, 2, 1, begin + took, begin + 90 * MS, 90 * MS - took, None, 90 * MS - took)
    return first.pack() + second.pack()


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


@pytest.fixture
def judge(watched: Watched) -> Iterator[subprocess.Popen[bytes]]:
    """Somebody else who judges the run: another process, or the lock would be free to us."""
    code = "import sys; from pathlib import Path; from mstxkit.store import judge_lock; "
    code += "judge_lock.take_lock(Path(sys.argv[1])); print(flush=True); sys.stdin.read()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code, str(watched.run)], **pipes) as process:  # type: ignore[call-overload]
        process.stdout.readline()
        yield process
        process.stdin.close()


def test_who_is_slow_is_named_and_the_status_says_so(watched: Watched) -> None:
    watched.hand_over(40)
    done = watched.top("--once")

    assert done.exit_code == 1, done.output
    assert done.output.startswith("Verdict: rank 1 actor computes more slowly than the others in actor_generate: ")
    assert done.output.endswith("\n40 steps judged now, up to step 39, 1 host\n")
    assert [verdict.rank for verdict in verdicts.read_verdicts(watched.run)] == [1], "it is kept in the run"


def test_where_nobody_is_slow_nobody_is_blamed(watched: Watched) -> None:
    watched.hand_over(40, slow=-1)
    done = watched.top("--once")

    nobody = "Verdict: healthy: no rank was seen to make others wait in the 30 steps that were judged."
    assert (done.exit_code, done.output) == (0, f"{nobody}\n40 steps judged now, up to step 39, 1 host\n")


def test_of_a_few_steps_it_says_that_they_are_too_few_to_judge(watched: Watched) -> None:
    watched.hand_over(15, slow=-1)
    done = watched.top("--once")
    document = json.loads(watched.top("--once", "--json").output)

    assert done.output.startswith("Verdict: too few steps to judge who makes others wait: 5 count, 20 are needed.")
    assert done.output.endswith("\n15 steps judged now, up to step 14, 1 host\n")
    assert (done.exit_code, document["judged_steps"]) == (0, [5])


@pytest.mark.parametrize(
    ("alone_from", "words"),
    [(38, "healthy: no rank was seen"), (0, "not judged: no two ranks have finished a step together")],
)
def test_whether_ranks_were_compared_is_not_said_by_the_last_step_alone(
    watched: Watched, alone_from: int, words: str
) -> None:
    """The steps of one rank may be counted further than those of the others, or it may end after them."""
    watched.hand_over(40, slow=-1, alone_from=alone_from)

    assert watched.top("--once").output.startswith(f"Verdict: {words}")


def test_where_no_step_is_counted_it_says_so(watched: Watched) -> None:
    watched.hand_over(0, slow=-1)
    (watched.run / layout.SUMMARIES / "h0-0.mxb").write_bytes(
        batches.encode_batch({"run": watched.run_id, "host": "h0"}, [])
    )

    assert watched.top("--once").output.startswith("Verdict: nothing was recorded: no range has ended in any process")


def test_while_somebody_judges_his_word_is_shown_and_nothing_written(watched: Watched, judge: None) -> None:
    watched.hand_over(40)
    watched.judged(Verdict("a", 5, 30, COMPUTE, "reward", 7))
    done = watched.top("--once")

    assert done.exit_code == 1
    assert "rank 7 takes longer than the others in reward" in done.output
    assert "rank 1" not in done.output
    assert [file.name for file in sorted((watched.run / layout.VERDICTS).glob("*.jsonl"))] == ["controller.jsonl"]


def test_what_was_judged_to_its_end_is_not_judged_again(watched: Watched) -> None:
    watched.hand_over(40)
    watched.judged(Verdict("a", 5, 30, COMPUTE, "reward", 7), is_final=True)

    assert "as judged while it ran" in watched.top("--once").output


def test_of_what_a_judge_has_left_without_a_word_on_steps_it_says_no_word_on_them(watched: Watched) -> None:
    """As older ones did, and those whose job.json is of a newer form."""
    watched.hand_over(40, slow=-1)
    watched.judged(is_final=True)
    done, document = watched.top("--once"), json.loads(watched.top("--once", "--json").output)

    assert done.output.startswith("Verdict: healthy: no rank was seen to make others wait.\nas judged while it ran")
    assert document["judged_steps"] == [None]


def test_a_judge_that_was_killed_leaves_its_verdicts_and_what_came_since_is_judged(watched: Watched) -> None:
    watched.hand_over(40)
    watched.judged(_left())
    done = watched.top("--once", "--json")
    document = json.loads(done.stdout)

    assert document["steps"] == 40
    assert [verdict["id"] for verdict in document["verdicts"]] == ["a"], "the same verdict goes on"


def test_one_that_was_cut_off_and_goes_on_beside_its_successor_changes_nothing(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both judge the run, as where a network was cut, and the lock of the first one is gone."""
    monkeypatch.setattr(judge_module, "_LIFE_EVERY_S", 0.0)
    watched.hand_over(40)
    cut_off = judge_module.RunJudge(watched.run, watched.run_id, "controller")
    cut_off.look()
    cut_off.judge(time.time(), at_once=True)
    cut_off.close()
    before = verdicts.read_verdicts(watched.run)
    successor = judge_module.RunJudge(watched.run, watched.run_id, "controller")
    successor.look()

    cut_off._said(before[0]._replace(time_ns=time.time_ns() + 10**12, withdrawn="it is long gone"))
    cut_off._said(before[0]._replace(id="other", rank=2))
    cut_off._write()
    successor.judge(time.time(), at_once=True)
    successor.close()
    figures = settings_file.read_figures(watched.run / layout.VERDICTS / layout.FIGURES, watched.run_id)
    cut_off.close()

    assert [(verdict.rank, verdict.withdrawn) for verdict in verdicts.read_verdicts(watched.run)] == [(1, "")]
    assert figures == settings_file.read_figures(watched.run / layout.VERDICTS / layout.FIGURES, watched.run_id)
    names = sorted(file.name for file in (watched.run / layout.VERDICTS).glob("*.jsonl"))
    assert names == ["controller.0001.jsonl", "controller.0002.jsonl"]


def _left() -> Verdict:
    return Verdict("a", 5, 30, COMPUTE, "actor_generate", 1, "actor", 12)


def test_what_is_in_no_step_names_none(watched: Watched) -> None:
    watched.hand_over(40)
    watched.judged(Verdict("hang-1", 5, None, HANG, "reward", 1, "actor"), who="hang-h0")

    assert watched.top("--once").output.startswith("Verdict: rank 1 actor hangs in reward: nothing goes on.")


def test_of_a_group_that_is_too_long_to_be_named_it_is_said_how_many_it_has(watched: Watched) -> None:
    watched.hand_over(40, host="h0")
    watched.judged(Verdict("a", 5, 3, LINK, "reward", group=tuple(range(0, 10_240, 64))), who="other")
    watched.judged(Verdict("b", 5, 3, LINK, "reward", group=(0, 1, 2, 9)), who="another")
    said = " ".join(watched.top("--once").output.split())

    assert "a link of 160 ranks: 0,64,128," in said
    assert "a link of ranks 0-2,9 is slow in reward" in said


def test_a_run_that_may_only_be_read_is_judged_all_the_same(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    watched.hand_over(40)

    def refuse(*_: Any) -> None:
        raise PermissionError(13, "read only")

    monkeypatch.setattr("mstxkit.host.folders.make_folder", refuse)
    done = watched.top("--once")

    assert "rank 1 actor computes more slowly" in done.output
    assert not (watched.run / layout.VERDICTS).exists()


def test_a_job_that_is_over_is_not_followed_for_ever(watched: Watched) -> None:
    watched.hand_over(40)
    watched.judged(Verdict("a", 5, 30, COMPUTE, "reward", 7), is_final=True)
    job_file.write_state(watched.run, watched.run_id, JobState(is_final=True, written_ns=time.time_ns() + 10**9))
    done = watched.top("--follow")

    assert done.exit_code == 1
    assert "rank 7 takes longer than the others in reward" in done.output
    assert "as judged while it ran" in done.output


@pytest.mark.parametrize("words", [("top", "--once"), ("report",)], ids=" ".join)
def test_in_the_second_in_which_a_job_ends_every_command_awaits_its_judges_last_word(
    watched: Watched, judge: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """What was said of it a moment before, or what the tables show alone, is not said: rank 1 is slow in these."""
    watched.hand_over(40)

    def say_it(_: float) -> None:
        watched.judged(Verdict("a", 5, 30, COMPUTE, "reward", 7), is_final=True)
        assert judge.stdin is not None
        judge.stdin.close()
        judge.wait()

    monkeypatch.setattr("mstxkit.reading.judged.time", SimpleNamespace(monotonic=time.monotonic, sleep=say_it))
    command = [words[0], str(watched.run), *words[1:]]
    done = typer_testing.CliRunner().invoke(mstxkit.cli.build_application(words[0]), command)

    assert "Verdict: rank 7 takes longer than the others in reward" in done.output, done.output


def test_nor_is_one_that_nobody_has_judged(tmp_path: Path) -> None:
    code = "import mstxkit; mstxkit.capture('run', judge=0); mstxkit.step(); mstxkit.stage('reward').__enter__()"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    command = [sys.executable, "-m", "mstxkit", "top", "run", "--follow"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)

    assert done.returncode == 0
    assert done.stdout.startswith("Verdict: not judged: no two ranks have finished a step together")


def test_where_nobody_is_blamed_yet_it_says_that_it_goes_on_to_look(watched: Watched) -> None:
    """A terminal that stays empty says nothing about the job."""
    command = [sys.executable, "-m", "mstxkit", "top", str(watched.run), "--follow"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        is_running = process.poll() is None
        process.send_signal(signal.SIGINT)

    assert said == "mstxkit: each verdict is shown as it comes; Ctrl-C ends this\n"
    assert is_running


def test_verdicts_are_followed_as_they_come(watched: Watched) -> None:
    watched.hand_over(40, slow=-1)
    following = watching.follow_verdicts(watched.run, watched.run_id)
    watched.judged(_left()._replace(kind="input"), who="other")

    assert next(following).kind == "input"
    following.close()
    assert os.listdir(watched.run / layout.VERDICTS)


def test_a_hang_that_is_over_is_told_once_by_who_judges_meanwhile(watched: Watched) -> None:
    """It was told by turns that it holds and that it is over, four times a second."""
    watched.hand_over(12)
    first, second = (Verdict(id, 5, 3, HANG, "reward", 1, "actor") for id in ("hang-1", "hang-2"))
    watched.judged(first, who="hang-h0")
    following = watching.follow_verdicts(watched.run, watched.run_id)
    told = [next(following)]
    watched.judged(first._replace(withdrawn="it went on"), who="hang-h0")
    told.append(next(following))
    watched.judged(first._replace(withdrawn="it went on"), second, who="hang-h0")
    told.append(next(following))
    following.close()

    assert [(hang.id, hang.withdrawn) for hang in told] == [("hang-1", ""), ("hang-1", "it went on"), ("hang-2", "")]


def test_as_json_each_verdict_is_one_object_on_one_line_with_a_schema() -> None:
    line = verb._write_line(_left()._replace(next=HOSTILE, waits_for="a\nb"), json=True)

    assert "\n" not in line
    assert line.isascii()
    assert {"schema": 1, "id": "a", "rank": 1}.items() <= json.loads(line).items()


def test_where_figures_cannot_go_is_wrong_use_and_says_what_can(watched: Watched) -> None:
    done = watched.top("--follow", "--metrics", "nonsense")

    assert done.exit_code == 2
    assert "--metrics): one of auto, off" in done.stderr


def test_settings_that_nobody_acknowledges_name_the_host(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    watched.hand_over(3, ago_s=1.0)
    monkeypatch.setattr(watching.change, "__defaults__", (0.3,))
    done = watched.top("--set", "slow_rank.effect=0.15")

    assert done.exit_code == 1
    assert done.output == ("settings 1: 0 hosts have them; nobody judges it now\nnot acknowledged by h0\n")
    assert settings_file.read_settings(watched.run, watched.run_id).values == {"slow_rank.effect": 0.15}


@pytest.mark.parametrize(
    "text", ["slow_rank.effect=-1", "slow_rank.effect=nan", "x=1", "slow_rank.effect", "=", "\x1b=1"]
)
def test_a_setting_that_cannot_be_is_refused_before_anything_is_written(watched: Watched, text: str) -> None:
    done = watched.top("--set", text)

    assert done.exit_code == 2
    assert "\x1b" not in done.stderr
    assert not (watched.run / layout.CONTROL).exists()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"format":1,"run":"x","version":7}'])
def test_a_damaged_file_of_settings_changes_nothing_and_is_replaced(watched: Watched, content: bytes) -> None:
    folder = watched.run / layout.CONTROL
    folder.mkdir(mode=0o700)
    (folder / layout.SETTINGS).write_bytes(content)
    os.chmod(folder / layout.SETTINGS, 0o640)
    watched.hand_over(40)

    assert watched.top("--once").exit_code == 1, "judged as if there were none"
    after = settings_file.change_settings(watched.run, watched.run_id, {"slow_rank.effect": 0.2})
    assert settings_file.read_settings(watched.run, watched.run_id) == after


def test_settings_that_a_newer_version_has_written_are_not_replaced(watched: Watched) -> None:
    folder = watched.run / layout.CONTROL
    folder.mkdir(mode=0o700)
    content = json.dumps({"format": 2, "run": watched.run_id}).encode()
    (folder / layout.SETTINGS).write_bytes(content)
    os.chmod(folder / layout.SETTINGS, 0o640)
    done = watched.top("--set", "slow_rank.effect=0.2")

    assert done.exit_code != 0
    assert (folder / layout.SETTINGS).read_bytes() == content
