"""The folders of the programs that a command needs, whatever started it.

cron's PATH lacks /usr/sbin, which holds sysctl and ioreg; launchd's lacks the folders of Homebrew and of `uv tool`,
which hold macmon, uv and the servers.
"""

import os

TOOL_FOLDERS = ("/usr/bin", "/bin", "/usr/sbin", "/sbin", "/opt/homebrew/bin", "/usr/local/bin")


def widened(path: str) -> str:
    """A search path with these folders and the user's own added at its end, where they hide nothing."""
    given = [folder for folder in path.split(os.pathsep) if folder]
    more = [folder for folder in (*TOOL_FOLDERS, os.path.expanduser("~/.local/bin")) if folder not in given]  # noqa: PTH111
    return os.pathsep.join([*given, *more])
