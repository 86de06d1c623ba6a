"""What lets verl's own main_ppo run where there is only a CPU: stand-ins for a device and for a rollout engine.

verl loads it in each of its processes, by VERL_USE_EXTERNAL_MODULES, while `import verl` is still under way. No
function is replaced that mstxkit patches, and nothing here knows of mstxkit: jobs run with it and without it.
"""

from __future__ import annotations

from typing import Any

from . import after, device, models

ROLLOUT = "on_cpu"


def _replica() -> Any:
    from .replica import Replica

    return Replica


def _register_adapter(base: Any) -> None:
    base._ROLLOUT_REGISTRY[(ROLLOUT, "async")] = f"{__name__}.replica.Adapter"


def _register_replica(replicas: Any) -> None:
    replicas.RolloutReplicaRegistry.register(ROLLOUT, _replica)


device.install()
models.install()
after.importing("verl.workers.rollout.base", _register_adapter)
after.importing("verl.workers.rollout.replica", _register_replica)
