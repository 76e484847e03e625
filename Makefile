# Everything a person types. Needs Python 3.11 to 3.13 and make; the rest is installed into .venv.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
CONSTRAIN := -c constraints.txt
# Four processes mostly wait for their test clusters; the others keep two cores busy.
WORKERS ?= 6
# Tests start hundreds of processes, and each of them compiles anew what none of them may keep.
unexport PYTHONDONTWRITEBYTECODE
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --no-loadscope-reorder
# Linters and documentation are checked while the tests run. A fault of theirs stops nothing and fails all.
BESIDE = $(MAKE) --no-print-directory --keep-going --jobs lint docs

.DEFAULT_GOAL := help
.PHONY: help demo test test-all check ready debian pytest image lint docs bench peers clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 10

.venv/.made:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 11) <= v < (3, 14) else "clusterkit needs Python 3.11 to 3.13, this is %d.%d; try: make PYTHON=python3.12 ..." % v)'
	$(PYTHON) -m venv .venv
	@touch $@

.venv/.train: .venv/.made pyproject.toml constraints.txt
	$(PIP) install -q --no-compile $(CONSTRAIN) -e '.[train]'
	@touch $@

.venv/.dev: .venv/.made pyproject.toml constraints.txt
	$(PIP) install -q --no-compile $(CONSTRAIN) -e '.[train,trackers,search,hydra,dev]'
	@touch .venv/.train $@

.venv/.bench: .venv/.dev
	$(PIP) install -q --no-compile $(CONSTRAIN) -e '.[train,trackers,search,hydra,dev,bench]'
	@touch $@

demo: .venv/.train ## install, then `clusterkit demo`: train four Meta-World tasks here (minutes)
	$(BIN)/clusterkit demo

test: ready ## linters, types, docs and the tests, on a real Slurm where one can run
	@$(BESIDE) image pytest MARKED='not exhaustive'

test-all: ready ## the tests of `make test` and the exhaustive ones: all tasks, all releases, long soaks
	@$(BESIDE) image pytest

check: WORKERS := 4
check: .venv/.dev ## the quick part of `make test`, before a commit
	@$(BESIDE) pytest WORKERS=$(WORKERS) MARKED='not slow and not cluster and not exhaustive'

# Debian for the test cluster needs none of the packages that are installed meanwhile.
ready: .venv/.made
	@$(MAKE) --no-print-directory --jobs .venv/.dev debian

debian: .venv/.made
	@$(BIN)/python -m tests.cluster.rootfs

# What a test makes is no part of this make.
pytest: .venv/.dev
	@env -u MAKEFLAGS $(PYTEST) $(if $(MARKED),-m '$(MARKED)')

# Tests on the cluster begin meanwhile with what needs no image.
image: .venv/.dev
	@$(BIN)/python -m tests.cluster.image

lint: .venv/.dev ## style, types and the layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: .venv/.dev ## build the documentation, warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: .venv/.bench ## the quick benchmarks, ours against the peer in the same run
	$(BIN)/python -m tests.benchmarks.cli --quick
	$(BIN)/python -m tests.benchmarks.transfer --quick
	$(BIN)/python -m tests.benchmarks.working_copy --quick
	$(BIN)/python -m tests.benchmarks.image --quick
	$(BIN)/python -m tests.benchmarks.login --quick
	$(BIN)/python -m tests.benchmarks.status --quick
	$(BIN)/python -m tests.benchmarks.sync --quick
	$(BIN)/python -m tests.benchmarks.env_step --quick
	$(BIN)/python -m tests.benchmarks.envs --quick
	$(BIN)/python -m tests.benchmarks.replay --quick
	$(BIN)/python -m tests.benchmarks.learner --quick
	$(BIN)/python -m tests.benchmarks.waiting --quick
	$(BIN)/python -m tests.benchmarks.end_to_end --quick

peers: .venv/.train ## our trainer beside its peers (BUDGET=minutes; QUICK=1: five minutes)
	$(BIN)/python -m tests.benchmarks.peers $(if $(QUICK),--quick) $(if $(BUDGET),--budget $(BUDGET)) $(PEERS)

clean: ## remove what the build and the tests leave behind, not runs or results
	rm -rf .venv build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
