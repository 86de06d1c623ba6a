"""A rollout server on transformers. It imports nothing of verl: its process is to start fast."""

from __future__ import annotations

import asyncio
import zlib
from types import SimpleNamespace
from typing import Any


class Server:
    """Tokens for prompts. What is sampled depends on the prompt, the weights, and how often it was asked before."""

    def __init__(self, path: str, limit: int) -> None:
        import torch
        from transformers import Qwen2ForCausalLM

        torch.set_num_threads(1)
        self._model = Qwen2ForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        self._end, self._limit = self._model.config.eos_token_id, limit
        self._asked: dict[int, int] = {}
        self._step: int | None = None

    async def generate(self, prompt_ids: Any, sampling_params: dict[str, Any], **_: Any) -> Any:
        """What verl's TokenOutput holds."""
        await asyncio.sleep(0)
        prompt = list(prompt_ids)
        which = zlib.crc32(repr(prompt).encode())
        self._asked[which] = self._asked.get(which, 0) + 1
        wanted = int(sampling_params.get("max_tokens") or sampling_params.get("max_new_tokens") or self._limit)
        tokens, log_probs = self._sampled(prompt, which * 1000 + self._asked[which], min(wanted, self._limit))
        steps = {f"{edge}global_steps": self._step for edge in ("", "min_", "max_")}
        return SimpleNamespace(
            token_ids=tokens, log_probs=log_probs, routed_experts=None, stop_reason="completed", num_preempted=None,
            extra_fields={} if self._step is None else steps,
        )  # fmt: skip

    def _sampled(self, prompt: list[int], seed: int, limit: int) -> tuple[list[int], list[float]]:
        import torch

        chance = torch.Generator().manual_seed(seed)
        tokens: list[int] = []
        log_probs: list[float] = []
        past, given = None, prompt
        with torch.no_grad():
            while len(tokens) < limit and tokens[-1:] != [self._end]:
                said = self._model(torch.tensor([given]), past_key_values=past, use_cache=True)
                every = said.logits[0, -1].float().log_softmax(-1)
                tokens.append(int(torch.multinomial(every.exp(), 1, generator=chance)))
                log_probs.append(float(every[tokens[-1]]))
                past, given = said.past_key_values, tokens[-1:]
        return tokens, log_probs

    async def load_weights(self, state: dict[str, Any], global_steps: int | None = None) -> None:
        """Those of the actor."""
        own = dict(self._model.named_parameters())
        for name in own.keys() & state.keys():
            own[name].data.copy_(state[name])
        self._step = self._step if global_steps is None else global_steps

    async def set_global_steps(self, global_steps: int) -> None:
        """What is generated next has these weights."""
        self._step = global_steps

    async def get_server_address(self) -> tuple[str, int]:
        """Nobody calls there."""
        return "127.0.0.1", 0

    async def abort_all_requests(self, *_: Any, **__: Any) -> dict[str, Any]:
        """There are none."""
        return {"aborted_count": 0, "request_ids": []}

    async def _nothing(self, *_: Any, **__: Any) -> None:
        """No device to free or to fill."""

    wake_up = sleep = clear_kv_cache = resume_generation = release_kv_cache = resume_kv_cache = _nothing
    start_profile = stop_profile = _nothing
