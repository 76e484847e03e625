# Everything a person types. Needs Python 3.11 to 3.13 and make; the rest is installed into .venv.
PYTHON ?= python3
BIN := .venv/bin
# What pip says, such as a warning for each package about a user's own configuration, is shown only if it fails.
install = @echo "installing clusterkit[$(1)] into .venv"; $(BIN)/python -m pip --disable-pip-version-check install --no-compile \
  -c constraints.txt -e '.[$(1)]' >.venv/pip.log 2>&1 || { cat .venv/pip.log >&2; exit 1; }
DEV := train,trackers,search,hydra,dev
BENCH := $(DEV),bench
# Tests start hundreds of processes, and each of them compiles anew what none of them may keep.
unexport PYTHONDONTWRITEBYTECODE
# A worker that crashes ends the run with its name; xdist 3.8 would hang with a new one in its place.
# Of six processes, four mostly wait for their test clusters; the others keep two cores busy.
PYTEST = $(BIN)/python -m pytest -n $(or $(WORKERS),6) --dist loadgroup --no-loadscope-reorder --max-worker-restart 0
# Linters and documentation are checked while the tests run. A fault of theirs stops nothing and fails all.
BESIDE = $(MAKE) --no-print-directory --keep-going --jobs lint docs

.DEFAULT_GOAL := help
.PHONY: help demo test fresh test-cluster test-all ready packages debian pytest image lint docs bench peers clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

.venv/.made:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 11) <= v < (3, 14) else "clusterkit needs Python 3.11 to 3.13, this is %d.%d; try: make PYTHON=python3.12 ..." % v)'
	$(PYTHON) -m venv .venv
	@touch $@

.venv/.train: .venv/.made pyproject.toml constraints.txt
	$(call install,train)
	@touch $@

.venv/.dev: .venv/.made pyproject.toml constraints.txt
	$(call install,$(DEV))
	@touch .venv/.train $@

.venv/.bench: .venv/.dev
	$(call install,$(BENCH))
	@touch $@

demo: .venv/.train ## install, then `clusterkit demo`: train four Meta-World tasks here (STEPS=N: at most so many steps)
	$(BIN)/clusterkit demo $(if $(STEPS),--total-steps $(STEPS))

test: .venv/.dev ## the tests that need Python alone (minutes); nothing outside .venv is touched
	@$(MAKE) --no-print-directory pytest WORKERS=$(or $(WORKERS),3) MARKED='(promise or not slow) and not cluster and not exhaustive'

fresh: packages ## `make test` and a short `make demo` on a machine with Python, git and make alone (as root on Debian)
	@$(BIN)/python -m tests.cluster.fresh

test-cluster: ready ## as root on Debian: style, types, docs, all proofs on real sshd, Slurm, Apptainer, part of the other tests
	@$(BESIDE) image pytest MARKED='(cluster or needs or slow and not promise) and not exhaustive and not another_day'

test-all: ready ## all of these and the exhaustive ones: all tasks, all releases, long soaks (hours)
	@$(BESIDE) image pytest

# Debian for the test cluster needs none of the Python packages that are installed meanwhile.
ready: packages
	@$(MAKE) --no-print-directory --jobs .venv/.dev debian

packages: .venv/.made
	@$(BIN)/python -m tests.cluster.packages

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

docs: .venv/.dev ## make the documentation and its pictures; warnings, and pictures that differ, are errors
	$(BIN)/python -m docs.tools.pictures
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
