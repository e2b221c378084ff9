# Every target works from a fresh clone: the environment is made in .venv, on first use.
#   PYTHON=python3.12 make demo     takes another interpreter (3.10 or newer)
#   make test PYTEST_ARGS='-n 0 -k einsum'

PYTHON ?= python3
PYTEST_ARGS ?= -n 2 --dist loadfile

VENV := .venv
BIN := $(VENV)/bin
RUN_STAMP := $(VENV)/.set-up-to-run
CHECK_STAMP := $(VENV)/.set-up-to-check
PROJECTS := . kit plugins/pointwise plugins/matrix plugins/structure plugins/corrections plugins/fallback examples/acme_kernels
SET_UP_FILES := constraints.txt $(addsuffix /pyproject.toml,$(PROJECTS))
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# Several ranks share few cores: one thread each is faster than many that wait for each other.
export OMP_NUM_THREADS ?= 1

.PHONY: help demo test bench parity soak test-matrix test-newest clean
help:
	@echo "make demo    train the example model on four ranks, beside the same model on one"
	@echo "make test    every check that CI runs: ruff, mypy, import-linter, pytest"
	@echo "make bench   measure propagation beside bare torch: a table and a plot"
	@echo "make parity  programs and calls, bare torch beside the registry: never worse than torch"
	@echo "make soak    dispatch from two threads while rules change: right answers, flat memory"
	@echo "make test-matrix   the whole suite on each version of torch, in environments of its own"
	@echo "make test-newest   the same on the newest version alone"
	@echo "make clean   remove the environment and all caches"

demo: $(RUN_STAMP)
	cd examples && ../$(BIN)/python -m main_job

# pytest is last: CI reads its closing line.
test: $(CHECK_STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest $(PYTEST_ARGS)

bench: $(CHECK_STAMP)
	$(PIP_INSTALL) matplotlib
	$(BIN)/python -m benchmarks.propagation

# The gate: 1 if anything is worse than on bare torch, or silently wrong. PARITY_ARGS=--tenth for less.
parity: $(CHECK_STAMP)
	$(BIN)/python -m benchmarks.parity $(PARITY_ARGS)

soak: $(CHECK_STAMP)
	$(BIN)/python scripts/soak.py

# Some GiB for each version, outside of the checkout; not part of `make test`.
test-matrix:
	$(PYTHON) scripts/test_matrix.py

test-newest:
	$(PYTHON) scripts/test_matrix.py --newest

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Build tools come first and from constraints.txt, so that no project fetches its own.
$(RUN_STAMP): $(SET_UP_FILES)
	@echo "Setting up $(VENV) (torch is large: this takes some minutes on first use)"
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) editables hatchling
	$(PIP_INSTALL) --no-build-isolation $(addprefix -e ,$(PROJECTS))
	@touch $@

$(CHECK_STAMP): $(RUN_STAMP)
	$(PIP_INSTALL) --no-build-isolation -e '.[dev]'
	@touch $@
