# Everything a developer or a new user does, one target each. Needs Python 3.10-3.12, a JDK 17 and Maven.
# The first run downloads packages; later runs need no network.

SHELL := /bin/bash
.DEFAULT_GOAL := help

PYTHON ?= $(shell for p in python3 python3.12 python3.11 python3.10; do \
	$$p -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
# The other supported Flink version, for the tests that run on both.
VENV_22 := .venv-flink22
# The lowest versions that pyproject.toml allows.
VENV_LOWEST := .venv-lowest
AZURITE := .venv-azurite
PHOENIX := .venv-phoenix
# The packages of the kernel that test-kernel starts without KERNEL=.
KERNELS := .kernel
BIN := $(VENV)/bin
JAR := java-bridge/target/flink-skills-bridge.jar
CLASS_ARCHIVES := $(VENV)/class-archives/cluster.jsa
JAVA_SOURCES := java-bridge/pom.xml $(shell find java-bridge/src/main -type f 2>/dev/null)

# Each of the many processes that tests start would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

MODEL ?= offline
MINUTES ?= 30
CPUS := $(shell nproc 2>/dev/null || echo 2)
# Each file of tests stays in one process. The tests with Flink keep all CPUs busy, and keep the order of their folders, so
# that the longest files (cluster, faults) start first. All others wait often, so there are two processes for each CPU.
SIDE_BY_SIDE := -n $(CPUS) --dist loadfile
TWICE_SIDE_BY_SIDE := -n $(shell echo $$((2 * $(CPUS)))) --dist loadfile
# Tests of what uses the libraries: the command line, agents, models, MCP servers and sources.
LOWEST_TESTS := $(addprefix tests/cli/,test_validate.py test_mistakes.py test_new.py test_lock.py test_list_show.py) \
	tests/agents/test_local.py tests/integrations/test_langchain_tools.py tests/models/test_network_models.py \
	tests/tools/mcp tests/sources/test_sources_urls.py
# The link to the repository in the header of the site: the remote repository "origin", without a user.
REPOSITORY_URL ?= $(shell git remote get-url origin 2>/dev/null | sed -nE \
	-e 's|^(ssh://)?git@([^:/]+)[:/]|https://\2/|; s|^(https?://)[^@/]*@|\1|; s|\.git$$||' -e '/^https?:/p')
MAVEN := mvn -q -B -f java-bridge/pom.xml

.PHONY: help
help: ## Show this help
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

.PHONY: prerequisites
prerequisites: ## Check that Python, a JDK 17 and Maven are there
	@bash .ci/prerequisites "$(PYTHON)"

.PHONY: demo
demo: setup ## Triage recorded Flink incidents with the skills of this repository (MODEL=openai:NAME for a real model)
	@$(BIN)/python -m examples.log_triage.demo --model $(MODEL)

.PHONY: demo-agents
demo-agents: setup ## Run three agents of one job file on the same incidents, and print their reviews
	@rm -rf build/incident-desk
	@DESK_OUTPUT=$(CURDIR)/build/incident-desk $(BIN)/flink-skills run examples/incident_desk/job.yaml
	@cat build/incident-desk/reviews/*

.PHONY: demo-approvals
demo-approvals: setup ## Refund orders, and ask a person about large ones, on a page or with recorded decisions (SCRIPTED=1)
	@$(BIN)/python -m examples.refunds.demo $(if $(SCRIPTED),--scripted)

.PHONY: setup
setup: $(VENV)/.ready $(JAR) ## Make the virtual environment and the bridge jar

.PHONY: jar
jar: $(JAR) ## Build the bridge jar

$(JAR): $(JAVA_SOURCES) | prerequisites
	@bash .ci/step "Building the Java operator with Maven. The first time, Maven downloads packages" $(MAVEN) -DskipTests package
	@touch $@

$(VENV)/.ready: pyproject.toml constraints.txt hatch_build.py | $(JAR) prerequisites
	@bash .ci/step "Installing Python packages into $(VENV). The first time, this takes minutes" bash .ci/venv "$(PYTHON)" $(VENV) constraints.txt
	@touch $@

$(VENV_22)/.ready: pyproject.toml constraints-flink22.txt hatch_build.py | $(JAR) prerequisites
	bash .ci/venv "$(PYTHON)" $(VENV_22) constraints-flink22.txt
	@touch $@

$(VENV_LOWEST)/.ready: pyproject.toml constraints-lowest.txt hatch_build.py | $(JAR) prerequisites
	bash .ci/venv "$(PYTHON)" $(VENV_LOWEST) constraints-lowest.txt short
	@touch $@

.PHONY: skills
skills: ## Copy the parser of Flink's logs into the skills that use it
	@for folder in skills/*/scripts; do cp skills/flink_log.py $$folder/; done

.PHONY: test
test: lint deploy-check docs $(VENV_22)/.ready test-java test-python test-pod test-flink22 test-pythons ## Run all checks and tests, on both Flink versions

.PHONY: lint
lint: setup ## Check style, types, layers, structure and prose
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m checks.structure
	$(BIN)/python -m checks.mass
	$(BIN)/python -m checks.prose
	$(BIN)/python -m docs.gen_features --check
	$(BIN)/python -m pip check

.PHONY: api-check
api-check: setup ## Compare the public surface with its snapshot; a change needs a line in the changelog
	$(BIN)/python -m checks.api

.PHONY: release-check
release-check: setup ## Build the package twice, compare, and look for what a release must not have (TAG=v0.1.0 for a release)
	$(BIN)/python -m checks.release $(if $(TAG),--tag $(TAG))

.PHONY: check
check: $(VENV)/.ready ## Check an edit, FILES="a.py b.py": style, types, and the tests that import the files
	@[ -n "$(FILES)" ] || { echo 'make check failed: FILES is empty. Run make check FILES="a.py b.py".'; exit 2; }
	$(BIN)/ruff check $(FILES)
	$(BIN)/ruff format --check $(FILES)
	$(BIN)/mypy $(FILES)
	tests=$$($(BIN)/python -m checks.affected $(FILES)); [ -z "$$tests" ] || \
	  $(BIN)/python -m pytest -q -m "not flink and not cluster and not nightly" $$tests

.PHONY: test-java
test-java: $(JAR) ## Test the bridge on Flink 2.2 and 2.3
	$(MAVEN) test
	$(MAVEN) -Dflink.version=2.3.0 -Doutput=target-2.3 test

.PHONY: test-fast
test-fast: setup ## Run the Python tests that need no Flink and no cluster, without the attacks on backends
	$(BIN)/python -m pytest $(TWICE_SIDE_BY_SIDE) -m "not flink and not cluster and not pod and not kernel and not commands and not nightly"

.PHONY: azurite
azurite: $(AZURITE)/.ready ## Install the Azure storage emulator for its tests (365 MB, needs npm or its package index)

$(AZURITE)/.ready: .ci/azurite | prerequisites
	bash .ci/azurite $(AZURITE) "$(PYTHON)"
	@touch $@

.PHONY: phoenix
phoenix: $(PHOENIX)/.ready ## Install a trace viewer for its test (860 MB)

$(PHOENIX)/.ready: .ci/phoenix | prerequisites
	bash .ci/phoenix $(PHOENIX) "$(PYTHON)"
	@touch $@

.PHONY: nightly
nightly: setup kernel $(AZURITE)/.ready $(PHOENIX)/.ready ## Run the long tests: lowest versions, many random inputs, storms and floods, Azure's store, a trace viewer, another kernel
	$(MAKE) test-lowest
	HYPOTHESIS_PROFILE=nightly $(BIN)/python -m pytest tests/skill -q
	$(BIN)/python -m pytest tests/sources tests/observability
	$(BIN)/python -m pytest -m "nightly and not pod and not kernel" --ignore tests/sources
	$(BIN)/python -m pytest -m kernel tests/kernel

.PHONY: soak
soak: setup ## Kill workers, TaskManagers and JobManagers of jobs between Kafka topics (MINUTES=30 SEED=…), and print the counts
	$(BIN)/python -m tests.faults.soak --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

$(CLASS_ARCHIVES): $(VENV)/.ready
	$(BIN)/python -m tests.kit.class_archives

.PHONY: test-python
test-python: setup $(CLASS_ARCHIVES) ## Run all Python tests on the newer Flink, but those in a pod
	$(BIN)/python -m pytest $(TWICE_SIDE_BY_SIDE) -m "not flink and not cluster and not pod and not kernel and not nightly"
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) --no-loadscope-reorder -m "(flink or cluster) and not pod and not nightly"

.PHONY: test-pod
test-pod: setup ## Run the tests in an emulated Kubernetes pod (needs runc and root; skipped with the reason elsewhere)
	@bash .ci/pod $(BIN)/python

.PHONY: kernel
kernel: ## Install qemu and download Debian's kernel for test-kernel (500 MB; does nothing where there is no apt-get)
	bash .ci/kernel $(KERNELS)

.PHONY: test-kernel
test-kernel: setup ## Attack the sandbox on another kernel in qemu: KERNEL=PACKAGE (ESCAPE_BACKENDS=landlock: only this one)
	$(BIN)/python -m pytest -m "kernel and not nightly" tests/kernel

.PHONY: test-flink22
test-flink22: $(VENV_22)/.ready ## Run the mini cluster and standalone smoke tests on Flink 2.2
	$(VENV_22)/bin/python -m pytest $(SIDE_BY_SIDE) -m "both_versions and not nightly"

.PHONY: test-pythons
test-pythons: setup ## Run a short set on each other supported Python that is found
	@bash .ci/pythons $(BIN)/python

.PHONY: test-lowest
test-lowest: $(VENV_LOWEST)/.ready ## Run a set with the lowest versions of packages that pyproject.toml allows
	$(VENV_LOWEST)/bin/python -m pytest $(SIDE_BY_SIDE) -m "each_python and not nightly" $$(grep -rl --include='test_*.py' 'mark\.each_python' tests)
	$(VENV_LOWEST)/bin/python -m pytest $(TWICE_SIDE_BY_SIDE) -m "not flink and not commands and not nightly" $(LOWEST_TESTS)

.PHONY: test-k8s
test-k8s: setup ## Run the tests on a Kubernetes cluster: KUBECONFIG, and the test images loaded (OPERATOR=none without operator)
	$(BIN)/python -m pytest tests/k8s -v

.PHONY: test-k8s-image
test-k8s-image: setup ## Make the image for test-k8s without a container engine (needs Debian, root and debootstrap)
	$(BIN)/python -m tests.k8s.image build/flink-skills-test.tar

.PHONY: bench
bench: setup ## Measure; results go to benchmarks/results
	$(BIN)/python -m benchmarks.run

.PHONY: deploy-check
deploy-check: setup ## Render the manifests of deploy/ and look for what is wrong with them
	$(BIN)/python -m deploy.check

.PHONY: docs
docs: setup ## Build the documentation into site/
	REPOSITORY_URL=$(REPOSITORY_URL) NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

.PHONY: features
features: setup ## Run the tests of every feature and write docs/features.md
	$(BIN)/python -m docs.gen_features --run

.PHONY: format
format: setup ## Format the Python code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: clean
clean: ## Remove what was built
	rm -rf $(VENV) $(VENV_22) $(VENV_LOWEST) .venv-python* $(AZURITE) $(PHOENIX) $(KERNELS) build java-bridge/target java-bridge/target-2.3 site
