"""Executing a plan: gate, workers, trials, rows. `runner.Runner` walks the schedule."""
