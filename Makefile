# Every command of this project. `make` lists them.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Everything is built as static binaries, which run in an empty image, so tests and images share the same artefacts.
# The flags are set here and not in .cargo/config.toml, so that a plain `cargo build` works on every platform.
TRIPLE := $(shell rustc -vV | sed -n 's/^host: //p')
TRIPLE_VAR := $(shell echo $(TRIPLE) | tr 'a-z-' 'A-Z_')
export CARGO_BUILD_TARGET := $(TRIPLE)
STATIC := -C target-feature=+crt-static
export CARGO_TARGET_$(TRIPLE_VAR)_RUSTFLAGS := $(STATIC)

# The demo: on a local cluster of its own, or on the cluster of the current kubeconfig (CLUSTER=current
# REGISTRY=host/path).
CLUSTER ?= local
REGISTRY ?=

# Where `make parity`, `make scan` and `make bench-engine` look for charts.
CHARTS ?=
# `make parity HELM3=true` compares `kco template --helm3` with Helm 3.
HELM3 ?=

# Cargo builds a dependency once for each set of features, and the selected packages decide the set: with `--workspace`
# everywhere there is only one. `--locked` builds exactly what is in Cargo.lock, and fails if Cargo.toml does not match it.
BUILD := cargo build --locked --workspace
TEST := cargo test --locked --workspace
# Release builds of the programs allocate with jemalloc. Packed relocations save a megabyte of memory in each process; a
# static program with them needs glibc 2.36 or newer where it is built.
BUILD_RELEASE := CARGO_TARGET_$(TRIPLE_VAR)_RUSTFLAGS='$(STATIC) -C link-arg=-Wl,-z,pack-relative-relocs' \
	cargo build --locked --workspace --release --features jemalloc

DEBUG := $(or $(CARGO_TARGET_DIR),target)/$(TRIPLE)/debug
RELEASE := $(or $(CARGO_TARGET_DIR),target)/$(TRIPLE)/release

# Tools that are built from crates.io, each in a folder named after its version, so that a new version is built again.
TOOLS := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/kco/tools
CARGO_DENY_VERSION := 0.20.2
CARGO_DENY := $(TOOLS)/cargo-deny-$(CARGO_DENY_VERSION)/bin/cargo-deny

# `programs` is core-provider, composition-dynamic-controller and chart-inspector in one file, as in images; tests without
# pods run each alone.
IN_IMAGES := programs multicluster-operator join-service web-server kco
PROGRAMS := $(IN_IMAGES) core-provider composition-dynamic-controller chart-inspector bootstrapper
bins = $(addprefix --bin ,$(1))

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-16s %s\n", $$1, $$2}'

.PHONY: setup
setup: ## Install the Debian packages and build the parts of the local cluster (needs Go, and root for packages)
	$(BUILD) --quiet --bin local-cluster
	$(DEBUG)/local-cluster packages --install
	$(DEBUG)/local-cluster parts
	$(DEBUG)/local-cluster parts helm3

.PHONY: check
check: lint unit ## The inner loop: format, lints, unit tests

.PHONY: chart-readme
chart-readme: ## Write the list of values in charts/core-provider/README.md from the comments in values.yaml
	WRITE_README=1 $(TEST) --quiet --test keep_the_chart_readme

.PHONY: lint
lint: ## Format and lints
	cargo fmt --all --check
	cargo clippy --locked --quiet --workspace --all-targets -- --deny warnings
	cargo clippy --locked --quiet --workspace --test control_plane --test scenarios --test longer --test issue_tickets -- --deny warnings

.PHONY: unit
unit: ## Unit tests: no cluster, no root
	$(TEST) --quiet

.PHONY: deny
deny: $(CARGO_DENY) ## Check crates against deny.toml: banned ones, duplicate versions, licenses, sources
	$(CARGO_DENY) --locked check --hide-inclusion-graph --deny warnings bans licenses sources

# cargo-deny clones the database from its URL; git is told to use the given folder instead.
.PHONY: advisories
advisories: $(CARGO_DENY) ## Known vulnerabilities of the crates in Cargo.lock, according to DB=<clone of RustSec's advisory-db>
	@[ -n "$(DB)" ] || { echo "say where a clone of RustSec's advisory-db is: make advisories DB=<folder>" >&2; exit 2; }
	GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0="url.file://$(abspath $(DB)).insteadOf" \
	    GIT_CONFIG_VALUE_0=https://github.com/RustSec/advisory-db \
	    $(CARGO_DENY) --locked check advisories

# Its own release profile, with LTO over all crates, would take longer to build than it ever saves.
$(CARGO_DENY):
	CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
	    cargo install --locked --no-track --version $(CARGO_DENY_VERSION) --root $(TOOLS)/cargo-deny-$(CARGO_DENY_VERSION) \
	    --target-dir $(TOOLS)/build cargo-deny
	rm -rf $(TOOLS)/build

.PHONY: test
test: lint deny unit rig-if-changed e2e ## Everything that CI runs: lints, crates, unit tests, the local cluster's own tests if its sources have changed, end-to-end tests

# With Go's default, API servers spend a sixth of their time on garbage collection.
TRIED := GOGC=400

.PHONY: rig
rig: setup ## Tests of the local cluster itself (needs root)
	$(TRIED) $(TEST) --test bare_control_plane --test cluster --test leftovers -- --test-threads=1 --nocapture

# The rig's tests depend on its own code alone, so they are not repeated on a machine where this code has passed them.
RIG_DIGEST = $(shell git ls-files e2e/local-cluster Cargo.lock | xargs sha256sum | sha256sum | cut -c1-16)
RIG_PASSED = $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/kco/rig-passed/$(RIG_DIGEST)

.PHONY: rig-if-changed
rig-if-changed: setup ## The same, unless they passed on this machine with the same sources
	@if [ -e $(RIG_PASSED) ]; then echo "rig: passed before with the same sources ($(RIG_PASSED))"; else \
	    $(MAKE) --no-print-directory rig && mkdir -p $(dir $(RIG_PASSED)) && touch $(RIG_PASSED); fi

.PHONY: e2e
e2e: setup programs ## End-to-end tests on a real Kubernetes (needs root)
	$(TRIED) $(TEST) --test scenarios -- --test-threads=$(PARALLEL) --nocapture
	$(MAKE) --no-print-directory e2e-control-plane

.PHONY: e2e-longer
e2e-longer: setup programs ## Scenarios with pods that take minutes and are not part of make test (needs root)
	$(TRIED) $(TEST) --test longer -- --test-threads=$(PARALLEL) --nocapture

# Tests spend much of their time waiting, so more of them run in parallel than there are processors.
PARALLEL ?= $(shell expr $$(nproc) + 1)
CONTROL_PLANES ?= $(shell expr $$(nproc) + 2)

.PHONY: e2e-control-plane
e2e-control-plane: programs ## The end-to-end tests that need no pods, and so no root
	$(TRIED) $(TEST) --test control_plane -- --test-threads=$(CONTROL_PLANES) --nocapture
	$(TEST) --test issue_tickets -- --nocapture

# Tests of what the API server decides by policies, or by core-provider's webhook. open_namespace is left out: it creates
# compositions while core-provider is down, which is impossible on Kubernetes versions where its webhook sets their label.
AT_FLOOR := keep_to_krateo bind_roles forge_marks allow_definitions restrict_lookups restrict_namespaces delete_policies

.PHONY: kube-floor
kube-floor: programs ## Tests of admission on a control plane of the lowest Kubernetes version that the charts allow (builds it the first time)
	E2E_KUBERNETES_FLOOR=1 $(TRIED) $(TEST) --test control_plane -- --test-threads=1 --nocapture $(AT_FLOOR)

.PHONY: programs
programs: ## Build the static binaries of the images, and release-driver
	$(BUILD) $(call bins,$(PROGRAMS) release-driver)

# Each of these starts an API server of its own and prints its result as the last line.
RELEASES = $(BUILD) --quiet $(call bins,kco release-driver releases local-cluster) && $(DEBUG)/releases

.PHONY: interop
interop: ## Every trial chart installed by kco and operated by helm 3 and 4, and the reverse; prints the table
	$(RELEASES) interop $(CHARTS)

LIVE_CHARTS ?= 60
.PHONY: live-parity
live-parity: ## LIVE_CHARTS=60 charts below CHARTS=<folder of collections> installed on a real API server by helm and by kco; prints differences
	@[ -n "$(CHARTS)" ] || { echo "say where the charts are: make live-parity CHARTS=<folder>" >&2; exit 2; }
	$(RELEASES) live --charts $(LIVE_CHARTS) $(CHARTS)

.PHONY: crash-matrix
crash-matrix: ## kco killed before and after every write, then run again; prints how many kills, and how many converged
	$(RELEASES) crash-matrix

.PHONY: drift
drift: ## Objects of a release changed in many ways; prints what is reported and corrected
	$(RELEASES) drift

.PHONY: idle-releases
idle-releases: ## 100 releases reconciled 20 times; prints the writes, which must be none
	$(RELEASES) idle

.PHONY: bench-releases
bench-releases: ## Requests per action, and 200 installs against the same writes by a bare client; prints the ratio
	$(BUILD_RELEASE) --quiet --bin release-driver
	$(RELEASES) bench --driver $(RELEASE)/release-driver

.PHONY: walk-through
walk-through: ## The walk-throughs of Krateo's documentation, command by command, with charts from CHARTS=<clones with tags> …; prints a row for each (needs root)
	@[ -n "$(CHARTS)" ] || { echo "say where the charts are: make walk-through CHARTS=\"<clone of fireworks-app> <of composition-portal-basic> <of bitnami's charts>\"" >&2; exit 2; }
	$(MAKE) --no-print-directory setup programs
	$(BUILD) --quiet --bin walk_through
	$(DEBUG)/walk_through $(CHARTS)

# Which legs of the trial to run, in the given order; empty for all: run,undo,kills,after.
LEGS ?=
.PHONY: migrate
migrate: ## Migrate a cluster from Krateo's real programs in KRATEO=<folder with the built programs and their chart>, back, and again; prints what was touched (needs root and Go)
	@[ -n "$(KRATEO)" ] || { echo "say where Krateo's programs are: make migrate KRATEO=<folder with core-provider, composition-dynamic-controller, chart-inspector and chart>" >&2; exit 2; }
	$(MAKE) --no-print-directory setup programs
	$(BUILD) --quiet --bin migrate
	$(DEBUG)/migrate $(KRATEO) $(if $(LEGS),--legs $(LEGS))

TENANTS ?= 50
.PHONY: multicluster
multicluster: ## Duration of passes on three live clusters of TENANTS=50 tenants each, alone and beside a cluster whose packets are lost; then requests of 20 idle kubeconfigs for 4 API servers
	$(BUILD) --quiet $(call bins,$(PROGRAMS) multicluster local-cluster)
	$(DEBUG)/multicluster latency --tenants $(TENANTS)
	$(DEBUG)/multicluster names

ROTATIONS ?= 20
.PHONY: rotations
rotations: ## A cluster's kubeconfig rotated ROTATIONS=20 times while its tenants are changed; prints failed passes and connections that stay open
	$(BUILD) --quiet $(call bins,$(PROGRAMS) multicluster local-cluster)
	$(DEBUG)/multicluster rotations --rotations $(ROTATIONS)

FROM ?= 1
.PHONY: multicluster-kills
multicluster-kills: ## The multicluster operator killed at every write (STEP=1, FROM=1) of create, upgrade and delete of a Tenant and of a KryptonDeployment
	$(BUILD) --quiet $(call bins,$(PROGRAMS) kills local-cluster)
	$(DEBUG)/kills tenant --step $(STEP) --from $(FROM)
	$(DEBUG)/kills deployment --step $(STEP) --from $(FROM)

.PHONY: run-pid
run-pid: ## Start the multicluster operator in the background, with FLAGS, against the current kubeconfig; `make stop` ends it
	@$(BUILD) --quiet $(call bins,multicluster-operator)
	@! kill -0 $$(cat target/multicluster-operator.pid 2>/dev/null) 2>/dev/null || { echo "it is running already: make stop" >&2; exit 2; }
	@mkdir -p target; nohup $(DEBUG)/multicluster-operator $(FLAGS) > target/multicluster-operator.log 2>&1 & echo $$! > target/multicluster-operator.pid
	@echo "multicluster-operator runs with PID $$(cat target/multicluster-operator.pid), its log is target/multicluster-operator.log"

.PHONY: stop
stop: ## Stop the multicluster operator that `make run-pid` started: SIGTERM, and SIGKILL after five seconds
	@pid=$$(cat target/multicluster-operator.pid 2>/dev/null) || exit 0; kill $$pid 2>/dev/null || true; \
	for _ in 1 2 3 4 5 6 7 8 9 10; do kill -0 $$pid 2>/dev/null || break; sleep 0.5; done; \
	kill -KILL $$pid 2>/dev/null && sleep 0.5; rm -f target/multicluster-operator.pid

.PHONY: bootstrap
bootstrap: setup programs ## Make a cluster of three bare machines by kco init with the real kubeadm: join, reboot, renewal of certificates, removal of a node, the platform; prints seconds of each stage and what was achieved (needs root)
	$(DEBUG)/local-cluster packages --install --network-policies
	$(BUILD) --quiet --bin bootstrap
	$(DEBUG)/bootstrap trial

# A release is made from the last commit; uncommitted files are left out. Every file in it has the time of that commit.
VERSION ?=
OUT ?= target/release-$(VERSION)
# A PEM file with an ECDSA P-256 key; without one nothing is signed.
SIGN_KEY ?=
# Where images and charts will be published.
PUBLISH ?= ghcr.io/krateo
# amd64, arm64; empty for every architecture that this machine can build for.
ARCHITECTURES ?=
# A folder with programs that are built already, as <architecture>/<program>: the output of release-binaries, here or elsewhere.
BINARIES ?=
COMMIT = $(shell git rev-parse HEAD)
RELEASE_TIME = $(shell git log -1 --format=%ct)
DIST = $(DEBUG)/dist
STAGE = $(abspath $(or $(CARGO_TARGET_DIR),target))/dist

.PHONY: release-binaries
release-binaries: ## Build the programs of the last commit as VERSION=x.y.z, static and stripped, for ARCHITECTURES="amd64 arm64" or all that this machine can build for, in target/dist/binaries
	@[ -n "$(VERSION)" ] || { echo "say which version: make $@ VERSION=1.2.3" >&2; exit 2; }
	$(BUILD) --quiet --bin dist
	$(DIST) source --version $(VERSION) $(STAGE)/source
	$(DIST) build --source $(STAGE)/source --commit $(COMMIT) --time $(RELEASE_TIME) --target $(STAGE)/target \
	    --out $(STAGE)/binaries $(addprefix --architecture ,$(ARCHITECTURES))

.PHONY: release
release: ## Build everything that users download of VERSION=x.y.z, in OUT=<folder>, signed by SIGN_KEY=<file>, from BINARIES=<folder> or the output of release-binaries; prints files and the digest of SHA256SUMS
	@[ -n "$(VERSION)" ] || { echo "say which version: make $@ VERSION=1.2.3" >&2; exit 2; }
	$(if $(BINARIES),$(BUILD) --quiet --bin dist && $(DIST) source --version $(VERSION) $(STAGE)/source,$(MAKE) --no-print-directory release-binaries)
	@$(DIST) assemble --version $(VERSION) --commit $(COMMIT) --time $(RELEASE_TIME) --registry $(PUBLISH) --source $(STAGE)/source \
	    --binaries $(or $(BINARIES),$(STAGE)/binaries) --out $(OUT) $(if $(SIGN_KEY),--sign-key $(SIGN_KEY)) \
	    $(if $(filter-out none,$(SUBCHARTS)),--subcharts $(SUBCHARTS))

QUICK ?=
.PHONY: release-twice
release-twice: ## The release of the last commit, made in two clean clones in different folders, QUICK=true without optimisation; prints what differs, and as its last line files and equal ones
	VERSION=$(VERSION) SIGN_KEY=$(SIGN_KEY) QUICK=$(QUICK) e2e/release-twice.sh

.PHONY: dockerfile
dockerfile: ## The images of all programs from the compiling stage of the Dockerfile, with a fake cargo that compiles nothing; prints how many (needs root)
	e2e/dockerfile.sh

RELEASED ?= $(OUT)
.PHONY: release-demo
release-demo: ## Publish RELEASED=<folder>, the output of `make release`, in the registry of a cluster of its own, install and try it with the README's commands; prints their output; KEEP=true leaves the cluster running (needs root)
	@[ -f "$(RELEASED)/release.json" ] || { echo "say where the release is: make release-demo RELEASED=<folder>" >&2; exit 2; }
	$(BUILD) --quiet $(call bins,release_demo local-cluster)
	$(DEBUG)/local-cluster packages --install
	$(DEBUG)/release_demo $(if $(KEEP),--keep) $(RELEASED)

.PHONY: image-memory
image-memory: setup ## Memory (PSS) of the platform's programs on a node with five controllers, and how much of it is their code (needs root)
	$(BUILD_RELEASE) --quiet $(call bins,$(IN_IMAGES) image_memory)
	$(RELEASE)/image_memory

# The programs of the demo, and how many seconds two cores need to compile them from scratch.
DEMO_PROGRAMS := programs web-server
DEMO_SECONDS := 300

.PHONY: demo-parts
demo-parts:
	@$(BUILD) --quiet --bin local-cluster
	@if [ "$(CLUSTER)" = local ]; then $(DEBUG)/local-cluster packages --install; fi
	@$(DEBUG)/local-cluster parts --then $(DEMO_SECONDS) $(if $(filter-out local,$(CLUSTER)),helm kubectl) > /dev/null

.PHONY: demo-programs
demo-programs:
	@echo "demo: our programs, at most $$(( $(DEMO_SECONDS) / 60 )) minutes left on two cores" >&2
	$(BUILD) $(call bins,$(DEMO_PROGRAMS) demo)

.PHONY: demo
demo: demo-parts demo-programs ## From nothing to a running composition: cluster, images, helm install, definition, composition
	$(DEBUG)/demo up --cluster $(CLUSTER) $(if $(REGISTRY),--registry $(REGISTRY))

.PHONY: demo-platform
demo-platform: demo-parts programs ## From nothing to a running platform of 18 trial components, installed by kco installer, its waves shown in the terminal
	$(BUILD) --quiet --bin demo
	$(DEBUG)/demo platform --cluster $(CLUSTER) $(if $(REGISTRY),--registry $(REGISTRY))

.PHONY: demo-multicluster
demo-multicluster: ## A home cluster and two targets, as control planes on this host, with a tenant on each; one is cut off and brought back
	$(BUILD) --quiet $(call bins,multicluster-operator kco demo local-cluster)
	$(DEBUG)/demo multicluster

.PHONY: first-contact
first-contact: ## `make demo` and `make demo-down` in a clean clone with empty caches; prints seconds and CPU-minutes of each step (needs root). LOCAL_CLUSTER_MIRROR=<folder or URL> for ready-made parts
	e2e/first-contact.sh

.PHONY: demo-bootstrap
demo-bootstrap: setup programs ## Make a cluster with the platform of three bare machines by kco init, shown live (needs root)
	$(DEBUG)/local-cluster packages --install --network-policies
	$(BUILD) --quiet --bin bootstrap
	$(DEBUG)/bootstrap demo

.PHONY: demo-down
demo-down: ## Remove everything that `make demo`, `make demo-platform`, `make demo-multicluster` or `make demo-bootstrap` created
	$(BUILD) --quiet --bin demo
	$(DEBUG)/demo down --cluster $(CLUSTER)

# Runs without a network, because some charts' schemas refer to others by URL, and helm would fetch them.
.PHONY: parity
parity: ## Compare kco template with helm template on every chart below CHARTS=<folder> …; prints how many are equal, time and memory
	@[ -n "$(CHARTS)" ] || { echo "say where the charts are: make parity CHARTS=<folder>" >&2; exit 2; }
	$(BUILD_RELEASE) --quiet $(call bins,kco parity local-cluster)
	helm=$$($(RELEASE)/local-cluster which helm$(if $(HELM3),3)); \
	unshare --map-root-user --net $(RELEASE)/parity \
	    --kco $(RELEASE)/kco --helm "$$helm" $(if $(HELM3),--helm3) $(CHARTS)

SCHEMA_VALUES ?= 300
# Helm's own packages validate the values, and Helm itself if they and we disagree.
.PHONY: schema-parity
schema-parity: ## Compare generated types with helm on every schema below CHARTS=<folder> …; prints schemas, values, disagreements
	@[ -n "$(CHARTS)" ] || { echo "say where the charts are: make schema-parity CHARTS=<folder>" >&2; exit 2; }
	$(BUILD_RELEASE) --quiet $(call bins,schema-parity local-cluster)
	cd crates/helm/tests/goldens && go build -mod=mod -o $(CURDIR)/target/helm-judge ./judge
	helm=$$($(RELEASE)/local-cluster which helm); \
	    $(RELEASE)/schema-parity --helm "$$helm" --judge target/helm-judge --values $(SCHEMA_VALUES) $(CHARTS)

.PHONY: crdgen-times
crdgen-times: ## How long it takes to generate the types of all charts below CHARTS=<folder> …; prints the median and the slowest
	@[ -n "$(CHARTS)" ] || { echo "say where the charts are: make crdgen-times CHARTS=<folder>" >&2; exit 2; }
	$(BUILD_RELEASE) --quiet --bin schema-parity
	$(RELEASE)/schema-parity --types-only $(CHARTS)

STEP ?= 1
.PHONY: definition-kills
definition-kills: ## core-provider killed at every write (STEP=1) of create, move, upgrade and delete of a definition; prints how many kills, and how many converged
	$(BUILD) --quiet $(call bins,core-provider kills local-cluster)
	$(DEBUG)/kills definition --step $(STEP)

# FROM is a number for `make multicluster-kills`.
FORMER = $(abspath target/former)
.PHONY: platform-upgrade
platform-upgrade: setup programs ## Upgrade the platform to the next version of its chart and roll it back, two replicas of each program, while compositions exist and clients write; prints what failed and what was touched (needs root). FROM=<commit> upgrades an installation of that commit instead, with its annotations and releases, and prints what was touched, widened or held
	$(BUILD) --quiet --bin platform_upgrade
ifeq ($(FROM),1)
	$(DEBUG)/platform_upgrade
else
	rm -rf $(FORMER) && mkdir -p $(FORMER)
	git archive $(FROM) | tar --extract --directory $(FORMER)
	cd $(FORMER) && CARGO_TARGET_DIR=$(FORMER)-build cargo build --locked --workspace --quiet \
	    $(call bins,core-provider composition-dynamic-controller chart-inspector)
	$(DEBUG)/platform_upgrade --from $(FORMER) --programs $(FORMER)-build/$(TRIPLE)/debug
endif

.PHONY: admission-replicas
admission-replicas: setup programs ## Two replicas validating writes while they are restarted, evicted and killed, and writes without any replica; prints failures and wrong answers (needs root)
	$(BUILD) --quiet --bin admission_replicas
	$(DEBUG)/admission_replicas

.PHONY: network-policies
network-policies: setup programs ## The chart's NetworkPolicies, enforced by kube-router: connections tried without and with them; prints allowed and refused (needs root)
	$(DEBUG)/local-cluster packages --install --network-policies
	$(BUILD) --quiet --bin network_policies
	$(DEBUG)/network_policies

.PHONY: composition-kills
composition-kills: ## A controller killed at every write (STEP=1) of create, upgrade and delete of a composition; prints how many kills, and how many converged
	$(BUILD) --quiet $(call bins,$(PROGRAMS) kills local-cluster)
	$(DEBUG)/kills composition --step $(STEP)

KILLS ?= 9
.PHONY: composition-replicas
composition-replicas: ## Two replicas under load, one killed every 20 s, KILLS=9 times, one frozen; prints how many converged, and overlapping writers
	$(BUILD) --quiet $(call bins,$(PROGRAMS) composition_replicas local-cluster)
	$(DEBUG)/composition_replicas --kills $(KILLS)

.PHONY: definition-figures
definition-figures: setup ## Seconds from applying a definition until it is Ready, memory and idle requests of core-provider with ten definitions (needs root)
	$(BUILD_RELEASE) $(call bins,$(IN_IMAGES) definition_figures)
	$(RELEASE)/definition_figures

.PHONY: scan
scan: ## Compare the scan behind the bound of permissions with renderings of all charts below CHARTS=<folder> …; prints kinds, rules and bindings that it missed
	@[ -n "$(CHARTS)" ] || { echo "say where the charts are: make scan CHARTS=<folder>" >&2; exit 2; }
	$(BUILD_RELEASE) --quiet --bin kco
	$(RELEASE)/kco audit-rbac --check $(CHARTS)

.PHONY: scan-lookups
scan-lookups: ## Which charts below CHARTS=<folder> … have their compositions held for a lookup, and what allows it; prints counts
	@[ -n "$(CHARTS)" ] || { echo "say where the charts are: make scan-lookups CHARTS=<folder>" >&2; exit 2; }
	$(BUILD_RELEASE) --quiet --bin kco
	$(RELEASE)/kco audit-rbac --lookups $(CHARTS)

.PHONY: scan-origins
scan-origins: ## Which documents of all charts below CHARTS=<folder> … count as chosen by values and not by the chart; prints counts, with defaults and with other values
	@[ -n "$(CHARTS)" ] || { echo "say where the charts are: make scan-origins CHARTS=<folder>" >&2; exit 2; }
	$(BUILD_RELEASE) --quiet --bin kco
	$(RELEASE)/kco audit-rbac --origins $(CHARTS)

.PHONY: scan-consents
scan-consents: ## Which charts below CHARTS=<folder> … need an admin's consent, and to what; prints counts, also of those that needed it before kinds that rule over others did
	@[ -n "$(CHARTS)" ] || { echo "say where the charts are: make scan-consents CHARTS=<folder>" >&2; exit 2; }
	$(BUILD_RELEASE) --quiet --bin kco
	$(RELEASE)/kco audit-rbac --consents $(CHARTS)

.PHONY: bench
bench: ## Compare the template engine with Go's on the same chart: times to parse and render, and their ratio
	cargo bench --locked --workspace --exclude attested-tls --quiet --bench render
	cd crates/gotemplate/tests/go && go test -run '^$$' -bench . ./bench

COMPOSITIONS ?= 100
.PHONY: bench-compositions
bench-compositions: NAMESPACES = 1
bench-compositions: setup ## What COMPOSITIONS=100 compositions in NAMESPACES=1 namespaces cost, beside a bare client: seconds, requests, writes, events, CPU and memory of each program; BARE=1000 has the bare client make only so many and scales its times; RESTRICTED=1 has it make as many with the permissions of the controller as well; PROFILES=<folder> saves profiles of the API server in each phase, and prints what it spends its time on (needs root)
	$(BUILD_RELEASE) --quiet $(call bins,$(IN_IMAGES) kco release-driver bench_compositions)
	$(RELEASE)/bench_compositions --compositions $(COMPOSITIONS) --namespaces $(NAMESPACES) $(if $(BARE),--bare $(BARE)) $(if $(RESTRICTED),--restricted) $(if $(PROFILES),--profiles $(PROFILES))

# Like $(RELEASES), for compositions.
ON_CONTROL_PLANE = $(BUILD) --quiet $(call bins,core-provider composition-dynamic-controller chart-inspector compositions local-cluster) && $(DEBUG)/compositions

# For measurements: release builds, as users have them.
RELEASE_ON_CONTROL_PLANE = $(BUILD_RELEASE) --quiet $(call bins,core-provider composition-dynamic-controller chart-inspector compositions local-cluster) && $(RELEASE)/compositions

# `make attacks ONLY="lookup-fail token-spec"` tries only those, LATER=true also those that are not refused yet.
ONLY ?=
LATER ?=
.PHONY: attacks
attacks: ## Attacks by each of eight actors with their real tokens, or only ONLY=<names>; prints what refused each and what the victim saw
	$(BUILD) --quiet $(call bins,core-provider composition-dynamic-controller chart-inspector multicluster-operator attacks local-cluster) && \
	    $(DEBUG)/attacks $(addprefix --only ,$(ONLY)) $(if $(LATER),--later)

NAMESPACE_COMPOSITIONS ?= 20
.PHONY: namespaces
namespaces: ## Namespaces deleted with compositions in them, or with their definition; prints how long that took and what is left
	$(ON_CONTROL_PLANE) namespaces --compositions $(NAMESPACE_COMPOSITIONS)

.PHONY: exactness
exactness: ## Each rule of the roles of 24 charts' compositions removed in turn; prints how many rules there are, how many are needed, and requests denied
	$(ON_CONTROL_PLANE) exactness

.PHONY: take-over
take-over: ## Releases whose records helm wrote, or that are not signed, or were signed with a lost key; prints upgrades and faults
	$(ON_CONTROL_PLANE) take-over

FAULT_COMPOSITIONS ?= 10
.PHONY: api-faults
api-faults: ## An API server that answers 500, 409 or 410, or ends every watch after a second, while users keep working; prints faults and seconds until everything has recovered
	$(BUILD) --quiet $(call bins,core-provider composition-dynamic-controller chart-inspector api_faults local-cluster)
	$(DEBUG)/api_faults --compositions $(FAULT_COMPOSITIONS)

HONEST ?= 50
HOSTILE ?= 10
.PHONY: fairness
fairness: ## HONEST=50 compositions changed alone, then beside HOSTILE=10 of each kind that use as much as they can; prints p95 of both and memory
	$(RELEASE_ON_CONTROL_PLANE) fairness --honest $(HONEST) --hostile $(HOSTILE)

.PHONY: bench-admission
bench-admission: MINUTES = 1
bench-admission: ## 500 writes a second that core-provider's webhook validates, for MINUTES=1; prints how long the API server waited for its answers, p50 and p99
	$(BUILD_RELEASE) --quiet $(call bins,core-provider bench_admission local-cluster)
	$(RELEASE)/bench_admission --minutes $(MINUTES)

.PHONY: soak
soak: MINUTES = 20
soak: ## 100 compositions reconciled every second for MINUTES=20, some changed and some recreated all the time; prints passes, memory, threads and open files
	$(RELEASE_ON_CONTROL_PLANE) soak --minutes $(MINUTES)

.PHONY: large-compositions
large-compositions: COMPOSITIONS = 400
large-compositions: ## COMPOSITIONS=400 compositions of 1.4 MB released, their controller restarted, ten changed, all moved to another version; prints memory
	$(ON_CONTROL_PLANE) large --compositions $(COMPOSITIONS)

EDITS ?= 200
.PHONY: composition-drift
composition-drift: ## EDITS=200 edits of a release's objects by others; prints p50 and p99 of the time until they are corrected
	$(ON_CONTROL_PLANE) drift --edits $(EDITS)

MINUTES ?= 10
.PHONY: composition-idle
composition-idle: COMPOSITIONS = 300
composition-idle: ## COMPOSITIONS=300 compositions left alone for MINUTES=10 at a resync of 30 s; prints writes, which must be none
	$(ON_CONTROL_PLANE) idle --compositions $(COMPOSITIONS) --minutes $(MINUTES)

.PHONY: bench-engine
bench-engine: ## Compare our engine with Helm's on whole charts, each in one process: a large chart of our own, or the five largest in each CHARTS=<folder> …
	cd crates/helm/tests/goldens && go build -mod=mod -o $(CURDIR)/target/helm-bench ./bench
	cargo bench --locked --workspace --features jemalloc --quiet --bench engine -- --helm $(CURDIR)/target/helm-bench $(CHARTS)

.PHONY: big-index
big-index: ## Compare kco show and pull with helm on a repository with an index of 20 MiB; prints the ratios of time and peak memory
	$(BUILD_RELEASE) --quiet --bin kco
	$(BUILD) --quiet $(call bins,big_index local-cluster)
	$(DEBUG)/local-cluster parts helm
	$(DEBUG)/big_index --kco $(RELEASE)/kco

FUZZ_SECONDS ?= 60
# Without sanitizers: there is no unsafe code to check, and targets run several times as fast.
.PHONY: fuzz
fuzz: ## Each fuzz target (template engine, chart reader, provenance files and keys, release records, admission, schemas, chart-inspector's query, kubeconfigs, what nodes say while they are bootstrapped) for FUZZ_SECONDS=60 (needs cargo-fuzz and a nightly toolchain)
	@for folder in crates/gotemplate/fuzz crates/helm/fuzz crates/charts/fuzz crates/cluster/fuzz core-provider/fuzz chart-inspector/fuzz crates/bootstrapper/fuzz; do \
	    cd $(CURDIR)/$$folder; \
	    for target in $$(cargo +nightly fuzz list); do \
	        mkdir -p corpus/$$target; seeds=; [ ! -d seeds/$$target ] || seeds=seeds/$$target; \
	        cargo +nightly fuzz run --sanitizer none $$target corpus/$$target $$seeds -- \
	            -max_total_time=$(FUZZ_SECONDS) -timeout=10 -rss_limit_mb=2048; \
	    done; \
	done

IDLE ?= 60
ROUNDS ?= 1
.PHONY: installer
installer: setup programs ## The platform installed by its umbrella chart with 18 trial components, left alone for IDLE=60 seconds, changed, removed, ROUNDS=1 times; prints dependencies, violations of their order, and what is left (needs root)
	$(BUILD) --quiet --bin installer
	$(DEBUG)/installer rounds --rounds $(ROUNDS) --idle $(IDLE) --changes

.PHONY: installer-removals
installer-removals: setup programs ## The platform removed while there is a definition of somebody else, core-provider is killed, or a provider is removed too early; prints what is left (needs root; half an hour)
	$(BUILD) --quiet --bin installer
	$(DEBUG)/installer removals

FROM ?= 1
.PHONY: installer-kills
installer-kills: STEP = 5
installer-kills: setup programs ## core-provider and the Installer's controller killed at every fifth write (STEP=5) while five components are installed and removed, from write FROM=1 on; prints how many kills, and how many converged (needs root)
	$(BUILD) --quiet --bin installer
	$(DEBUG)/installer kills --step $(STEP) --from $(FROM)

SUBCHARTS ?=
SCHEMA ?=
VALUES ?=
# SUBCHARTS: if empty, third-party subcharts are fetched; a folder contains each under its name; `none` leaves them out.
# SCHEMA: with `none`, values of components are not checked; otherwise their charts are fetched, from the sources in VALUES=<file>.
.PHONY: installer-package
installer-package: ## Package charts/installer as target/installer/installer-VERSION.tgz, with the subcharts in SUBCHARTS=<folder>|none, or fetched, and the schemas of components unless SCHEMA=none
	@[ -n "$(VERSION)" ] || { echo "say which version: make installer-package VERSION=1.2.3" >&2; exit 2; }
	$(BUILD) --quiet $(call bins,installer_package local-cluster kco)
	$(DEBUG)/local-cluster parts helm
	$(DEBUG)/installer_package --version $(VERSION) \
	    $(if $(filter none,$(SUBCHARTS)),--without-subcharts,$(if $(SUBCHARTS),--subcharts $(SUBCHARTS))) \
	    $(if $(filter none,$(SCHEMA)),,--schema-by $(DEBUG)/kco $(if $(VALUES),--values $(VALUES)))

# A test of each program compares the pages with its arguments, and a test of `api` with its names and types.
.PHONY: reference
reference: ## Write docs/reference from the code: arguments of the programs, custom resources, names
	UPDATE_EXPECT=1 $(TEST) --quiet --lib --bins --test describe_names generated_from

.PHONY: crds
crds: ## Write the custom resource definitions of the charts from the code
	cargo run --locked --quiet --package api --example crds compositiondefinitions > charts/core-provider/crds/compositiondefinitions.yaml
	cargo run --locked --quiet --package api --example crds chartgrants > charts/core-provider/crds/chartgrants.yaml
	cargo run --locked --quiet --package api --example crds joiningnodes > charts/join-service/crds/joiningnodes.yaml
	for plural in tenants kryptondeployments; do \
	    cargo run --locked --quiet --package api --example crds $$plural > charts/multicluster-operator/crds/$$plural.yaml || exit 1; \
	done
