"""What people see on the terminal, in 80 columns. Formatting only."""
