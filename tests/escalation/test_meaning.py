"""Which ranks groups mean, by what the processes of a run said of themselves; else why that is not known."""

from __future__ import annotations

from typing import Any

import pytest

from mstxkit.errors import ConfigError
from mstxkit.escalation.meaning import ranks_meant
from mstxkit.store.fate import Heard
from mstxkit.store.report import Acknowledgement, Standing

SIZE = 8
STAGE = "actor_update"


def process(rank: int, **given: Any) -> Heard:
    """Of a run of eight: pp 2 × dp 2 × tp 2, two hosts of four."""
    about: dict[str, Any] = {
        "role": "actor", "host": f"node{rank // 4}.rack", "stages": (STAGE,), "is_alive": True, "size": SIZE,
        "why_not": "", "written_ns": 1,
        "groups": {"pp": (rank // 4, 2), "dp": (rank // 2 % 2, 2), "tp": (rank % 2, 2)}, **given,
    }  # fmt: skip
    standing = Standing(
        about["size"], 7, None, about["stages"], "idle", "torch", {}, (), about["groups"], about["why_not"]
    )
    ack = Acknowledgement(rank, about["role"], about["host"], rank, about["written_ns"], {})
    return Heard(ack, standing, about["is_alive"])


def meant(words: str, heard: list[Heard] | None = None, stage: str = STAGE) -> tuple[int, ...]:
    return ranks_meant(words, [process(rank) for rank in range(SIZE)] if heard is None else heard, [stage])


@pytest.mark.parametrize(
    ("words", "ranks"),
    [
        ("dp:1", (2, 3, 6, 7)),
        ("dp:0-1", tuple(range(8))),
        ("tp:0", (0, 2, 4, 6)),
        ("pp:last", (4, 5, 6, 7)),
        ("pp:first", (0, 1, 2, 3)),
        ("peers:3", (1, 3)),
        ("peers:4,peers:0", (0, 2, 4, 6)),
        ("host:node1.rack", (4, 5, 6, 7)),
        ("host:node0", (0, 1, 2, 3)),
        ("role:actor", tuple(range(8))),
        ("5,tp:0", (0, 2, 4, 5, 6)),
    ],
)
def test_each_group_is_the_ranks_that_are_in_it(words: str, ranks: tuple[int, ...]) -> None:
    assert meant(words) == ranks


def test_a_peer_is_the_next_of_the_same_part_of_the_model() -> None:
    ranks = [process(rank, groups={"dp": (rank // 2, 4), "tp": (rank % 2, 2)}) for rank in range(SIZE)]

    assert [meant(f"peers:{rank}", ranks) for rank in (0, 3, 7)] == [(0, 2), (3, 5), (1, 7)]


def test_of_roles_with_the_same_ranks_the_one_that_runs_the_stage_counts() -> None:
    critics = [
        process(rank, role="critic", stages=("critic_update",), size=4, groups={"dp": (rank, 4)}) for rank in range(4)
    ]
    everybody = [process(rank) for rank in range(SIZE)] + critics

    assert meant("dp:1", everybody) == (2, 3, 6, 7)
    assert meant("dp:1", everybody, "critic_update") == (1,)


def test_a_rank_that_has_not_entered_the_stage_yet_is_in_its_groups() -> None:
    ranks = [process(rank, stages=(STAGE,) if rank else ("actor_generate",)) for rank in range(SIZE)]

    assert meant("dp:0", ranks) == (0, 1, 4, 5)


def test_who_is_known_to_have_ended_is_not_asked() -> None:
    assert meant("host:node0", [process(rank, is_alive=rank != 2) for rank in range(SIZE)]) == (0, 1, 3)


def test_a_second_process_of_a_rank_keeps_nobody_waiting() -> None:
    """A forked child, whose role has its pid: there is none for each rank."""
    ranks = [process(rank) for rank in range(SIZE)]

    assert meant("tp:0", [*ranks, process(0, role="actor_4711")]) == (0, 2, 4, 6)


@pytest.mark.parametrize(
    ("words", "heard", "told"),
    [
        ("dp:1", [process(rank) for rank in range(6)], "nothing was heard of rank 6, 7 of role actor yet"),
        ("dp:2", None, "dp has the indices 0 to 1 here, not 2"),
        (
            "cp:0",
            None,
            "the cp of rank 0, 1, 2, 3, 4, 5, 6, 7 is not known: known there: dp, pp, tp; name ranks by their numbers",
        ),
        ("host:node9", None, "no living process of the run has the host 'node9'; known: node0.rack, node1.rack"),
        ("role:critic", None, "no living process of the run has the role 'critic'; known: actor"),
        ("peers:9", None, "no living process of the run has the rank 9"),
        ("peers:0", [process(0, size=1, groups={"dp": (0, 1)})], "rank 0 has no data-parallel peer: dp is 1 here"),
        (
            "dp:0",
            [process(0, size=1, groups={}, why_not="there are no groups")],
            "the dp of rank 0 is not known: there are no groups",
        ),
        ("dp:0", [process(0, size=1, is_alive=False)], "all processes of the run that could be in it have ended"),
        ("xp:0", None, "'xp:0' is no group of ranks; give numbers, host:NAME, role:NAME, dp:3"),
        ("dp:0", [], "no process of the run that could say so has spoken yet"),
    ],
)
def test_what_is_not_known_is_an_error_that_says_why(words: str, heard: list[Heard] | None, told: str) -> None:
    with pytest.raises(ConfigError) as error:
        meant(words, heard)

    assert told in str(error.value)
