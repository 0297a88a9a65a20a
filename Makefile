# make book   build the book (sets up everything on first use); STRICT=1: stop at a claim that does not hold
# make test   prove that everything holds
# make test-all   the same with all lengthy runs
# make pdf    print the whole book (needs Chromium or Chrome)
# make lab    read and run the chapters in JupyterLab; your changes in notebooks/ are kept
# make edit   write the chapters in JupyterLab
# make bench  report speed next to plain forms, other libraries and the machine's limits (ten minutes)
# Another interpreter: make book PYTHON=/path/to/python3.12

SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help writable book pdf test test-all lab edit bench sweeps lock clean

# The Pythons for which requirements.txt is made.
FITS := import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3 python; do \
	$$p -c '$(FITS)' 2>/dev/null && { echo $$p; break; }; done)
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input
PIP_LOG := _build/pip.log
READY := .venv/ready
LAB_READY := .venv/lab-ready
SITE_READY := .venv/site-ready
PEERS_READY := .venv-peers/peers.json
HTML := _build/html/index.html
LAB_STAMP := _build/lab-sources
# What the built pages were made from: the sums of all files that a page may come from.
STAMP := _build/sources
# What does not hold on this machine, a line each; a reader's build goes on past it, a strict one stops.
DOUBTS := _build/doubts
SUMS := find . -type d \( -name '.?*' -o -name _build -o -name __pycache__ -o -name '*.egg-info' -o -path ./tests -o -path ./notebooks \) -prune \
	-o -type f ! -name '.*' ! -name '*.ipynb' -print | LC_ALL=C sort | tr '\n' '\0' | xargs -0 cksum
STRICT ?= 0
# Passed on to JupyterLab, for example LAB_OPTIONS=--no-browser
LAB_OPTIONS ?=
# Where `make bench` writes. The page of the book shows zoolib/book/records/benchmarks.json.
BENCH ?= _build/benchmarks.json

# No progress bars in pages and logs; kernels find the library and one another in the environment.
export TQDM_DISABLE := 1
export JUPYTER_PREFER_ENV_PATH := 1
export PYDEVD_DISABLE_FILE_VALIDATION := 1
unexport PYTHONPATH ZOOLIB_LENIENT

help:
	@sed -n '1,/^$$/s/^# //p' Makefile

writable:
	@test -w . || { echo "this folder cannot be written to: copy the book into a folder of your own and run make there" >&2; exit 1; }

# What stops on the way leaves no .venv behind; only the log stays.
$(READY): requirements.txt | writable
	@test -n "$(PYTHON)" || { echo "Python 3.11 to 3.14 is needed and none was found: install one, or name it: make book PYTHON=/path/to/python3.11" >&2; exit 1; }
	@"$(PYTHON)" -c '$(FITS)' 2>/dev/null || { echo "PYTHON=$(PYTHON) is not Python 3.11 to 3.14: install one, or name it: make book PYTHON=/path/to/python3.11" >&2; exit 1; }
	@"$(PYTHON)" -c 'import venv, ensurepip' 2>/dev/null || { echo "$(PYTHON) has no venv module: install it (Debian, Ubuntu: apt install python3-venv) and run make again" >&2; exit 1; }
	@echo "setting up .venv (once; a few minutes)"
	@mkdir -p _build && rm -rf .venv; trap 'test -e $@ || rm -rf .venv' EXIT; trap 'exit 130' INT TERM; \
	{ "$(PYTHON)" -m venv .venv && $(PIP) -r requirements.txt; } >$(PIP_LOG) 2>&1 \
		|| { echo "pip could not install the packages: check the network and run make again (details: $(PIP_LOG))" >&2; exit 1; }; \
	$(PIP) --no-build-isolation --no-deps -e . >>$(PIP_LOG) 2>&1 \
		|| { echo "pip could not install zoolib itself (details: $(PIP_LOG))" >&2; exit 1; }; \
	touch $@

$(SITE_READY): $(READY) requirements-site.txt
	@echo "adding what looks at the built pages to .venv (once)"
	@mkdir -p _build && $(PIP) -r requirements-site.txt >$(PIP_LOG) 2>&1 \
		|| { echo "pip could not install the checks of the pages: check the network and run make again (details: $(PIP_LOG))" >&2; exit 1; }
	@touch $@

# Chapters open as notebooks; links find their cells, whose heights JupyterLab's usual mode guesses before they
# are seen. The settings are the environment's own and leave the user's alone.
$(LAB_READY): $(READY) requirements-lab.txt
	@echo "adding JupyterLab to .venv (once)"
	@mkdir -p _build && $(PIP) -r requirements-lab.txt >$(PIP_LOG) 2>&1 \
		|| { echo "pip could not install JupyterLab: check the network and run make again (details: $(PIP_LOG))" >&2; exit 1; }
	@mkdir -p .venv/share/jupyter/lab/settings
	@echo '{"@jupyterlab/docmanager-extension:plugin": {"defaultViewers": {"markdown": "Jupytext Notebook"}},' \
		'"@jupyterlab/notebook-extension:tracker": {"windowingMode": "full"},' \
		'"@jupyterlab/apputils-extension:notification": {"checkForUpdates": false, "fetchNews": "false"}}' >.venv/share/jupyter/lab/settings/overrides.json
	@touch $@

# --all: a page left alone would not repeat its warnings. Executions come from the cache.
# -q: Sphinx is silent but for warnings; the extension `execution` says how far the build is.
BUILD := . -q --all -W -n --keep-going

# The stamp is written only after a build without a warning, so a warning comes back until it is mended.
# A book with doubts is built for its reader, but not for STRICT=1, whose build warns of each.
book: writable $(READY)
	@mkdir -p _build && { $(SUMS); echo "$(BOOK_URL) $(SOURCE_URL)"; } >$(STAMP).now
	@if test -f $(HTML) && cmp -s $(STAMP).now $(STAMP) && ! { test "$(STRICT)" = 1 && test -s $(DOUBTS); }; then \
		echo "Nothing has changed since the book was built."; \
	else \
		rm -rf _build/html _build/jupyter_execute $(STAMP) $(DOUBTS); \
		ZOOLIB_LENIENT=$(if $(filter 1,$(STRICT)),0,1) $(BIN)/jupyter-book build $(BUILD) && mv $(STAMP).now $(STAMP); \
	fi
	@echo "The book is built: open $(HTML)"
	@if test -s $(DOUBTS); then echo "On this machine, something in it does not hold; the page of claims says more:" && cat $(DOUBTS); fi

# The browser is found on the path, or named: make pdf CHROMIUM=/path/to/chromium
pdf: book
	@PYTHONPATH=_ext $(BIN)/python -m printing

# The stages, with their limits of time, are listed in tests/stages.py; one alone: .venv/bin/python -m tests.stages pages
test-all: WEEKLY := --weekly
test-all: test

test: export MAKE := $(MAKE)
test: $(SITE_READY)
	@$(BIN)/python -m tests.stages $(WEEKLY)

# The notebooks are made anew when a source has changed, or when a build has executed more pages.
lab: writable $(LAB_READY)
	@mkdir -p _build && { $(SUMS); ls _build/execution-*/executed 2>/dev/null || :; } >$(LAB_STAMP).now
	@cmp -s $(LAB_STAMP).now $(LAB_STAMP) || { echo "making the notebooks (half a minute)" && rm -rf _build/lab $(LAB_STAMP); }
	@PYTHONPATH=_ext $(BIN)/python -m lab && mv $(LAB_STAMP).now $(LAB_STAMP)
	@TQDM_DISABLE= ZOOLIB_LENIENT=1 $(BIN)/jupyter-lab $(LAB_OPTIONS) --LabApp.default_url=/lab/tree/00-index.ipynb notebooks

edit: $(LAB_READY)
	@TQDM_DISABLE= $(BIN)/jupyter-lab $(LAB_OPTIONS) chapters

# Other libraries are installed beside the book's environment and never into it.
$(PEERS_READY): $(READY) benchmarks/peers/requirements.txt benchmarks/peers/install.py
	@echo "installing other libraries into .venv-peers (once; a few minutes)"
	@$(BIN)/python benchmarks/peers/install.py

bench: $(PEERS_READY)
	@mkdir -p $(dir $(BENCH))
	@.venv-peers/bin/python -m benchmarks --json $(BENCH)

# Plays what is missing in the records that pages read, of sweeps and long runs; if stopped, the next call goes on.
SWEPT = $(shell grep -l 'RECORDS /' chapters/*.md chapters/*/*.md)
sweeps: $(READY)
	@for page in $(SWEPT:chapters/%.md=%); do \
		mkdir -p _build/sweeps/$$(dirname $$page) && \
		$(BIN)/jupytext -q --to py:percent -o _build/sweeps/$$page.py chapters/$$page.md && \
		ZOOLIB_LENIENT=0 MPLBACKEND=agg TQDM_DISABLE= $(BIN)/python _build/sweeps/$$page.py || exit 1; \
	done

# The lock for all platforms and Pythons; needs uv. What is pinned stays pinned where it still fits, unless
# newer versions are asked for: make lock LOCK_OPTIONS=--upgrade
LOCK := --universal --python-version 3.11 --no-annotate --no-header -q $(LOCK_OPTIONS) -o
lock:
	uv pip compile pyproject.toml --extra book --extra test $(LOCK) requirements.txt
	for extra in lab site; do uv pip compile pyproject.toml --extra $$extra -c requirements.txt $(LOCK) requirements-$$extra.txt; done

clean:
	rm -rf _build .pytest_cache .ruff_cache .hypothesis .coverage
