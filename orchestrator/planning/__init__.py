"""A plan's needs on a machine: memory, time, and whether its arms stay loaded."""
