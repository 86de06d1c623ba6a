"""The engine in Python, for where the C engine cannot be built: same names, same behaviour, same bytes.

It is plain, and meant to be read as what the C engine does; there is one way through for every range:

    hot.py              the engine's names; what attaches it to a live file
    ranges.py           a range begins, is open (`Opened`), ends; marks; `Range`, as a program sees it
    driven.py           coroutines and generators: ranges that are on a track only while their body runs
    tracks.py           who is inside what: threads, contexts, the chain of open ranges on each
    banks.py            the live file: records and texts in banks, open slots, counters
    attributes.py       values as records hold them
    sites.py            names and stages, interned
    sums.py, steps.py   what stages add up to; which step it is
    limits.py           calls that are added up instead of recorded; what each site costs
    sinks.py, watch.py  profilers and hooks that are told
    clock.py            time, the heartbeat
    switches.py         what is on
    interruptions.py    what the program raises in the middle of all that

What it costs: a range about sixty times what it costs C, with attributes, as a stage, a coroutine or a generator too:
`benchmarks/budgets.toml` has the figures. `capture` says so once, and how to get the C engine.
"""
