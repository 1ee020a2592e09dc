# Two commands: `make demo` and `make test`. Both set up everything they need.
PYTHON ?= python3
VENV   ?= .venv
DEVICE ?= cpu
BIN    := $(VENV)/bin
CORE   := $(VENV)/.installed-core
STAMP  := $(VENV)/.installed
SLOW   := $(VENV)/.installed-slow

.PHONY: demo test test-slow lint types unit docs package clean

demo: $(CORE)
	$(BIN)/freeat compare --preset demo --out demo
	$(BIN)/freeat report demo --out demo/report.html --title "Six algorithms on handwritten digits"

test: lint types unit

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

unit: $(STAMP)
	$(BIN)/pytest -n 2 -m "not slow" --device $(DEVICE)

# Every table and figure at the smoke scale, a Ray cluster, processes that share a store, kills at random moments.
test-slow: $(SLOW)
	$(BIN)/pytest -n 2 --dist loadfile -m slow --device $(DEVICE)

# The documentation site, in docs/_build; a warning fails it.
docs: $(STAMP)
	$(BIN)/sphinx-build -W --keep-going -q -b html -c docs . docs/_build

# Builds wheel and sdist, installs the wheel in a clean environment and runs the command line there.
package: $(STAMP)
	rm -rf dist $(VENV)-wheel
	$(BIN)/python -m build --outdir dist .
	$(PYTHON) -m venv $(VENV)-wheel
	$(VENV)-wheel/bin/pip install -q -c constraints.txt dist/*.whl
	$(VENV)-wheel/bin/freeat --version
	$(VENV)-wheel/bin/freeat train --data digits --model mlp --algorithm free-4 --norm l2 --eps 0.5 \
		--updates 40 --train-size 200 --out $(VENV)-wheel/run --json
	$(VENV)-wheel/bin/freeat report $(VENV)-wheel/run --out $(VENV)-wheel/report.html

$(CORE): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c constraints.txt torch
	$(BIN)/pip install -q -c constraints.txt -e .
	touch $(CORE)

$(STAMP): $(CORE)
	$(BIN)/pip install -q -c constraints.txt -e ".[dev]"
	touch $(STAMP)

$(SLOW): $(STAMP)
	$(BIN)/pip install -q -c constraints.txt -e ".[ray]"
	touch $(SLOW)

clean:
	rm -rf $(VENV) $(VENV)-wheel dist demo docs/_build docs/jupyter_execute
