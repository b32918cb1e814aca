"""Other tools' results: a pure reader per format, and the code that stores them as runs that were not randomised.

    bytes --decoding--> JSON values --formats, a reader--> ForeignResults --planning, store--> a run in the database

No reader opens a file, or knows a time zone or a database. A value that a file lacks stays None.
"""
