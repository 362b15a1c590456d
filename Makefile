# Two commands do everything on a fresh machine with Python 3.11+ and g++: `make demo` and `make test`.
# PYTHON names the interpreter the environment is made from; VENV where it lies.

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
RUN = PYTHONPATH=. $(BIN)/python

.PHONY: demo test check lint types layers figures unit sweeps ages stress sanitize clean

demo: $(VENV)/.built
	$(RUN) tools/demo.py

test: check unit

check: lint types layers figures

unit: $(VENV)/.built
	STOKER_STRICT=1 $(RUN) -m pytest tests -n 2 --dist loadfile

lint: $(VENV)/.ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/.ready
	$(BIN)/mypy

layers: $(VENV)/.built
	PYTHONPATH=. $(BIN)/lint-imports

figures: $(VENV)/.ready
	$(RUN) tools/figures.py

# Hours: every sweep whose table is in docs/, then how old each table is. `ages` says only that.
sweeps: $(VENV)/.built
	$(RUN) tools/sweeps.py

ages: $(VENV)/.ready
	$(RUN) tools/sweeps.py --ages

# Ten minutes: many threads, calls, compilations and dropped models; no failure, and memory that stays.
stress: $(VENV)/.built
	$(RUN) tools/stress.py

# The extension's tests under the address sanitizer and valgrind (apt install valgrind); see tools/sanitize.py.
sanitize: $(VENV)/.ready
	$(RUN) tools/sanitize.py

# torch first and pinned: a range with none installed would pull gigabytes of CUDA builds.
$(VENV)/.ready: requirements.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet torch==2.13.0
	$(BIN)/pip install --quiet -r requirements.txt
	$(BIN)/pip install --quiet --no-deps timm==1.0.30
	touch $@

$(VENV)/.built: $(VENV)/.ready setup.py $(wildcard csrc/*)
	$(BIN)/python setup.py --quiet build_ext --inplace
	touch $@

clean:
	rm -rf build $(VENV) stoker/*.so
