"""A job as samples: names that Prometheus takes, labels that are bounded, never more series than allowed."""

from __future__ import annotations

import re

import pytest
from builders.shown_job import HOSTILE, role, verdict

from mstxkit.store.job_file import LATE_AT_MOST, ROLES_AT_MOST, STAGES_AT_MOST, JobState, Latecomer
from mstxkit.telemetry import samples
from mstxkit.telemetry.samples import SERIES_AT_MOST

RUN = "exp7-00000000"


def test_the_largest_job_there_can_be_has_no_more_series_than_allowed() -> None:
    stages = tuple(f"stage_{number}" for number in range(STAGES_AT_MOST))
    late = tuple(Latecomer(rank, f"node-{rank}", "stage_0", 1.0) for rank in range(LATE_AT_MOST))
    roles = tuple(role(f"role_{number}", stages=stages, late=late) for number in range(ROLES_AT_MOST))
    made = samples.make_samples(RUN, JobState(roles, 1280), [verdict(id=str(n), rank=n) for n in range(500)])

    assert len(made) <= SERIES_AT_MOST
    assert len({sample[:2] for sample in made}) == len(made)
    (left_out,) = (sample.value for sample in made if sample.name == "mstxkit_series_left_out")
    assert left_out > 0


def test_of_too_many_stages_the_longest_are_kept() -> None:
    many = [role(f"role_{number}", stages=tuple(f"s{n}" for n in range(60))) for number in range(9)]
    made = samples.make_samples(RUN, JobState(tuple(many)), [])
    kept = {sample.labels[2] for sample in made if sample.name == "mstxkit_stage_seconds_max"}

    assert "s59" in kept
    assert "s0" not in kept


def test_names_that_somebody_made_up_stay_one_line_each_and_are_not_long() -> None:
    pytest.importorskip("prometheus_client")
    names = (HOSTILE, "x" * 10_000, 'a"} 1\nevil{b="', "")
    roles = tuple(role(name, stages=names) for name in names)
    run = samples.run_label(HOSTILE, "f" * 32)
    page = samples.as_page(samples.make_samples(run, JobState(roles), [verdict(stage=HOSTILE, role=HOSTILE)])).decode()

    assert not re.search(r"^evil", page, re.MULTILINE)
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert max(map(len, page.splitlines())) < 1_500
    assert all(re.fullmatch(r'(# .*)|(\w+\{(\w+="(\\.|[^"\\])*",?)*\} \S+)', line) for line in page.splitlines())


def test_two_names_that_become_one_when_they_are_cut_are_one_series() -> None:
    """Prometheus refuses a page that says a series twice."""
    names = ("x" * 200 + "a", "x" * 200 + "b")
    made = samples.make_samples(RUN, JobState((role(stages=names),)), [])
    longest = [sample for sample in made if sample.name == "mstxkit_stage_seconds_max"]

    assert len(longest) == 1


def test_two_runs_of_one_name_have_labels_of_their_own() -> None:
    assert samples.run_label("exp7", "a" * 32) != samples.run_label("exp7", "b" * 32)


def test_a_rank_is_a_label_only_where_it_is_named() -> None:
    made = samples.make_samples(RUN, JobState((role(members=10_240),)), [verdict()])
    naming = {sample.name for sample in made if "rank" in samples.BY_NAME[sample.name].labels}

    assert naming == {"mstxkit_late_seconds", "mstxkit_verdict_impact_ratio"}


def test_every_sample_has_the_labels_of_its_family() -> None:
    for sample in samples.make_samples(RUN, JobState((role(),)), [verdict()]):
        assert len(sample.labels) == 1 + len(samples.BY_NAME[sample.name].labels)
