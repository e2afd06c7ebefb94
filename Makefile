# Logline: everything a contributor runs. `make help` lists it.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
ARGS   ?=
JOBS   ?= 3

# Tests wait for processes about as long as they compute: three workers keep two cores busy. They start hundreds of
# interpreters, and each would compile all modules where writing bytecode is switched off.
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n $(JOBS)
QUICK  := tests/unit/engine tests/unit/graph tests/unit/store tests/protocol tests/conformance/test_memory_store.py tests/docs \
          --deselect "tests/docs/test_examples.py::test_page[docs/dataframes.md" \
          --deselect tests/protocol/test_schedules.py::test_a_thousand_schedules_hit_every_crash_point \
          --deselect "tests/protocol/test_crash_points.py::test_a_kill_at_every_point[destructive" \
          --deselect "tests/protocol/test_crash_points.py::test_a_kill_at_every_point[non-replayable"

.DEFAULT_GOAL := help
.PHONY: setup demo test quick lint format soak kills hosts mutants bench lock clean help

setup: $(STAMP)  ## make .venv from the lock file (only when the lock or pyproject.toml changed)

# The lock holds every package with its hash, the build backend included: nothing else is fetched.
$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Logline needs Python 3.11 or newer; try: make setup PYTHON=python3.11" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

test: setup  ## run the tests; ARGS="-k machine -x" is passed to pytest, JOBS=4 takes four workers
	$(PYTEST) $(ARGS)

quick: setup  ## what a change needs, in a minute: protocol, engine, graph, stores, docs, 100 crash schedules
	$(PYTEST) -q $(QUICK) $(ARGS)
	$(BIN)/python -m logline.testing simulate --stop --schedules 100

lint: setup  ## style, format, types, layers, tree, commit messages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python tools/check_tree.py
	$(BIN)/python tools/check_commits.py

format: setup  ## repair what can be repaired: formatting, import order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

soak: setup  ## 100,000 crash schedules in the simulator; stops and goes on where it was
	$(BIN)/python -m logline.testing simulate --schedules 100000 --seed 1 --resume .soak.json $(ARGS)

kills: setup  ## 500 kills of real processes; ARGS="--kills 10000" for more; stops and goes on where it was
	$(BIN)/python -m tests.chaos.kills --resume .kills.json $(ARGS)

hosts: setup  ## break a Spark cluster of several hosts, which are namespaces of this machine (as root, needs `ip`)
	LOGLINE_HOSTS=1 $(PYTEST) -q -n 0 tests/spark/test_two_hosts.py $(ARGS)

mutants: setup  ## break each rule on purpose; every mutant must be caught by a test
	$(BIN)/python tests/mutants/run.py $(ARGS)

demo: setup  ## LOG.io's Figure 1 on Spark, one operator killed midway (needs Java)
	$(BIN)/python examples/figure1.py $(ARGS)

bench: setup  ## measure; writes JSON to benchmarks/results
	$(BIN)/python -m benchmarks $(ARGS)

lock:  ## renew requirements.lock from pyproject.toml (needs uv)
	uv pip compile pyproject.toml --group dev --universal --python-version 3.11 --upgrade \
	  --generate-hashes --no-emit-index-url --no-header --no-annotate --quiet -o requirements.lock

clean:  ## remove the environment, caches and build products (.soak.json and .kills.json stay)
	rm -rf $(VENV) .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

help:  ## this list
	@sed -n 's/^\([a-z]*\):[^#]*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18
