"""One file a side. Each has `train(case, run)`, which trains and returns the final policy.

Only `cell` imports them, each in the interpreter that has its packages.
"""
