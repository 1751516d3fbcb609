PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# What carries figures with dates: measured ones, and published ones of the playbook.
FIGURES := README.md docs src/underfed/playbook

.PHONY: demo test test-all check docs clean

$(VENV)/.installed: pyproject.toml constraints.txt requirements-test.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt -e . torch
	touch $@

$(VENV)/.tested: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt -r requirements-test.txt
	touch $@

demo: $(VENV)/.installed
	$(BIN)/underfed demo

check: $(VENV)/.tested
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/underfed stale $(FIGURES)

# The long forms (`slow`) run with `make test-all`; CI runs their short forms. Tests that judge what real runs took
# (`alone`) have the machine for themselves. The rest share it, one more at a time than CI has cores, since they wait for
# processes, pipes and links half of their time; a file stays together, as its tests share what takes long to make,
# and tests/conftest.py has the files in an order that ends well.
test: check
	$(BIN)/python -m pytest -q -n 3 --dist loadfile --no-loadscope-reorder -m "not slow and not alone"
	$(BIN)/python -m pytest -q -m "not slow and alone"

test-all: check
	$(BIN)/python -m pytest -q -m "not alone"
	$(BIN)/python -m pytest -q -m alone

# The docs as a site, every link checked: build/docs/site/index.html
docs: $(VENV)/.tested
	$(BIN)/python tools/docs_site.py

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
