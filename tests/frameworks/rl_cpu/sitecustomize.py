"""What has only an NPU is stood in for where MindSpeed-RL asks for it: see README.md."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
REPLACED = {
    "acl": HERE.parent / "llm_cpu/acl.py",
    "torch_npu.contrib.transfer_to_npu": HERE.parent / "llm_cpu/transfer_to_cpu.py",
    "mindspeed.op_builder.algorithm_builder": HERE / "algorithm_builder.py",
    "vllm": HERE / "vllm_on_cpu.py",
    "vllm.distributed.parallel_state": HERE / "groups.py",
}
# Of these nothing is called, or only what is in the two above: each of their names is there and does nothing.
EMPTY = (
    "vllm.", "vllm_ascend.", "mathruler.", "math_verify.", "latex2sympy2.", "torchvision.", "qwen_vl_utils.", "av.",
    "torch.utils.tensorboard.",
)  # fmt: skip

# What they do answer.
ANSWERS: dict[str, dict[str, Any]] = {"vllm.config": {"get_current_vllm_config": lambda: None}}


class Nothing:
    """A class, a function, a decorator, a value: whatever it is asked to be."""

    def __call__(self, *_: Any, **__: Any) -> Any:
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing()

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return ()

    def __or__(self, other: Any) -> Any:
        return self

    __ror__ = __or__


class Empty(types.ModuleType):
    """A module that has whatever it is asked for."""

    __path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing()

    def __reduce__(self) -> Any:
        """As any module, by its name: Ray sends functions that use it."""
        return importlib.import_module, (self.__name__,)


class Finder:
    """Finds those modules."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name == "megatron.core.dist_checkpointing":
            importlib.import_module("newer_packages").answer_to_older_names()
        if name in REPLACED:
            found = importlib.util.spec_from_file_location(name, REPLACED[name])
            if found is not None and name == "vllm":
                found.submodule_search_locations = []
            return found
        loader: Any = Finder
        return ModuleSpec(name, loader, is_package=True) if f"{name}.".startswith(EMPTY) else None

    @staticmethod
    def create_module(spec: ModuleSpec) -> types.ModuleType:
        module = Empty(spec.name)
        vars(module).update(ANSWERS.get(spec.name, {}))
        return module

    @staticmethod
    def exec_module(module: types.ModuleType) -> None:
        pass


sys.meta_path.insert(0, Finder)  # type: ignore[arg-type]
