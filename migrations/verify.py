"""`python -m migrations.verify`: do the revisions make exactly the tables of `db.models`? Exit code 1 when not."""

import sys

from db.check import model_drift


def main() -> int:
    """Compare the DDL that the models and the revisions make, CHECKs and indexes included."""
    problems = model_drift()
    for problem in problems:
        sys.stdout.write(f"{problem}\n")
    sys.stdout.write("migrations match the models\n" if not problems else f"{len(problems)} differences\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
