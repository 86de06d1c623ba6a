"""A verdict in words: what, why, next and evidence; of nobody, what could not be seen; all of it escaped."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
from builders.judged_runs import BEHIND, INPUT, recorded, stage_times, verdict

pytest.importorskip("numpy")
pytest.importorskip("polars")
console = pytest.importorskip("rich.console")

from mstxkit.judging.judged import Want  # noqa: E402
from mstxkit.reading import judged  # noqa: E402
from mstxkit.reading.judged import NO_PEER, NO_STEP  # noqa: E402
from mstxkit.reading.report.evidence_words import evidence  # noqa: E402
from mstxkit.reading.report.headline import headline  # noqa: E402
from mstxkit.reading.report.sentences import sentence  # noqa: E402
from mstxkit.reading.report.verdict_words import lines  # noqa: E402
from mstxkit.reading.run import open_run  # noqa: E402
from mstxkit.store.verdicts import KINDS  # noqa: E402

ACTOR = {"role": "actor", "steps": 50, "judged_steps": 40}
NOBODY: dict[str, Any] = {
    "by": "tables", "steps": 50, "why_not": "", "wants": [], "hiding": [], "roles": [ACTOR], "withdrawn": [],
}  # fmt: skip


def printed(judged: dict[str, Any], *verdicts: dict[str, Any]) -> str:
    out = io.StringIO()
    shown = console.Console(file=out, width=200, highlight=False)
    for line in lines(judged, list(verdicts)):
        shown.print(line)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def test_it_says_what_why_what_next_and_by_which_numbers() -> None:
    text = printed(
        NOBODY,
        verdict(
            evidence={"excess_ratio": 0.4, "lost_s": 0.0201, "step_s": 1.5, "steps": 12, "host": "h", "late_ms": 3}
        )._asdict(),
    )

    assert text.splitlines() == [
        "Verdict: rank 1 gets its input more slowly than the others in reference: 31 % of each step is lost by it, "
        "since step 3.",
        "  why      rank 0 waits for rank 1 in actor_update; it explains 90 % of all that is lost; seen in 100 % of "
        "the steps since then; confidence 97 %",
        "  next     look at what feeds rank 1",
        "  evidence it takes 40 % longer than expected; 20.1 ms of a step of 1.50 s; seen in 12 steps; on host h; "
        "late_ms 3.00 ms",
    ]


@pytest.mark.parametrize("fault", [INPUT, BEHIND])
def test_every_number_that_the_judge_says_has_words(tmp_path: Path, fault: str) -> None:
    run = recorded(tmp_path / "run", stage_times(fault), around_collectives=fault == BEHIND)
    (said,) = judged.of_run(open_run(run).roles).blaming

    assert said.evidence
    assert re.findall(r"\b[a-z]+_[a-z_]+\b|\bscore\b", evidence(said.evidence)) == []


def test_a_sentence_on_a_link_of_many_ranks_is_still_one_that_fits_on_a_line() -> None:
    link = verdict(kind="link", rank=None, group=tuple(range(3, 10_240, 64)), evidence={})

    assert sentence(link._asdict()).startswith("a link of 160 ranks: 3,67,131,")
    assert sentence(link._asdict()).endswith(",… is slow in reference")
    assert len(sentence(link._asdict())) < 120


@pytest.mark.parametrize("rank", [3, None])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_its_words_with_a_rank_and_without(kind: str, rank: int | None) -> None:
    words = sentence(verdict(kind=kind, rank=rank, group=(0, 2, 3), role="actor", stage="actor_update")._asdict())

    assert words.count("actor_update") == 1
    assert ("rank 3 actor" in words) == (rank == 3 and kind not in ("not_enough_evidence", "all_slow"))


def test_more_work_is_not_called_a_slow_machine() -> None:
    assert "not slower" in sentence(verdict(kind="imbalance")._asdict())
    assert "no machine is slow" in sentence(verdict(kind="imbalance", rank=None)._asdict())


def test_without_enough_evidence_it_says_so_and_which_switch_gives_it() -> None:
    text = printed(NOBODY, verdict(kind="not_enough_evidence", rank=None, next="capture(rings=True)")._asdict())

    assert "there is not enough evidence to say who makes the others wait in reference" in text
    assert "next     capture(rings=True)" in text


@pytest.mark.parametrize(("kind", "words"), [("rings", "capture(rings=True)"), ("light", "a profile"), ("other", "")])
def test_what_the_judge_asks_for_is_told_as_something_to_do(kind: str, words: str) -> None:
    want = Want(kind, "actor", (), "reward", 1, 2, "reward has become slower")._asdict()

    (line,) = [line for line in printed({**NOBODY, "wants": [want]}).splitlines() if line.startswith("  next")]
    assert "reward has become slower" in line and words in line and (":" in line) == bool(words)


def test_where_nobody_is_blamed_it_names_the_barrier_behind_which_nothing_was_seen() -> None:
    text = printed({**NOBODY, "hiding": ["actor_update"]})

    assert text.startswith("Verdict: nobody is blamed: no rank was seen to make others wait in the 40 steps")
    assert "slow inside of actor_update" in text
    assert "capture(rings=True)" in text


@pytest.mark.parametrize("why_not", [NO_STEP, NO_PEER])
def test_where_nobody_judged_it_says_why_and_what_to_do_and_not_that_nobody_is_slow(why_not: str) -> None:
    first, *others = printed({**NOBODY, "why_not": why_not, "roles": []}).splitlines()

    assert first == f"Verdict: not judged: {why_not}."
    assert others and others[0].startswith("  next ")


def test_where_no_step_has_a_stage_it_says_how_to_get_either() -> None:
    """Of a run with steps and no stages it said that steps are to be counted."""
    assert "mark the stages of each step" in printed({**NOBODY, "why_not": NO_STEP, "roles": []})


@pytest.mark.parametrize("counts", [0, 5])
def test_after_too_few_steps_it_does_not_say_that_nobody_is_slow_but_how_many_are_needed(counts: int) -> None:
    roles = [{"role": "actor", "steps": 10 + counts, "judged_steps": counts}]
    text = printed({**NOBODY, "roles": roles})
    head = headline({**NOBODY, "roles": roles}, [], [])

    assert text.startswith(f"Verdict: too few steps to judge who makes others wait: {counts} of {10 + counts} steps")
    assert "nobody is blamed" not in text.lower() + head["verdict"].lower()
    assert f"let the job go on for {20 - counts} steps more" in text
    assert head["verdict"][1:] in text and head["why"] in text and all(w in text for w in head["next"].split("; "))


def test_of_roles_with_enough_steps_and_one_without_it_names_that_one() -> None:
    rollout = {"role": "rollout", "steps": 12, "judged_steps": 2}

    text = printed({**NOBODY, "roles": [ACTOR, rollout]})

    assert text.startswith("Verdict: nobody is blamed: no rank was seen to make others wait in the 40 steps")
    assert "role rollout has too few steps to be judged: 2 of 12 steps count" in text


def test_who_has_recovered_is_not_passed_over() -> None:
    text = printed({**NOBODY, "withdrawn": [verdict(withdrawn="not seen any more up to step 44")._asdict()]})

    assert text.splitlines() == [
        "Verdict: nobody is blamed any more: 1 verdict was withdrawn.",
        "  why rank 1 gets its input more slowly than the others in reference, since step 3: not seen any more up to "
        "step 44",
    ]


def test_names_and_texts_drive_no_terminal() -> None:
    nasty = "a\x1b[31m[bold]x\u202e"
    fields = dict.fromkeys(("stage", "role", "waits_for", "next", "request"), nasty)

    text = printed(NOBODY, verdict(**fields, evidence={nasty: nasty})._asdict())

    assert "\x1b" not in text
    assert "\u202e" not in text
    assert text.count("\\x1b[31m[bold]x\\u202e") == 7


@pytest.mark.parametrize(
    ("where", "words"), [("before", "before reference"), ("inside", "inside of reference"), ("in", "in reference")]
)
def test_it_says_where_of_a_stage_the_time_is_lost(where: str, words: str) -> None:
    assert sentence(verdict(evidence={"where": where})._asdict()).endswith(f"than the others {words}")


def test_long_lines_are_indented_where_they_wrap() -> None:
    out = io.StringIO()
    for line in lines(NOBODY, [verdict(next="look " * 40)._asdict()]):
        console.Console(file=out, width=80, highlight=False).print(line)

    texts = out.getvalue().splitlines()
    wrapped = [line for line in texts if line.startswith(" " * 11) and line.split()]
    assert len(wrapped) >= 3
    assert max(map(len, texts)) <= 80


def test_it_says_which_profile_it_has_asked_for_or_why_it_has_not() -> None:
    asked = printed(NOBODY, verdict(request="ab" * 8)._asdict())
    not_asked = printed(NOBODY, verdict(no_request="verdicts ask for one profile in 300 s (acting.every_s)")._asdict())

    assert "  profile  it has asked for one by itself: request abababababababab" in asked
    assert "  profile  none was asked for: verdicts ask for one profile in 300 s (acting.every_s)" in not_asked
