"""The live screens of the terminal, in 80 columns. Formatting only."""
