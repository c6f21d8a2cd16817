# `make` alone prints this help: a target's words are what follows its '##'.
# Every target sets itself up: the first call makes .venv (see `setup`), a later one takes a second.

SHELL := /bin/bash
.DEFAULT_GOAL := help

PYTHON ?= python3
SCALE ?= paper
METHOD ?= identity
LAM ?= $(if $(filter identity,$(METHOD)),0$(comma)10,0$(comma)1)
SEEDS ?= 0
DEVICES ?= 1
JOBS ?= 1
NODES ?= 1
TIME ?= 24:00:00
PARTITION ?=
SLURM ?=
DRY ?=
DATA_ROOT ?=
ARGS ?=
ROW ?= imagenet-vit

comma := ,
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
COCO := $(VENV)/.installed-coco
# Exported, so that spaces and commas in a path reach the program as they are (a dollar sign is make's: write $$).
ifneq ($(strip $(DATA_ROOT)),)
export DATA_ROOT
endif

##@ Start here
.PHONY: help setup doctor demo test lint
help: ## This text
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z%-]+:.*## / {printf "  %-19s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@printf '%s\n' '' 'Variables (defaults)' \
	  '  SCALE=$(SCALE)      paper, or reduced: minutes on two CPU cores' \
	  '  METHOD=$(METHOD)  identity, svd, relative, or the controls orthogonal and rescale' \
	  '  LAM=$(LAM)         the values of lambda, 0 is the baseline' \
	  '  SEEDS=$(SEEDS)          comma-separated' \
	  '  DEVICES=$(DEVICES)        GPUs (or CPU processes) for each run' \
	  '  JOBS=$(JOBS)           runs side by side' \
	  '  NODES, TIME, PARTITION, SLURM, DRY  what make slurm-<row> asks SLURM for' \
	  '  TASKS= RECIPE=$(RECIPE)   GLUE: cola,rte,... and the version of the pre-training (legacy, current)' \
	  '  DATA_ROOT=         the folder that holds imagenet/, cifar10/, ... (README.md, Data)' \
	  '  ARGS=              anything for Hydra, as ARGS="optimizer.lr=1e-3 runtime.wandb=online"'

setup: $(STAMP) ## Make .venv with the pinned packages (downloads about 3 GB once)

$(STAMP): pyproject.toml
	@echo "setting up $(VENV): downloads about 3 GB once (PyTorch's CUDA build, which also runs on a CPU), 6 GB on disk"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: $(PYTHON) is older than 3.11: name a newer one, make PYTHON=python3.11" >&2; exit 2; }
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[train,dev]'
	@touch $@

# mmengine and mmcv-lite ask for an OpenCV that needs a display library: without their dependencies (openmmlab.txt).
$(COCO): $(STAMP) openmmlab.txt
	@$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[coco]'
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps -r openmmlab.txt
	@touch $@

doctor: $(STAMP) ## What is here (devices, data, W&B, disk, SLURM), and what each row still needs
	@$(PY) -m scripts.doctor $(ARGS)

demo: $(STAMP) ## Train a small ViT on handwritten digits, with and without conditioning: a table and a picture
	@$(PY) -m scripts.demo

test: $(COCO) ## Run the tests; DATA_ROOT=<folder> adds those that need data
	@$(PY) -m pytest -n auto --maxprocesses 4 --dist worksteal

lint: $(STAMP) ## ruff: lint and formatting
	@$(PY) -m ruff check . && $(PY) -m ruff format --check .

##@ The paper's rows: the baseline and the conditioned model
.PHONY: imagenet-vit imagenet-deit imagenet-swin imagenet-xcit imagenet-davit
imagenet-vit: $(STAMP) ## ImageNet, ViT-B (SCALE=reduced: CIFAR-10, a small ViT)
	@$(call row,imagenet_vit)

imagenet-deit: $(STAMP) ## ImageNet, DeiT-B (SCALE=reduced: CIFAR-10, a small DeiT)
	@$(call row,imagenet_deit)

imagenet-swin: $(STAMP) ## ImageNet, Swin-B (SCALE=reduced: CIFAR-10, a small Swin)
	@$(call row,imagenet_swin)

imagenet-xcit: $(STAMP) ## ImageNet, XCiT-M (SCALE=reduced: CIFAR-10, a small XCiT)
	@$(call row,imagenet_xcit)

imagenet-davit: $(STAMP) ## ImageNet, DaViT-B (SCALE=reduced: CIFAR-10, a small DaViT)
	@$(call row,imagenet_davit)

.PHONY: coco-xcit
coco-xcit: $(COCO) ## COCO, Mask R-CNN on XCiT-S (SCALE=reduced: a small one on drawn shapes, drawn first)
	@$(if $(filter reduced,$(SCALE)),$(call checked,coco_xcit) && $(PY) -m scripts.make_shapes $(ARGS) &&) $(call row,coco_xcit)

.PHONY: lra lra-listops lra-text lra-retrieval lra-image lra-pathfinder
lra: lra-listops lra-text lra-retrieval lra-image lra-pathfinder ## Long Range Arena, its five tasks

lra-listops: $(STAMP) ## LRA, ListOps (SCALE=reduced: short expressions that the project draws)
	@$(call made,lra_listops_short,lra_listops) && $(call row,lra_listops)

lra-text: $(STAMP) ## LRA, Text (SCALE=reduced: the first 512 bytes of 2,000 reviews)
	@$(call row,lra_text)

lra-retrieval: $(STAMP) ## LRA, Retrieval (SCALE=reduced: pairs that the project makes)
	@$(call made,lra_retrieval_made,lra_retrieval) && $(call row,lra_retrieval)

lra-image: $(STAMP) ## LRA, Image: CIFAR-10 in grey, a token a pixel
	@$(call row,lra_image)

lra-pathfinder: $(STAMP) ## LRA, Pathfinder (SCALE=reduced: short contours that the project draws)
	@$(call made,lra_pathfinder_short,lra_pathfinder) && $(call row,lra_pathfinder)

.PHONY: glue glue-pretrain glue-finetune
glue: glue-pretrain glue-finetune ## Both, without and with conditioning (SCALE=reduced: a small model on 14 books)

# Once for each value of lambda, with seed 0; the text is packed first, into a cache below the output root.
glue-pretrain: $(STAMP) ## Pre-train crammed BERT (RECIPE=legacy, or current; paper scale: 24 hours on one GPU each)
	@$(PRETRAIN) $(if $(filter runtime.dry=%,$(ARGS)),,runtime.dry=true > /dev/null && \
	  $(PY) -m scripts.make_corpus experiment=$(PRETRAINING) $(TEXT) \
	  $(filter output_root=% data_root=% dataset=% corpus=% dataset.% model.%,$(ARGS)) && $(PRETRAIN))

glue-finetune: $(STAMP) ## Fine-tune from the checkpoints that are there (TASKS=cola,rte; none: all the data root has)
	@$(PY) -m scripts.glue_finetune --scale $(SCALE) --tasks '$(TASKS)' --seeds $(SEEDS) --method $(METHOD) \
	  --lam $(LAM) --recipe $(RECIPE) --pretraining "$(TEXT)" runtime.devices=$(DEVICES) runtime.jobs=$(JOBS) $(ARGS)

TASKS ?=
RECIPE ?= legacy
PRETRAINING = $(SCALE)/glue_pretrain$(if $(filter paper,$(SCALE)),_$(RECIPE))
PRETRAIN = $(PY) -m train -m experiment=$(PRETRAINING) conditioning=$(METHOD) conditioning.lam=$(LAM) seed=0 $(TEXT) \
  runtime.devices=$(DEVICES) runtime.jobs=$(JOBS) $(ARGS)
# Where the data root has no books, the reduced pre-training reads text that the project makes itself.
TEXT = $(if $(filter dataset=%,$(ARGS)),,$$([ '$(SCALE)' != reduced ] || [ -d "$(ROOT)/text/gutenberg" ] || \
  echo dataset=text_made))
ROOT = $(or $(patsubst data_root=%,%,$(filter data_root=%,$(ARGS))),$$DATA_ROOT)

##@ Ablations and cost
.PHONY: ablation-lambda ablation-layernorm conditioning-curves cost
ablation-lambda: LAM = 0,0.1,1,10
ablation-lambda: $(STAMP) ## Accuracy over lambda, of the ViT: LAM=0,0.1,1,10 (runs of imagenet-vit count)
	@$(call row,imagenet_vit)

ablation-layernorm: $(STAMP) ## The ViT with and without LayerNorm, with and without conditioning (METHOD)
	@$(call row,imagenet_vit) model.norm=true,false

# At the paper's scale the rows' own runs are probed along training; the small ones have twins that are probed often.
conditioning-curves: $(STAMP) ## Singular values, condition numbers and the Jacobian along training: ViT and XCiT
	@$(PY) -m train -m experiment=$(CURVES) conditioning=off,$(METHODS) seed=$(SEEDS) \
	  runtime.devices=$(DEVICES) runtime.jobs=$(JOBS) $(ARGS)

CURVES = $(if $(filter reduced,$(SCALE)),reduced/curves_vit$(comma)reduced/curves_xcit,paper/imagenet_vit$(comma)paper/imagenet_xcit)
METHODS = $(if $(filter reduced,$(SCALE)),identity$(comma)svd,$(METHOD))

cost: $(STAMP) ## Time, memory, FLOPs of a step: plain, identity, svd once and every n steps (paper scale: one GPU)
	@$(PY) -m scripts.bench_cost --scale $(SCALE) $(ARGS)

##@ The evidence
.PHONY: evidence
PRINTS := $(filter --plan runtime.dry=%,$(ARGS))
evidence: $(if $(PRINTS),$(STAMP),$(COCO)) ## Does it replicate, which reading, and why: docs/evidence.md (SCALE=gpu: larger models; ARGS=--plan)
	@code=0; $(PY) -m scripts.evidence --scale $(STUDY) $(ARGS) || code=$$?; \
	if [ $$code -le 1 ]; then $(if $(PRINTS),true,$(STUDIED) && $(PY) -m scripts.tables && \
	  $(PY) -m scripts.figures && $(PY) -m scripts.report) || code=$$?; fi; exit $$code

STUDY = $(if $(filter paper reduced,$(SCALE)),reduced,$(SCALE))
STUDIED = $(PY) -m scripts.collect '$(STUDY)/evidence_*' $(BELOW)
BELOW = $(patsubst output_root=%,--output-root %,$(filter output_root=%,$(ARGS)))

##@ Clusters and sweeps
.PHONY: reduced sweep slurm-sweep
reduced: SEEDS = 0,1,2
reduced: JOBS = 2
reduced: $(if $(DRY),$(STAMP),$(COCO)) ## Every reduced row and ablation in turn, then tables, figures, report (DRY=1 prints the plan and time)
	@$(PY) -m scripts.reduced --seeds $(SEEDS) --jobs $(JOBS) $(if $(DRY),--dry) $(ARGS)

sweep: $(if $(filter coco-%,$(ROW)),$(COCO),$(STAMP)) ## A sweep of one row: ROW=imagenet-vit LAM=0,0.1,1,10 SEEDS=0,1,2 JOBS=2
	@$(call row,$(subst -,_,$(ROW)))

slurm-sweep: $(if $(filter coco-%,$(ROW)),$(COCO),$(STAMP)) ## The same as an array of jobs: ROW=imagenet-vit LAM=0,0.1,1,10 SEEDS=0,1,2
	@$(call submit,$(ROW))

slurm-coco-xcit: $(COCO)
	@$(call submit,coco-xcit)

slurm-glue:
	@echo "error: submit slurm-glue-pretrain and, when its jobs have ended, slurm-glue-finetune" >&2; exit 2

slurm-%: $(STAMP) ## Submit a row: slurm-imagenet-vit NODES=1 DEVICES=8 PARTITION=... TIME=24:00:00 (DRY=1 prints)
	@$(call submit,$*)

##@ Data
.PHONY: check-data
check-data: $(if $(filter coco-%,$(ROW)),$(COCO),$(STAMP)) ## Check a row's data before a long run: ROW=imagenet-vit (ARGS=--all: decode every image)
	@$(PY) -m scripts.check_data $(ROW) $(ARGS)

##@ From records and without training
.PHONY: theory collect tables figures report check-results
theory: $(STAMP) ## Write the tables of Theorems 3.4, 3.5 and 3.8 (results/theory.md)
	@$(PY) -m scripts.theory_table

collect: $(STAMP) ## Copy the small files of finished runs into results/runs (EXPERIMENTS='reduced/imagenet_*')
	@$(PY) -m scripts.collect '$(or $(EXPERIMENTS),reduced/imagenet_*)'

tables: $(STAMP) ## Every table of the paper at each scale, as Markdown, CSV and LaTeX (results/tables)
	@$(PY) -m scripts.tables

figures: $(STAMP) ## Accuracy over lambda, training curves, conditioning along training (results/figures)
	@$(PY) -m scripts.figures

report: tables figures ## results/README.md, results/report.html and the marked blocks of README.md
	@$(PY) -m scripts.report

check-results: $(STAMP) ## Whether tables, figures, report and README.md are what the records give, and the records sound
	@$(PY) -m scripts.check_results

# A row's baseline and conditioned runs as jobs of SLURM; SLURM= takes more options, as SLURM="--cpu --memory 32G".
submit = $(PY) -m scripts.slurm submit $(or $($(1)-runs),experiment=$(SCALE)/$(subst -,_,$(1))) conditioning=$(METHOD) \
  conditioning.lam=$(LAM) seed=$(SEEDS) $(ARGS) --nodes $(NODES) --devices $(DEVICES) --time $(TIME) \
  $(if $(PARTITION),--partition $(PARTITION)) $(if $(DRY),--dry) $(SLURM)

# What is a row for `make` and several experiments, or another, for Hydra.
lra-runs = 'experiment=glob($(SCALE)/lra_*)'
glue-pretrain-runs = experiment=$(PRETRAINING)
glue-finetune-runs = experiment=$(SCALE)/glue_$(subst $(comma),$(comma)$(SCALE)/glue_,$(or $(TASKS),$(AVERAGED))) \
  "task.pretrained='run:$(PRETRAINING)'"
AVERAGED := cola,sst2,mrpc,stsb,qqp,mnli,qnli,rte

# A set that a reduced row needs and the project makes itself: nothing is done where it is there already, and nothing
# before the row's words are known to be right.
made = { test $(SCALE) != reduced || { $(call checked,$(2)) && $(PY) -m scripts.make_set $(1) \
  $(patsubst output_root=%,--output-root %,$(filter output_root=%,$(ARGS))); }; }
checked = $(call row,$(1)) $(if $(filter runtime.dry=%,$(ARGS)),,runtime.dry=true) > /dev/null

# One row: a run for each value of lambda and each seed; complete ones are not run again.
row = $(PY) -m train -m experiment=$(SCALE)/$(1) conditioning=$(METHOD) conditioning.lam=$(LAM) seed=$(SEEDS) \
  runtime.devices=$(DEVICES) runtime.jobs=$(JOBS) $(ARGS)
