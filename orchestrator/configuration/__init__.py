"""Overrides and files in, a frozen plan out: `compose.make_plan` is the front door."""
