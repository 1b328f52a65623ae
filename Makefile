PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DIST := .venv-dist
DOORS := $(patsubst examples/requirements/%.txt,%,$(wildcard examples/requirements/*.txt))

define beside  # an environment next to the stamp: all of $(VENV), and more
	$(PYTHON) -m venv $(@D)
	$(BIN)/python -c 'import site; print(site.getsitepackages()[0])' > $$($(@D)/bin/python -c 'import site; print(site.getsitepackages()[0])')/townlet_all.pth
	$(@D)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt $(1)
	touch $@
endef

.PHONY: warm demo test test-all test-dist test-doors $(DOORS:%=test-door-%) faults check bench docs dist setup clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@echo "installing into $(VENV): about a minute, mostly downloads"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,dev]'
	touch $(STAMP)

check: setup
	$(BIN)/ruff check src tests scripts benchmarks examples
	$(BIN)/ruff format --check src tests scripts benchmarks examples
	$(BIN)/mypy

warm: setup  # compile the kernels once, before two test processes would
	$(BIN)/townlet run town_day --ticks 10 > /dev/null

test: check warm
	@command -v chromium > /dev/null || echo "no chromium on this machine: the browser tests are skipped (apt-get install chromium)"
	$(BIN)/python -m pytest -n 2

test-all: check warm
	$(BIN)/python -m pytest -n 2 -m ''

$(DIST)/.installed: $(STAMP)  # Ray beside everything else, so that `make test` shows that it is not needed
	$(call beside,-e '.[dist]')

test-dist: $(DIST)/.installed warm
	$(DIST)/bin/python -m pytest -m dist -x

$(DOORS:%=.venv-doors/%/.installed): .venv-doors/%/.installed: examples/requirements/%.txt $(STAMP)
	$(call beside,-e . -r $<)

$(DOORS:%=test-door-%): test-door-%: .venv-doors/%/.installed warm  # an import that fails would only skip the tests
	.venv-doors/$*/bin/python -c 'import $*'
	.venv-doors/$*/bin/python -m pytest -m "door(library='$*')"

test-doors: $(DOORS:%=test-door-%)  # other people's libraries, each in an environment of its own

faults: setup warm  # hours; what stands in docs/samples is not run again but where more is asked for; tables: docs/RELIABILITY.md
	$(BIN)/python tests/faults/sweep.py --output docs/samples/faults.ndjson
	$(BIN)/python tests/faults/flips.py --prefixes --output docs/samples/flips.json
	$(BIN)/python tests/fuzz/run.py --output docs/samples/fuzz.ndjson
	$(BIN)/python tests/faults/moments.py --output docs/samples/signals.json
	$(BIN)/python tests/faults/load.py --output docs/samples/load.json
	$(BIN)/python tests/faults/table.py

demo: setup
	$(BIN)/python scripts/demo.py

bench: setup
	$(BIN)/townlet bench sim
	$(BIN)/townlet bench replay
	$(BIN)/townlet bench telemetry

docs: setup
	$(BIN)/mkdocs build --strict

dist: setup  # wheel and source, each tried out where nothing of the tree is
	$(BIN)/python scripts/dist.py

clean:
	rm -rf $(VENV) $(DIST) .venv-doors dist .mypy_cache .ruff_cache .pytest_cache runs site
