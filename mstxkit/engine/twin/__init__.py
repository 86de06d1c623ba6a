"""The engine in Python, for where the C engine cannot be built: same names, same behaviour, same bytes.

It is plain, and meant to be read as what the C engine does; there is one way through for every range:

    hot.py              the engine's names; what attaches it to a live file
    ranges.py           a range begins and ends; marks; `Range`, as a program sees it
    driven.py           coroutines and generators: ranges that are on a track only while their body runs
    tracks.py           who is inside what: what is open (`Opened`) on each thread and in each context
    banks.py            the live file: records and texts in banks, open slots, counters
    sites.py            names and stages, interned
    sums.py, steps.py   what stages add up to; which step it is
    limits.py           calls that are added up instead of recorded; what each site costs
    listeners.py        what is on; profilers and hooks that are told
    clock.py            time, the heartbeat
    interruptions.py    what the program raises in the middle of all that

Its price is in `benchmarks/budgets.toml`. `capture` says once that it is the twin, and how to get the C engine.
"""
