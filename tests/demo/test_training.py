"""The training itself, in real processes under capture: it learns, and its mishaps can be read in the run."""

from __future__ import annotations

import html
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from builders import soak, torch_traces, trace_processor
from builders.judged_runs import verdict

torch = pytest.importorskip("torch")
pl = pytest.importorskip("polars")

from typer.testing import CliRunner  # noqa: E402

from mstxkit.cli import build_application  # noqa: E402
from mstxkit.demo import launch  # noqa: E402
from mstxkit.demo.launch import DemoOutcome, DemoPlan, Escalated, Learning, run_ranks  # noqa: E402
from mstxkit.demo.policy import PolicyNet  # noqa: E402
from mstxkit.demo.rank import SLOW_GRADIENT_S, SLOW_TOKEN_S, slow_down_behind_barrier  # noqa: E402
from mstxkit.demo.task import draw_prompts  # noqa: E402
from mstxkit.reading.run import open_run  # noqa: E402
from mstxkit.store import verdicts as kinds  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
STAGES = {
    "resharding",
    "actor_generate",
    "actor_compute_log_prob",
    "reference_compute_log_prob",
    "reward",
    "actor_update",
}
FATAL_STEP = 3  # of five
LINES_AT_MOST = 20
TOKENS = 6  # of a response
# Ten to warm up, some until it is sure, and more for the request while it still trains, on a busy machine too.
STEPS_TO_A_VERDICT = 160
A_CAUSE_COSTS = 0.05  # of a step; the one that is made costs six times as much
MAY_BE_SAID_TOO = {kinds.NOT_ENOUGH_EVIDENCE, kinds.ALL_SLOW}
USES_THE_DOCK = STAGES - {"resharding", "actor_generate"}


@pytest.mark.slow
@pytest.mark.skipif(not soak.is_soaking(), reason="half a minute of training for each seed")
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_reward_triples_within_half_of_the_steps(seed: int, tmp_path: Path) -> None:
    learning = run_ranks(DemoPlan(tmp_path / "run", steps=DemoPlan.steps // 2, seed=seed, every=0)).learning

    assert learning.steps == DemoPlan.steps // 2
    assert learning.ratio >= 3


class Commanded(NamedTuple):
    """A training that the command ran: how that ended, and the run."""

    done: subprocess.CompletedProcess[Any]
    run: Path


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Commanded:
    run = tmp_path_factory.mktemp("killed") / "run"
    return Commanded(_mstxkit("demo", "--ranks", "3", "--steps", "5", "--kill-rank", "1", "--run", str(run)), run)


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Commanded:
    run = tmp_path_factory.mktemp("slow") / "run"
    return Commanded(_mstxkit("demo", "--json", "--steps", "5", "--run", str(run)), run)


def test_every_rank_runs_every_stage_in_every_step(slow: Commanded) -> None:
    stages = open_run(slow.run).stages()

    seen = {(row["rank"], row["step"], row["stage"]) for row in stages.iter_rows(named=True) if row["step"] is not None}
    assert seen == {(rank, step, stage) for rank in range(2) for step in range(5) for stage in STAGES}


def test_recording_the_training_loses_nothing_and_meets_no_fault(slow: Commanded) -> None:
    processes = open_run(slow.run).processes()

    assert processes["rank"].sort().to_list() == [0, 1]
    assert processes["dropped"].sum() + processes["faults"].sum() == 0


def test_stages_fetch_their_input_from_the_dock(slow: Commanded) -> None:
    ranges = open_run(slow.run).ranges()

    dispatched = ranges.filter(pl.col("name") == "dispatch_transfer_dock_data")
    assert set(dispatched["stage"].drop_nulls()) == USES_THE_DOCK
    assert not ranges["error"].any()
    assert not ranges["open"].any()


def test_stages_say_how_much_work_they_did(slow: Commanded) -> None:
    generated = open_run(slow.run).ranges().filter(pl.col("name") == "actor_generate")

    assert json.loads(generated["attributes"][0]) == {"prompts": 16, "group": 8, "tokens": 16 * 8 * 6}


@pytest.mark.days("even")
def test_survivors_of_a_killed_rank_close_their_ranges_with_error_and_end_cleanly(killed: Commanded) -> None:
    run = open_run(killed.run)
    ranges = run.ranges().filter(pl.col("rank") != 1)

    failed = {(row["rank"], row["name"]) for row in ranges.filter(pl.col("error")).iter_rows(named=True)}
    states = {row["rank"]: row["state"] for row in run.processes().iter_rows(named=True)}
    assert states == {0: "ended", 1: "killed", 2: "ended"}
    assert failed >= {(rank, name) for rank in (0, 2) for name in ("actor_update", "all_reduce_gradients")}
    assert not ranges["open"].any()


@pytest.mark.days("even")
def test_the_killed_rank_is_seen_inside_of_what_it_died_in(killed: Commanded) -> None:
    still_open = open_run(killed.run).ranges().filter(pl.col("open"))

    assert set(still_open["rank"]) == {1}
    assert set(still_open["name"]) == {"actor_update", "forward_backward"}
    assert set(still_open["step"]) == {FATAL_STEP}


@pytest.mark.days("even")
def test_the_report_says_inside_what_the_victim_died(killed: Commanded) -> None:
    text = _mstxkit("report", str(killed.run)).stdout

    # By which signal is known where the watchman had begun by then.
    assert re.search(r"rank 1 was killed( by SIGKILL)? in forward_backward of actor_update, in step 3", text)


def test_the_report_names_the_rank_that_took_longest_and_the_slow_one_took_its_time(slow: Commanded) -> None:
    report = json.loads(_mstxkit("report", str(slow.run), "--json").stdout)
    generated = open_run(slow.run).stages().filter((pl.col("stage") == "actor_generate") & pl.col("step").is_not_null())
    steady = generated.filter(~pl.col("step").is_in(report["warm_up"]))
    took_ns = dict(steady.group_by("rank").agg(pl.col("total_ns").sum()).iter_rows())

    slowest = {stage["stage"]: stage["slowest"]["rank"] for stage in report["stages"]}
    assert report["warm_up"] == [0, 1]
    assert slowest["actor_generate"] == max(took_ns, key=lambda rank: took_ns[rank])
    assert took_ns[1] >= 3 * TOKENS * SLOW_TOKEN_S * 1e9


def test_the_command_prints_one_json_document_and_leaves_a_page(slow: Commanded) -> None:
    document = json.loads(slow.done.stdout)
    assert slow.done.returncode == 0
    assert (document["steps"], document["exit_codes"], document["slow_rank"]) == (5, [0, 0], 1)
    assert document["escalated"]["verdict"] is None
    assert document["page"] == str(slow.run / "report.html")


@pytest.mark.skipif(not trace_processor.CAN_BE_HERE, reason="no wheels of the trace processor's for this")
def test_its_trace_has_every_stage_for_perfetto(slow: Commanded, tmp_path: Path) -> None:
    _mstxkit("export", str(slow.run), "--to", "perfetto", "-o", str(tmp_path / "trace"))
    query = "select count(*) as count from slice where name = 'actor_generate'"

    assert trace_processor.query((tmp_path / "trace").read_bytes(), query) == [[{"count": 2 * 5}]]


def test_the_command_says_what_happened_and_what_to_open(killed: Commanded) -> None:
    done = killed.done

    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) <= LINES_AT_MOST and not done.stderr
    assert any(line.startswith("Rank 1 was killed (SIGKILL) in step 3") for line in lines)
    assert "No profile was asked for: the training was over before a verdict blamed a rank." in lines
    assert f"The page: {killed.run / 'report.html'}" in lines
    (verdict,) = (line.partition("Verdict: ")[2] for line in lines if line.startswith("Verdict: "))
    assert verdict in html.unescape((killed.run / "report.html").read_text())


def test_the_commands_to_try_next_work(killed: Commanded) -> None:
    lines = killed.done.stdout.splitlines()
    commands = [shlex.split(line) for line in lines[lines.index("Try next:") + 1 :]]
    ended = [subprocess.run([*words, "--help"], cwd=ROOT, capture_output=True, text=True) for words in commands]
    report = subprocess.run(commands[1], cwd=ROOT, capture_output=True, text=True)

    assert len(commands) == 3 and {done.returncode for done in ended} == {0}
    assert (report.returncode, report.stderr) == (1, ""), "a rank was killed"


@pytest.mark.days("odd")
def test_with_verbose_it_says_everything(slow: Commanded, tmp_path: Path) -> None:
    done = _mstxkit("demo", "--steps", "5", "--verbose", "--run", str(tmp_path / "run"))

    assert "step    0  reward" in done.stdout
    assert "ranges, longest first" in done.stdout
    assert not (tmp_path / "run" / launch.LOG).exists()


TAKEN = {"rank": 1, "state": "done", "reason": "", "step": 7, "folder": None}
ASKED = Escalated(verdict(request="abcdef"), "", (TAKEN,))
OVER = {**TAKEN, "rank": 0, "state": "expired", "reason": "no step was agreed", "step": None}
EXPIRED = ASKED._replace(profiles=(*ASKED.profiles, OVER))


@pytest.mark.parametrize(("escalated", "code"), [(EXPIRED, 1), (ASKED, 0), (None, 0)])
def test_the_command_ends_with_1_if_what_it_asked_for_was_not_recorded(
    escalated: Escalated | None, code: int, slow: Commanded, monkeypatch: pytest.MonkeyPatch
) -> None:
    learning = Learning(5, 0.1, 0.3)
    monkeypatch.setattr(launch, "run_ranks", lambda plan: DemoOutcome(plan, (0, 0), learning, 1.0, escalated))
    monkeypatch.setattr(DemoPlan, "check", lambda plan: None)

    few = CliRunner().invoke(build_application(), ["demo", "--run", str(slow.run)])
    done = CliRunner().invoke(build_application(), ["demo", "--run", str(slow.run), "--verbose"])

    assert (few.exit_code, done.exit_code) == (code, code), done.output
    assert len(few.output.splitlines()) <= LINES_AT_MOST
    for output in (few.output, done.output):
        assert ("  rank 0, a healthy peer: expired: no step was agreed" in output) == (code == 1)
        assert ("  rank 1: taken in step 7" in output) == (escalated is not None)


class Found(NamedTuple):
    """What the command says of a training long enough for a verdict: its JSON document, and how it ended."""

    code: int
    document: dict[str, Any]


@pytest.fixture(scope="module", params=soak.rounds([["--hidden"], []], [["--hidden"]]), ids=" ".join)
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Found:
    run = tmp_path_factory.mktemp("found") / "run"
    done = _mstxkit("demo", "--json", "--steps", str(STEPS_TO_A_VERDICT), "--run", str(run), *request.param)
    return Found(done.returncode, json.loads(done.stdout))


@pytest.mark.days("even")
@pytest.mark.slow
def test_the_verdict_on_the_slow_rank_has_its_slow_stage_profiled_by_itself_and_a_healthy_peer_s(found: Found) -> None:
    escalated = found.document["escalated"]

    stage = "actor_update" if found.document["hidden"] else "actor_generate"
    assert (escalated["verdict"]["rank"], escalated["verdict"]["stage"]) == (1, stage)
    assert [(of["rank"], of["state"]) for of in escalated["profiles"]] == [(1, "done"), (0, "done")]
    run, asked = Path(found.document["run"]), escalated["verdict"]["request"]
    assert [torch_traces.ranges_of(run, asked, stage, rank) for rank in (1, 0)] == [1, 1]
    assert len({of["step"] for of in escalated["profiles"]}) == 1
    assert found.code == 0


@pytest.mark.days("even")
@pytest.mark.slow
def test_its_report_blames_the_slow_rank_and_says_that_the_other_one_waits_for_it(found: Found) -> None:
    report = found.document["report"]
    update = next(stage for stage in report["stages"] if stage["stage"] == "actor_update")

    # On a machine that others use too everybody may well be slow, and one rank get less of it than the other.
    causes = [said for said in report["verdicts"] if said["kind"] not in MAY_BE_SAID_TOO]
    assert causes[0]["rank"] == 1
    assert {said["rank"] for said in causes if said["impact_ratio"] >= A_CAUSE_COSTS} == {1}
    assert {row["rank"]: row["waits_for"] and row["waits_for"]["rank"] for row in update["ranks"]} == {0: 1, 1: None}
    assert update["slowest"]["rank"] == 1


def test_behind_the_barrier_every_gradient_of_the_slow_rank_takes_longer_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []
    monkeypatch.setattr("mstxkit.demo.rank.time.sleep", slept.append)
    policy = PolicyNet()
    slow_down_behind_barrier(SimpleNamespace(policy=policy))  # type: ignore[arg-type]
    prompts = draw_prompts(2, torch.Generator().manual_seed(0))
    with torch.no_grad():
        policy(prompts)
    loss = policy(prompts).mean()
    before = list(slept)

    loss.backward()

    assert (before, slept) == ([], [SLOW_GRADIENT_S])


def _mstxkit(*words: str) -> subprocess.CompletedProcess[Any]:
    environment = {**os.environ, "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, "-m", "mstxkit", *words], cwd=ROOT, env=environment, capture_output=True, text=True
    )
