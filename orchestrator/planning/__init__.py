"""What a plan needs from a machine: memory, time, and whether its arms stay loaded."""
