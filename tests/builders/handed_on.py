"""Jobs in which members wait for what is handed to them: a row of parts of a model; and one with a stage in a stage."""

from __future__ import annotations

import numpy as np

from mstxkit.testing.simulator import Simulation
from mstxkit.testing.simulator.simulation import Steps

PARTS, PART_S = 4, 2.0


class Row(Simulation):
    """Four parts of a model, a rank each: each takes what the one before has made, works on it, and hands it on."""

    def build(self) -> None:
        """One role."""
        self.actors = self.team("actor", PARTS)

    def play(self) -> Steps:
        """A step."""
        actors, parcel = self.actors, None
        actors.compute("load_batch", 1.0, "input")
        for part in range(PARTS):
            members = np.array([part])
            with actors.stage("forward", members):
                if parcel is not None:
                    actors.receive("forward", parcel)
                actors.work("forward", PART_S, "inside", members)
                if part + 1 < PARTS:
                    parcel = actors.send("forward", members, np.array([part + 1]), 0.01)
        with actors.stage("optimizer"):
            actors.meet("optimizer", None, 0.1)
        yield actors, actors.close()


class Nested(Simulation):
    """`actor_generate` lies around `reward`: three seconds of its own before it, one behind it."""

    def build(self) -> None:
        """One role."""
        self.actors = self.team("actor", PARTS)

    def play(self) -> Steps:
        """A step."""
        actors = self.actors
        with actors.stage("actor_generate"):
            actors.tell("actor_generate", np.full(PARTS, 1000.0))
            actors.work("actor_generate", 3.0)
            actors.compute("reward", 2.0)
            actors.work("actor_generate", 1.0)
        with actors.stage("actor_update"):
            actors.meet("actor_update", None, 1.0)
        yield actors, actors.close()
