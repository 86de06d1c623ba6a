"""Who takes longer only as others have its CPU is held up by its host, and no slower than the others."""

from __future__ import annotations

from typing import Any

import pytest

np = pytest.importorskip("numpy")

from builders.judged import alone, peers  # noqa: E402

from mstxkit.judging import cpu_waits  # noqa: E402
from mstxkit.judging.cpu_waits import CpuWaits  # noqa: E402
from mstxkit.judging.judge import JobJudge  # noqa: E402
from mstxkit.store.verdicts import Verdict  # noqa: E402

S = 10**9
RANKS = 4


def standing(cpu: Any, factor: float = 1.5) -> list[Verdict]:
    """Verdicts on a job in which rank 1 takes longer from step 20 on."""
    judge = JobJudge()
    for step in alone(50, ranks=RANKS, slow=(1, factor, 20)):
        judge.close(step._replace(cpu=cpu))
    return judge.standing()


def test_who_waits_for_a_cpu_by_what_it_takes_longer_is_held_up_and_not_slow() -> None:
    cpu = np.array([[0.6, 0.01], [0.6, 0.3], [0.6, 0.01], [0.6, 0.01]])
    (verdict,) = standing(cpu)

    assert (verdict.kind, verdict.rank, verdict.stage) == ("jitter", 1, "actor_generate")
    assert verdict.evidence["cpu_wait_ratio"] == 0.3
    assert "waits for a CPU" in verdict.next
    assert verdict.impact_ratio > 0.1


@pytest.mark.parametrize(("waited", "kind"), [(0.8, "jitter"), (0.05, "compute")])
def test_on_a_host_with_too_few_cpus_who_is_a_little_slower_is_held_up(waited: float, kind: str) -> None:
    """All of them wait for a CPU, each by far more than what is lost."""
    (verdict,) = standing(np.array([[0.3, waited]] * RANKS), factor=1.12)

    assert (verdict.kind, verdict.rank) == (kind, 1)
    assert verdict.evidence.get("cpu_wait_ratio") == (waited if kind == "jitter" else None)


@pytest.mark.parametrize(
    ("cpu", "factor"),
    [
        (None, 1.5),
        ([[0.6, 0.3]] * RANKS, 1.5),  # all of them wait
        ([[0.6, 0.01], [np.nan, np.nan], [0.6, 0.01], [0.6, 0.01]], 1.5),
        ([[0.6, 0.01], [0.6, 0.03], [0.6, 0.01], [0.6, 0.01]], 1.5),  # a little
        ([[0.6, 0.01], [0.6, 0.3], [0.6, 0.01], [0.6, 0.01]], 5.0),  # much, and it is far slower than by that
    ],
)
def test_a_rank_that_is_slow_is_named_all_the_same(cpu: Any, factor: float) -> None:
    (verdict,) = standing(None if cpu is None else np.array(cpu), factor)

    assert (verdict.kind, verdict.rank, verdict.stage) == ("compute", 1, "actor_generate")


def test_what_processes_count_becomes_shares_of_the_time_of_late() -> None:
    waits = CpuWaits()
    for second in range(30):
        waits.take("p0", [second * S, second * S // 2, second * S // 4])
        waits.take("p1", [second * S, 0, 0])
    for rows in ([], [1, 2], ["a", 1, 2], [1, -1, 2], [1 << 70, 1, 2]):
        waits.take("p2", rows)  # type: ignore[arg-type]

    shares = waits.of(peers(3))
    assert shares is not None
    np.testing.assert_allclose(shares[:2], [[0.5, 0.25], [0, 0]])
    assert np.isnan(shares[2]).all()
    waits.take("p0", [0, 0, 0])  # another process of that name
    assert np.isnan(waits.of(peers(1))).all()


def test_of_very_many_processes_those_are_known_that_were_heard_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_waits, "AT_MOST", 2)
    waits = CpuWaits()
    for second, name in enumerate(("p0", "p1", "p0", "p1", "p0", "p2")):
        waits.take(name, [second * S, second * S // 2, second * S // 4])

    shares = waits.of(peers(3))
    assert shares is not None
    assert np.isfinite(shares[:, 0]).tolist() == [True, False, False], "of the third there is one count only"
    assert waits.of(peers(3)[1:2]) is None
