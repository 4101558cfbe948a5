# The whole life of a checkout. Everything is installed into .venv, once: a second run installs nothing again.
PYTHON := .venv/bin/python
PIP := $(PYTHON) -m pip install --quiet --disable-pip-version-check -c constraints.txt
OLD_PIP := $(PYTHON) -m pip install --quiet --disable-pip-version-check --no-deps --upgrade
OLD_SPIKINGJELLY := 0.0.0.0.4 0.0.0.0.12 0.0.0.0.14
NEEDS := nwcompile needs Debian with Python 3.11 or newer, git, make and python3-venv
LONG_EXAMPLES ?= 500
TEST_EXTRAS ?= test,cuda
FUZZ ?= 100000
SEED ?= 1
START ?= 0
export OMP_NUM_THREADS ?= 1

.PHONY: demo docs picture test test-long test-gpu fuzz lint clean

demo: .venv/installed-demo
	$(PYTHON) examples/01_mnist.py

test: .venv/installed-test
	$(PYTHON) -m pytest -q -n 2

test-long: .venv/installed-long
	HYPOTHESIS_PROFILE=long LONG_EXAMPLES=$(LONG_EXAMPLES) $(PYTHON) -m pytest -q -n 2 --dist worksteal -m long

# the site in build/site; tutorials and sample reports are run where they or the package changed
docs: .venv/installed-docs
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict
	@echo "docs         build/site/index.html"

# the pictures of README.md and docs/read-a-report.md, from the report of the demo
picture: demo .venv/installed-long
	$(PYTHON) docs/make_picture.py

# what only a GPU can show; installs nothing: PYTHON=python3 where that one has torch with CUDA, triton and pytest
# Compiling the kernels takes most of the time, so many processes share the tests. Warnings of that torch are not errors.
GPU_WORKERS = $(shell $(PYTHON) -c 'import xdist' 2>/dev/null && printf %s '-n 12 --dist worksteal')
test-gpu:
	@$(PYTHON) -c "import torch; torch.cuda.is_available() or exit(f'make test-gpu needs a GPU, and torch {torch.__version__} finds none')"
	$(PYTHON) -m pytest -q -rs -p no:benchmark -W default $(GPU_WORKERS) tests/gpu tests/nn/layers/test_parity.py

# FUZZ damaged files in all, shared out among the readers; the same SEED makes the same files, START goes on with later ones
fuzz: .venv/installed-test
	$(PYTHON) -m tests.fuzz --inputs $(FUZZ) --seed $(SEED) --start $(START)

lint: .venv/installed-test
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find nwcompile tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/made:
	@command -v git >/dev/null && python3 -c 'import sys, venv, ensurepip; assert sys.version_info >= (3, 11)' 2>/dev/null \
		|| { echo "$(NEEDS)" >&2; exit 1; }
	python3 -m venv .venv
	touch $@

.venv/installed-demo: .venv/made pyproject.toml constraints.txt
	$(PIP) -e '.[demo]'
	touch $@

.venv/installed-test: .venv/made pyproject.toml constraints.txt tests/frameworks.txt
	$(PIP) -e '.[$(TEST_EXTRAS)]'
	$(PIP) --no-deps -r tests/frameworks.txt
	for v in $(OLD_SPIKINGJELLY); do $(OLD_PIP) --target .venv/spikingjelly-$$v spikingjelly==$$v || exit 1; done
	touch $@

.venv/installed-docs: .venv/made pyproject.toml constraints.txt
	$(PIP) -e '.[docs]'
	touch $@

.venv/installed-long: .venv/installed-test
	$(PIP) -e '.[long]'
	touch $@
