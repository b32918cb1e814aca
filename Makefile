# Two commands matter: `make quickstart` runs the main job, `make test` passes the tests. Each does all the set-up
# itself, with uv if it is there and with pip otherwise, and is safe to repeat.

# Without a dot: macOS hides folders with one in ~/Documents and ~/Desktop, and Python skips hidden .pth files, which an
# editable install needs.
VENV := venv
BIN := $(VENV)/bin
PYTHON ?= $(shell for python in python3.13 python3.12 python3.11 python3 python; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$python; break; }; done)
UV := $(shell command -v uv 2>/dev/null)

# Of the environment that make itself was started in: without compiled modules every process compiles them anew.
unexport PYTHONDONTWRITEBYTECODE

ifdef UV
INSTALL := $(UV) pip install --quiet --python $(BIN)/python
CREATE := $(UV) venv --quiet --allow-existing --python
else
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
CREATE := $(PYTHON) -m venv
endif

.PHONY: help quickstart setup test test-fast test-costs test-nightly check lint format types migrations docs verify-quickstart gallery \
	method-tables judge-tables lock clean

help:
	@echo "make quickstart  a real model, three arms, interleaved, stored, audited (a few minutes)"
	@echo "make test        the tests            make test-fast  those of the inner loop, under a minute"
	@echo "make check       what CI runs         make format     let ruff rewrite"
	@echo "make docs        the documentation site, into site/"

# ---- set-up -------------------------------------------------------------------------------------------------------

$(BIN)/python:
	@test -n "$(PYTHON)" && $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "interlace needs Python 3.11 or newer: install it, or run make PYTHON=/path/to/python"; exit 2; }
	@! $(PYTHON) -c 'import platform; print(platform.system(), platform.machine())' | grep -q "^Darwin x86_64" \
		|| { echo "$(PYTHON) is built for Intel, and MLX needs arm64: run uv python install 3.13, then" \
			'make PYTHON="$$(uv python find 3.13)"'; exit 2; }
ifdef UV
	$(CREATE) $(PYTHON) $(VENV)
else
	$(CREATE) $(VENV)
endif

$(VENV)/.runtime: requirements.lock pyproject.toml | $(BIN)/python
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "$(VENV) holds a Python older than 3.11: make clean, then again"; exit 2; }
	$(INSTALL) --require-hashes -r requirements.lock
	$(INSTALL) --no-deps --editable .
	@touch $@

$(VENV)/.dev: requirements-dev.lock $(VENV)/.runtime
	$(INSTALL) --require-hashes -r requirements-dev.lock
	@touch $@

setup: $(VENV)/.dev

# ---- the main job -------------------------------------------------------------------------------------------------

quickstart: $(VENV)/.runtime
	$(BIN)/interlace checkpoint import smollm2
	$(BIN)/interlace run sweep=quickstart

# The README's pictures, from the newest finished run of each experiment in the database; needs a Chromium.
gallery: $(VENV)/.dev
	$(BIN)/python docs/pictures.py quickstart docs/images/quickstart.svg \
		--page docs/images/quickstart-report.png
	$(BIN)/python docs/pictures.py prompt_lookup docs/images/prompt_lookup.svg
	$(BIN)/python docs/pictures.py short_vs_two_turns --chart turns-1=docs/images/two_turns.svg
	$(BIN)/python docs/explorer_picture.py docs/images/explorer.png

# The tables of docs/method.md, measured anew: two minutes of one core. A change of the method needs it.
method-tables: $(VENV)/.dev
	$(BIN)/python -m benchmarks.method_tables --measure --runs 2000

# Those of docs/design/judge.md: eight minutes of one core. Threads of linear algebra would count as work while they spin.
judge-tables: $(VENV)/.dev
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.judge_tables --measure

# ---- checks: the same here, in pre-commit and in CI -----------------------------------------------------------------

check: lint types migrations docs test test-nightly verify-quickstart

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-forms \
		$(filter-out %/config.yml,$(wildcard .github/ISSUE_TEMPLATE/*.yml))

types: $(VENV)/.dev
	$(BIN)/mypy

migrations: $(VENV)/.dev
	$(BIN)/python -m migrations.verify

# Two processes, one for each core that the project counts on; a file's tests stay together, in the files' order: else the
# files with few tests would come last, and the longest test, which is one, would run alone at the end.
PYTEST := $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

test: $(VENV)/.dev
	$(PYTEST) -m "not nightly"

test-fast: $(VENV)/.dev
	$(PYTEST) -q -m "not slow and not nightly"

# Which tests are slow: CPU seconds, which a busy machine changes little, into tests/costs.txt.
test-costs: $(VENV)/.dev
	$(BIN)/pytest -q -m "not nightly" --measure-costs

# Kills, long simulations and long runs of real models: for CI, and for changes of the code that they guard.
test-nightly: $(VENV)/.dev
	$(PYTEST) -m nightly

# The documentation site, into site/; a link to a page or heading that is not there fails.
docs: $(VENV)/.dev
	$(BIN)/zensical build --strict --clean

verify-quickstart: $(VENV)/.dev
	.ci/verify-quickstart

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The locks hold for every platform and Python that the project supports; hashes pin the files.
lock:
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url \
		--no-emit-find-links pyproject.toml --extra explore -o requirements.lock
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url \
		--no-emit-find-links pyproject.toml --extra dflash --extra lookup --extra explore --extra parquet --group dev -o requirements-dev.lock

clean:
	rm -rf $(VENV) site .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
