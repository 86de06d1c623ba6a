"""verl's way to models and engines on a CPU: eager attention where flash attention is wired in, and CUDA's engines."""

from __future__ import annotations

import functools
from typing import Any

from . import after


def install() -> None:
    """Once in each process."""
    from verl.utils import import_utils

    # verl patches trl's model with a value head wherever there is a trl; newer ones have none.
    import_utils.is_trl_available = lambda: False
    after.importing("transformers.modeling_utils", _without_flash_attention)
    after.importing("verl.workers.engine.base", _use_engines_of_cuda)
    after.importing("verl.utils.attention_utils", _unpad_without_flash_attention)


def _without_flash_attention(modeling_utils: Any) -> None:
    model = modeling_utils.PreTrainedModel
    model.from_pretrained = _eager(model.from_pretrained.__func__)


def _eager(from_pretrained: Any) -> Any:
    @functools.wraps(from_pretrained)
    def eager(cls: Any, *arguments: Any, **named: Any) -> Any:
        if "flash" in str(named.get("attn_implementation", "")):
            named["attn_implementation"] = "eager"
        return from_pretrained(cls, *arguments, **named)

    return classmethod(eager)


def _use_engines_of_cuda(base: Any) -> None:
    """Engines are registered for cuda and npu; the same ones serve the CPU."""
    registry = base.EngineRegistry
    find = registry.get_engine_cls.__func__

    def get_engine_cls(cls: Any, model_type: str, backend: str, *arguments: Any, **named: Any) -> Any:
        for engines in cls._engines.get(model_type, {}).values():
            for key, engine in list(engines.items()):
                if (key[0] if isinstance(key, tuple) else key) == "cuda":
                    engines.setdefault("cpu", engine)
        return find(cls, model_type, backend, *arguments, **named)

    registry.get_engine_cls = classmethod(get_engine_cls)


def _unpad_without_flash_attention(attention_utils: Any) -> None:
    """Versions that fall back on nothing get what they have for NPUs, which is plain torch."""
    if hasattr(attention_utils, "_fallback_unpad_input"):
        return

    def functions() -> tuple[Any, ...]:
        from verl.utils.npu_flash_attn_utils import index_first_axis, pad_input, rearrange, unpad_input

        return index_first_axis, pad_input, rearrange, unpad_input

    attention_utils._get_attention_functions = functions
