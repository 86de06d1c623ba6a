"""What lets verl's own main_ppo run where there is only a CPU: stand-ins for a device and for a rollout engine.

verl loads it in each of its processes, by VERL_USE_EXTERNAL_MODULES, while `import verl` is still under way. No
function is replaced that mstxkit patches, and nothing here knows of mstxkit: jobs run with it and without it.
"""

from __future__ import annotations

import functools
import random
from typing import Any

from . import after, device, models, vllm_rollout

ROLLOUT = "on_cpu"


def _replica() -> Any:
    from .replica import Replica

    return Replica


def _register_adapter(base: Any) -> None:
    base._ROLLOUT_REGISTRY[(ROLLOUT, "async")] = f"{__name__}.replica.Adapter"


def _register_replica(replicas: Any) -> None:
    replicas.RolloutReplicaRegistry.register(ROLLOUT, _replica)


def _write_plain_numbers(tracking: Any) -> None:
    """Among the metrics of GRPO 0.6.1 has a tensor, which its own file logger cannot write."""
    log = tracking.FileLogger.log

    def log_plain(self: Any, data: dict[str, Any], step: int) -> None:
        log(self, {name: value.item() if hasattr(value, "item") else value for name, value in data.items()}, step)

    tracking.FileLogger.log = log_plain


def _listen_where_nobody_calls_from(single_controller: Any) -> None:
    """A minute can pass between verl's look for a free port and its use: no connection is to get it meanwhile.

    0.6.1 takes no range.
    """
    group = single_controller.RayWorkerGroup
    if "master_port_range" in single_controller.get_master_addr_port._function.__code__.co_varnames:
        group.__init__ = _with_ports(group.__init__)


def _with_ports(init: Any) -> Any:
    @functools.wraps(init)
    def with_ports(self: Any, *arguments: Any, **named: Any) -> None:
        first = random.SystemRandom().randrange(20000, 32000)  # connections have higher ones
        init(self, *arguments, **{"master_port_range": [first, 32768], **named})

    return with_ports


device.install()
models.install()
vllm_rollout.install()
after.importing("verl.workers.rollout.base", _register_adapter)
after.importing("verl.workers.rollout.replica", _register_replica)
after.importing("verl.utils.tracking", _write_plain_numbers)
after.importing("verl.single_controller.ray.base", _listen_where_nobody_calls_from)
