"""Which stages and pieces begin and end with watched calls, in which order, and which calls are no pieces."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from itertools import count
from typing import Any, Callable, Iterator, NamedTuple

import pytest
from builders import threads
from builders.watched_pieces import watched

from mstxkit import mstx_range, mstx_timer, stage
from mstxkit.engine.choose import engine
from mstxkit.pieces import boundaries, edges
from mstxkit.pieces.kinds import PieceRole

_numbers = count()


class Call(NamedTuple):
    """A range of a new site, to be entered any number of times."""

    site: Any
    range: Any

    def __enter__(self) -> None:
        self.range.__enter__()

    def __exit__(self, *raised: Any) -> None:
        self.range.__exit__(*raised)


Declared = Callable[..., Call]


@pytest.fixture
def declared() -> Iterator[Declared]:
    """A call of a new site with a role, for the time of the test; given a role or a kind, and a stage of its own."""
    undos = []

    def declare(role: str | PieceRole, own_stage: str | None = None) -> Call:
        name = f"call {next(_numbers)}"
        site = engine.intern(name, own_stage, "default")
        undos.append(boundaries.declare_site(site, role))
        return Call(site, mstx_range(name, stage=own_stage))

    yield declare
    for undo in undos:
        undo()


@contextmanager
def failing() -> Iterator[None]:
    with pytest.raises(ValueError, match="in a micro-batch"):
        yield


def test_a_piece_is_its_call(declared: Declared) -> None:
    step = declared("decode_step")

    with watched() as seen, stage("actor_generate"):
        for _ in range(2):
            with step:
                pass

    assert seen == [
        "+actor_generate", "+decode_step", "-decode_step", "+decode_step", "-decode_step", "-actor_generate",
    ]  # fmt: skip


def test_a_forward_pass_begins_a_micro_batch_that_holds_its_backward_pass(declared: Declared) -> None:
    forward = declared(PieceRole("micro_batch", until_next=True, within="mini_batch"))
    step = declared(PieceRole(ends_before=("micro_batch",), ends_after=("mini_batch",)))

    with watched() as seen, stage("actor_update"):
        for _ in range(2):
            for _ in range(2):
                with forward:
                    pass
                seen.append("backward")
            with step:
                seen.append("step")

    one = ["+mini_batch", "+micro_batch", "backward", "-micro_batch", "+micro_batch", "backward", "-micro_batch"]
    assert seen == ["+actor_update", *([*one, "step", "-mini_batch"] * 2), "-actor_update"]


def test_what_is_open_ends_with_its_stage(declared: Declared) -> None:
    forward = declared(PieceRole("micro_batch", until_next=True, within="mini_batch"))

    with watched() as seen, stage("actor_compute_log_prob"), forward:
        pass

    assert seen == [
        "+actor_compute_log_prob", "+mini_batch", "+micro_batch", "-micro_batch", "-mini_batch",
        "-actor_compute_log_prob",
    ]  # fmt: skip


def test_a_micro_batch_that_raises_ends_before_its_stage(declared: Declared) -> None:
    forward = declared(PieceRole("micro_batch", until_next=True))
    mini = declared("mini_batch")

    with watched() as seen, failing(), stage("actor_update"), mini, forward:
        raise ValueError("in a micro-batch")

    assert seen == ["+actor_update", "+mini_batch", "+micro_batch", "-micro_batch", "-mini_batch", "-actor_update"]


def test_after_a_micro_batch_that_raised_and_was_caught_the_next_one_begins(declared: Declared) -> None:
    forward = declared("micro_batch")

    with watched() as seen, stage("actor_update"):
        with failing(), forward:
            raise ValueError("in a micro-batch")
        with forward:
            pass

    assert seen == ["+actor_update", "+micro_batch", "-micro_batch", "+micro_batch", "-micro_batch", "-actor_update"]


@pytest.mark.parametrize("until_next", [False, True])
def test_a_piece_in_a_call_of_its_kind_is_a_part_of_it(declared: Declared, until_next: bool) -> None:
    outer, inner = (declared(PieceRole("micro_batch", until_next)) for _ in range(2))

    with watched() as seen, stage("actor_update"):
        for _ in range(2):
            with outer, inner:
                pass
            seen.append("backward")

    assert [told for told in seen if told[1:] == "micro_batch"] == ["+micro_batch", "-micro_batch"] * 2


def test_a_dummy_call_is_told_neither_at_its_entry_nor_at_its_end(declared: Declared) -> None:
    step = declared("decode_step")

    with watched() as seen, stage("actor_generate"):
        for is_dummy in (True, False, True):
            edges.next_call(step.site, is_dummy)
            with step:
                pass

    assert seen == ["+actor_generate", "+decode_step", "-decode_step", "-actor_generate"]


def test_a_dummy_call_ends_the_piece_before_it(declared: Declared) -> None:
    step = declared(PieceRole("decode_step", until_next=True))

    with watched() as seen, stage("actor_generate"):
        with step:
            pass
        edges.next_call(step.site, True)
        with step:
            seen.append("dummy")

    assert seen == ["+actor_generate", "+decode_step", "-decode_step", "dummy", "-actor_generate"]


def test_that_a_call_is_a_dummy_holds_for_one_call_of_that_function_on_that_thread(declared: Declared) -> None:
    step, other = declared("decode_step"), declared("decode_step")
    edges.next_call(step.site, True)
    on_another_thread: list[str] = []

    def elsewhere() -> None:
        with stage("actor_generate"), step:
            on_another_thread.append("ran")

    with watched() as seen, stage("actor_generate"):
        edges.next_call(step.site, True)
        threads.elsewhere(elsewhere)
        with other:
            pass
        with step:
            pass
        with step:
            pass

    assert seen == [
        "+actor_generate", "+actor_generate", "+decode_step", "-decode_step", "-actor_generate",
        *["+decode_step", "-decode_step"] * 2, "-actor_generate",
    ]  # fmt: skip
    assert on_another_thread == ["ran"]


def test_pieces_in_a_call_that_mixes_them_are_not_told(declared: Declared) -> None:
    pipeline, forward = declared(PieceRole(ends_after=("micro_batch",))), declared("micro_batch")

    with watched() as seen, stage("actor_update"):
        edges.next_call(pipeline.site, mixed=("micro_batch",))
        with pipeline, forward:
            pass
        with pipeline, forward:
            pass

    assert seen == ["+actor_update", "+micro_batch", "-micro_batch", "-actor_update"]


def test_of_what_may_end_on_another_thread_only_the_stage_is_told(declared: Declared) -> None:
    site = declared("micro_batch", "actor_update").site

    def generator() -> Iterator[int]:
        yield 1

    with watched() as seen:
        list(engine.driven(site, generator()))

    assert seen == ["+actor_update", "-actor_update"]


def test_a_stage_inside_itself_is_told_once(declared: Declared) -> None:
    step = declared("decode_step", "actor_generate")

    with watched("decode_step") as seen, stage("actor_generate"), step:
        pass

    assert seen == ["+actor_generate", "+decode_step", "-decode_step", "-actor_generate"]


def test_other_stages_inside_have_pieces_of_their_own(declared: Declared) -> None:
    forward = declared(PieceRole("micro_batch", until_next=True))

    with watched() as seen, stage("actor_update"), forward:
        with stage("weight_sync"), forward:
            pass

    assert seen == [
        "+actor_update", "+micro_batch", "+weight_sync", "+micro_batch", "-micro_batch", "-weight_sync", "-micro_batch",
        "-actor_update",
    ]  # fmt: skip


def whose(begin: Callable[[], Any]) -> list[tuple[str, ...]]:
    """Of each piece that begins with these calls: of which stages it is one."""
    seen: list[edges.Edge] = []
    with watched():
        engine.set_watch(
            lambda site, _: seen.extend(edges.enter_call(site)), lambda site, _: edges.leave_call(site), None
        )
        begin()
    return [edge.stages for edge in seen if edge.what == edges.BOUNDARY and edge.begins]


def test_a_piece_is_one_of_the_stages_around_too_out_to_one_of_its_kind(declared: Declared) -> None:
    forward, step = declared("micro_batch"), declared("decode_step")

    def nested() -> None:
        with stage("train_step"), forward, stage("actor_update"), stage("actor_compute_log_prob"), forward, step:
            pass

    assert whose(nested) == [
        ("train_step",), ("actor_compute_log_prob", "actor_update"),
        ("actor_compute_log_prob", "actor_update", "train_step"),
    ]  # fmt: skip


def test_aliases_of_a_stage_are_one_stage(declared: Declared) -> None:
    with watched() as seen, stage("update_actor"):
        pass

    assert seen == ["+actor_update", "-actor_update"]


def test_steps_that_are_stages_are_counted_in_rounds_where_they_are_sampled(declared: Declared) -> None:
    step = declared(PieceRole("decode_step", until_next=True), "actor_generate")
    tokens = declared(PieceRole(ends_after=("decode_step",)), "actor_generate")
    wake_up = declared(PieceRole(ends_round=True))

    with watched("decode_step") as seen:
        for _ in range(2):
            with wake_up:
                seen.append("wake")
            for _ in range(2):
                with step:
                    pass
                with tokens:
                    pass

    one = ["+decode_step", "-decode_step"] * 2
    assert seen == ["wake", "+actor_generate", *one, "-actor_generate", "wake", "+actor_generate", *one]


def test_without_a_sample_each_such_step_is_an_occurrence(declared: Declared) -> None:
    step = declared("decode_step", "actor_generate")

    with watched() as seen:
        for _ in range(2):
            with step:
                pass

    assert seen == ["+actor_generate", "+decode_step", "-decode_step", "-actor_generate"] * 2


@pytest.mark.parametrize("per", [None, "micro_batch", "mini_batch"])
def test_a_stage_that_is_a_round_lasts_from_its_first_call_to_the_end_of_what_ends_it(
    declared: Declared, per: str | None
) -> None:
    """As where a loop calls a function for each micro-batch, and then the optimizer, which may call others inside."""
    fetch = declared(PieceRole(ends_round=True))
    forward = declared(PieceRole("micro_batch", is_round=True), "train_step")
    optimizer, inner = declared(PieceRole(ends_round_after=True)), declared(PieceRole(ends_round_after=True))

    with watched(per) as seen:
        for _ in range(2):
            with fetch:
                pass
            for _ in range(2):
                with forward:
                    pass
            with optimizer:
                with inner:
                    pass
                seen.append("stepped")

    pieces = ["+micro_batch", "-micro_batch"] * 2
    assert seen == ["+train_step", *pieces, "stepped", "-train_step"] * 2


def test_a_round_that_nothing_ends_goes_on_to_the_next_fetch(declared: Declared) -> None:
    fetch = declared(PieceRole(ends_round=True))
    forward = declared(PieceRole("micro_batch", is_round=True), "train_step")

    with watched() as seen:
        for _ in range(2):
            with forward:
                pass
        with fetch:
            seen.append("fetched")

    assert seen == ["+train_step", *["+micro_batch", "-micro_batch"] * 2, "-train_step", "fetched"]


class Updates:
    """Calls as trl's loop has them: a whole step is a round, and in it the actor's update is one."""

    def __init__(self, declared: Declared) -> None:
        self.fetch = declared(PieceRole(ends_round=True))
        self.step = declared(PieceRole("micro_batch", is_round=True), "train_step")
        self.loss = declared(PieceRole("micro_batch", until_next=True, is_round=True), "actor_update")
        self.clip = declared(PieceRole(ends_before=("micro_batch",)))
        self.optimizer = declared(PieceRole(ends_before=("micro_batch",), ends_round_after=True))

    def micro_batch(self, generates: bool = False, fails: str = "") -> None:
        with self.step:
            with stage("actor_generate") if generates else nullcontext():
                pass
            with self.loss:
                if fails == "loss":
                    raise ValueError("in a micro-batch")
            with stage("actor_update"):
                if fails == "backward":
                    raise ValueError("in a micro-batch")

    def step_over(self) -> None:
        for call in (self.clip, self.optimizer):
            with call, stage("actor_update"):
                pass


@pytest.fixture
def updates(declared: Declared) -> Updates:
    return Updates(declared)


GENERATED = ["+actor_generate", "-actor_generate"]


@pytest.mark.parametrize("per", [None, "micro_batch", "decode_step"])
def test_rounds_lie_in_rounds_and_end_together_the_inner_first(updates: Updates, per: str | None) -> None:
    with watched(per) as seen:
        for _ in range(2):
            with updates.fetch:
                pass
            for number in range(2):
                updates.micro_batch(generates=number == 0)
            updates.step_over()
            seen.append("stepped")

    assert [told for told in seen if told[1:] != "micro_batch"] == [
        "+train_step", *GENERATED, "+actor_update", "-actor_update", "-train_step", "stepped",
    ] * 2  # fmt: skip


def test_each_of_nested_rounds_has_pieces_of_its_own(updates: Updates) -> None:
    def update() -> None:
        for _ in range(3):
            updates.micro_batch()
        updates.step_over()

    assert whose(update) == [("train_step",), ("actor_update",)] * 3


def test_another_stage_in_a_call_of_the_outer_round_ends_the_inner_one_only(updates: Updates) -> None:
    """As where answers are generated more often than weights are updated."""
    with watched() as seen:
        for _ in range(2):
            updates.micro_batch(generates=True)
        updates.step_over()

    assert [told for told in seen if told[1:] != "micro_batch"] == [
        "+train_step", *[*GENERATED, "+actor_update", "-actor_update"] * 2, "-train_step",
    ]  # fmt: skip


def test_rounds_that_no_optimizer_ends_go_on_to_the_next_fetch(updates: Updates) -> None:
    with watched() as seen:
        updates.micro_batch()
        updates.micro_batch()
        with updates.fetch:
            seen.append("fetched")

    assert seen[-4:] == ["-micro_batch", "-actor_update", "-train_step", "fetched"]
    assert seen.count("-actor_update") == 1


def test_a_round_in_a_stage_that_is_none_ends_with_it(updates: Updates) -> None:
    """As the loss of an evaluation."""
    with watched() as seen:
        with stage("evaluate"):
            for _ in range(2):
                with updates.loss:
                    pass
        seen.append("evaluated")

    pieces = ["+micro_batch", "-micro_batch"] * 2
    assert seen == ["+evaluate", "+actor_update", *pieces, "-actor_update", "-evaluate", "evaluated"]


@pytest.mark.parametrize("where", ["loss", "backward"])
def test_a_call_that_fails_leaves_no_round_open(updates: Updates, where: str) -> None:
    with watched() as seen:
        updates.micro_batch()
        with failing():
            updates.micro_batch(fails=where)
        seen.append("failed")

    assert [told for told in seen if told[1:] != "micro_batch"] == [
        "+train_step", "+actor_update", "-actor_update", "-train_step", "failed",
    ]  # fmt: skip
    assert seen.count("+micro_batch") == seen.count("-micro_batch")


def test_a_call_in_its_stage_leaves_the_rounds_that_began_there(updates: Updates) -> None:
    with watched() as seen, stage("train_step"):
        for _ in range(2):
            updates.micro_batch()
        updates.step_over()

    assert [told for told in seen if told[1:] != "micro_batch"] == [
        "+train_step", "+actor_update", "-actor_update", "-train_step",
    ]  # fmt: skip


def test_another_stage_ends_a_round_but_not_from_within_a_step(declared: Declared) -> None:
    step = declared("decode_step", "actor_generate")

    with watched("decode_step") as seen:
        with step, stage("weight_sync"):
            pass
        with step:
            pass
        with stage("actor_update"):
            pass

    assert seen == [
        "+actor_generate", "+decode_step", "+weight_sync", "-weight_sync", "-decode_step",
        "+decode_step", "-decode_step", "-actor_generate", "+actor_update", "-actor_update",
    ]  # fmt: skip


def test_a_stage_around_a_single_step_is_counted_across_too(declared: Declared) -> None:
    batch, forward = (
        declared(PieceRole(across="decode_step"), "actor_generate"),
        declared("decode_step", "actor_generate"),
    )

    with watched("decode_step") as seen:
        for _ in range(2):
            with batch, forward:
                pass

    assert seen == ["+actor_generate", *["+decode_step", "-decode_step"] * 2]


def test_a_piece_outside_of_all_stages_is_not_told(declared: Declared) -> None:
    with watched() as seen, declared("micro_batch"):
        pass

    assert seen == []


def test_stages_that_are_one_mini_batch_are_counted_across_also_inside_of_a_call_of_that_kind(
    declared: Declared,
) -> None:
    """As verl's TrainingWorker.train_batch around the train_batch of a critic's engine."""
    loop, worker = declared(PieceRole(ends_round=True)), declared("mini_batch")
    engine_batch = declared("mini_batch", "critic_update")

    with watched("mini_batch") as seen:
        for _ in range(2):
            with loop:
                for _ in range(3):
                    with worker, engine_batch:
                        pass

    one = ["+critic_update", *["+mini_batch", "-mini_batch"] * 3]
    assert seen == [*one, "-critic_update", *one]


def test_what_was_under_way_is_forgotten(declared: Declared) -> None:
    step = declared(PieceRole("decode_step", until_next=True), "actor_generate")

    with watched("decode_step") as seen:
        with step:
            edges.forget_open()
        with step:
            pass

    assert seen == ["+actor_generate", "+decode_step", "-actor_generate", "+actor_generate", "+decode_step"]


def test_a_call_that_ends_on_another_thread_gives_the_end_of_its_stage_only(declared: Declared) -> None:
    call = declared("micro_batch", "actor_update")

    with watched() as seen:
        call.__enter__()
        threads.elsewhere(call.__exit__, None, None, None)
    engine.carry(0)  # what is copied from this context is not told

    assert seen == ["+actor_update", "+micro_batch", "-actor_update"]


def test_a_call_that_is_watched_and_is_no_piece_gives_nothing(declared: Declared) -> None:
    with watched() as seen, declared(PieceRole()):
        pass

    assert seen == []


def test_ranges_without_role_and_stage_are_not_told(declared: Declared) -> None:
    @mstx_timer("plain")
    def plain() -> None:
        pass

    with watched() as seen:
        plain()

    assert seen == []
