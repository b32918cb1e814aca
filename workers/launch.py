"""`PYTHON -I launch.py [--module NAME] ARGUMENTS`: the package `workers` of this folder, or one module of it, run by
another environment's interpreter.

The other environment needs the engine's packages and nothing of ours. The folder that holds `workers` is not put on its
search path: of an installed interlace that is our site-packages, with another MLX in it. Only this one package is made
known, in place. `-I` keeps this environment's own PYTHONPATH and the user's packages out as well.
"""

import importlib.util
import runpy
import sys
from pathlib import Path

NEEDED = (3, 11)


def main() -> None:
    """Run `workers` as `python -m workers` does."""
    if sys.version_info < NEEDED:  # before anything that an older Python could not even parse
        found = ".".join(map(str, sys.version_info[:3]))
        needed = ".".join(map(str, NEEDED))
        sys.exit(f"{sys.executable} is Python {found}, a worker needs {needed} or newer; change engine.python")
    _make_known(Path(__file__).absolute().parent)
    module = "workers"
    if sys.argv[1:2] == ["--module"]:
        module = sys.argv[2]
        del sys.argv[1:3]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _make_known(folder: Path) -> None:
    spec = importlib.util.spec_from_file_location(
        folder.name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    if spec is None or spec.loader is None:
        sys.exit(f"{folder} holds no package")
    package = importlib.util.module_from_spec(spec)
    sys.modules[folder.name] = package
    spec.loader.exec_module(package)


if __name__ == "__main__":
    main()
