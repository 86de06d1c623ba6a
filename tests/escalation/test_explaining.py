"""Explaining: who, when, how long, how large and what waits meanwhile, from what is known, and said where it is not."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from builders.escalated_run import GONE, NS, control, empty_run, left, run_of, say

from mstxkit.escalation import explaining
from mstxkit.escalation.explaining import Explanation
from mstxkit.host.identity import name_host
from mstxkit.store import fate
from mstxkit.store.limits import Policy
from mstxkit.store.report import Report
from mstxkit.store.whereabouts import Age, Whereabouts


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return run_of(tmp_path / "run")


@pytest.fixture
def npus(tmp_path: Path) -> Path:
    run = empty_run(tmp_path / "npus")
    for rank in range(4):
        say(run, rank, backend="torch_npu", why_not={}, step=10 + rank, step_ns=NS)
    return run


def explain(run: Path, *, sessions: Any = (), environment: Any = None, suspects: Any = (), **given: Any) -> Explanation:
    said = fate.read_heard(control(run))
    before = [fate.Fates(said).progress(one) for one in fate.read_asked(control(run))]
    request = left(run, **given)
    return explaining.explain_request(
        request, said, suspects, others=before, sessions=sessions, environment=environment
    )


def had(preset: str = "full", start_s: float = 0.5, stop_s: float = 1.5, **more: Any) -> dict[str, Any]:
    return {
        "preset": preset, "state": "recorded", "stage": "actor_update", "bytes": 10_000_000,
        "start_cost_ns": int(start_s * NS), "stop_cost_ns": int(stop_s * NS), **more,
    }  # fmt: skip


def test_it_says_who_would_record_with_what(tmp_path: Path) -> None:
    run = empty_run(tmp_path / "run")
    say(run, 1, process=GONE)
    say(run, 1, role="actor", step=12)
    say(run, 1, role="rollout", stages=("actor_generate",))

    who = explain(run).recorders

    assert [(one.rank, one.role, one.backend, one.step, one.hindrance) for one in who] == [
        (1, "actor", "torch", 12, "")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"backend": None, "why_not": {"torch_npu": "it is not imported"}}, "no profiler.*torch_npu: it is not impo"),
        ({"stages": ("actor_generate",)}, "has not entered actor_update yet"),
        ({"process": GONE}, "its process has ended"),
    ],
)
def test_it_says_what_hinders_a_rank(run: Path, said: dict[str, Any], why: str) -> None:
    say(run, 1, **said)

    assert re.search(why, explain(run).recorders[0].hindrance)


def test_a_rank_that_was_not_heard_of_is_named(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", 1)
    say(run, 0, world_size=4)

    assert "nothing was heard" in explain(run).recorders[0].hindrance


def test_one_rank_and_one_stage_wait_for_the_next_whole_step(run: Path) -> None:
    """The machine begins no window in the step in which it hears of it."""
    begins = "with the next whole step, as actor_update may be over in this one: every entry of it in that step"

    assert explain(run).when == (begins,)


def test_so_do_several_stages(run: Path) -> None:
    when = explain(run, stage=["actor_update", "actor_generate"], steps=3).when

    assert "next whole step" in when[0]
    assert "3 steps in a row" in when[0]


def test_occurrences_are_each_rank_s_own(run: Path) -> None:
    assert "each rank by itself: its next 2 entries" in explain(run, ranks="all", occurrences=2).when[0]


def test_several_ranks_agree_on_a_step_ahead_of_the_farthest(npus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of a second, messages of two: at least four ahead of step 13."""
    monkeypatch.setattr(explaining, "_POLICY", Policy(transport_s=2))
    found = explain(npus, ranks="all")

    assert "at least 4 ahead of the farthest: step 17 or later, 4 s from now" in found.when[0]


def test_ranks_that_count_no_steps_are_told_to_ask_for_occurrences(run: Path) -> None:
    say(run, 2, step=None)

    assert "ask for occurrences instead" in explain(run, ranks="all").when[0]


def test_a_sample_is_described(run: Path) -> None:
    when = explain(run, sample={"per": "micro_batch", "skip": 2, "record": 1}).when

    assert "of each occurrence 1 micro_batch after the first 2" in when[1]


def test_what_is_queued_before_it_is_named_and_what_has_ended_is_not(run: Path) -> None:
    ended, waits, elsewhere = left(run, occasion="1"), left(run, occasion="2"), left(run, ranks=[3])
    say(run, 1, Report(ended.id, 1, "done"), phase="cooldown")

    found = explain(run, occasion="3")

    assert found.ahead == (waits.id,)
    assert elsewhere.id not in found.ahead
    assert any("30 s after the last session" in line for line in found.when)


def test_the_pause_is_that_of_earlier_sessions_of_the_same_preset(run: Path) -> None:
    sessions = [had(), had(stop_s=3.5), had("light", 9, 9), had(state="failed", start_s=99)]

    pause = explain(run, sessions=sessions).pause

    assert (pause.median_s, pause.longest_s, pause.sessions) == (3.0, 4.0, 2)
    assert "3 s at start and stop of each session, 4 s at most, in 2 earlier sessions" in pause.words


def test_without_earlier_sessions_the_pause_is_unknown_and_said_so(run: Path) -> None:
    pause = explain(run).pause

    assert pause.median_s is None
    assert pause.words.startswith("unknown")


def test_the_size_is_assumed_from_the_preset_for_steps_and_ranks(run: Path) -> None:
    found = explain(run, ranks=[0, 1], steps=3)

    assert found.total_mb == 900 * 3 * 2
    assert "assumed, not measured" in found.size


def test_a_rank_that_cannot_record_writes_nothing(run: Path) -> None:
    say(run, 1, backend=None)

    assert explain(run, ranks=[0, 1]).total_mb == 900


def test_the_size_is_that_of_earlier_sessions_where_there_are_any(run: Path) -> None:
    found = explain(run, ranks=[0, 1], steps=3, sessions=[had()])

    assert found.total_mb == pytest.approx(60)
    assert "10 MB in earlier sessions" in found.size


def test_the_size_of_options_is_reckoned_of_their_shares(run: Path) -> None:
    over, alone = explain(run, preset="full", options={"level": 2}), explain(run, options={"level": "level1"})

    assert (over.total_mb, alone.total_mb) == (2100, 450)
    assert "assumed, not measured" in over.size
    assert over.records.startswith("full+level=level2: level level2, activities cpu and npu")


def test_sessions_of_another_depth_say_nothing_of_this_one(run: Path) -> None:
    depth = {"preset": "full", "options": {"level": 2}}

    assert explain(run, **depth, sessions=[had()]).pause.sessions == 0
    assert explain(run, **depth, sessions=[had("full+level=level2")]).pause.sessions == 1


@pytest.mark.parametrize("backend", [None, "torch_npu"])
def test_nobody_waits_for_the_only_rank_of_a_run(tmp_path: Path, backend: str | None) -> None:
    run = empty_run(tmp_path / "alone")
    say(run, 0, backend=backend, world_size=1)
    found = explain(run, ranks=[0])

    assert (found.nears_timeout, found.timeout) == (False, "nobody waits for the only rank of a run")


def test_a_short_pause_is_far_from_the_time_out_of_collectives(npus: Path) -> None:
    found = explain(npus, sessions=[had()])

    assert found.nears_timeout is False
    assert "1836 s at most" in found.timeout
    assert "120 s for a first connection" in found.timeout


def test_a_pause_near_the_time_out_is_told_loudly(npus: Path) -> None:
    found = explain(npus, sessions=[had(stop_s=80)], environment={"HCCL_EXEC_TIMEOUT": "120"})

    assert found.nears_timeout is True
    assert "the pause COMES NEAR THAT" in found.timeout
    assert "without --force a rank where start and stop took so long refuses it" in found.timeout


def test_a_session_that_lasts_too_long_is_told_loudly(npus: Path) -> None:
    long = had(start_ns=NS, end_ns=71 * NS)
    found = explain(npus, sessions=[long], environment={"HCCL_EXEC_TIMEOUT": "120"})

    assert found.nears_timeout is True
    assert "the length of a session COMES NEAR THAT" in found.timeout
    assert (
        "a session is ended at the first stage or piece after 58 s, and not 600 s (--limit-s sets less, --force more)"
        in found.timeout
    )


def test_the_time_out_is_that_of_the_ranks_and_the_shortest_counts(npus: Path) -> None:
    say(npus, 0, backend="torch_npu", timeouts={"HCCL_EXEC_TIMEOUT": "900"})
    say(npus, 3, backend="torch_npu", timeouts={"HCCL_EXEC_TIMEOUT": "100", "HCCL_CONNECT_TIMEOUT": "300"})

    found = explain(npus, sessions=[had()], environment={"HCCL_EXEC_TIMEOUT": "5000"})

    assert "100 s at most (HCCL_EXEC_TIMEOUT, as set on rank 3)" in found.timeout
    assert "120 s for a first connection" in found.timeout
    assert "a session is ended at the first stage or piece after 48 s, and not 600 s" in found.timeout


def test_ranks_that_set_none_have_canns_defaults_whatever_this_shell_says(npus: Path) -> None:
    for rank in range(4):
        say(npus, rank, backend="torch_npu", timeouts={})

    found = explain(npus, sessions=[had()], environment={"HCCL_EXEC_TIMEOUT": "5"})

    assert "1836 s at most (HCCL_EXEC_TIMEOUT, CANN's default)" in found.timeout
    assert found.nears_timeout is False


def test_while_first_connections_are_made_there_is_less_time(npus: Path) -> None:
    say(npus, 2, backend="torch_npu", timeouts={}, step=0, step_ns=None)

    found = explain(npus, sessions=[had()])

    assert "120 s at most (HCCL_CONNECT_TIMEOUT, CANN's default)" in found.timeout
    assert "a session is ended at the first stage or piece after 58 s" in found.timeout


def test_with_force_it_says_what_a_session_may_take_all_the_same(npus: Path) -> None:
    found = explain(npus, sessions=[had()], environment={"HCCL_EXEC_TIMEOUT": "120"}, force=True)

    assert "--force: a session may take 600 s all the same" in found.timeout


def test_the_step_is_that_of_now_and_how_old_it_is_is_told(run: Path) -> None:
    seen = [Whereabouts(name_host(), os.getpid(), 1, "", "", 31, "actor_generate", 1.0, 1 << 62, Age(2.0, True))]
    request = left(run)

    explanation = explaining.explain_request(request, fate.read_heard(control(run)), seen=seen)
    (who,) = explanation.recorders

    assert (who.step, who.stage, who.seen) == (31, "actor_generate", Age(2.0, True))
    assert explanation.as_json()["recorders"][0]["seen"] == {"seconds": 2.0, "is_exact": True}


def test_an_unknown_pause_is_not_called_safe(npus: Path) -> None:
    found = explain(npus)

    assert found.nears_timeout is None
    assert "unknown" in found.timeout


def test_a_time_out_of_0_is_none(npus: Path) -> None:
    assert explain(npus, environment={"HCCL_EXEC_TIMEOUT": "0"}).nears_timeout is False


@pytest.mark.parametrize("value", ["", "many", "-1", "1e9", "9" * 40])
def test_a_time_out_that_is_no_number_of_seconds_is_the_default(npus: Path, value: str) -> None:
    assert "1836 s" in explain(npus, environment={"HCCL_EXEC_TIMEOUT": value}).timeout


def test_without_a_device_there_is_no_hccl(run: Path) -> None:
    found = explain(run)

    assert found.nears_timeout is False
    assert "no HCCL" in found.timeout


def test_suspects_are_those_that_record(run: Path) -> None:
    assert [one.rank for one in explain(run, ranks="suspect+peer", suspects=(3, 1)).recorders] == [1, 3]


def test_an_explanation_is_plain_values(run: Path) -> None:
    assert json.loads(json.dumps(explain(run).as_json()))["recorders"][0]["rank"] == 1


@pytest.mark.parametrize("value", [None, "x", -1, 1.5, [], True])
def test_session_files_of_any_content_are_explained_with(run: Path, value: Any) -> None:
    spoilt = [dict.fromkeys(had(), value), {}, had(stage=value), had(bytes=value, start_cost_ns=value)]

    assert explain(run, sessions=spoilt).size
