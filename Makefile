# Everything that is done to this project, from a fresh machine with only python3 (>= 3.11) and make.
#
#   make demo     the six contractions of the demonstration, on every device found
#   make test     ruff, mypy and the tests (two workers; under 25 minutes on two cores)
#   make fuzz     the property tests with many random examples, the slow tests, and thousands of random programs
#                 and contractions (of which a core does some three a second)
#   make bench    benchmarks of contractions, latencies and threads; results in benchmarks/results/
#   make gpu      correctness and benchmarks on a CUDA device, with the python3 at hand: no venv, no network
#   make docs     regenerates docs/tour.md, and the tables of figures of all pages from benchmarks/results/
#   make golden   rewrites the golden files of the tests and docs/tour.md; read the difference before committing it
#   make clean    removes what the above made, not the results of benchmarks

PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2
BENCH_ARGS ?=
FUZZ_ARGS ?= --count 5000 --minutes 60 --workers $(WORKERS) --keep fuzz-failures

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Tests start hundreds of processes, which would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: all demo test lint fuzz bench gpu docs golden clean
.DEFAULT_GOAL := all
.NOTPARALLEL:

all: test

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Tilewright needs Python 3.11 or newer; %s is %s. Try: make PYTHON=python3.12 ..." % (sys.executable, sys.version.split()[0]) if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test,dev]'
	@touch $@

demo: $(STAMP)
	$(BIN)/python examples/demo.py

# All of the checks run, whatever the first of them says; the exit code tells of any failure.
test: $(STAMP)
	@status=0; \
	$(BIN)/ruff check . || status=1; \
	$(BIN)/ruff format --check . || status=1; \
	$(BIN)/mypy --strict || status=1; \
	$(BIN)/python -m pytest -n $(WORKERS) -q -m "not slow" || status=1; \
	exit $$status

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict

fuzz: $(STAMP)
	@status=0; \
	fuzz() { $(BIN)/python tests/fuzz/run_fuzz.py $(FUZZ_ARGS) "$$@" || status=1; }; \
	HYPOTHESIS_PROFILE=fuzz $(BIN)/python -m pytest -n $(WORKERS) -q -m "slow or not slow" || status=1; \
	fuzz --target cpu; \
	fuzz --target opencl; \
	fuzz --target cpu-small --guarded; \
	fuzz --target cuda-emulated; \
	fuzz --target cuda-races --count 100; \
	fuzz --target cpu --numpy; \
	fuzz --target cpu --extremes; \
	fuzz --target cpu --bf16 --count 500; \
	fuzz --target cpu --large --count 500; \
	fuzz --target cpu --rewrites; \
	fuzz --target cpu --contractions; \
	fuzz --target cpu-small --contractions --guarded; \
	fuzz --target opencl --contractions; \
	fuzz --target cuda-emulated --contractions; \
	fuzz --target cuda-races --contractions --count 100; \
	exit $$status

bench: $(STAMP)
	$(BIN)/python benchmarks/contractions.py $(BENCH_ARGS)
	$(BIN)/python benchmarks/latency.py
	$(BIN)/python benchmarks/threads.py

# Correctness first, then benchmarks; both run even if the first fails.
gpu:
	@status=0; \
	PYTHONPATH=src $(PYTHON) tests/gpu/run_gpu_checks.py || status=1; \
	PYTHONPATH=src $(PYTHON) benchmarks/gpu.py || status=1; \
	exit $$status

docs: $(STAMP)
	$(BIN)/python docs/make_tour.py
	$(BIN)/python docs/make_figures.py

golden: $(STAMP) docs
	$(BIN)/python -m pytest -q --update-golden

clean:
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
