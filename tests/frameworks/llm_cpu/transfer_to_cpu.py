"""CUDA's and an NPU's calls become the CPU's: devices, streams, generators, memory, collectives over gloo.

In the place of `torch_npu.contrib.transfer_to_npu`. torch_npu is the real one, on mstxkit's stand-in CANN, so that its
profiler runs; no function that mstxkit patches is replaced.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import os
import sys
import time
import types
from importlib.machinery import ModuleSpec
from itertools import count
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch_npu
from torch.optim.optimizer import register_optimizer_step_post_hook

CPU = torch.device("cpu")
DEVICES = ("cuda", "npu", "hccl", "privateuseone")


class Anything:
    """Each of its names is itself, and so is what a call gives."""

    def __call__(self, *_: Any, **__: Any) -> Anything:
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self


class EmptyModule(types.ModuleType):
    """A module that has whatever it is asked for."""

    __path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return sys.modules.get(f"{self.__name__}.{name}") or Anything()


class NoTorchair(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """torchair compiles graphs for an NPU: here it is empty."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.split(".")[0] == "torchair" else None

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        return EmptyModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def on_cpu(value: Any) -> Any:
    """A device of theirs as the CPU; all else as it is."""
    if isinstance(value, torch.device):
        return CPU if value.type in DEVICES else value
    return "cpu" if isinstance(value, str) and value.split(":")[0] in DEVICES else value


class OnCpu(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if "device" in kwargs:
            kwargs["device"] = CPU if isinstance(kwargs["device"], int) else on_cpu(kwargs["device"])
        if func is torch.Tensor.to:
            args = (args[0], *(CPU if type(one) is int else on_cpu(one) for one in args[1:]))
        return func(*args, **kwargs)


class Stream:
    """Also an event; `is_available`, `wait_stream` and so on are answered by itself."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.npu_stream = self.cuda_stream = 0
        self.device, self.recorded_s = CPU, 0.0

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: self

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: Any) -> bool:
        return False


class Event(Stream):
    def record(self, *_: Any) -> None:
        self.recorded_s = time.time()

    def elapsed_time(self, other: Event) -> float:
        return (other.recorded_s - self.recorded_s) * 1e3

    def query(self) -> bool:
        return True


class OneDevice(contextlib.nullcontext):  # type: ignore[type-arg]
    """`with torch.npu.device(0)`; also what `isinstance` is asked for."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()


class Generators:
    def __getitem__(self, number: int) -> torch.Generator:
        return torch.default_generator

    def __len__(self) -> int:
        return 1


class Properties:
    name, total_memory, major, minor, multi_processor_count = "cpu", 1 << 36, 8, 0, 1

    def __getattr__(self, name: str) -> int:
        return 0


def answering(value: Any) -> Any:
    """A function object of its own: dynamo asks each name for its rule."""
    return lambda *_, **__: value


RANDOM = {
    "manual_seed": answering(None), "manual_seed_all": answering(None), "seed": answering(None),
    "initial_seed": lambda: torch.initial_seed(), "get_rng_state": lambda *_, **__: torch.get_rng_state(),
    "set_rng_state": lambda state, *_, **__: torch.set_rng_state(state),
    "get_rng_state_all": lambda: [torch.get_rng_state()],
    "set_rng_state_all": lambda states: torch.set_rng_state(states[0]),
}  # fmt: skip
NAMED = {
    "device_count": int(os.environ.get("LOCAL_WORLD_SIZE", "1")), "get_device_name": "Ascend910B1",
    "get_device_properties": Properties(), "get_device_capability": (8, 0), "memory_stats": {},
    "mem_get_info": (1 << 36, 1 << 36), "get_soc_version": 220, "stream": contextlib.nullcontext(),
    **dict.fromkeys(("is_available", "is_initialized", "is_bf16_supported", "can_device_access_peer"), True),
    **dict.fromkeys(("set_device", "synchronize", "empty_cache", "init", "_lazy_init", "ipc_collect"), None),
    **dict.fromkeys(("reset_peak_memory_stats", "reset_max_memory_allocated", "set_stream", "set_option"), None),
    **dict.fromkeys(("set_compile_mode", "set_device_index", "set_per_process_memory_fraction"), None),
    **dict.fromkeys(("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"), 0),
    **dict.fromkeys(("current_device", "current_blas_handle", "utilization"), 0),
}  # fmt: skip
OTHERS = {
    **{name: answering(value) for name, value in NAMED.items()}, **RANDOM, "default_generators": Generators(),
    "Stream": Stream, "Event": Event, "current_stream": lambda *_, **__: Stream(), "device": OneDevice,
    "default_stream": lambda *_, **__: Stream(), "_lazy_call": lambda function, **_: function(),
    "config": types.SimpleNamespace(allow_internal_format=False),
}  # fmt: skip


class WithGenerators(types.ModuleType):
    """torch_npu puts its own generators there when a profiler starts."""

    default_generators = property(lambda self: OTHERS["default_generators"], lambda self, value: None)

    def __reduce__(self) -> Any:
        """As any module, by its name: Ray sends functions that use it."""
        return importlib.import_module, (self.__name__,)


def replace_devices() -> None:
    for module in {id(one): one for one in (torch.cuda, torch.npu, torch_npu.npu)}.values():
        for name, value in OTHERS.items():
            setattr(module, name, value)
        if module is not torch.cuda:
            module.__class__ = WithGenerators
    for name, value in RANDOM.items():
        setattr(torch.cuda.random, name, value)
    for name in ("set_device_index", "set_device_idx", "synchronize", "empty_cache"):
        setattr(torch.accelerator, name, answering(None))
    accelerator: Any = torch.accelerator
    accelerator.current_accelerator, accelerator.current_device_index = answering(CPU), answering(0)
    accelerator.is_available, accelerator.device_count = answering(True), OTHERS["device_count"]


def replace_tensors() -> None:
    for kind in ("Float", "Half", "BFloat16", "Double", "Int", "Long", "Byte", "Bool"):
        setattr(torch.cuda, f"{kind}Tensor", getattr(torch, f"{kind}Tensor"))
    tensor: Any = torch.Tensor
    for where in (tensor, torch.nn.Module):
        where.cuda = where.npu = lambda self, *_, **__: self
    tensor.is_cuda, tensor.is_npu = True, property(lambda self: True)
    tensor.pin_memory = lambda self, *_, **__: self
    tensor.type = kind_of(tensor.type)


def kind_of(own: Any) -> Any:
    """Megatron compares what `type()` says with names of CUDA's."""

    def kind(self: Any, *args: Any, **named: Any) -> Any:
        if args or named:
            return own(self, *args, **named)
        name = own(self)
        return name if "cuda" in name else name.replace("torch.", "torch.cuda.")

    return kind


def replace_groups() -> None:
    """Groups of processes are gloo's."""
    own: Any = dist
    init, make = dist.init_process_group, dist.new_group
    own.init_process_group = lambda backend=None, *args, **named: init("gloo", *args, **without_device(named))
    own.new_group = lambda *args, **named: make(*args, **{**without_device(named), "backend": "gloo"})
    dist.distributed_c10d.new_group = own.new_group


def swiglu(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """The operator of an NPU that MindSpeed-RL has no option to do without."""
    gate, up = x.chunk(2, dim)
    return torch.nn.functional.silu(gate) * up


def without_device(named: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in named.items() if name not in ("device_id", "pg_options")}


def wait_after(updates: set[int], folder: Path) -> None:
    """Let this process stand still at the end of those updates of its optimizer, each until a file is there."""
    numbers = count(1)

    def hold(*_: Any) -> None:
        number = next(numbers)
        if number in updates:
            (folder / f"held{number}").touch()
        while number in updates and not (folder / f"go{number}").exists():
            time.sleep(0.05)

    register_optimizer_step_post_hook(hold)


for _name in [name for name in sys.modules if name.split(".")[0] == "torchair"]:
    del sys.modules[_name]
sys.meta_path.insert(0, NoTorchair())
replace_devices()
replace_tensors()
replace_groups()
torch_npu.npu_swiglu = swiglu
if "LLM_HOLD" in os.environ:
    _updates, _folder = os.environ["LLM_HOLD"].split(maxsplit=1)
    wait_after({int(one) for one in _updates.split(",")}, Path(_folder))
OnCpu().__enter__()
