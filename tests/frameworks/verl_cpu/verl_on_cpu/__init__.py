"""What lets verl's own main_ppo run where there is only a CPU: stand-ins for a device and for a rollout engine.

verl loads it in each of its processes, by VERL_USE_EXTERNAL_MODULES, while `import verl` is still under way. No
function is replaced that mstxkit patches, and nothing here knows of mstxkit: jobs run with it and without it.
"""

from __future__ import annotations

from . import device, models, replica

device.install()
models.install()
replica.install()
