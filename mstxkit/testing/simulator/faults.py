"""What may go wrong in a simulated job."""

from __future__ import annotations

from dataclasses import dataclass, replace

FAULTS = {
    "compute": "whatever is computed in a stage takes longer, wherever in it; in no stage: in all of them",
    "before": "a rank computes slower in a stage that nobody waits in; others wait for it where they meet next",
    "inside": "a rank computes slower between the collectives of a stage: its duration is everybody's",
    "behind": "a rank computes slower after the last collective of a stage",
    "input": "a rank's input comes late: in load_batch",
    "gap": "a rank comes late to its first stage of the step: its input, outside of any stage",
    "link": "collectives of a rank's group in a stage take longer, whoever has entered in time",
    "drift": "a rank becomes slower and slower in a stage that nobody waits in",
    "slow_sample": "each step has one response, on some rank, that is far longer than usual: more work, no fault",
    "more_work": "a rank has more responses than the others: more work, no slow machine",
    "jitter": "now and then some rank stalls for a moment",
    "all": "a stage becomes slower for everybody",
    "hang": "a rank never leaves a stage: the step is handed over without it, and no step follows",
    "clock": "a rank's clock is wrong by nearly as much as its bound allows",
}
_DRIFTS_FOR = 20


@dataclass(frozen=True)
class InjectedFault:
    """A fault of a simulated job.

    Args:
        kind: One of FAULTS.
        stage: Where; "": wherever there is such a thing.
        rank: Whose; None: of all of `role`.
        factor: Time over healthy time: 1.25. Of a clock: seconds that it is wrong. 1: no fault, but of a clock and a
            hang.
        since: First step that has it.
        until: First step that has it no more.
        ranks: Whose, where it is a host, a place, or a link between two.
        role: Of that role alone; "": of whoever has such ranks.
        rate: In which share of the steps it is there.
        drifts: It grows for 20 steps.
        moves_every: It is on one of `ranks` at a time, and moves on after so many steps; 0: on all of them.
    """

    kind: str
    stage: str = ""
    rank: int | None = 0
    factor: float = 1.25
    since: int = 20
    until: int = 1 << 60
    ranks: tuple[int, ...] = ()
    role: str = ""
    rate: float = 1.0
    drifts: bool = False
    moves_every: int = 0

    def is_on(self, step: int) -> bool:
        """Does this step have it?"""
        # The golden ratio spreads the steps that have it, without any draw.
        return self.since <= step < self.until and (self.rate >= 1 or (step * 0.6180339887) % 1 < self.rate)

    def factor_at(self, step: int) -> float:
        """How much longer it takes; a drift reaches its factor after 20 steps."""
        if not self.is_on(step):
            return 1.0
        if self.drifts or self.kind == "drift":
            return 1 + (self.factor - 1) * min(1.0, (step - self.since + 1) / _DRIFTS_FOR)
        return self.factor

    def has(self, role: str, rank: int | None, step: int) -> bool:
        """Is it on this member, in this step?"""
        if self.role and role != self.role:
            return False
        if self.moves_every:
            return rank == self.ranks[(step - self.since) // self.moves_every % len(self.ranks)]
        if self.kind == "all":
            return True
        return rank in self.ranks if self.ranks else self.rank is None or rank == self.rank


def undo_fault(fault: InjectedFault) -> InjectedFault:
    """The fault without effect; it draws as many random numbers, so that all else goes as it does with it."""
    if fault.kind in ("hang", "clock"):
        return replace(fault, until=fault.since)
    return replace(fault, factor=1.0)
