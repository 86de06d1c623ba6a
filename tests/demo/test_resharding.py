"""Weights and gradients between two real ranks."""

from __future__ import annotations

from typing import Any, Callable

import pytest

pytest.importorskip("torch")

RanksRun = Callable[[str], "list[dict[str, Any]]"]
VECTORS = "from torch.nn.utils import parameters_to_vector as vector\n"


def test_after_the_all_reduce_every_rank_has_the_mean_of_all_gradients(on_two_ranks: RanksRun) -> None:
    script = VECTORS + (
        "trainer = Trainer(TrainingSettings(prompts=2, mini_batches=1, gradient_limit=1e9))\n"
        "trainer.update = lambda: 0.0\n"
        "trainer.train_step(0)\n"
        "columns = ['prompts', 'responses', 'old_log_prob', 'ref_log_prob', 'advantages']\n"
        "trainer.forward_backward(trainer.dispatch_transfer_dock_data('actor_train', columns)[0])\n"
        "parameters = list(trainer.policy.parameters())\n"
        "own = vector([p.grad for p in parameters])\n"
        "say(own=own.tolist(), mean=mean_gradient(parameters, 1e9).tolist())\n"
    )

    first, second = on_two_ranks(script)

    assert first["own"] != second["own"]
    assert first["mean"] == second["mean"]
    assert first["mean"] == pytest.approx([(a + b) / 2 for a, b in zip(first["own"], second["own"])], abs=1e-6)


def test_resharding_gives_the_model_that_generates_the_weights_of_the_one_that_trains(on_two_ranks: RanksRun) -> None:
    script = VECTORS + (
        "trainer = Trainer(TrainingSettings(prompts=2, mini_batches=1))\n"
        "trainer.train_step(0)\n"
        "same = lambda a, b: bool((vector(a.parameters()) == vector(b.parameters())).all())\n"
        "before = same(trainer.rollout, trainer.policy)\n"
        "trainer.enter_infer_mode()\n"
        "say(before=before, after=same(trainer.rollout, trainer.policy),\n"
        "    weights=vector(trainer.rollout.parameters()).tolist(),\n"
        "    reference_kept=not same(trainer.reference, trainer.policy))\n"
    )

    first, second = on_two_ranks(script)

    for rank in (first, second):
        assert (rank["before"], rank["after"], rank["reference_kept"]) == (False, True, True)
    assert first["weights"] == second["weights"]


def test_two_slices_learn_as_the_whole_vector_would(on_two_ranks: RanksRun) -> None:
    script = (
        "torch.manual_seed(0)\n"
        "sliced, whole = torch.nn.Linear(3, 5), torch.nn.Linear(3, 5)\n"
        "whole.load_state_dict(sliced.state_dict())\n"
        "weights, adam = ShardedWeights(sliced, 0.1), torch.optim.Adam(whole.parameters(), lr=0.1)\n"
        "for _ in range(3):\n"
        "    for p in whole.parameters(): p.grad = torch.randn_like(p)\n"
        "    weights.update(torch.cat([p.grad.flatten() for p in whole.parameters()]))\n"
        "    adam.step()\n"
        "weights.gather_into(sliced)\n"
        "pairs = zip(sliced.parameters(), whole.parameters())\n"
        "say(apart=max(float((a - b).abs().max()) for a, b in pairs), slice=weights.shard.numel())\n"
    )

    figures = on_two_ranks(script)

    assert [rank["slice"] for rank in figures] == [10, 10]
    assert max(rank["apart"] for rank in figures) < 1e-6


def test_a_long_gradient_is_cut_to_the_limit(on_two_ranks: RanksRun) -> None:
    script = (
        "weight = torch.nn.Parameter(torch.zeros(4))\n"
        "weight.grad = torch.full((4,), 100.0)\n"
        "say(norm=float(mean_gradient([weight], 1.0).norm()))\n"
    )

    figures = on_two_ranks(script)

    assert [rank["norm"] for rank in figures] == pytest.approx([1.0, 1.0], abs=1e-4)
