"""What the commands do: compose, open, run, judge, show. Thin: the work is in the modules they call.

Imports are inside the functions: a command loads what it needs and no more.
"""
