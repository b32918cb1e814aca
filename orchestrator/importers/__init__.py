"""Other tools' results: a pure reader each format, and what makes runs that were not randomised of what they read.

    bytes --decoding--> JSON values --formats, a reader--> ForeignResults --planning, store--> a run in the database

No reader opens a file, knows a time zone or a database. What a file does not tell stays None.
"""
