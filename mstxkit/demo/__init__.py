"""A real GRPO training on the CPU that runs under capture: what `mstxkit demo` starts.

| file | job |
|---|---|
| `loop.py` | the training loop and its ranges: the example to read first |
| `task.py` `policy.py` | what is learnt; by which network, with which loss |
| `dock.py` `resharding.py` | how experience and weights move |
| `rank.py` `launch.py` | one rank and its mishaps; all ranks, the reward curve, the profile a verdict asked for |

Importing this package loads no torch; its modules do.
"""
