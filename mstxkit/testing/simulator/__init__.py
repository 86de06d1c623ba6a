"""An RL post-training job that is simulated: steps of its roles as arrays, with a fault in them or none.

    fault = InjectedFault("inside", "actor_update", rank=3, factor=1.25)
    job = YourSimulation(JobShape(ranks=16), seed=7, faults=[fault])  # says in `build` and `play` what a step is
    for step in job.steps(100):
        judged = judge.close(step)
        job.grant(judged.wants)

    truths = job.truths(100)

What is yielded is what a real job hands over: stages with when they were entered and left and how much work was in
them, and collectives only for those steps whose rings are dumped. `truths` says how long each step is with the faults
and without them: the share that a verdict calls lost can be held to it. Needs numpy.
"""

from __future__ import annotations

from .faults import FAULTS, InjectedFault
from .shape import JobShape
from .simulation import Simulation
from .truth import StepTruth, lost_ratio

__all__ = ["FAULTS", "InjectedFault", "JobShape", "Simulation", "StepTruth", "lost_ratio"]
