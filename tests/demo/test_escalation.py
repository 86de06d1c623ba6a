"""Escalation of a running training, as a user does it: by the command line, while four real ranks train together.

One training is escalated again and again; each test claims one thing of what it left. Nothing waits for a time to
pass: the ranks train until they are told to end.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Iterator, NamedTuple, TypeVar

import pytest

pytest.importorskip("torch")
pytest.importorskip("polars")

from builders import torch_traces
from builders.judged_runs import say, verdict
from builders.raw_profiles import make_msprof

from mstxkit.demo.launch import Escalated, read_escalated
from mstxkit.escalation import asking
from mstxkit.judging.acting import Acting
from mstxkit.judging.escalations import Escalations
from mstxkit.reading.run import open_run
from mstxkit.store import fate
from mstxkit.testing import StandIn
from mstxkit.testing.cann_run import read_calls

pytestmark = [pytest.mark.days("odd"), pytest.mark.slow, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path(__file__).resolve().parents[1] / "builders/rank_that_is_told.py"
DEADLINE_S = 120.0
RANKS = 4
FULL_WITH_MSTX = 0xA7  # torch_npu `csrc/profiler/profiler_mgr.h`: Level1, mstx among it
# The real msprof is at work for seconds; torch_npu 2.13.0 gives up if it takes less than torch_npu takes to look.
MSPROF_S = 1.5
T = TypeVar("T")


class Training:
    """Ranks that train together under capture until `end`.

    Args:
        folder: A new one.
        ranks: How many.
        steps: End after so many; None: when told.
        of_rank: Environment of single ranks, by rank.
    """

    def __init__(
        self, folder: Path, ranks: int, steps: int | None = None, of_rank: dict[int, dict[str, str]] | None = None
    ) -> None:
        self.folder, self.run, self.ranks = folder, folder / "run", ranks
        folder.mkdir(parents=True)
        self.settings = {
            "MSTXKIT_RUN": str(self.run), "MSTXKIT_COOLDOWN_S": "0.1", "MSTXKIT_POLL_EVERY_S": "0.1",
            "MSTXKIT_ACT": "escalate", "MSTXKIT_JUDGE": "0",  # the tests judge
            "WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": str(ROOT),
            "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        }  # fmt: skip
        self.processes = [self._started(rank, steps, (of_rank or {}).get(rank, {})) for rank in range(ranks)]

    def _started(self, rank: int, steps: int | None, settings: dict[str, str]) -> subprocess.Popen[bytes]:
        words = [f"file://{self.folder}/store?rank={rank}&world_size={self.ranks}", str(self.folder)]
        command = [sys.executable, str(SCRIPT), *words, *([] if steps is None else [str(steps)])]
        environment = {**os.environ, **self.settings, "RANK": str(rank), **settings}
        with (self.folder / f"stderr-{rank}").open("w") as errors:
            return subprocess.Popen(command, env=environment, stderr=errors)

    def tell(self, what: str) -> None:
        (self.folder / what).touch()

    def until(self, found: Callable[[], T]) -> T:
        """What it gives once that is true. A rank that ended before its time is an error at once."""
        deadline_s = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline_s:
            value = found()
            if value:
                return value
            assert all(process.poll() in (None, -signal.SIGKILL) for process in self.processes), self.errors()
            time.sleep(0.05)
        raise AssertionError(f"it took more than {DEADLINE_S:.0f} s; {self.errors()}")

    def errors(self) -> str:
        return "\n".join((self.folder / f"stderr-{rank}").read_text()[-2000:] for rank in range(self.ranks))

    def listens(self) -> bool:
        """Can every rank be asked for every stage?"""
        if not (self.run / "run.json").exists():
            return False
        said = fate.read_heard(asking.control_of(self.run))
        return len(said) == self.ranks and all("actor_update" in one.standing.stages for one in said)

    def stood(self, id: str) -> fate.Progress:
        control = asking.control_of(self.run)
        return fate.Fates(fate.read_heard(control)).progress(asking.find_request(control, id))

    def states(self, id: str) -> dict[int, str]:
        """How the request stands on each rank that was asked."""
        return {report.rank: report.state for report in self.stood(id).reports}

    def ended(self, id: str) -> dict[int, str]:
        """The same once it has ended everywhere."""
        self.until(lambda: self.stood(id).has_ended)
        return self.states(id)

    def end(self) -> list[int]:
        """Tell the ranks to end; their exit codes."""
        self.tell("end")
        return [process.wait(DEADLINE_S) for process in self.processes]

    def kill(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()

    def curve(self, rank: int) -> list[str]:
        """A line for each step: reward and KL by every digit, and a digest of every bit of the weights."""
        return (self.folder / f"curve-{rank}.jsonl").read_text().splitlines()

    def sessions(self, id: str | None = None) -> list[dict[str, Any]]:
        """What each session.json says, in the order of their start; `folder`: where it lies."""
        found = [
            {**json.loads(file.read_text()), "folder": file.parent}
            for file in self.run.glob("profiles/**/session.json")
        ]
        return sorted((one for one in found if id in (None, one["request"])), key=lambda one: one["start_ns"])


def mstxkit(*words: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mstxkit", *map(str, words)],
        cwd=ROOT, env={**os.environ, "COLUMNS": "300", **environ}, capture_output=True, text=True,
    )  # fmt: skip


def escalate(training: Training, *words: str) -> str:
    """Ask for something that can be had; its id."""
    done = mstxkit("escalate", training.run, *words, "--json")
    assert done.returncode == 0, done.stderr
    id: str = json.loads(done.stdout)["request"]["id"]
    return id


@dataclass
class Story:
    """What was asked of one training, in this order, and what was seen.

    `ids` and `states` are by a word for each request; `after_first` are all sessions once the first request had ended.
    """

    training: Training
    refused: dict[str, subprocess.CompletedProcess[str]] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    states: dict[str, dict[int, str]] = field(default_factory=dict)
    after_first: list[dict[str, Any]] = field(default_factory=list)
    exit_codes: list[int] = field(default_factory=list)
    waited: subprocess.CompletedProcess[str] | None = None
    demo: Escalated | None = None

    def ask(self, word: str, *words: str) -> str:
        self.ids[word] = escalate(self.training, *words)
        return self.ids[word]

    def asked_to_the_end(self, word: str, *words: str) -> None:
        self.states[word] = self.training.ended(self.ask(word, *words))

    def tell(self) -> None:
        training = self.training
        training.until(training.listens)
        self._wrong_ones()
        self.asked_to_the_end("one rank", "--stage", "actor_update", "--ranks", "1", "--steps", "2")
        self.after_first = training.sessions()
        self.asked_to_the_end("two ranks", "--stage", "reward", "--ranks", "1,2", "--steps", "1")
        self._cancelled()
        self._as_the_demo_does()
        training.tell("die-1")
        self.asked_to_the_end("killed", "--stage", "actor_update", "--ranks", "1,2", "--steps", "1")
        self.asked_to_the_end("survivor", "--stage", "actor_update", "--ranks", "0", "--steps", "1")
        survivor = ("--stage", "actor_update", "--ranks", "2", "--steps", "1")
        self.waited = mstxkit("escalate", training.run, *survivor, "--wait", "--analyse")
        self.exit_codes = training.end()

    def _wrong_ones(self) -> None:
        good = {"--stage": "actor_update", "--ranks": "1", "--preset": "full"}
        for option, value in (("--stage", "actor_updat"), ("--ranks", "7"), ("--preset", "everything")):
            words = [word for pair in {**good, option: value}.items() for word in pair]
            self.refused[option] = mstxkit("escalate", self.training.run, *words)

    def _cancelled(self) -> None:
        id = self.ask("cancelled", "--stage", "load_checkpoint", "--ranks", "3")
        self.training.until(lambda: self.training.states(id) == {3: "armed"})
        assert mstxkit("escalate", self.training.run, "--cancel", id[:8]).returncode == 0
        self.states["cancelled"] = self.training.ended(id)

    def _as_the_demo_does(self) -> None:
        control = asking.control_of(self.training.run)
        judge = Escalations(control.path.parent, control.run_id)
        blames = verdict(id="0123456789abcdef", kind="compute", stage="reward", rank=2, impact_ratio=0.99, group=())
        said = list(judge.consider([blames], Acting(), time.time_ns()))
        say(self.training.run, *said)
        self.training.ended(next(one.request for one in said if one.request))
        self.demo = read_escalated(self.training.run)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    training = Training(tmp_path_factory.mktemp("escalated") / "new", RANKS)
    try:
        story = Story(training)
        story.tell()
        yield story
    finally:
        training.kill()


@pytest.fixture(scope="module")
def untouched(story: Story, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Training]:
    """The same training without a request, for as long as the first one took, and a little more."""
    steps = story.after_first[-1]["step"] + 4
    training = Training(tmp_path_factory.mktemp("untouched") / "new", RANKS, steps)
    try:
        assert [process.wait(DEADLINE_S) for process in training.processes] == [0] * RANKS, training.errors()
        yield training
    finally:
        training.kill()


def test_an_escalated_stage_is_recorded_on_that_rank_in_that_many_steps(story: Story) -> None:
    sessions = story.after_first

    assert story.states["one rank"] == {1: "done"}
    assert [(one["stage"], one["rank"], one["state"], one["problems"]) for one in sessions] == [
        ("actor_update", 1, "recorded", [])
    ] * 2
    assert sessions[1]["step"] == sessions[0]["step"] + 1
    assert [one["steps"] for one in sessions] == [[one["step"]] for one in sessions]


def test_its_traces_hold_the_range_of_the_stage_once_for_each_occurrence_and_no_other_stage(story: Story) -> None:
    for session in story.after_first:
        trace = session["folder"] / session["output"]
        names = [one.get("name") for one in json.loads(trace.read_text())["traceEvents"] if one.get("ph") == "X"]

        assert names.count("actor_update") == 1
        assert names.count("forward_backward") == 4  # one for each mini-batch
        assert not {"actor_generate", "resharding", "reward"} & set(names)


def test_the_other_ranks_are_untouched(story: Story) -> None:
    profiles = story.training.run / "profiles" / "actor_update"
    first = {one["folder"].relative_to(profiles).parts[1] for one in story.after_first}

    assert first == {"rank1"}
    assert {one["request"] for one in story.after_first} == {story.ids["one rank"]}


def test_the_training_is_bit_identical_to_one_without_escalation(story: Story, untouched: Training) -> None:
    for rank in range(RANKS):
        plain = untouched.curve(rank)

        assert len(plain) > story.after_first[-1]["step"]
        assert story.training.curve(rank)[: len(plain)] == plain


def test_nothing_is_recorded_where_nobody_asks(untouched: Training) -> None:
    assert not (untouched.run / "profiles").exists()
    assert untouched.sessions() == []


@pytest.mark.parametrize(
    ("option", "complaint"),
    [
        ("--stage", ("actor_updat", "actor_generate", "actor_update", "load_checkpoint")),
        ("--ranks", ("7", "0 to 3")),
        ("--preset", ("everything", "comm", "deep", "full", "kernels", "light", "memory")),
    ],
)
def test_what_the_run_does_not_know_is_refused_at_once_with_what_it_knows(
    option: str, complaint: tuple[str, ...], story: Story
) -> None:
    done = story.refused[option]

    assert done.returncode == 2
    assert [word for word in complaint if word not in done.stderr] == []


def test_ranks_that_are_asked_together_record_the_same_step(story: Story) -> None:
    sessions = story.training.sessions(story.ids["two ranks"])

    assert story.states["two ranks"] == {1: "done", 2: "done"}
    assert {one["rank"] for one in sessions} == {1, 2}
    assert len({one["step"] for one in sessions}) == 1


def test_a_request_that_is_cancelled_while_it_is_armed_records_nothing(story: Story) -> None:
    assert story.states["cancelled"] == {3: "cancelled"}
    assert story.training.sessions(story.ids["cancelled"]) == []


def test_a_rank_that_is_killed_while_it_records_has_failed_and_the_others_go_on(story: Story) -> None:
    sessions = {one["rank"]: one["state"] for one in story.training.sessions(story.ids["killed"])}

    assert story.states["killed"] == {1: "failed", 2: "done"}
    assert sessions == {1: "recording", 2: "recorded"}
    assert story.states["survivor"] == {0: "done"}
    assert story.exit_codes == [0, -signal.SIGKILL, 0, 0]


def test_the_tables_of_the_run_say_what_became_of_each_request(story: Story) -> None:
    found = open_run(story.training.run).escalations()

    told: dict[str, dict[int, str]] = {}
    for row in found.iter_rows(named=True):
        told.setdefault(row["request"], {})[row["rank"]] = row["state"]
    assert {id: told[id] for id in story.ids.values()} == {story.ids[word]: story.states[word] for word in story.ids}


def test_the_demo_shows_the_verdict_the_request_that_it_made_and_the_traces_of_suspect_and_peer(story: Story) -> None:
    found = story.demo

    assert found is not None
    assert found.verdict is not None
    assert (found.verdict.stage, found.verdict.rank) == ("reward", 2)
    assert [(of["rank"], of["state"]) for of in found.profiles] == [(2, "done"), (3, "done")]
    assert len({of["step"] for of in found.profiles}) == 1
    asked = found.verdict.request
    assert [torch_traces.ranges_of(story.training.run, asked, "reward", rank) for rank in (2, 3)] == [1, 1]
    assert len(json.loads(json.dumps(found.profiles))) == 2


def test_one_command_waits_analyses_and_ends_with_how_to_open_the_result(story: Story) -> None:
    done = story.waited

    assert done is not None
    assert done.returncode == 0, done.stderr
    found = re.fullmatch(r"Timeline: open (\S+) in https://ui\.perfetto\.dev", done.stdout.splitlines()[-1])
    assert found, done.stdout
    assert json.loads(Path(found[1]).read_text())["traceEvents"]
    assert Path(found[1]).is_relative_to(story.training.run / "profiles")


def test_training_meets_no_fault(story: Story) -> None:
    processes = open_run(story.training.run).processes()

    assert processes["faults"].sum() == 0


class OnDevice(NamedTuple):
    """A training of two ranks, the calls of its second that reached CANN, and the command that escalated it."""

    training: Training
    log: Path
    waited: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def on_npu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnDevice]:
    """The second rank has the real torch_npu on stand-in CANN, and is escalated in two steps: one command waits for
    that and parses what was recorded.
    """
    folder = tmp_path_factory.mktemp("npu")
    log = folder / "calls.jsonl"
    cann = StandIn.build()
    device = {**cann.environment(log=log, start_bytes=4096), "LOAD_TORCH_NPU": "1"}
    tools = make_msprof(folder / "cann", MSPROF_S).parent
    parses = {**cann.environment(), "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    training = Training(folder / "new", 2, of_rank={1: device})
    try:
        training.until(training.listens)
        words = ("--stage", "actor_update", "--ranks", "1", "--steps", "2", "--wait", "--analyse")
        waited = mstxkit("escalate", training.run, *words, **parses)
        assert waited.returncode == 0, waited.stdout + waited.stderr
        assert training.end() == [0, 0], training.errors()
        yield OnDevice(training, log, waited)
    finally:
        training.kill()


@pytest.mark.days("even")
@pytest.mark.npu
@pytest.mark.skipif(importlib.util.find_spec("torch_npu") is None, reason="needs torch_npu")
def test_with_torch_npu_the_device_is_told_the_stage_exactly_once_an_occurrence(on_npu: OnDevice) -> None:
    training = on_npu.training
    calls = read_calls(on_npu.log)
    starts = [call for call in calls if call.call == "aclprofStart"]
    ranges = [call for call in calls if call.call == "mstxRangeStartA" and call.id]
    ends = [call for call in calls if call.call == "mstxRangeEnd" and call.id]

    assert [(one["backend"], one["rank"], one["state"]) for one in training.sessions()] == [
        ("torch_npu", 1, "recorded")
    ] * 2
    assert [call.types for call in starts] == [FULL_WITH_MSTX] * 2
    assert [call.message for call in ranges].count("actor_update") == 2
    assert [call.message for call in ranges].count("forward_backward") == 2 * 4
    assert "actor_generate" not in {call.message for call in ranges}
    assert sorted(call.id for call in ranges) == sorted(call.id for call in ends)


@pytest.mark.days("even")
@pytest.mark.npu
@pytest.mark.skipif(importlib.util.find_spec("torch_npu") is None, reason="needs torch_npu")
def test_with_torch_npu_the_session_encloses_the_range_of_its_stage_on_one_thread(
    on_npu: OnDevice,
) -> None:
    calls = read_calls(on_npu.log)
    own = {call.id for call in calls if call.message == "actor_update"}
    told = [call for call in calls if call.call in ("aclprofStart", "aclprofStop") or (call.id and call.id in own)]

    assert [call.call for call in told] == ["aclprofStart", "mstxRangeStartA", "mstxRangeEnd", "aclprofStop"] * 2
    assert len({call.tid for call in told}) == 1


@pytest.mark.days("even")
@pytest.mark.npu
@pytest.mark.skipif(importlib.util.find_spec("torch_npu") is None, reason="needs torch_npu")
def test_what_the_command_names_at_its_end_holds_the_parsed_profiles_directly(on_npu: OnDevice) -> None:
    """As MindStudio Insight imports a folder, and msprof-analyze takes one."""
    found = re.search(r"MindStudio Insight, Import Data, (\S+)", on_npu.waited.stdout)

    assert found, on_npu.waited.stdout
    profiles = sorted(Path(found[1]).rglob("*_ascend_pt"))
    assert len(profiles) == 2
    assert all((profile / "ASCEND_PROFILER_OUTPUT").is_dir() for profile in profiles)
