"""A stand-in for a framework, a few pages long: workers and a trainer on Ray, laid out like MindSpeed-RL's.

It is there to be patched from outside, and knows nothing of mstxkit. What its stages compute is made up.
"""
