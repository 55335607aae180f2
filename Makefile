# Each target sets up what it needs and is quick the second time. `make` alone lists them.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/stamps
ENGINE := $(wildcard engine/*.cpp engine/*.hpp) CMakeLists.txt

help:
	@echo "make run          serve on http://127.0.0.1:8080, with boards to try things on"
	@echo "make demo         the same with simulated players"
	@echo "make test         all tests; what CI runs"
	@echo "make test-native  the engine alone under its sanitizers"
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

# Sanitizers want a whole build each, but no Python. The tests run side by side, one sanitizer a core.
SANITIZERS := address,undefined thread
test-native: $(STAMPS)/tools
	@for sanitizer in $(SANITIZERS); do \
	  $(BIN)/cmake -S . -B build/native-$$sanitizer -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) \
	    -DRANKD_TESTS=ON -DRANKD_SANITIZER=$$sanitizer > /dev/null && \
	  $(BIN)/cmake --build build/native-$$sanitizer > build/native-$$sanitizer/build.log || \
	    { cat build/native-$$sanitizer/build.log; exit 1; }; \
	done
	@for sanitizer in $(SANITIZERS); do \
	  build/native-$$sanitizer/engine_tests > build/native-$$sanitizer/tests.log 2>&1 & pids="$$pids $$!"; \
	done; \
	failed=0; for pid in $$pids; do wait $$pid || failed=1; done; \
	for sanitizer in $(SANITIZERS); do \
	  echo "engine tests, -fsanitize=$$sanitizer"; cat build/native-$$sanitizer/tests.log; \
	done; exit $$failed

check: setup
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo > build/layers.log || { cat build/layers.log; exit 1; }

# Files side by side, each with servers of its own: most of the time is waiting for them.
WORKERS ?= 2
# Workers must find the same tests under the same names, whatever order their sets have.
HASH_SEED ?= $(shell od -A n -N 2 -t u2 /dev/urandom | tr -d ' ')
test: check test-native
	PYTHONHASHSEED=$(HASH_SEED) $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile

test-long: setup
	$(BIN)/python -m pytest -m long

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

.PHONY: help setup run demo test test-native test-long check bench stub wheel clean
