"""`python -m migrations.verify`: do the revisions and the models make the same tables, from a single head?"""

import sys

from db.check import model_drift


def main() -> int:
    """0 when they agree; else 1, with one line for each difference."""
    problems = model_drift()
    for problem in problems:
        sys.stderr.write(f"{problem}\n")
    sys.stdout.write("migrations and models differ\n" if problems else "migrations and models agree\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
