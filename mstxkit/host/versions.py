"""Which versions of the frameworks a process has loaded: a run says so, so that two runs can be compared by it.

Never imports anything: what is not loaded is not named. *Cost*: a look into `sys.modules` for each name.
"""

from __future__ import annotations

import sys

# In this order; what a comparison of two runs would ask for first.
FRAMEWORKS = (
    "torch", "torch_npu", "mindspore", "verl", "mindspeed_rl", "mindspeed_llm", "mindspeed", "megatron", "vllm",
    "vllm_ascend", "sglang", "transformers", "trl", "ray", "numpy",
)  # fmt: skip
_TEXT_AT_MOST, _ALL_AT_MOST = 40, 400


def loaded() -> str | None:
    """`torch 2.13.0, ray 2.60.0`, of what this process has loaded; None where it is nothing."""
    named = [f"{name} {version}" for name in FRAMEWORKS if (version := _version(name))]
    while len(", ".join(named)) > _ALL_AT_MOST:
        named.pop()
    return ", ".join(named) or None


def _version(name: str) -> str:
    """As the module itself says; "" where it does not, by what is there already: `getattr` would wake lazy modules."""
    try:
        version = vars(sys.modules[name]).get("__version__")
    except (KeyError, TypeError):
        return ""
    text = str.__str__(version) if isinstance(version, str) else ""
    return text[:_TEXT_AT_MOST] if text.isascii() and text.isprintable() else ""
