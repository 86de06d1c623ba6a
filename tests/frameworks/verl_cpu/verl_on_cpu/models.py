"""verl's way to models and engines on a CPU: eager attention where flash attention is wired in, and CUDA's engines."""

from __future__ import annotations

import functools
from typing import Any

import torch

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
    """Versions that fall back on nothing take these from flash attention."""
    if not hasattr(attention_utils, "_fallback_unpad_input"):
        attention_utils._get_attention_functions = lambda: (index_first_axis, pad_input, None, unpad_input)


def index_first_axis(tokens: Any, indices: Any) -> Any:
    """Some of them."""
    return tokens[indices]


def unpad_input(rows: Any, mask: Any) -> tuple[Any, ...]:
    """The tokens of all rows behind each other, where they were, where each row begins, and how long rows are."""
    lengths = mask.sum(dim=-1, dtype=torch.int32)
    indices = mask.flatten().nonzero().flatten()
    begins = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    return rows.flatten(0, 1)[indices], indices, begins, int(lengths.max()), lengths


def pad_input(tokens: Any, indices: Any, batch: int, seqlen: int) -> Any:
    """Back to rows."""
    rows = tokens.new_zeros(batch * seqlen, *tokens.shape[1:])
    rows[indices] = tokens
    return rows.unflatten(0, (batch, seqlen))
