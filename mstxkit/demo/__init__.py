"""A real GRPO training on the CPU that runs under capture: what `mstxkit demo` starts.

| file | job |
|---|---|
| `loop.py` | the training loop and its ranges: the example to read first |
| `task.py` `policy.py` `grpo.py` | what is learnt, by which network, with which loss |
| `dock.py` `resharding.py` | how experience and weights move |
| `rank.py` `launch.py` `curve.py` | one rank and its mishaps, all ranks, the reward curve |
| `judged.py` `escalating.py` | who makes the others wait, and a profile of just that while the training runs |

Importing this package loads no torch; its modules do.
"""
