# `make demo` installs kbqa and answers a question; `make test` runs the tests, and `make quick` most
# of them; `make check` runs the checks of the source and the tests about it; `make lint` the former
# alone.
#
#   make test PYTHON=python3.12 VENV=/tmp/venv
#   make test TORCH='torch==2.13.0+cpu'    # a build of your choice, from where your pip finds it
#
# `make lock` writes which packages are installed, with their hashes, by the newest versions that
# pyproject.toml allows: once for all platforms and for Python 3.11 and newer. It needs uv.

PYTHON ?= python3.11
VENV ?= .venv
# What trains the model and stands beside it in tests. Its hash is not checked: each platform and
# index has builds of its own, which bring other packages, such as NVIDIA's. The newest release may
# be one of gigabytes.
TORCH ?= torch==2.13.0
# What `make quick` leaves out: it builds, trains, opens a browser, kills processes, or compares what
# whole models or every method do.
LONG := test_wheel.py test_papers.py deploy training tools engine/serve/browser kb/loading/test_resume.py \
	engine/evaluation/test_run_reliability.py engine/methods/test_every_method.py \
	engine/writing/test_gguf.py engine/writing/test_openvino.py engine/writing/test_transformers.py
# How many processes share the tests.
WORKERS ?= 2

BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check
# Each process on a core of its own: more threads would only wait for each other.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile \
	--no-loadscope-reorder --max-worker-restart 0
LOCKED := $(INSTALL) --no-deps --require-hashes --requirement
LOCK := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	--custom-compile-command 'make lock' --excludes deploy/locked/left-out.txt \
	pyproject.toml deploy/locked/besides.txt --upgrade --extra cpu --extra serve

.PHONY: demo test quick check lint lock

demo: $(VENV)/.demo
	$(BIN)/kbqa ask "what is the largest city in Kenya?"

test: $(VENV)/.dev
	$(PYTEST)

quick: $(VENV)/.dev
	$(PYTEST) --hypothesis-profile quick $(addprefix --ignore=tests/,$(LONG)) \
		--deselect tests/test_docs.py::test_console

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

check: lint
	$(BIN)/python -m pytest --quiet tests/test_imports.py tests/test_exports.py tests/test_docs.py

lock:
	$(LOCK) --excludes deploy/locked/left-out-of-demo.txt --output-file deploy/locked/demo.txt
	$(LOCK) deploy/locked/of-torch.txt --extra lm --extra llm --extra plots --extra dev \
		--output-file deploy/locked/dev.txt

$(VENV)/.demo: deploy/locked/demo.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	@echo "Installing what kbqa needs: up to a minute."
	$(LOCKED) deploy/locked/demo.txt
	$(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.demo deploy/locked/dev.txt
	@echo "Installing what the tests need."
	$(LOCKED) deploy/locked/dev.txt
	@echo "Installing $(TORCH): up to a minute."
	$(INSTALL) $(TORCH)
	@touch $@
