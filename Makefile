PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
RESTRICTED := $(BIN)/python .ci/restricted.py
INSTALLED := $(VENV)/installed
JUPYTER := notebooks/jupyter_server_config.json
PARALLEL := -n auto --dist worksteal
QUICK := -m "not slow"
NBVAL := $(BIN)/pytest -n auto --dist loadfile --nbval
NBVAL_QUICK := $(addprefix notebooks/,chip-roofline.ipynb metrics.ipynb model-needs.ipynb)
NBVAL_REST := $(filter-out $(NBVAL_QUICK),$(wildcard notebooks/*.ipynb))
BEGAN := $(shell date +%s)
SAY_SECONDS = @echo "make $@: done $$(( $$(date +%s) - $(BEGAN) )) seconds after make began"
UV_VERSION := 0.13.8
AUDIT_VERSION := 2.10.1

# Every command here starts Python, which would compile the whole package anew where bytecode is not kept.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help .venv book pdf test test-slow test-restricted test-all notebooks lab bench mutants lock sbom audit clean

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
	$(SAY_SECONDS)

pdf: .venv ## the book as one PDF, printed by Chromium
	$(BIN)/trnmodel book --pdf

test: .venv ## at most ten minutes: lint, types, book, and every test that is not marked slow, browser and Lab among them
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/trnmodel book
	$(BIN)/pytest $(PARALLEL) $(QUICK) --ignore=tests/book/browser
	$(NBVAL) $(NBVAL_QUICK)
	$(BIN)/pytest $(PARALLEL) $(QUICK) tests/book/browser
	$(SAY_SECONDS)

test-slow: .venv ## the tests that are marked slow, and the committed notebooks that `make test` does not execute by nbval
	$(BIN)/trnmodel book
	$(BIN)/pytest $(PARALLEL) -m slow --ignore=tests/book/browser
	$(NBVAL) $(NBVAL_REST)
	$(BIN)/pytest $(PARALLEL) -m slow tests/book/browser
	$(SAY_SECONDS)

test-restricted: .venv ## what a CPU without wide vectors could change: the tests of numbers, and the same bytes of the book
	$(RESTRICTED) $(BIN)/pytest $(PARALLEL) -m "not one_cpu" --ignore=tests/book/browser
	$(BIN)/trnmodel book
	$(RESTRICTED) $(BIN)/trnmodel book -o build/restricted
	diff -rq build/html build/restricted/html
	$(SAY_SECONDS)

test-all: test test-slow test-restricted ## everything that CI runs
	$(SAY_SECONDS)

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

sbom: book ## the bill of materials (CycloneDX) of the lock and of the scripts in the book, as build/sbom.cdx.json
	cp build/html/sbom.cdx.json build/sbom.cdx.json

audit: ## known vulnerabilities of what the lock names; says so where no service of advisories answers
	$(PYTHON) -m venv build/audit
	build/audit/bin/pip install --quiet pip-audit==$(AUDIT_VERSION)
	build/audit/bin/python .ci/audit.py build/audit/bin/pip-audit requirements.lock

clean: ## remove what was built; keep the environment
	rm -rf build dist .pytest_cache .ruff_cache .mypy_cache .hypothesis
