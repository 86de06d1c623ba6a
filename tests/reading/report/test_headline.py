"""What is said first of a run: what weighs most, in one figure, with what to do; all of it escaped."""

from __future__ import annotations

from typing import Any

import pytest
from builders.judged_runs import verdict

pytest.importorskip("numpy")
pytest.importorskip("polars")
pytest.importorskip("rich")

from builders.shown_report import shown

from mstxkit.judging.judged import Want
from mstxkit.reading.judged import NO_PEER, NO_STEP
from mstxkit.reading.report import matters
from mstxkit.reading.report.account import Account, Matter
from mstxkit.reading.report.headline import Possible, make_headline, render_headline, write_command
from mstxkit.reading.report.sentences import write_sentence
from mstxkit.store.verdicts import KINDS

ACTOR = {"role": "actor", "steps": 50, "judged_steps": 40}
NOBODY: dict[str, Any] = {"why_not": "", "wants": [], "hiding": [], "roles": [ACTOR], "withdrawn": []}
NOTHING_POSSIBLE = Possible(frozenset(), frozenset())


def account(judged: dict[str, Any] = NOBODY, **fields: Any) -> Account:
    return Account("runs/exp7", judged, **{"steps": (0, 49), **fields})


def printed(judged: dict[str, Any], *verdicts: dict[str, Any], everything: bool = False, **fields: Any) -> str:
    text = shown(*render_headline(make_headline(account(judged, verdicts=verdicts, **fields))["matters"], everything))
    return "\n".join(line.rstrip() for line in text.splitlines())


def saving(kind: str, saved: float, rank: int | None = None, steps: tuple[int, int] = (0, 49), **more: Any) -> Any:
    """A row of what-if."""
    row = {
        "kind": kind, "role": "", "stage": "reference", "where": "in", "rank": rank, "group": None, "trainers": None,
        "rollouts": None, "who": None if rank is None else f"rank {rank}", "first_step": steps[0],
        "last_step": steps[1], "step_ns": 10**9,
        "without_ns": round((1 - saved) * 10**9), "saved_ratio": saved, "error_ratio": None,
    }  # fmt: skip
    return {**row, **more}


def process(rank: int, state: str = "ended", how: str | None = None, **more: Any) -> dict[str, Any]:
    about = {
        "rank": rank, "host": "h", "pid": 4711 + rank, "label": f"rank {rank}", "process": f"h-{4711 + rank}-0",
        "attempt": 0, "last_seen_ns": 100 * 10**9, "state": state, "how": how, "inside": [],
    }  # fmt: skip
    return {**about, **more}


def incident(kind: str, rank: int, **more: Any) -> dict[str, Any]:
    about = {
        "kind": kind, "who": f"rank {rank}", "process": f"h-{4711 + rank}-0", "range": "forward", "stage": "update",
        "step": 7, "since_ns": 60 * 10**9, "time_ns": 94 * 10**9, "over_ns": None, "signal": None, "oom_kills": 0,
        "reason": "it waits for a lock", "waits_for": "rank 0 waits for rank 1", "page": "incidents/x/incident.txt",
    }  # fmt: skip
    return {**about, **more}


def words(**fields: Any) -> list[str]:
    return [matter.words for matter in matters.weigh_matters(account(**fields))]


def test_it_says_what_why_and_what_next_and_the_numbers_behind_it_where_all_is_asked_for() -> None:
    said = verdict(evidence={"excess_ratio": 0.4, "lost_s": 0.0201, "steps": 12, "host": "h", "late_ms": 3})._asdict()
    first = [
        "Verdict: rank 1 gets its input more slowly than the others in reference: 31 % of each step is lost by it, "
        "since step 3.",
        "  why rank 0 waits for rank 1 in actor_update",
        "  do  look at what feeds rank 1",
    ]
    evidence = "seen in 100 % of the steps since then; confidence 97 %; excess 40 %, lost 20.1 ms, steps 12, host h"

    assert printed(NOBODY, said).splitlines() == first
    assert f"evidence {evidence}, late 3.00 ms" in printed(NOBODY, said, everything=True)


def test_of_one_effect_one_figure_is_told_that_of_the_steps_and_how_many_these_are() -> None:
    slow = saving("straggler", 0.4, rank=1, steps=(10, 49))
    said = printed(NOBODY, verdict()._asdict(), what_if=[slow, saving("tail", 0.3), saving("bubble", 0.35)])

    assert said.splitlines()[0].endswith(
        ": without it a step takes 600 ms, not 1.00 s: 40 % less, in steps 10 to 49 (40 of 50)."
    )
    assert said.count("%") == 1


def test_a_host_that_is_slow_is_told_of_once_and_not_of_each_of_its_ranks() -> None:
    said = verdict(kind="compute", rank=None, group=(2, 3))
    rows = [saving("straggler", 0.3, rank=rank) for rank in said.group]

    (holding,) = matters.weigh_matters(account(verdicts=[said._asdict()], what_if=rows))
    over = {**NOBODY, "withdrawn": [said._replace(withdrawn="not seen any more")._asdict()]}
    (gone,) = matters.weigh_matters(account(over, what_if=rows))
    assert (holding.kind, holding.weight, gone.kind) == ("compute", 0.3, "straggler")


def test_what_acting_on_it_saves_of_the_run_decides_what_comes_first() -> None:
    what_if = [saving("straggler", 0.5, rank=1, steps=(0, 4)), saving("tail", 0.4, stage="actor_generate")]

    first, second = matters.weigh_matters(account(what_if=what_if))
    holding = matters.weigh_matters(account(verdicts=[verdict()._asdict()], what_if=what_if))[0]

    assert (first.kind, round(first.weight, 3)) == ("tail", 0.4)
    assert (second.kind, round(second.weight, 3)) == ("straggler", 0.05)
    assert (holding.kind, holding.weight) == ("input", 0.5), "it goes on"


def test_a_tail_costs_what_it_costs_beside_a_slow_rank() -> None:
    slow, tail = saving("straggler", 0.3, rank=1), saving("tail", 0.32)

    assert [m.kind for m in matters.weigh_matters(account(what_if=[tail, slow]))] == ["straggler"]
    assert [m.kind for m in matters.weigh_matters(account(what_if=[saving("tail", 0.4), slow]))] == [
        "straggler",
        "tail",
    ]


def test_a_tail_that_a_verdict_is_of_is_told_once_in_its_words() -> None:
    tail, often = saving("tail", 0.4), {"role": "", "stage": "reference", "steps": 50, "longer_ratio": None}

    def told(kind: str, rank: int | None, last: list[list[int]]) -> list[tuple[str, str]]:
        said = verdict(kind=kind, rank=rank)._asdict()
        every = matters.weigh_matters(account(verdicts=[said], what_if=[tail], tails=[{**often, "often": last}]))
        return [(matter.kind, matter.cost[:24]) for matter in every]

    of_steps, of_judge = "without it a step takes ", "31 % of each step is los"
    assert told("jitter", None, []) == [("jitter", of_steps)]
    assert told("imbalance", 1, [[1, 40], [0, 10]]) == [("imbalance", of_steps)]
    assert told("imbalance", 1, [[1, 20], [0, 15]]) == [("imbalance", of_judge), ("tail", of_steps)]
    assert told("imbalance", 1, [[0, 40], [1, 10]]) == [("imbalance", of_judge), ("tail", of_steps)]


def test_who_is_not_blamed_any_more_is_told_with_what_it_cost_and_that_it_is_over() -> None:
    over = verdict(withdrawn="not seen any more up to step 44")._asdict()

    (only,) = matters.weigh_matters(
        account({**NOBODY, "withdrawn": [over]}, what_if=[saving("straggler", 0.4, rank=1, steps=(10, 19))])
    )

    assert only.words == "rank 1 takes longer than the others in reference"
    assert (only.why, only.since_step) == ("not seen any more up to step 44", 10)


def test_where_nothing_is_the_matter_it_says_above_what_nothing_is() -> None:
    assert words(what_if=[saving("tail", 0.031)]) == [
        "healthy: nothing above 4 % of a step; no rank was seen to make others wait in the 40 steps that were judged"
    ]
    assert words(what_if=[saving("tail", 0.051)])[0].startswith("there is a long tail in reference")


def test_a_death_comes_before_a_loss_and_the_first_of_two_first() -> None:
    inside = [{"name": "forward", "stage": "update", "step": 30, "open_ns": 2 * 10**9}]
    died = process(1, "killed", "by SIGKILL", inside=inside, last_seen_ns=90 * 10**9)
    raised = process(0, "ended", "by ValueError", last_seen_ns=95 * 10**9)

    every = matters.weigh_matters(account(processes=[raised, died], verdicts=[verdict()._asdict()]))

    assert [matter.words for matter in every[:2]] == [
        "rank 1 was killed by SIGKILL in forward of update, in step 30",
        "rank 0 raised what nobody caught (ValueError)",
    ]
    assert every[0].cost == "the job ended 5.00 s later"
    assert every[0].why == "pid 4712 on h, entered 2.00 s before it was last seen"
    assert every[2].kind == "input"


def test_a_death_with_a_page_is_told_once_and_its_page_is_the_next_thing_to_read() -> None:
    died = process(1, "killed", "by SIGKILL")
    told = incident("killed", 1, signal="SIGKILL")

    (only, _) = matters.weigh_matters(account(processes=[process(0), died], incidents=[told]))[:1] * 2

    assert only.words == "rank 1 was killed by SIGKILL in forward of update, in step 7"
    assert only.why == "rank 0 waits for rank 1"
    assert only.next == "cat runs/exp7/incidents/x/incident.txt"


def test_a_hang_comes_before_the_death_that_ended_it_and_is_told_once() -> None:
    hang, end = incident("hang", 1), process(1, "killed", "by SIGKILL", process="other")
    said = verdict(kind="hang", id="hang-x")._asdict()

    every = matters.weigh_matters(account(processes=[process(0), end], incidents=[hang], verdicts=[said]))

    assert [matter.words for matter in every] == [
        "rank 1 hung in forward of update for 34 s, in step 7", "rank 1 was killed by SIGKILL",
    ]  # fmt: skip
    assert every[0].cost == "nothing went on"


@pytest.mark.parametrize("how", ["by OutOfMemoryError", "by MemoryError"])
def test_out_of_memory_is_called_that_whoever_says_so(how: str) -> None:
    raised = matters.weigh_matters(account(processes=[process(0), process(1, "ended", how)]))[0]
    killed = matters.weigh_matters(account(incidents=[incident("killed", 1, signal="SIGKILL", oom_kills=1)]))[0]

    assert (raised.kind, killed.kind) == ("out_of_memory", "out_of_memory")
    assert killed.words == "rank 1 was killed by SIGKILL as memory ran out in forward of update, in step 7"


def test_a_host_all_of_whose_processes_are_gone_is_told_as_one() -> None:
    gone = [process(rank, "killed", "while the others went on", host="node3") for rank in (8, 9)]

    assert words(processes=[process(0), process(1), *gone])[0] == "host node3 is gone, with rank 8, rank 9"
    assert words(processes=gone)[0] == "rank 8 was killed while the others went on"


def test_a_host_that_says_nothing_any_more_while_others_do_is_gone() -> None:
    lost = [process(0), process(1, "lost", host="node3")]

    assert words(processes=lost)[0].startswith("healthy"), "it may be read elsewhere"
    assert words(processes=lost, silent=frozenset({"node3"}))[0] == "host node3 is gone, with rank 1"


def test_how_an_earlier_attempt_ended_stands_behind_what_is_the_matter_now() -> None:
    died = process(1, "killed", "by SIGKILL")
    over = incident("hang", 0, over_ns=97 * 10**9, process="")

    every = words(processes=[died, process(0, attempt=1), process(1, attempt=1)], incidents=[over])

    assert every[0].startswith("healthy")
    assert every[1:] == [
        "an earlier attempt: rank 1 was killed by SIGKILL",
        "over: rank 0 hung in forward of update for 34 s, in step 7",
    ]


def test_damage_weighs_as_much_as_it_is_of_the_run() -> None:
    damage = [{"path": "sealed/h-4711-0.0000.mxs", "offset": 0, "size": 1, "reason": "torn"}]

    def kinds(count: int) -> list[str]:
        fields = {"processes": [process(rank) for rank in range(count)], "verdicts": [verdict()._asdict()]}
        return [matter.kind for matter in matters.weigh_matters(account(damage=damage, **fields))]

    assert kinds(2) == ["damage", "input"]
    assert kinds(100) == ["input", "damage"]


@pytest.mark.parametrize(
    ("possible", "since", "expected"),
    [
        (Possible(frozenset({"reference"}), frozenset()), None, "mstxkit escalate runs/exp7 --stage reference"),
        (Possible(frozenset({"reference"}), frozenset({("reference", 1)})), None, "mstxkit profiles runs/exp7"),
        (Possible(frozenset({"reward"}), frozenset({("reference", 0)})), 20,
         "mstxkit compare runs/exp7 --before 0:19 --after 20:49"),
        (NOTHING_POSSIBLE, 3, "mstxkit report runs/exp7 --stages reference --ranges 20"),
        (NOTHING_POSSIBLE, None, "mstxkit report runs/exp7 --stages reference --ranges 20"),
    ],
)  # fmt: skip
def test_what_is_next_is_what_can_be_done_now(possible: Possible, since: int | None, expected: str) -> None:
    loss = Matter(
        "compute", "w", next="mstxkit escalate runs/exp7 --stage reference", stage="reference", ranks=(1,),
        since_step=since,
    )  # fmt: skip

    assert write_command(account(), loss, possible) == expected


def test_of_the_time_before_a_stage_whole_steps_can_be_profiled_where_anything_can() -> None:
    advice = "the time is lost before reward, in no stage: mstxkit escalate runs/exp7 --stage all --ranks 1,0"
    said = verdict(next=advice)._asdict()

    (loss,) = make_headline(account(verdicts=[said]), Possible(frozenset({"actor_update"}), frozenset()))["matters"]

    assert loss["next"] == "mstxkit escalate runs/exp7 --stage all --ranks 1,0"
    assert loss["advice"] == "the time is lost before reward, in no stage"


def test_a_sentence_on_a_link_of_many_ranks_is_still_one_that_fits_on_a_line() -> None:
    link = verdict(kind="link", rank=None, group=tuple(range(3, 10_240, 64)), evidence={})

    assert write_sentence(link._asdict()).startswith("a link of 160 ranks: 3,67,131,")
    assert write_sentence(link._asdict()).endswith(",… is slow in reference")
    assert len(write_sentence(link._asdict())) < 120


@pytest.mark.parametrize("rank", [3, None])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_its_words_with_a_rank_and_without(kind: str, rank: int | None) -> None:
    words = write_sentence(verdict(kind=kind, rank=rank, group=(0, 2, 3), role="actor", stage="actor_update")._asdict())

    assert words.count("actor_update") == 1
    assert ("rank 3 actor" in words) == (rank == 3 and kind not in ("not_enough_evidence", "all_slow"))


@pytest.mark.parametrize(("evidence", "who"), [({"host": "node3"}, "ranks of host node3"), ({}, "the ranks")])
def test_of_stalls_of_one_host_it_is_named(evidence: dict[str, str], who: str) -> None:
    stalls = verdict(kind="jitter", rank=None, group=(), evidence=evidence)

    assert write_sentence(stalls._asdict()) == f"{who} take far longer now and then in reference"


def test_more_work_is_not_called_a_slow_machine() -> None:
    assert "not slower" in write_sentence(verdict(kind="imbalance")._asdict())
    assert "no machine is slow" in write_sentence(verdict(kind="imbalance", rank=None)._asdict())


def test_without_enough_evidence_it_says_so_and_which_switch_gives_it() -> None:
    hidden = verdict(kind="not_enough_evidence", rank=None, group=(), next="capture(rings=True)")
    text, of_several = (printed(NOBODY, each._asdict()) for each in (hidden, hidden._replace(group=(2, 3))))

    assert "all take longer in reference than earlier: nothing tells whether they wait for one of them" in text
    assert (
        "ranks 2-3 take longer than the others in reference, and are done at once: one of them may keep" in of_several
    )
    assert "do  capture(rings=True)" in text and "do  capture(rings=True)" in of_several


@pytest.mark.parametrize(("kind", "words"), [("rings", "capture(rings=True)"), ("light", "a profile"), ("other", "")])
def test_what_the_judge_asks_for_is_told_as_something_to_do(kind: str, words: str) -> None:
    want = Want(kind, "actor", (), "reward", 1, 2, "reward has become slower")._asdict()

    (line,) = [line for line in printed({**NOBODY, "wants": [want]}).splitlines() if line.startswith("  do")]
    assert "reward has become slower" in line and words in line and (":" in line) == bool(words)


def test_where_nobody_is_blamed_it_names_the_barrier_behind_which_nothing_was_seen() -> None:
    text = printed({**NOBODY, "hiding": ["actor_update"]})

    assert text.startswith("Verdict: healthy as far as is seen: nothing above 1 % of a step; no rank was seen to make ")
    assert "slow inside of actor_update" in text
    assert "capture(rings=True)" in text


@pytest.mark.parametrize("why_not", [NO_STEP, NO_PEER])
def test_where_nobody_judged_it_says_why_and_what_to_do_and_not_that_nobody_is_slow(why_not: str) -> None:
    first, *others = printed({**NOBODY, "why_not": why_not, "roles": []}).splitlines()

    assert first == f"Verdict: not judged: {why_not}."
    assert others and others[0].startswith("  do ")


@pytest.mark.parametrize(
    ("has", "words"),
    [
        ((), "nothing was recorded: no range has ended in any process"),
        (("ranges",), "not judged: no stage is marked"),
        (("ranges", "stages"), "not judged: no step is counted"),
        (("ranges", "stages", "steps"), f"not judged: {NO_STEP}"),
    ],
)
def test_where_no_step_has_a_stage_it_says_which_of_the_two_lacks(has: tuple[str, ...], words: str) -> None:
    nothing = {**NOBODY, "why_not": NO_STEP, "roles": []}

    (only,) = matters.weigh_matters(account(nothing, has=frozenset(has)))

    assert only.words == words
    assert "mstxkit.stage" in only.advice or "mstxkit.step" in only.advice


@pytest.mark.parametrize("counts", [0, 5])
def test_after_too_few_steps_it_does_not_say_that_nobody_is_slow_but_how_many_are_needed(counts: int) -> None:
    roles = [{"role": "actor", "steps": 10 + counts, "judged_steps": counts}]

    (only,) = matters.weigh_matters(account({**NOBODY, "roles": roles}, what_if=[saving("tail", 0.5)]))

    assert only.words == f"too few steps to judge who makes others wait: {counts} count, 20 are needed"
    assert only.advice.startswith(f"let the job go on for {20 - counts} steps more")


def test_of_roles_with_enough_steps_and_one_without_it_names_that_one() -> None:
    rollout = {"role": "rollout", "steps": 12, "judged_steps": 2}

    text = printed({**NOBODY, "roles": [ACTOR, rollout]})

    assert text.startswith("Verdict: healthy")
    assert "role rollout has too few steps to be judged: 2 count" in text


def test_names_and_texts_drive_no_terminal() -> None:
    nasty = "a\x1b[31m[bold]x\u202e"
    fields = dict.fromkeys(("stage", "role", "waits_for", "next", "request"), nasty)
    died = process(1, "killed", "by SIGKILL", label=nasty, host=nasty, inside=[{"name": nasty, "stage": nasty}])

    text = printed(NOBODY, verdict(**fields, evidence={nasty: nasty})._asdict(), processes=[died], everything=True)

    assert "\x1b" not in text
    assert "\u202e" not in text
    assert text.count("\\x1b[31m[bold]x\\u202e") == 10


@pytest.mark.parametrize(
    ("where", "words"), [("before", "before reference"), ("inside", "inside of reference"), ("in", "in reference")]
)
def test_it_says_where_of_a_stage_the_time_is_lost(where: str, words: str) -> None:
    assert write_sentence(verdict(evidence={"where": where})._asdict()).endswith(f"than the others {words}")


def test_long_lines_are_indented_where_they_wrap() -> None:
    matters = make_headline(account(verdicts=[verdict(next="look " * 60)._asdict()]))["matters"]

    texts = shown(*render_headline(matters), columns=80).splitlines()
    wrapped = [line for line in texts if line.startswith(" " * 6) and line.split()]
    assert len(wrapped) >= 3
    assert max(map(len, texts)) <= 80


def test_it_says_which_profile_it_has_asked_for_or_why_it_has_not() -> None:
    asked = printed(NOBODY, verdict(request="ab" * 8)._asdict())
    not_asked = printed(NOBODY, verdict(no_request="verdicts ask for one profile in 300 s (acting.every_s)")._asdict())

    assert "  profile it has asked for one by itself: request abababababababab" in asked
    assert "  profile none was asked for: verdicts ask for one profile in 300 s (acting.every_s)" in not_asked


def test_of_many_matters_the_first_ones_are_told_and_how_many_more_there_are() -> None:
    every = [verdict(id=f"v{at}", rank=at)._asdict() for at in range(9)]

    assert printed(NOBODY, *every).splitlines()[-1] == "… and 4 more (--all)"
    assert "more (--all)" not in printed(NOBODY, *every, everything=True)
