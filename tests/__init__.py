"""Compiled modules are kept, even where the environment says not to, before any is imported.

The suite starts hundreds of processes; each would compile pandas, SQLAlchemy and the project anew, two seconds of CPU.
"""

import os
import sys

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
