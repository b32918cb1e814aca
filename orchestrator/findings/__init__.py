"""The meaning of a run's numbers: pure functions of values. `values` defines the results; `orchestrator.meaning` reads
the input."""
