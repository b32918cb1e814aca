"""Nights: the queue of runs, who measures on this machine, and what the morning is told."""
