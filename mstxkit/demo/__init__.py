"""A real GRPO training on the CPU that runs under capture: what `mstxkit demo` starts.

| file | job |
|---|---|
| `loop.py` | the training loop and its ranges: the example to read first |
| `task.py` `policy.py` `grpo.py` | what is learnt, by which network, with which loss |
| `dock.py` `resharding.py` | how experience and weights move |
| `rank.py` `launch.py` `curve.py` | one rank and its mishaps, all ranks, the reward curve |
| `escalating.py` | the verdict that asks for a profile by itself while the training runs, and what came of it |

Importing this package loads no torch; its modules do.
"""
