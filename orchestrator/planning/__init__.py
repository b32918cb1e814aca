"""What a plan needs of a machine: memory, time, whether its arms stay loaded."""
