"""Work and hand-overs in virtual time: shapes of a few lines, whose times are known beforehand."""

from __future__ import annotations

from typing import Any

import pytest

np = pytest.importorskip("numpy")

from mstxkit.judging.evidence import MEET, RECEIVE, SEND, Peer, RoleStep  # noqa: E402
from mstxkit.testing.simulator import InjectedFault, JobShape, Simulation, lost_ratio  # noqa: E402
from mstxkit.testing.simulator.shape import ALWAYS  # noqa: E402
from mstxkit.testing.simulator.simulation import Steps  # noqa: E402

# Nothing varies but by what a moment's start takes: at most a few milliseconds.
EVEN = JobShape(ranks=4, noise_ratio=0.0, rings=ALWAYS)
FIRST, SECOND = np.array([0]), np.array([1])


class Relay(Simulation):
    """Rank 0 works for 2 s and sends to rank 1, which works for 1 s before it receives; then all meet."""

    def build(self) -> None:
        self.actors = self.team("actor", self.shape.ranks)

    def play(self) -> Steps:
        actors = self.actors
        with actors.stage("forward"):
            actors.work("forward", 2.0, who=FIRST)
            parcel = actors.send("forward", FIRST, SECOND, link_s=0.5)
            actors.work("forward", 1.0, who=SECOND)
            actors.receive("forward", parcel)
        with actors.stage("update"):
            actors.meet("update", link_s=0.25)
            actors.work("update", 1.0, "behind")
        yield actors, actors.close()


class Scored(Simulation):
    """Actors work for 3 s; two servers work for 2 s of that at the same time, and both wait for each other then."""

    def build(self) -> None:
        self.actors, self.servers = self.team("actor", 4), self.team("reward", 2, 4, waits_for={"wait": "actor"})

    def play(self) -> Steps:
        self.actors.compute("train", 3.0)
        self.servers.compute("reward", 2.0)
        yield self.servers, self.servers.close()
        over = max(team.ended_s for team in self.teams)
        for team in self.teams:
            team.wait_until(over)
        yield self.actors, self.actors.close()


def only(job: Simulation) -> RoleStep:
    (step,) = job.steps(1)
    return step


def since_begin(step: RoleStep, times: Any) -> Any:
    return times - np.nanmin(step.entered_s)


def test_who_receives_waits_until_what_was_sent_is_there_and_who_sends_goes_on() -> None:
    step = only(Relay(EVEN, 1))
    left = since_begin(step, step.left_s[:, step.stages.index("forward")])

    assert left.tolist() == pytest.approx([2.0, 2.5, 0.0, 0.0], abs=0.2)
    assert step.total_s[:, 0].tolist() == pytest.approx(left.tolist())


def test_who_meets_goes_on_when_the_last_has_come_and_the_exchange_is_over() -> None:
    step = only(Relay(EVEN, 1))

    assert since_begin(step, step.left_s[:, 1]).tolist() == pytest.approx([3.75] * 4, abs=0.2)


def test_each_group_meets_for_itself() -> None:
    job = Relay(EVEN, 1)
    job.actors.now = np.array([1.0, 2.0, 3.0, 4.0])
    job.actors.meet("update", np.array([0, 0, 1, 1]), link_s=0.0)

    assert job.actors.now.tolist() == pytest.approx([2.0, 2.0, 4.0, 4.0], abs=0.01)


def test_entries_say_who_sent_and_who_received_and_the_nth_takes_the_nth() -> None:
    first, second = Relay(EVEN, 1).steps(2)
    seen = []
    for step in (first, second):
        passed = step.collectives
        assert passed is not None and passed.kind is not None
        seen += [
            (int(kind), passed.groups[group], int(sequence), int(member))
            for kind, group, sequence, member in zip(passed.kind, passed.group, passed.sequence, passed.member)
            if kind != MEET
        ]

    assert seen == [(SEND, (0, 1), 0, 0), (RECEIVE, (0, 1), 0, 1), (SEND, (0, 1), 1, 0), (RECEIVE, (0, 1), 1, 1)]


def test_where_no_rings_are_there_are_no_entries_and_all_else_is_the_same() -> None:
    with_them, without = only(Relay(EVEN, 1)), only(Relay(JobShape(ranks=4, noise_ratio=0.0, has_rings=False), 1))

    assert without.collectives is None
    assert (with_them.left_s == without.left_s).all()


def test_several_occurrences_of_a_stage_are_summed_up() -> None:
    actors = Relay(EVEN, 1).actors
    for seconds in (1.0, 3.0):
        actors.compute("generate", seconds)
        actors.work("", 1.0)
    step = actors.close()

    assert (step.left_s - step.entered_s)[0].tolist() == pytest.approx([5.0], rel=0.05)
    assert step.total_s[0].tolist() == pytest.approx([4.0], rel=0.05)
    assert step.occurrences[0].tolist() == [2]


def test_steps_of_roles_come_in_the_order_in_which_they_are_over() -> None:
    steps = list(Scored(EVEN, 1).steps(3))

    assert [(step.role, step.step) for step in steps] == [
        ("reward", 0), ("actor", 0), ("reward", 1), ("actor", 1), ("reward", 2), ("actor", 2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "lost_s"),
    [
        (InjectedFault("compute", "forward", 0, 2.0), 2.0),
        (InjectedFault("compute", "forward", 1, 2.0), 0.0),  # rank 0 takes as long
        (InjectedFault("compute", "forward", 3, 9.0), 0.0),  # it does nothing there
        (InjectedFault("behind", "update", 2, 1.5), 0.0),  # it has time until rank 0 has sent
        (InjectedFault("behind", "update", 2, 9.0), 5.5),
        (InjectedFault("link", "update", 2, 3.0), 0.5),
        (InjectedFault("link", "forward", None, 3.0, ranks=(0, 1)), 1.0),
        (InjectedFault("compute", "", None, 2.0, role="actor"), 3.0),
        (InjectedFault("compute", "", None, 2.0, role="reward"), 0.0),
    ],
)
def test_a_fault_costs_what_the_others_wait_for_it(fault: InjectedFault, lost_s: float) -> None:
    truths = Relay(EVEN, 1, [InjectedFault(**{**vars(fault), "since": 0})]).truths(8)[2:]

    assert sum(truth.length_s - truth.without_s for truth in truths) / 6 == pytest.approx(lost_s, abs=0.15)


def test_what_a_role_loses_while_another_one_takes_longer_anyhow_is_nothing() -> None:
    slow, slower = (InjectedFault("compute", "reward", None, factor, 0, role="reward") for factor in (1.4, 3.0))

    lost = [
        lost_ratio([truth for truth in Scored(EVEN, 1, [fault]).truths(9) if truth.role == "actor"])
        for fault in (slow, slower)
    ]

    assert lost == pytest.approx([0.0, 0.5], abs=0.005)


def test_two_faults_cost_together_what_each_costs_alone_or_more_or_less() -> None:
    """While one hides the other, taking the lesser one away saves nothing."""
    slow = InjectedFault("compute", "forward", 0, 2.0, 0)
    lesser = InjectedFault("compute", "forward", 1, 3.0, 0)
    job = Relay(EVEN, 1, [slow, lesser])
    together, first, second = (lost_ratio(job.truths(6, without)) for without in (None, [slow], [lesser]))

    assert second == pytest.approx(0.0, abs=0.005)
    assert first < together


@pytest.mark.parametrize(
    ("changes", "on"),
    [
        ({"rate": 0.25}, 25),
        ({"until": 10}, 10),
        ({"ranks": (1, 2), "moves_every": 5}, 50),
        ({"role": "reward"}, 0),
    ],
)
def test_in_which_steps_a_rank_has_a_fault(changes: dict[str, Any], on: int) -> None:
    fault = InjectedFault("compute", rank=1, since=0, **changes)

    assert sum(fault.is_on(step) and fault.has("actor", 1, step) for step in range(100)) == pytest.approx(on, abs=2)


def test_a_fault_that_drifts_grows_for_twenty_steps() -> None:
    fault = InjectedFault("compute", factor=3.0, since=10, drifts=True)

    assert [fault.factor_at(step) for step in (9, 10, 19, 29, 99)] == pytest.approx([1.0, 1.1, 2.0, 3.0, 3.0])


def test_processes_that_are_started_again_have_other_names_and_count_from_there() -> None:
    actors = Relay(EVEN, 1).actors
    actors.compute("generate", 1.0)
    before = actors.close()
    actors.begin_again(0, tuple(Peer(peer.rank, peer.host, f"{peer.process}+") for peer in actors.peers), 60.0)
    actors.compute("generate", 1.0)
    after = actors.close()

    assert (before.step, after.step) == (0, 0)
    assert {peer.process for peer in before.members}.isdisjoint(peer.process for peer in after.members)
    assert after.entered_s.min() == pytest.approx(before.left_s.max() + 60.0)
