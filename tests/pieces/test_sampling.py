"""Targets that are pieces of a stage: declared while they are patched; dummies and mixed calls by their arguments."""

from __future__ import annotations

from typing import Any, Callable

import pytest
from builders.watched_pieces import watched

from mstxkit import faults, stage
from mstxkit.patching import registry
from mstxkit.pieces import boundaries
from mstxkit.pieces.kinds import PieceRole, PieceSampling
from mstxkit.testing import captured

SOURCE = """
class Runner:
    size = 1

    def step(self, batch):
        if batch == "bad":
            raise ValueError("in a step")

    def schedule(self, batches, forward_only=False):
        for batch in batches:
            self.step(batch)

    async def later(self, batch):
        pass

def gather(batch):
    yield batch
"""
Install = Callable[..., dict[str, Any]]
SITES = "ACME.runner:Runner"


@pytest.fixture
def runner(acme: Any) -> Any:
    acme.write("runner", SOURCE)
    return acme


def kinds_of(acme: Any, *paths: str) -> list[str | None]:
    from mstxkit.engine.choose import engine

    roles = [boundaries.role_of(engine.intern(path, None, "default")) for path in paths]
    return [None if role is None else role.per for role in roles]


def test_a_target_with_a_boundary_is_a_piece_while_it_is_patched(runner: Any, install: Install, when: str) -> None:
    if when == "after import":
        runner.load("runner")
    install(runner.patch(runner.target(f"{SITES}.step", boundary="decode_step")))
    made = runner.load("runner").Runner()
    while_patched = (boundaries.list_kinds(), boundaries.explain_refusal("actor_generate", "decode_step"))

    with watched() as seen, stage("actor_generate"):
        made.step("one")
        made.step("two")
    registry.remove_patches()

    assert seen == ["+actor_generate", *["+decode_step", "-decode_step"] * 2, "-actor_generate"]
    assert while_patched == (("decode_step",), None)
    assert boundaries.list_kinds() == ()
    assert kinds_of(runner, "Runner.step") == [None]


def test_a_dummy_is_told_by_its_own_arguments(runner: Any, install: Install) -> None:
    install(runner.patch(runner.target(f"{SITES}.step", boundary="decode_step", dummy="len(batch) == 0")))
    made = runner.load("runner").Runner()

    with captured(), watched() as seen, stage("actor_generate"):
        for batch in ("", "one", "", "two"):
            made.step(batch)

    assert seen[1:-1] == ["+decode_step", "-decode_step"] * 2


def test_a_condition_that_cannot_be_read_makes_no_dummy_and_raises_nothing(runner: Any, install: Install) -> None:
    install(runner.patch(runner.target(f"{SITES}.step", boundary="decode_step", dummy="batch.tokens == 0")))
    made = runner.load("runner").Runner()

    with captured() as ranges, watched() as seen, stage("actor_generate"):
        made.step("one")

    assert seen[1:-1] == ["+decode_step", "-decode_step"]
    assert [found.name for found in ranges.ranges] == ["Runner.step", "actor_generate"]
    assert [where for where in faults.counts if "dummy" in where]


def test_a_piece_that_raises_ends_and_the_exception_is_the_programs(runner: Any, install: Install) -> None:
    install(runner.patch(runner.target(f"{SITES}.step", boundary="decode_step")))
    made = runner.load("runner").Runner()

    with watched() as seen, pytest.raises(ValueError, match="in a step"), stage("actor_generate"):
        made.step("bad")

    assert seen == ["+actor_generate", "+decode_step", "-decode_step", "-actor_generate"]


def pipelined(acme: Any) -> Any:
    mixes = PieceSampling(mixes={"micro_batch": "they overlap"}, mixes_if="not forward_only and self.size > 1")
    return acme.patch(
        acme.target(f"{SITES}.schedule", sampling=mixes), acme.target(f"{SITES}.step", boundary="micro_batch")
    )


@pytest.mark.parametrize(("size", "forward_only", "is_told"), [(1, False, True), (2, True, True), (2, False, False)])
def test_pieces_are_told_where_a_call_does_not_mix_them(
    runner: Any, install: Install, size: int, forward_only: bool, is_told: bool
) -> None:
    install(pipelined(runner))
    made = runner.load("runner").Runner()
    made.size = size

    with captured(), watched() as seen, stage("actor_update"):
        made.schedule(["one"], forward_only)
    refusal = boundaries.explain_refusal("actor_update", "micro_batch")

    assert seen == ["+actor_update", *(["+micro_batch", "-micro_batch"] if is_told else []), "-actor_update"]
    assert refusal == (None if is_told else "actor_update cannot be sampled by micro_batch here: they overlap")


def test_what_mixes_in_one_stage_may_be_told_in_another(runner: Any, install: Install) -> None:
    install(pipelined(runner))
    made = runner.load("runner").Runner()
    made.size = 2

    with captured():
        with stage("actor_update"):
            made.schedule(["one"])
        with stage("actor_compute_log_prob"):
            made.schedule(["one"], forward_only=True)

    assert boundaries.explain_refusal("actor_compute_log_prob", "micro_batch") is None
    assert "they overlap" in str(boundaries.explain_refusal("actor_update", "micro_batch"))


@pytest.mark.parametrize("path", [f"{SITES}.later", "ACME.runner:gather"])
def test_a_coroutine_or_generator_is_no_piece_and_that_is_the_reason(runner: Any, install: Install, path: str) -> None:
    install(
        runner.patch(
            runner.target(path, boundary="decode_step"), runner.target(f"{SITES}.step", boundary="decode_step")
        )
    )
    module = runner.load("runner")

    with captured(), watched() as seen, stage("actor_generate"):
        list(module.gather("one"))
        module.Runner().later("one").close()
        module.Runner().step("one")

    assert seen[1:-1] == ["+decode_step", "-decode_step"]
    if path.endswith("gather"):
        assert "may end on another thread" in str(boundaries.explain_refusal("actor_generate", "decode_step"))


def test_what_was_found_goes_with_the_patch(runner: Any, install: Install) -> None:
    install(pipelined(runner))
    made = runner.load("runner").Runner()
    made.size = 2
    with captured(), stage("actor_update"):
        made.schedule(["one"])
    registry.remove_patches()

    assert "there are: none of any kind" in str(boundaries.explain_refusal("actor_update", "micro_batch"))


def test_a_process_says_what_it_can_count(runner: Any, install: Install) -> None:
    nothing = boundaries.explain_refusal("actor_update", "micro_batch")
    install(runner.patch(runner.target(f"{SITES}.step", boundary="decode_step")))
    runner.load("runner")

    assert nothing == (
        "no patched function of this process is called once per micro_batch (autopatch; there are: none of any kind)"
    )
    assert "there are: decode_step" in str(boundaries.explain_refusal("actor_update", "micro_batch"))


def test_what_is_only_watched_is_no_kind_of_piece(runner: Any, install: Install) -> None:
    install(runner.patch(runner.target(f"{SITES}.step", sampling=PieceSampling(ticks=True))))
    runner.load("runner")

    assert boundaries.list_kinds() == ()
    assert kinds_of(runner, "Runner.step") == [None]


def test_a_target_that_could_not_be_patched_is_no_piece(runner: Any, install: Install) -> None:
    states = install(runner.patch(runner.target("ACME.runner:Runner.size", boundary="decode_step")))
    runner.load("runner")

    assert states["Runner.size"].state != "applied"
    assert boundaries.list_kinds() == ()


def test_two_places_of_a_target_are_taken_back_together(runner: Any, install: Install) -> None:
    runner.write("runner", SOURCE + "\nclass Derived(Runner):\n    step = Runner.step\n")
    install(runner.patch(runner.target(f"{SITES}.step", boundary="decode_step")))
    runner.load("runner")
    registry.remove_patches()

    assert boundaries.list_kinds() == ()


def test_the_same_site_declared_twice_stays_until_both_are_taken_back() -> None:
    from mstxkit.engine.choose import engine

    site = engine.intern("declared twice", None, "default")
    first, second = boundaries.declare_site(site, "mini_batch"), boundaries.declare_site(site, PieceRole("micro_batch"))

    first()
    first()
    held = boundaries.role_of(site)
    second()

    assert held == PieceRole("mini_batch")
    assert boundaries.role_of(site) is None


def test_what_was_forbidden_is_so_for_stages_that_call_it_and_only_once_it_was_called() -> None:
    from mstxkit import mstx_range
    from mstxkit.engine.choose import engine

    site = engine.intern("whole pass", "actor_update", "default")
    undos = [boundaries.forbid_pieces(site, "mini_batch", "it has none"), boundaries.declare_site(site, "mini_batch")]

    before = boundaries.explain_refusal("actor_update", "mini_batch")
    with captured(), mstx_range("whole pass", stage="actor_update"):
        pass
    after = [boundaries.explain_refusal(name, "mini_batch") for name in ("actor_update", "critic_update")]
    for undo in undos:
        undo()

    assert before is None
    assert after == ["actor_update cannot be sampled by mini_batch here: it has none", None]
