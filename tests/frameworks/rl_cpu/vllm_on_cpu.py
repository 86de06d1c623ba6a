"""vLLM, as far as MindSpeed-RL's engine asks it: a Qwen2 with vLLM's names of weights, sampled with a seed."""

from __future__ import annotations

import hashlib
import sys
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoConfig, AutoTokenizer

# Its modules that nobody stands in for are those of `sitecustomize`.
__path__: list[str] = []


class SamplingParams(SimpleNamespace):
    """What vLLM's has, as it was given."""


class RMSNorm(nn.Module):
    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


class Attention(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.heads, self.groups = config.num_attention_heads, config.num_key_value_heads
        self.size = config.hidden_size // self.heads
        self.qkv_proj = nn.Linear(config.hidden_size, (self.heads + 2 * self.groups) * self.size)
        self.o_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=False)
        self.base = config.rope_parameters["rope_theta"]

    def forward(self, x: Tensor) -> Tensor:
        rows, length, _ = x.shape
        parts = [self.heads * self.size, self.groups * self.size, self.groups * self.size]
        q, k, v = (one.view(rows, length, -1, self.size).transpose(1, 2) for one in self.qkv_proj(x).split(parts, -1))
        out = functional.scaled_dot_product_attention(self.turn(q), self.turn(k), v, is_causal=True, enable_gqa=True)
        return self.o_proj(out.transpose(1, 2).reshape(rows, length, -1))  # type: ignore[no-any-return]

    def turn(self, x: Tensor) -> Tensor:
        """By its position."""
        frequencies = self.base ** (-torch.arange(0, self.size, 2) / self.size)
        angles = torch.outer(torch.arange(x.shape[2]), frequencies).repeat(1, 2)
        first, second = x.chunk(2, -1)
        return (x * angles.cos() + torch.cat((-second, first), -1) * angles.sin()).to(x.dtype)


class MLP(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.gate_up_proj = nn.Linear(config.hidden_size, 2 * config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up_proj(x).chunk(2, -1)
        return self.down_proj(functional.silu(gate) * up)  # type: ignore[no-any-return]


class Layer(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.self_attn, self.mlp = Attention(config), MLP(config)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))  # type: ignore[no-any-return]


class Body(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)


class Qwen2ForCausalLM(nn.Module):
    """By its class's name MindSpeed-RL finds how weights become this model's."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.model, self.lm_head = Body(config), nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.model.embed_tokens(tokens)
        for layer in self.model.layers:
            x = layer(x)
        return self.lm_head(self.model.norm(x))  # type: ignore[no-any-return]


class LLM:
    """An engine in the process of its caller; it has no cache of keys and values, so there is nothing to free."""

    def __init__(self, model: str, dtype: str, seed: int, **_: Any) -> None:
        self._model = Qwen2ForCausalLM(AutoConfig.from_pretrained(model)).to(getattr(torch, dtype))
        self._tokenizer, self._seed, self._calls = AutoTokenizer.from_pretrained(model), seed, 0
        config = SimpleNamespace(static_forward_context={})
        runner = SimpleNamespace(
            get_model=lambda: self._model, kv_caches=[], vllm_config=SimpleNamespace(compilation_config=config)
        )
        worker = SimpleNamespace(model_runner=runner)
        executor = SimpleNamespace(initialize_from_config=lambda _: None)
        self.llm_engine = SimpleNamespace(
            model_executor=SimpleNamespace(driver_worker=SimpleNamespace(worker=worker)),
            engine_core=SimpleNamespace(engine_core=SimpleNamespace(model_executor=executor, kv_cache_configs=[])),
            vllm_config=SimpleNamespace(parallel_config=SimpleNamespace(pipeline_parallel_size=1)),
            reset_prefix_cache=lambda: None,
        )

    def generate(self, prompts: list[str], sampling_params: Any, **_: Any) -> list[Any]:
        """Some answers to each; what is drawn depends on the prompt and on how often it was called before."""
        self._calls += 1
        return [self._answer(prompt, sampling_params) for prompt in prompts]

    def _answer(self, prompt: str, how: Any) -> Any:
        drawn = hashlib.sha256(f"{self._seed} {self._calls} {prompt}".encode()).digest()
        chance = torch.Generator().manual_seed(int.from_bytes(drawn[:4], "big"))
        tokens = torch.tensor(self._tokenizer.encode(prompt)).repeat(how.n, 1)
        start, end = tokens.shape[1], self._tokenizer.eos_token_id
        for _ in range(how.max_tokens):
            odds = torch.softmax(self._model(tokens)[:, -1].float() / how.temperature, -1)
            tokens = torch.cat((tokens, torch.multinomial(odds, 1, generator=chance)), 1)
        return SimpleNamespace(outputs=[_until(end, row.tolist()) for row in tokens[:, start:]])


def _until(end: int, tokens: list[int]) -> Any:
    length = tokens.index(end) + 1 if end in tokens else len(tokens)
    return SimpleNamespace(token_ids=tokens[:length], logprobs=None)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return sys.modules.get(f"vllm.{name}") or SimpleNamespace()
