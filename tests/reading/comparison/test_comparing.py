"""Two runs side by side: what is slower, what changed first, what else is different, and what cannot be compared."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import pytest
from builders.escalated_run import session
from builders.judged_runs import BEHIND, INPUT, MS, NOBODY, recorded, stage_times
from builders.run_files import RUN_ID, WALL_OFFSET_NS, BankFiles, ProcessFiles, new_run

pytest.importorskip("numpy")
pytest.importorskip("polars")
from rich.console import Console

from mstxkit.errors import ReadError
from mstxkit.host import parts
from mstxkit.reading.comparison import comparing, sides, text
from mstxkit.reading.comparison.rows import RANK, STAGE, STEP
from mstxkit.reading.comparison.sides import side_of
from mstxkit.reading.report.choice import Bounds
from mstxkit.reading.run import open_run
from mstxkit.store import layout, patch_record, settings_file


def compared(before: Path, after: Path, *steps: Bounds) -> comparing.Comparison:
    of = steps or (None, None)
    return comparing.compare_sides(side_of(open_run(before), of[0]), side_of(open_run(after), of[1]))


def verdicts(comparison: comparing.Comparison, of: str) -> dict[Any, str]:
    return {(row.stage, row.rank): row.verdict for row in comparison.of(of)}


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("healthy") / "run", stage_times(NOBODY, ranks=4, seed=1))


def of_tokens(path: Path, tokens: int, ns_each: float, rank: int | None = 0) -> Path:
    """One rank that generates so many tokens a step."""
    run, bank, now = new_run(path), BankFiles(), 0
    for step in range(20):
        end = now + int(tokens * ns_each) + step % 3 * MS // 10
        bank.range("generate", now, end, stage="generate", own=True, step=step, tokens=tokens)
        now = end + MS
    ProcessFiles(run, 100, rank=rank).seal(bank)
    return run


def test_two_healthy_runs_are_alike(healthy: Path, tmp_path: Path) -> None:
    comparison = compared(healthy, recorded(tmp_path / "run", stage_times(NOBODY, ranks=4, seed=2)))

    assert {row.verdict for row in comparison.rows} == {"alike"}
    assert comparison.first is None and comparison.over(0.0) == [] and comparison.with_it == []


def test_the_stage_that_a_step_comes_to_first_is_what_changed_first(healthy: Path, tmp_path: Path) -> None:
    """A slow input makes all others wait behind it: that is longer too, and not the cause."""
    comparison = compared(healthy, recorded(tmp_path / "run", stage_times(INPUT, ranks=4, seed=2)))

    assert comparison.first is not None and (comparison.first.stage, comparison.first.since_step) == ("reference", 0)
    assert verdicts(comparison, STEP) == {(None, None): "slower"}
    assert {row.stage for row in comparison.over(0.05)} == {None, "reference", "actor_update"}


def test_a_stage_in_which_members_wait_for_each_other_says_so(healthy: Path, tmp_path: Path) -> None:
    comparison = compared(healthy, recorded(tmp_path / "run", stage_times(INPUT, ranks=4, seed=2)))

    waits = {(row.stage, row.rank): row.waits for row in comparison.rows}
    assert waits["actor_update", None] and waits["actor_update", 1] and not waits["reference", 1]
    assert verdicts(comparison, RANK)["reference", 1] == "slower"
    assert verdicts(comparison, RANK)["reference", 0] == "alike"


def launched(path: Path, fault: str, seed: int, **part: str) -> Path:
    """Trainers as a launcher starts them: each knows what part it is. Of rank 0 also one beside it in every step."""
    run, banks, beside = new_run(path), {}, BankFiles()
    for step, rank, name, begin, end in stage_times(fault, ranks=4, seed=seed):
        if name in ("reference", "actor_update"):
            banks.setdefault(rank, BankFiles()).range(name, begin, end, stage=name, own=True, step=step)
        if part and rank == 0 and name == "reference":
            beside.range("fetch", begin + 20 * MS, begin + 21 * MS, stage="fetch", own=True, step=step)
    for rank, bank in banks.items():
        ProcessFiles(run, 100 + rank, rank=rank, world_size=len(banks), part="trainer").seal(bank)
    if part:
        ProcessFiles(run, 200, rank=0, **part).seal(beside)
    return run


def test_ranks_of_a_launched_job_are_compared(tmp_path: Path) -> None:
    comparison = compared(launched(tmp_path / "a", NOBODY, 1), launched(tmp_path / "b", INPUT, 3))

    assert verdicts(comparison, RANK)["reference", 1] == "slower"
    assert verdicts(comparison, RANK)["reference", 0] == "alike"
    assert len(comparison.of(RANK)) == 2 * 4


def test_who_works_beside_a_rank_is_no_rank_and_no_step_of_its_own(tmp_path: Path) -> None:
    worker = {"part": "dataloader 0", "under": parts.DATALOADER}
    alone, joined = launched(tmp_path / "a", NOBODY, 1), launched(tmp_path / "b", NOBODY, 1, **worker)

    steps = [side_of(open_run(run)).steps[""] for run in (alone, joined)]
    assert [step.step for step in steps[0]] == [step.step for step in steps[1]]
    assert sides.measure_lengths(steps[0]).tolist() == sides.measure_lengths(steps[1]).tolist()
    comparison = compared(launched(tmp_path / "c", INPUT, 3, **worker), joined)
    assert [row.stage for row in comparison.of(STAGE)] == ["reference", "actor_update", "fetch"]
    assert {row.stage for row in comparison.of(RANK)} == {"reference", "actor_update"}


def restarted(path: Path, *attempts: tuple[range, int]) -> Path:
    """Attempts of one job, a minute apart: which steps each did, and how many ms a stage took in it."""
    run = new_run(path)
    for attempt, (steps, ms) in enumerate(attempts):
        for rank in range(2):
            bank, began = BankFiles(), attempt * 60_000 * MS
            for step in steps:
                at = began + (step - steps.start) * 100 * MS
                bank.range("x", at, at + ms * MS + rank * step % 3 * MS // 10, stage="x", own=True, step=step)
            identity = {"start": f"s{attempt}", "restart": attempt, "start_ns": WALL_OFFSET_NS + began}
            ProcessFiles(run, 100 + 10 * attempt + rank, rank=rank, **identity).seal(bank)
    return run


def test_a_restarted_job_that_did_all_steps_again_is_not_faster(tmp_path: Path) -> None:
    once = restarted(tmp_path / "a", (range(30), 10))
    twice = restarted(tmp_path / "b", (range(30), 10), (range(30), 10))

    comparison = compared(once, twice)

    assert {row.verdict for row in comparison.rows} == {"alike"}
    assert [step.step for step in comparison.after.steps[""]] == list(range(30))
    assert [tuple(change) for change in comparison.with_it] == [("attempts of the job", "1", "2")]


def test_of_a_step_that_was_done_again_the_last_attempt_counts(tmp_path: Path) -> None:
    run = restarted(tmp_path / "run", (range(20), 10), (range(10, 30), 40))

    steps = side_of(open_run(run)).steps[""]

    assert [step.step for step in steps] == list(range(30))
    assert [seconds > 0.02 for seconds in sides.of_stage(steps, "x")] == [step >= 10 for step in range(30)]


def test_the_time_to_a_restart_is_no_step(tmp_path: Path) -> None:
    run = restarted(tmp_path / "run", (range(20), 10), (range(20, 30), 10))

    assert max(sides.measure_lengths(side_of(open_run(run)).steps[""])) < 1


def test_since_which_step_it_is_so_is_said(healthy: Path, tmp_path: Path) -> None:
    rows = stage_times(BEHIND, ranks=4, seed=2, since=20)

    comparison = compared(healthy, recorded(tmp_path / "run", rows))

    assert comparison.first is not None and comparison.first.stage == "actor_update"
    assert comparison.first.since_step == pytest.approx(20, abs=1)


def test_two_parts_of_one_run_are_compared(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", stage_times(BEHIND, since=30))

    comparison = compared(run, run, Bounds(0, 29), Bounds(30, 59))

    assert verdicts(comparison, STEP) == {(None, None): "slower"}
    assert verdicts(comparison, STAGE) == {("reference", None): "alike", ("actor_update", None): "slower"}


def test_parts_of_one_run_that_overlap_are_refused(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", stage_times(NOBODY))

    with pytest.raises(ReadError, match="do not overlap"):
        compared(run, run, Bounds(0, 30), Bounds(30, 59))


def test_a_run_of_too_few_steps_is_refused(healthy: Path, tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="only 3 steps"):
        compared(healthy, recorded(tmp_path / "run", stage_times(NOBODY, ranks=4, steps=3)))


def test_a_run_without_steps_is_refused(healthy: Path, tmp_path: Path) -> None:
    with pytest.raises(ReadError, match=r"no step is over"):
        compared(healthy, new_run(tmp_path / "run"))


def test_runs_that_have_nothing_in_common_are_refused(healthy: Path, tmp_path: Path) -> None:
    run, bank = new_run(tmp_path / "run"), BankFiles()
    for step in range(10):
        bank.range("x", step * MS, step * MS + MS // 2, stage="x", own=True, step=step)
    ProcessFiles(run, 1, rank=0, role="rollout").seal(bank)

    with pytest.raises(ReadError, match="no role in common"):
        compared(healthy, run)


def test_more_work_is_not_called_slower(tmp_path: Path) -> None:
    less, more = of_tokens(tmp_path / "a", 1000, 20_000), of_tokens(tmp_path / "b", 1500, 20_000)

    comparison = compared(less, more)

    assert verdicts(comparison, STAGE) == {("actor_generate", None): "more work"}
    assert comparison.other_work and comparison.over(0.05) == []
    assert [change.what for change in comparison.with_it] == ["tokens of actor_generate"]


def test_what_is_slower_for_the_same_work_is_slower_however_much_work_there_is(tmp_path: Path) -> None:
    quick, slow = of_tokens(tmp_path / "a", 1000, 20_000), of_tokens(tmp_path / "b", 1500, 30_000)

    comparison = compared(quick, slow)

    assert [row.stage for row in comparison.over(0.05)] == ["actor_generate"]


@pytest.mark.parametrize(
    ("tokens", "ns_each", "verdict", "is_over"),
    [
        (500, 28_000, "slower", True),  # half the tokens in less time, and a token takes 40 % longer
        (950, 22_000, "slower", True),  # a step takes 4.5 % longer, a token 10 %
        (2000, 20_400, "slower", False),  # twice the time for twice the tokens, and 2 % for a token
        (1500, 14_000, "faster", False),  # more time, and less for a token
        (500, 20_000, "less work", False),
        (1000, 22_000, "slower", True),
    ],
)
def test_the_time_of_one_token_decides(
    tmp_path: Path, tokens: int, ns_each: int, verdict: str, is_over: bool
) -> None:  # fmt: skip
    before, after = of_tokens(tmp_path / "a", 1000, 20_000), of_tokens(tmp_path / "b", tokens, ns_each)

    comparison = compared(before, after)

    assert verdicts(comparison, STAGE) == {("actor_generate", None): verdict}
    assert [row.stage for row in comparison.over(0.05) if row.of == STAGE] == ["actor_generate"] * is_over


def test_a_job_that_knows_no_ranks_is_compared_without_a_warning(tmp_path: Path) -> None:
    before, after = (of_tokens(tmp_path / name, 1000, 20_000, rank=None) for name in ("a", "b"))

    assert [row.of for row in compared(before, after).rows] == [STEP, STAGE]


def of_ranks(path: Path, tokens: list[int], *, waits: bool = False, sync_ms: int = 0, slow: float = 1.0) -> Path:
    """Ranks that generate so many tokens a step each, and then do what has no tokens; the last rank may be slow."""
    run, banks, chance, now = new_run(path), [BankFiles() for _ in tokens], random.Random(path.name), 0
    for step in range(20):
        took = [int(20_000 * count * chance.uniform(0.99, 1.01)) for count in tokens]
        took[-1] = int(slow * took[-1])
        synced = now + max(took) + int(sync_ms * MS * chance.uniform(0.99, 1.01))
        for bank, count, ns in zip(banks, tokens, took):
            end = now + (max(took) if waits else ns)
            bank.range("generate", now, end, stage="generate", own=True, step=step, tokens=count)
            if sync_ms:
                bank.range("sync", now + max(took), synced, stage="sync", own=True, step=step)
        now = synced + MS
    for rank, bank in enumerate(banks):
        ProcessFiles(run, 100 + rank, rank=rank, world_size=len(tokens)).seal(bank)
    return run


def rendered(comparison: comparing.Comparison) -> str:
    shown = io.StringIO()
    Console(width=140, file=shown).print(text.render_comparison(comparison))
    return shown.getvalue()


def test_a_rank_that_has_more_tokens_than_before_is_not_slower(tmp_path: Path) -> None:
    before, after = of_ranks(tmp_path / "a", [1000] * 4), of_ranks(tmp_path / "b", [1000, 1000, 1000, 1300])

    comparison = compared(before, after)

    ranks = {row.rank: row for row in comparison.of(RANK)}
    assert [ranks[rank].verdict for rank in range(4)] == ["alike", "alike", "alike", "more work"]
    assert ranks[3].tokens is not None and (ranks[3].tokens.before, ranks[3].tokens.after) == (
        pytest.approx(1000), pytest.approx(1300),
    )  # fmt: skip
    assert rendered(comparison).splitlines()[-1].split()[:2] == ["3", "actor_generate"]


@pytest.mark.parametrize(
    ("tokens", "verdict", "changes"),
    [
        (1000, "alike", []),
        (2000, "more work", [("1000 a step in each", "2000 a step in each")]),
    ],
)
def test_half_the_ranks_make_no_token_slower(
    tmp_path: Path, tokens: int, verdict: str, changes: list[tuple[str, str]]
) -> None:  # fmt: skip
    """With as many tokens for each, and with as many tokens in all, which are twice as many for each."""
    comparison = compared(of_ranks(tmp_path / "a", [1000, 1000]), of_ranks(tmp_path / "b", [tokens]))

    assert verdicts(comparison, STAGE) == {("actor_generate", None): verdict}
    assert [change[1:] for change in comparison.with_it if change.what == "tokens of actor_generate"] == changes
    assert comparison.other_work == (verdict != "alike")
    assert comparison.over(0.05) == []


def test_a_rank_that_is_never_in_a_stage_leaves_the_others_their_own_tokens(tmp_path: Path) -> None:
    """As of a pipeline, whose last rank alone has the loss."""
    before, after = (of_ranks(tmp_path / name, [1000, 1000, last]) for name, last in (("a", 1000), ("b", 1300)))
    for run in (before, after):
        bank = BankFiles()
        for step in range(20):
            bank.range("y", step * 40 * MS, step * 40 * MS + MS, stage="y", own=True, step=step)
        ProcessFiles(run, 200, rank=3, world_size=4).seal(bank)

    verdict = verdicts(compared(before, after), RANK)

    assert verdict["actor_generate", 2] == "more work" and ("actor_generate", 3) not in verdict


def test_a_rank_whose_tokens_take_longer_is_slower_also_where_it_has_fewer(tmp_path: Path) -> None:
    before, after = of_ranks(tmp_path / "a", [1000] * 4), of_ranks(tmp_path / "b", [1000, 1000, 1000, 800], slow=1.4)

    row = compared(before, after).of(RANK)[3]

    assert row.verdict == "slower" and row.judged.ratio == pytest.approx(0.4, abs=0.02)


def test_a_rank_that_waits_for_others_with_more_tokens_is_neither_slower_nor_faster(tmp_path: Path) -> None:
    """All are in the stage for as long as the one with most tokens, whoever that is."""
    before = of_ranks(tmp_path / "a", [1000, 500, 500, 500], waits=True)

    comparison = compared(before, of_ranks(tmp_path / "b", [500, 500, 500, 1000], waits=True))

    assert {row.verdict for row in comparison.rows} == {"alike"}


def test_a_step_that_is_longer_by_its_tokens_does_not_fail_a_build(tmp_path: Path) -> None:
    comparison = compared(of_ranks(tmp_path / "a", [1000] * 2), of_ranks(tmp_path / "b", [1080] * 2))

    assert verdicts(comparison, STEP) == {(None, None): "more work"} and comparison.over(0.05) == []
    assert "Longer: a step takes" in rendered(comparison) and "for the same work +0." in rendered(comparison)


@pytest.mark.parametrize(("slow", "verdict"), [(1.0, "alike"), (1.5, "slower")])
def test_in_a_step_tokens_weigh_as_much_as_the_stages_that_count_them(
    tmp_path: Path, slow: float, verdict: str
) -> None:
    """With 9 % fewer tokens in a quarter of a step, a step should be 2 % shorter: not 9 %."""
    before = of_ranks(tmp_path / "a", [1000] * 2, sync_ms=60)

    comparison = compared(before, of_ranks(tmp_path / "b", [910] * 2, sync_ms=60, slow=slow))

    (step,) = comparison.of(STEP)
    assert step.tokens is not None and step.tokens.ratio == pytest.approx(-0.022, abs=0.002)
    assert step.judged.ratio == pytest.approx((slow - 1) * 0.91 / 4, abs=0.01)
    assert verdict == ("slower" if step.judged.direction else "alike")


def test_as_json_a_step_has_work_and_a_rank_has_tokens(tmp_path: Path) -> None:
    comparison = compared(of_ranks(tmp_path / "a", [1000] * 2), of_ranks(tmp_path / "b", [1080] * 2))

    rows = {(row["of"], row["rank"]): row for row in comparing.as_json(comparison, None)["rows"]}

    assert rows[STEP, None]["work"]["after"] == pytest.approx(1 + 0.08 * 20 / 21, abs=0.005)
    assert rows[STEP, None]["same_work_ns"]["before"] == pytest.approx(21 * MS, rel=0.02)
    assert rows[RANK, 1]["tokens"]["after"] == pytest.approx(1080)
    assert rows[RANK, 1]["per_token_ns"]["after"] == pytest.approx(20_000, rel=0.02)


def test_since_when_a_token_takes_longer_is_said_also_where_a_step_takes_less(tmp_path: Path) -> None:
    run, bank = new_run(tmp_path / "b"), BankFiles()
    for step in range(40):
        ns = 500 * (40_000 if step >= 10 else 20_000) + step % 3 * MS // 10
        bank.range("generate", step * 22 * MS, step * 22 * MS + ns, stage="generate", own=True, step=step, tokens=500)
    ProcessFiles(run, 100, rank=0).seal(bank)

    comparison = compared(of_tokens(tmp_path / "a", 1500, 20_000), run)

    assert comparison.first is not None and comparison.first.since_step == 10
    shown = rendered(comparison)
    assert "first     actor_generate, from step 10: +100 % for a token" in shown
    assert "Shorter: a step takes" in shown and "Faster" not in shown


def of_two_stages(path: Path, *, x_ms: float, y_ms: float) -> Path:
    """Steps of x and then y: each step as long as both take."""
    run, bank, now = new_run(path), BankFiles(), 0
    for step in range(20):
        for stage, ms in (("x", x_ms), ("y", y_ms)):
            end = now + int((ms + step % 3 / 20) * MS)
            bank.range(stage, now, end, stage=stage, own=True, step=step)
            now = end
    ProcessFiles(run, 100, rank=0).seal(bank)
    return run


@pytest.mark.parametrize(
    ("x_ms", "y_ms", "verdict", "first"),
    [
        (8, 40, "slower", "y"),
        (12, 10, "faster", "y"),
        (8, 22, "alike", "y"),
        (12, 18, "alike", "x"),
        (8, 20, "faster", "x"),
        (10, 20, "alike", None),
    ],
)
def test_what_changed_first_is_what_changed_as_a_step_did(
    tmp_path: Path, x_ms: float, y_ms: float, verdict: str, first: str | None
) -> None:
    before = of_two_stages(tmp_path / "a", x_ms=10, y_ms=20)

    comparison = compared(before, of_two_stages(tmp_path / "b", x_ms=x_ms, y_ms=y_ms))

    assert verdicts(comparison, STEP) == {(None, None): verdict}
    assert (comparison.first and comparison.first.stage) == first


def test_where_only_the_time_is_longer_for_sure_it_says_that_a_token_decides(tmp_path: Path) -> None:
    def run(name: str, ms: int, seed: int) -> Path:
        path, bank, chance = new_run(tmp_path / name), BankFiles(), random.Random(seed)
        for step in range(20):
            at, tokens = step * 100 * MS, chance.randint(600, 1400)
            bank.range("generate", at, at + ms * MS, stage="generate", own=True, step=step, tokens=tokens)
        ProcessFiles(path, 100, rank=0).seal(bank)
        return path

    comparison = compared(run("a", 20, 1), run("b", 21, 2))

    assert comparison.of(STAGE)[0].time.direction == 1 and comparison.over(0.01) == []
    assert "no difference seen for a token" in rendered(comparison)


def test_other_ranks_and_stages_are_named_and_left_out(healthy: Path, tmp_path: Path) -> None:
    comparison = compared(healthy, recorded(tmp_path / "run", stage_times(NOBODY, ranks=2)))

    assert comparison.of(RANK) == []
    assert [tuple(change) for change in comparison.with_it] == [("ranks", "4", "2")]
    assert any("do not have the same ones" in words for words in comparison.left_out)


def test_versions_that_differ_are_named(tmp_path: Path) -> None:
    def run(name: str, torch: str) -> Path:
        path, bank = new_run(tmp_path / name), BankFiles()
        for step in range(10):
            bank.range("x", step * MS, step * MS + MS // 2, stage="x", own=True, step=step)
        ProcessFiles(path, 1, rank=0, versions=f"torch {torch}, ray 2.60.0").seal(bank)
        return path

    comparison = compared(run("a", "2.12.0"), run("b", "2.13.0"))

    assert [tuple(change) for change in comparison.with_it] == [("torch", "2.12.0", "2.13.0")]


def configured(path: Path, **settings: bool | int | float) -> Path:
    """Two ranks whose trainer has these settings."""
    run = of_ranks(path, [1000] * 2)
    for process in open_run(run).processes()["process"]:
        patch_record.write_record(run, process, (), settings)
    return run


def test_settings_of_the_trainer_that_differ_are_named(tmp_path: Path) -> None:
    before = configured(tmp_path / "a", **{"data.batch": 64, "lr": 1e-6, "compile": False, "old": 1})
    after = configured(tmp_path / "b", **{"data.batch": 128, "lr": 1e-6, "compile": True, "new": 2})

    comparison = compared(before, after)

    assert [tuple(change) for change in comparison.with_it] == [
        ("trainer's data.batch", "64", "128"), ("trainer's compile", "False", "True"),
        ("trainer's old", "1", ""), ("trainer's new", "", "2"),
    ]  # fmt: skip
    assert "trainer's data.batch: 64 → 128" in rendered(comparison)


def test_where_one_side_knows_no_settings_that_is_one_line(tmp_path: Path) -> None:
    comparison = compared(of_ranks(tmp_path / "a", [1000] * 2), configured(tmp_path / "b", lr=1e-6, batch=64))

    assert [tuple(change) for change in comparison.with_it] == [("settings of the trainer", "", "2 known")]


def test_ranks_that_do_not_agree_about_a_setting_are_named_together(tmp_path: Path) -> None:
    before, after = (configured(tmp_path / name, seed=1) for name in ("a", "b"))
    patch_record.write_record(after, open_run(after).processes()["process"][0], (), {"seed": 7})

    assert [tuple(change) for change in compared(before, after).with_it] == [("trainer's seed", "1", "1 and 7")]


@pytest.mark.parametrize("content", [b"", b"[]", b'{"targets": [], "settings": 3}', b'{"settings": {"a": {}}', b"\xff"])
def test_settings_in_a_damaged_file_are_none_and_no_error(tmp_path: Path, content: bytes) -> None:
    before, after = (configured(tmp_path / name, seed=1) for name in ("a", "b"))
    process = open_run(after).processes()["process"][0]
    (after / layout.PATCHES / f"{process}{layout.PATCHES_SUFFIX}").write_bytes(content)

    comparison = compared(before, after)

    assert comparison.with_it == []
    assert len(comparison.after.run.damage) >= 1


def test_how_the_two_were_recorded_and_judged_is_compared(tmp_path: Path) -> None:
    before, after = (of_tokens(tmp_path / name, 1000, 20_000) for name in ("a", "b"))
    for run, native in ((before, False), (after, True)):
        ProcessFiles(run, 101, rank=1, native=native).seal(BankFiles().range("load", 0, MS))
    settings_file.change_settings(after, RUN_ID, {"slow_rank.effect": 0.2, "no.such_setting": 1, "gates.first": 2})

    comparison = compared(before, after)

    assert [tuple(change) for change in comparison.with_it] == [
        ("recorder", "Python", "Python and native"),
        ("setting slow_rank.effect", "0.04", "0.2"),
    ]


def test_presets_of_profiles_are_compared(tmp_path: Path) -> None:
    before, after = (of_tokens(tmp_path / name, 1000, 20_000) for name in ("a", "b"))
    session(before, f"{1:016x}", step=7, rank=0, preset="full")
    session(after, f"{1:016x}", step=7, rank=0, preset="light")
    session(after, f"{2:016x}", step=70, rank=0, preset="memory")

    assert [tuple(change) for change in compared(before, after).with_it] == [("presets of profiles", "full", "light")]


def test_settings_that_cannot_be_read_are_no_error(tmp_path: Path) -> None:
    before, after = (of_tokens(tmp_path / name, 1000, 20_000) for name in ("a", "b"))
    settings_file.change_settings(after, RUN_ID, {"slow_rank.effect": 0.2})
    (after / layout.CONTROL / layout.SETTINGS).write_text("{")

    assert [tuple(change) for change in compared(before, after).with_it] == [("settings", "", "cannot be read")]


def test_as_json_it_has_a_schema_and_times_in_ns(healthy: Path, tmp_path: Path) -> None:
    comparison = compared(healthy, recorded(tmp_path / "run", stage_times(INPUT, ranks=4, seed=2)))

    document = comparing.as_json(comparison, 0.05)

    assert document["schema"] == comparing.SCHEMA and document["first"]["stage"] == "reference"
    assert document["rows"][0]["time_ns"]["before"] == pytest.approx(34.4 * MS, rel=0.05)
    assert [row["stage"] for row in document["over"]] == [None, "reference", "actor_update"]
