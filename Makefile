# Needs python3 (3.11 or newer) with venv, make and git. Everything else goes into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
VENV_STAMP := $(VENV)/.created
SERVE_STAMP := $(VENV)/.installed-serve
DEV_STAMP := $(VENV)/.installed-dev
PYTEST := $(BIN)/python -m pytest

.PHONY: help serve install lint format test test-fast test-e2e bench bench-start bench-history bench-search crash torture clean

help:
	@echo "make serve      install what is missing and start the server (Ctrl-C stops it)"
	@echo "make test       all tests: the fast tier, then real processes"
	@echo "make test-fast  the fast tier only"
	@echo "make bench      latency, throughput and cost (minutes, by hand); make bench-start: start time, memory; make bench-history: 20,000 messages, 1,000 agents"
	@echo "make bench-search  how often a search finds the message that answers (minutes; SOUVERAINE_EMBEDDING_MODEL)"
	@echo "make crash      kill the server at each named place of a turn and look at what is left (a minute or two)"
	@echo "make torture    kill everything at random while clients talk: N=1000 turns, OPTIONS=\"--redis --seed 1\""
	@echo "make lint       style, types, layers, migrations"
	@echo "make format     bring the code into the common form"
	@echo "make clean      remove .venv and caches; never touches the data directory"

serve: $(SERVE_STAMP)
	@exec $(BIN)/python manage.py serve

install: $(SERVE_STAMP)

# With a stamp of its own, so that one that was interrupted is completed the next time.
$(VENV_STAMP):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Souveraine needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Name another one: make PYTHON=python3.11 ...")'
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "Python's venv is missing (Debian: apt install python3-venv)."; exit 1; }
	@touch $@

# A stamp is newer than its lock file only after a complete installation.
$(SERVE_STAMP): requirements.lock | $(VENV_STAMP)
	@echo "Installing the requirements into $(VENV) (about a minute, once) ..."
	@$(PIP) -r requirements.lock
	@touch $@

$(DEV_STAMP): requirements-dev.lock $(SERVE_STAMP)
	@echo "Installing what the tests need into $(VENV) ..."
	@$(PIP) -r requirements-dev.lock
	@touch $@

# Loading the settings makes a data directory; it must not be the operator's.
lint: export SOUVERAINE_DATA_DIR := $(CURDIR)/$(VENV)/lint-data
lint: $(DEV_STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/python manage.py makemigrations --check --dry-run

format: $(DEV_STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.NOTPARALLEL:

test: test-fast test-e2e

# Several processes at once, each with its own database and Redis; whole files, since some share fixtures.
test-fast: $(DEV_STAMP)
	$(PYTEST) -m "not e2e" -n auto --maxprocesses 4 --dist loadfile

# The npm client; without npm its test is skipped with that reason.
NODE_DIR := tests/e2e/node
$(NODE_DIR)/node_modules/.installed: $(NODE_DIR)/package.json
	@if command -v npm >/dev/null; then \
	  cd $(NODE_DIR) && npm install --ignore-scripts --no-audit --no-fund --no-package-lock --silent && touch node_modules/.installed; \
	else echo "npm is missing: the TypeScript client is not tried."; fi

# A client of before, which much existing code uses; beside the present one, not instead of it.
OLD_SDK := $(VENV)/old-sdk
$(OLD_SDK)/.installed: | $(DEV_STAMP)
	@$(PIP) --no-deps --target $(OLD_SDK) letta-client==1.7.12 && touch $@

# The torture is left out for its minutes: `make torture`, or pytest tests/e2e/test_torture.py.
test-e2e: $(DEV_STAMP) $(OLD_SDK)/.installed $(NODE_DIR)/node_modules/.installed
	$(PYTEST) -m e2e -n 2 --dist loadfile --deselect tests/e2e/test_torture.py

# With SOUVERAINE_EMBEDDING_MODEL and its provider's settings in the environment search by meaning is measured too.
bench-search: $(DEV_STAMP)
	$(BIN)/python -m souveraine.testing.bench.search

bench: $(DEV_STAMP)
	$(BIN)/python -m souveraine.testing.bench.load

bench-history: $(DEV_STAMP)
	$(BIN)/python -m souveraine.testing.bench.history

bench-start: $(DEV_STAMP)
	$(BIN)/python -m souveraine.testing.bench.start

crash: $(DEV_STAMP)
	$(BIN)/python -m souveraine.testing.crash $(OPTIONS)

# OPTIONS="--postgres postgres://user@host:5432 --redis --seed 1 --minutes 10"
N ?= 1000
torture: $(DEV_STAMP)
	$(BIN)/python -m souveraine.testing.torture --turns $(N) $(OPTIONS)

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist *.egg-info
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
