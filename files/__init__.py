"""Writing to disk, for every package: files that appear whole, under no name that anybody could have prepared, and that
only their owner can read. A leaf: standard library only, and no package of ours is imported.

    writing   a file or a folder that takes its name when it is finished
    private   files and folders that stay open under a fixed name: logs, journals, locks, the database
"""
