"""The commands: `cmd_NAME.py` declares the command NAME with its options and carries it out.

A command's module loads when the command is called, or asked for its help. For the help's sake its imports at the top
are light; what the work needs is imported where the work begins. What several commands share has modules of its own.
"""
