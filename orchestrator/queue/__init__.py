"""Nights: the queue of runs, the lock of the measuring process, and the summary in the morning."""
