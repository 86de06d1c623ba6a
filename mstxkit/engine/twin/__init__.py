"""The engine in Python, for where the C engine cannot be built: same names, same behaviour, same bytes.

`hot.py` has the names of the engine and switches it on and off. A range goes through the twin like this:

    mstx_range("x")     quick.py     while only the recorder is on: a pooled range of that name; off: one shared object
    mstx_range("x", n=1), stage("s")
                        typed.py     the same for up to eight attributes, or a stage: a pool for each number of them
    a coroutine, a generator
                        bodies.py    one generator of ours around it, which parks its range by one store
    anything else       ranges.py    a stream, a sink, a watched site; `driven.py` parks a body there
    begin               tracks.py    which context is this, what is it inside of: the track and the position on it
                        banks.py     a slot in the live file: start, site, step, track, stage
    end                 banks.py     a place in the active bank, the record, the slot cleared
                        encoding.py  attributes as typed words; their texts once a bank
                        writers.py   the quick way: a function for each number of attributes, made from a template

`sites.py` interns names and stages, `steps.py` counts steps, `limits.py` adds up coalesced calls and measures cost,
`sinks.py` and `watch.py` call profilers and hooks, `clock.py` reads time.

A position (`tracks.Node`) has all that a range begun there writes, worked out once. `tracks.renew` drops positions
when the step, the bank, the live file or what is on changes. So the quick way writes two words at begin and five at
end. It checks that everything is as it was; where it is not, or an exception comes up, the general way takes over.

The quick way takes no lock. It relies on CPython with a GIL, and on these steps being atomic under it:

- `iter(range(n)).__next__()`, which gives each record a place of its own. `list(iterator)` takes all places that are
  left in one step: so `Bank.close` ends a bank, and a thread that comes later gets StopIteration and rotates.
- `append`, `popleft` and `pop` of a `deque`, which hold free slots and the ranges of a site; `append` of a list, which
  collects coalesced calls.
- one store into a `memoryview` of 64-bit words. A record counts once its third word, with the check bits, is in. A
  reader skips one that is not whole, and the sealer waits a moment for it.
- A group of places, `zip` of that iterator with itself: one step as well. It is longer than the bank by a group, so
  that a group is whole or beyond the end; who takes one beyond the end says where the bank ends (`Bank.lose`).
- `sys.getrefcount`: a range that only its own cell and the argument refer to (2) belongs to nobody, and goes back to
  its pool. From Python 3.14 on the count means something else: only the ranges of wrappers are used again there.

A thread can be interrupted between any two of these steps. `words[count]` may only grow: `quick.is_alone` says that
one thread records, else the count is compared first. A `detach` releases the views: a late store raises ValueError,
which the quick way catches.
"""
