# Each target makes its own environment in .venv when that is missing.
#
#   make quickstart   text -> tokenizer -> dataset -> tied and lev -> report
#   make miniature    all arms, three seeds, on more text: 90 minutes of two
#                     cores; TEXTS=DIR has texts of yours
#   make test         all tests, on the CPU
#   make lint         style and types
#   make docs         the site, into site/; open site/index.html
#   make parity       the tasks on the quickstart's lev, item by item as in
#                     lm-evaluation-harness; TASK_DATA=DIR has the official
#                     files, LIMIT=N takes N items of each task

PYTHON ?= python3
VENV := .venv
INSTALLED := $(VENV)/installed
TESTABLE := $(VENV)/testable
READABLE := $(VENV)/readable
LEVIATHAN := $(VENV)/bin/leviathan

.PHONY: quickstart test lint docs
.DELETE_ON_ERROR:

$(INSTALLED): setup.py
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --upgrade pip
	$(VENV)/bin/pip install --quiet --editable .
	touch $@

$(TESTABLE): $(INSTALLED)
	$(VENV)/bin/pip install --quiet --editable '.[test]'
	touch $@

test: $(TESTABLE)
	$(VENV)/bin/pytest --numprocesses=2

lint: $(TESTABLE)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/pyright --pythonpath $(VENV)/bin/python

$(READABLE): $(INSTALLED)
	$(VENV)/bin/pip install --quiet --editable '.[docs]'
	touch $@

docs: $(READABLE)
	$(VENV)/bin/mkdocs build --strict

# The quickstart. What exists is reused: data by make, a trained run by its own
# checkpoints (`leviathan train` goes on from the latest).
RUNS := runs/quickstart
CORPUS := $(RUNS)/corpus.jsonl
TOKENIZER := $(RUNS)/tokenizer/tokenizer.model
DATASET := $(RUNS)/data/train/manifest.json
ARMS := tied lev

# absl takes a list with commas.
EMPTY :=
COMMA := ,
ALSO_FLAG = $(if $(ALSO),--also=$(subst $(EMPTY) ,$(COMMA),$(strip $(ALSO))))

$(CORPUS): | $(INSTALLED)
	$(VENV)/bin/python -m leviathan.data.stdlib --output=$@ $(ALSO_FLAG)

$(TOKENIZER): $(CORPUS)
	$(LEVIATHAN) tokenizer --input=$< --vocab_size=16384 --output=$(@D)

$(DATASET): $(CORPUS) $(TOKENIZER)
	$(LEVIATHAN) prepare --input=$< --tokenizer=spm:$(TOKENIZER) \
	  --seq_len=128 --validation_fraction=0.03 --output=$(RUNS)/data \
	  --token_order=distributional

.PHONY: $(ARMS:%=train-%) $(ARMS:%=show-%)

$(ARMS:%=train-%): train-%: $(DATASET)
	$(LEVIATHAN) train --config=configs/$*.py:smoke --workdir=$(RUNS)/$*
	$(LEVIATHAN) evaluate --workdir=$(RUNS)/$*

$(ARMS:%=show-%): show-%: train-%
	@echo "--- $* continues 'import os':"
	@$(LEVIATHAN) generate --workdir=$(RUNS)/$* --prompt='import os'

quickstart: $(ARMS:%=train-%) $(ARMS:%=show-%)
	$(LEVIATHAN) report --output=$(RUNS)/report \
	  --workdirs=$(RUNS)/tied,$(RUNS)/lev

# The same data with more text, where there is any. The study goes on where it
# was stopped.
TEXTS ?= $(wildcard ../shared/data/corpus)
JOBS ?= 2
MINIATURE := runs/miniature
.PHONY: miniature
miniature: $(INSTALLED)
	$(MAKE) RUNS=$(MINIATURE) ALSO='$(TEXTS)' \
	  $(MINIATURE)/data/train/manifest.json
	$(LEVIATHAN) study --study=configs/studies/miniature.py \
	  --workdir=$(MINIATURE) --jobs=$(JOBS)

# Whoever gives no files is told before anything is trained.
.PHONY: parity task-data
task-data:
	@test -d '$(TASK_DATA)' || \
	  { echo 'TASK_DATA=$(TASK_DATA) is no folder; give that of the official files'; false; }

parity: task-data $(TESTABLE) train-lev
	$(VENV)/bin/python benchmarks/parity.py --workdir=$(RUNS)/lev \
	  --task_data='$(TASK_DATA)' $(if $(LIMIT),--limit=$(LIMIT))
