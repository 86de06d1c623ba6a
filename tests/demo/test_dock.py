"""The transfer dock: rows come out as they went in, once for each consumer."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from mstxkit.demo.dock import TransferDock  # noqa: E402


def _dock() -> TransferDock:
    dock = TransferDock(rows=4)
    dock.put_experience({"prompts": torch.tensor([[1, 1], [2, 2], [3, 3]])}, torch.tensor([2, 0, 1]))
    return dock


def test_rows_come_out_at_the_index_where_they_were_put() -> None:
    batch, indexes = _dock().get_experience("rule_reward", ["prompts"])

    assert indexes.tolist() == [0, 1, 2]
    assert batch["prompts"].tolist() == [[2, 2], [3, 3], [1, 1]]


def test_each_consumer_gets_each_row_once() -> None:
    dock = _dock()

    first = dock.get_experience("actor_train", ["prompts"], count=2)[1]
    second = dock.get_experience("actor_train", ["prompts"], count=2)[1]
    third = dock.get_experience("actor_train", ["prompts"], count=2)[1]
    other = dock.get_experience("ref_log_prob", ["prompts"])[1]

    assert [first.tolist(), second.tolist(), third.tolist()] == [[0, 1], [2], []]
    assert other.tolist() == [0, 1, 2]


def test_a_row_is_given_out_when_all_its_columns_are_there() -> None:
    dock = _dock()
    dock.put_experience({"rm_scores": torch.tensor([0.5])}, torch.tensor([1]))

    batch, indexes = dock.get_experience("actor_train", ["prompts", "rm_scores"])

    assert indexes.tolist() == [1]
    assert batch["rm_scores"].tolist() == [0.5]


def test_what_comes_out_is_a_copy() -> None:
    dock, values = TransferDock(rows=1), torch.tensor([1.0])
    dock.put_experience({"rm_scores": values}, torch.tensor([0]))
    values[0] = 2.0

    batch, _indexes = dock.get_experience("a", ["rm_scores"])
    batch["rm_scores"][0] = 3.0

    assert dock.get_experience("b", ["rm_scores"])[0]["rm_scores"].tolist() == [1.0]


def test_what_nobody_has_put_cannot_be_fetched() -> None:
    with pytest.raises(KeyError):
        TransferDock(rows=4).get_experience("actor_train", ["prompts"])
