"""The CPU as verl's device: what only an accelerator has gets an answer without effect; collectives are gloo's."""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

NOTHING: dict[str, Any] = {
    **dict.fromkeys(("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"), 0),
    **dict.fromkeys(("empty_cache", "reset_peak_memory_stats", "ipc_collect", "manual_seed", "manual_seed_all"), None),
    "set_per_process_memory_fraction": None,
    "mem_get_info": (1 << 34, 1 << 35),
}


def install() -> None:
    """Once in each process."""
    for name, value in NOTHING.items():
        _add(torch.cpu, name, lambda *_, value=value: value)
    for name in ("get_rng_state", "set_rng_state"):
        _add(torch.cpu, name, getattr(torch, name))
    torch.cuda.set_device = lambda *_, **__: None
    torch.Tensor.pin_memory = lambda self, *_, **__: self  # type: ignore[method-assign, assignment]
    dist.init_process_group = distributed_c10d.init_process_group = _on_gloo(dist.init_process_group)
    _tell_verl()


def _add(module: Any, name: str, function: Any) -> None:
    if not hasattr(module, name):
        setattr(module, name, function)


def _on_gloo(init: Any) -> Any:
    """verl asks for `cpu:gloo,<device>:<what it takes for the device's>`, and the device is the CPU."""

    def init_process_group(backend: Any = None, *arguments: Any, **named: Any) -> Any:
        return init("gloo" if "cpu:gloo" in str(backend) else backend, *arguments, **named)

    return init_process_group


def _tell_verl() -> None:
    import verl.utils.device as helpers

    helpers.get_nccl_backend = lambda: "gloo"
    if hasattr(helpers, "get_device_id"):
        helpers.get_device_id = lambda: "cpu"
    try:
        from verl.plugin.platform import platform_manager
    except ImportError:
        return  # before 0.9.0
    _register_platform(platform_manager)


def _register_platform(platform_manager: Any) -> None:
    from verl.plugin.platform.platform_cuda import PlatformCUDA

    says = {"is_available": False, "is_platform_available": True, "current_device": "cpu", "device_count": 1,
            "communication_backend_name": "gloo", "ray_resource_options": {}, "is_ipc_supported": False}  # fmt: skip
    does = ("set_device", "synchronize", "manual_seed", "manual_seed_all", "set_allocator_settings", "empty_cache")
    members: dict[str, Any] = {
        name: lambda self, *_, value=value, **__: value for name, value in {**dict.fromkeys(does), **says}.items()
    }
    has = {"device_name": "cpu", "vendor_name": "cpu", "device_module": torch.cpu}
    members |= {name: property(lambda self, value=value: value) for name, value in has.items()}
    platform_manager.PlatformRegistry.register(platform="cpu")(type("PlatformCPU", (PlatformCUDA,), members))
    os.environ["VERL_PLATFORM"] = "cpu"
    platform_manager._current_platform = None
