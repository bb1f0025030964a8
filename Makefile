# Every target sets up what it needs; `make help` lists them.
PYTHON ?= $(firstword $(foreach name,python3 python3.12 python3.10 python,$(shell command -v $(name))))
VENV := .venv
BIN := $(VENV)/bin
PACKAGES := ciphercohort protocols parties coordinator sims

# Two test processes with one OpenMP thread each beat one process with two. A file's tests stay in
# one process, so its key ceremonies run once; files with slow tests go first (tests/conftest.py).
# `make test PYTEST='-x tests/protocols'` overrides.
WORKERS ?= 2
PYTEST ?= -n $(WORKERS) --dist loadfile --no-loadscope-reorder
TEST_THREADS ?= 1
TESTS = OMP_NUM_THREADS=$(TEST_THREADS) $(BIN)/python -m pytest $(PYTEST)
# Side by side, the longest first; all are run, whichever fails.
CHECKS = mypy 'python -m pytest --doctest-modules $(PACKAGES)' \
	'ruff check .' 'ruff format --check .' lint-imports
DEMO_OUT ?= runs/demo

export FLWR_TELEMETRY_ENABLED := 0
export FLWR_DISABLE_UPDATE_CHECK := 1
export NO_MKDOCS_2_WARNING := 1
export FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION := 1
# Modules are installed uncompiled: hundreds of processes would each compile what they load.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test test-product test-lab check bench docs flower-wheel wheels setup setup-dev clean distclean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: setup ## train on a data set that scikit-learn ships, encrypted, for three parties
	$(BIN)/cohort simulate --out $(DEMO_OUT)

test: setup-dev ## run all tests
	$(TESTS)

test-product: setup-dev ## those of what runs at hospitals and centres alone
	$(TESTS) --ignore=tests/lab

test-lab: setup-dev ## those of papers, studies and audits alone
	$(TESTS) tests/lab

check: setup-dev ## lint, formatting, types, import contracts, doctests
	@printf '%s\n' $(CHECKS) | xargs -t -P $(WORKERS) -I {} sh -c '$(BIN)/{}'

bench: setup-dev ## run the benchmarks
	$(BIN)/python -m benchmarks

docs: setup-dev ## write the documentation site to build/site; a broken link fails
	$(BIN)/python -m mkdocs build
	@echo "open build/site/index.html"

flower-wheel: ## build the wheel of the secure sums for Flower apps alone: pure Python, in dist/
	@$(if $(PYTHON),,echo "No Python found. First install one (3.10 or newer)" >&2; exit 2)
	@$(PYTHON) scripts/flower_wheel.py

wheels: setup ## build the whole package's wheel, which needs that of the secure sums, and that one
	rm -f dist/ciphercohort-*.whl
	$(BIN)/python -m pip wheel -q --disable-pip-version-check --no-deps -w dist .
	@$(PYTHON) scripts/flower_wheel.py dist dist/ciphercohort-*.whl

setup: ## make .venv with what running needs
	@$(if $(PYTHON),,echo "No Python found. First install one (3.8 or newer), such as with: sudo apt-get install python3" >&2; exit 2)
	@$(PYTHON) scripts/bootstrap.py

setup-dev: ## make .venv with what tests and checks need, too
	@$(if $(PYTHON),,echo "No Python found. First install one (3.8 or newer), such as with: sudo apt-get install python3" >&2; exit 2)
	@$(PYTHON) scripts/bootstrap.py dev

clean: ## remove caches and builds; keeps .venv and runs/
	rm -rf build dist .pytest_cache .hypothesis .mypy_cache .ruff_cache .import_linter_cache
	find $(PACKAGES) tests benchmarks scripts -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## remove .venv as well
	rm -rf $(VENV)
