# Each target sets up what it needs and is quick the second time. `make` alone lists them.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/stamps
ENGINE := $(wildcard engine/*.cpp engine/*.hpp) CMakeLists.txt

# Hundreds of processes start in the tests: what Python has compiled is kept, also where an image says otherwise.
unexport PYTHONDONTWRITEBYTECODE

# `make -j test` keeps to the order in which things are named.
.NOTPARALLEL:

help:
	@echo "make run          serve on http://127.0.0.1:8080, with boards to try things on"
	@echo "make demo         the same with simulated players"
	@echo "make test         all tests; what CI runs"
	@echo "make servers      install what the tests start, where that is allowed"
	@echo "make test-native  the engine alone under a sanitizer"
	@echo "make test-long    the long variants of the property and stress tests"
	@echo "make check        format, lint, types, layers; seconds"
	@echo "make bench        figures beside Redis and sortedcontainers; some ten minutes"
	@echo "make stub         renew the engine's type stub after a change of its bindings"
	@echo "make wheel        build a wheel into dist/"
	@echo "make clean        remove everything that was built"

$(STAMPS)/tools: constraints.txt pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --requirement requirements-dev.txt
	@touch $@

# Editable: Python files are used as they are, the engine is compiled anew when it changes.
$(STAMPS)/rankd: $(STAMPS)/tools $(ENGINE)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	@touch $@

setup: $(STAMPS)/rankd

# To run it nobody needs the tools it is made with.
$(STAMPS)/product: constraints.txt pyproject.toml $(ENGINE) $(shell find src -type f -not -name '*.pyc')
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS)
	@if [ -e $(STAMPS)/rankd ]; then $(MAKE) --no-print-directory setup; else \
	  echo "building rankd: about a minute, the first time" && \
	  $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt .; fi
	@touch $@

run: $(STAMPS)/product
	@$(BIN)/rankd serve --config examples/rankd.toml

demo: $(STAMPS)/product
	@$(BIN)/rankd demo

# Sanitizers want a whole build each, but no Python. `make test` compiles the engine twice, for Python and under the
# address sanitizer; the long tests add the thread sanitizer.
SANITIZERS ?= address,undefined
NATIVE_SEED ?= 20260504
test-native: $(STAMPS)/tools
	@for sanitizer in $(SANITIZERS); do \
	  $(BIN)/cmake -S . -B build/native-$$sanitizer -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) \
	    -DRANKD_TESTS=ON -DRANKD_SANITIZER=$$sanitizer > /dev/null && \
	  $(BIN)/cmake --build build/native-$$sanitizer > build/native-$$sanitizer/build.log || \
	    { cat build/native-$$sanitizer/build.log; exit 1; }; \
	done
	@for sanitizer in $(SANITIZERS); do \
	  build/native-$$sanitizer/engine_tests --seed $(NATIVE_SEED) > build/native-$$sanitizer/tests.log 2>&1 & pids="$$pids $$!"; \
	done; \
	failed=0; for pid in $$pids; do wait $$pid || failed=1; done; \
	for sanitizer in $(SANITIZERS); do \
	  echo "engine tests, -fsanitize=$$sanitizer"; cat build/native-$$sanitizer/tests.log; \
	done; exit $$failed

check: setup
	@mkdir -p build
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo > build/layers.log || { cat build/layers.log; exit 1; }

# What the tests start. Nothing is installed where we may not: a line says what would be.
servers:
	@tests/servers/install.sh

# One more than there are processors, since tests wait for servers; each worker starts servers of its own.
WORKERS ?= $(shell cores=$$(getconf _NPROCESSORS_ONLN || echo 2); echo $$((cores < 4 ? cores + 1 : 5)))
# Every run of `make test` is the same: seeds of pytest and Hypothesis are in pyproject.toml. Workers must find the same
# tests under the same names, whatever order their sets have.
HASH_SEED ?= 20260504
# A test that hangs fails by itself after five minutes; this ends a run that hangs outside of them, and names what it did.
TEST_S_MAX ?= 3900
DEADLINE := $(if $(shell command -v timeout),timeout --foreground --kill-after=60 $(TEST_S_MAX))
PYTEST := PYTHONHASHSEED=$(HASH_SEED) $(DEADLINE) $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal
NATIVE := $(if $(shell command -v timeout),timeout --kill-after=10 $(TEST_S_MAX)) $(MAKE) --no-print-directory test-native
# The sanitizers work while the tests wait for their servers.
test: servers check
	@$(NATIVE) > build/native.log 2>&1 & native=$$!; \
	trap 'kill $$native 2> /dev/null; wait $$native; exit 130' INT TERM; \
	failed=0; $(PYTEST) || failed=1; \
	wait $$native || failed=1; cat build/native.log; exit $$failed

# Other seeds each time, named at the beginning; times are asserted as they are on a machine of their own.
ifndef SEED
SEED := $(shell od -A n -N 4 -t u4 /dev/urandom | tr -d ' ')
endif
test-long: setup
	@echo "seed $(SEED): repeat it by make test-long SEED=$(SEED)"
	RANKD_TIGHT=1 PYTHONHASHSEED=$(SEED) $(BIN)/python -m pytest -m 'long or timed' \
	  --randomly-seed=$(SEED) --hypothesis-profile=fresh --hypothesis-seed=$(SEED) \
	  -o faulthandler_timeout=3900
	@$(MAKE) --no-print-directory test-native NATIVE_SEED=$(SEED) SANITIZERS="address,undefined thread"

bench: setup
	$(BIN)/python -m benchmarks

stub: setup
	$(BIN)/python -m nanobind.stubgen -q -m rankd._columns -o src/rankd/_columns.pyi
	$(BIN)/python -m nanobind.stubgen -q -m rankd._engine -o src/rankd/_engine.pyi
	$(BIN)/python -m nanobind.stubgen -q -m rankd._numbers -o src/rankd/_numbers.pyi
	$(BIN)/ruff format --quiet src/rankd/_columns.pyi src/rankd/_engine.pyi src/rankd/_numbers.pyi

wheel: $(STAMPS)/tools
	$(BIN)/python -m build --wheel --no-isolation --outdir dist .

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

.PHONY: help setup servers run demo test test-native test-long check bench stub wheel clean
