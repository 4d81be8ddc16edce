PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
RESTRICTED := $(BIN)/python .ci/restricted.py
INSTALLED := $(VENV)/installed
JUPYTER := notebooks/jupyter_server_config.json
PARALLEL := -n auto --dist worksteal
UV_VERSION := 0.13.8

.DEFAULT_GOAL := help
.PHONY: help .venv book pdf test test-restricted notebooks lab bench mutants lock clean

help: ## list the targets
	@grep -E '^[a-z.-]+:.*## ' Makefile | sed -E 's/^([a-z.-]+):.*## (.*)/  make \1\t\2/' | expand -t 26

.venv: $(INSTALLED) ## the locked environment, with this package installed editable

$(INSTALLED): requirements.lock pyproject.toml $(JUPYTER)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --require-hashes --no-deps -r requirements.lock
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	$(BIN)/pip check
	mkdir -p $(VENV)/etc/jupyter/jupyter_server_config.d
	cp $(JUPYTER) $(VENV)/etc/jupyter/jupyter_server_config.d/trnmodel.json
	touch $@

book: .venv ## execute the chapters and build the book into build/html
	$(BIN)/trnmodel book

pdf: .venv ## the book as one PDF, printed by Chromium
	$(BIN)/trnmodel book --pdf

test: .venv ## lint, types, book, unit tests, doctests, committed notebooks, book and Lab in a browser
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/trnmodel book
	$(BIN)/pytest $(PARALLEL) --ignore=tests/browser
	$(BIN)/pytest -n auto --dist loadfile --nbval notebooks
	$(BIN)/pytest $(PARALLEL) tests/browser

test-restricted: .venv ## what a CPU without wide vectors could change: the tests of numbers, and the same bytes of the book
	$(RESTRICTED) $(BIN)/pytest $(PARALLEL) -m "not one_cpu" --ignore=tests/browser
	$(BIN)/trnmodel book
	$(RESTRICTED) $(BIN)/trnmodel book -o build/restricted
	diff -rq build/html build/restricted/html

notebooks: .venv ## execute the chapters with their default parameters into notebooks/*.ipynb
	$(BIN)/trnmodel notebooks

lab: .venv ## JupyterLab on the chapters
	$(BIN)/jupyter lab notebooks

bench: .venv ## time the questions that users ask
	$(BIN)/python tests/bench.py

mutants: .venv ## break the package in 150 places, and list what no test notices
	$(BIN)/python tests/mutants.py

lock: ## resolve pyproject.toml into requirements.lock, hashed, for every platform
	$(PYTHON) -m venv build/uv
	build/uv/bin/pip install --quiet uv==$(UV_VERSION)
	build/uv/bin/uv pip compile pyproject.toml --all-extras --group build --universal --python-version 3.11 \
		--generate-hashes --no-emit-index-url --no-annotate --no-header --quiet --output-file requirements.lock

clean: ## remove what was built; keep the environment
	rm -rf build dist .pytest_cache .ruff_cache .mypy_cache .hypothesis
