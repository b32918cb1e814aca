"""Writing to disk, for every package of ours: whole files, under no name that anybody could have prepared, and readable
by their owner alone. A leaf: it imports the standard library only.

    atomic    a file or a folder that takes its name when it is finished
    leftovers what killed processes left of those
    private   files and folders that stay open under a fixed name: logs, journals, locks, the database
"""
