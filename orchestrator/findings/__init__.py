"""What a run's numbers mean: pure, values in and values out. `findings` holds the values, `orchestrator.meaning` reads
what they are made of."""
