# Every command of this project. `make` lists them.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Everything is built as static binaries, tests and images from the same artefacts: a static glibc program
# runs in an empty image. The flags stand here and not in .cargo/config.toml, so that a plain `cargo build`
# works on every platform.
TRIPLE := $(shell rustc -vV | sed -n 's/^host: //p')
TRIPLE_VAR := $(shell echo $(TRIPLE) | tr 'a-z-' 'A-Z_')
export CARGO_BUILD_TARGET := $(TRIPLE)
export CARGO_TARGET_$(TRIPLE_VAR)_RUSTFLAGS := -C target-feature=+crt-static

# The demo: on a local cluster of its own, or on the cluster of the current kubeconfig (CLUSTER=current
# REGISTRY=host/path).
CLUSTER ?= local
REGISTRY ?=

# Where `make parity`, `make scan` and `make bench-engine` look for charts.
CHARTS ?=
# `make parity HELM3=true` compares `kco template --helm3` with Helm 3.
HELM3 ?=

# Cargo builds a dependency once for each set of features, and what is selected decides the set: `--workspace`
# everywhere keeps it to one. `--locked`: what Cargo.lock says is built, and a Cargo.toml that does not fit it is an error.
BUILD := cargo build --locked --workspace
TEST := cargo test --locked --workspace
# Release builds of the programs allocate with jemalloc.
BUILD_RELEASE := cargo build --locked --workspace --release --features jemalloc

DEBUG := $(or $(CARGO_TARGET_DIR),target)/$(TRIPLE)/debug
RELEASE := $(or $(CARGO_TARGET_DIR),target)/$(TRIPLE)/release

# Tools that are built from crates.io, each in a folder of its version: a new version is built anew.
TOOLS := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/kco/tools
CARGO_DENY_VERSION := 0.20.2
CARGO_DENY := $(TOOLS)/cargo-deny-$(CARGO_DENY_VERSION)/bin/cargo-deny

PROGRAMS := core-provider composition-dynamic-controller chart-inspector multicluster-operator join-service bootstrapper web-server kco
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
chart-readme: ## The list of values in charts/core-provider/README.md, made of the comments in values.yaml
	WRITE_README=1 $(TEST) --quiet --test keep_the_chart_readme

.PHONY: lint
lint: ## Format and lints
	cargo fmt --all --check
	cargo clippy --locked --quiet --workspace --all-targets -- --deny warnings
	cargo clippy --locked --quiet --package e2e --test control_plane --test scenarios -- --deny warnings

.PHONY: unit
unit: ## Unit tests: no cluster, no root
	$(TEST) --quiet

.PHONY: deny
deny: $(CARGO_DENY) ## Banned crates, several versions of one, licenses, sources, as deny.toml has them
	$(CARGO_DENY) --locked check --hide-inclusion-graph --deny warnings bans licenses sources

# cargo-deny wants to clone the database; git finds it in the given folder.
.PHONY: advisories
advisories: $(CARGO_DENY) ## Known vulnerabilities of the crates in Cargo.lock, by DB=<clone of RustSec's advisory-db>
	@[ -n "$(DB)" ] || { echo "say where a clone of RustSec's advisory-db is: make advisories DB=<folder>" >&2; exit 2; }
	GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0="url.file://$(abspath $(DB)).insteadOf" \
	    GIT_CONFIG_VALUE_0=https://github.com/RustSec/advisory-db \
	    $(CARGO_DENY) --locked check advisories

# Its own profile, with LTO over all crates, would take longer to build than it ever saves.
$(CARGO_DENY):
	CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
	    cargo install --locked --no-track --version $(CARGO_DENY_VERSION) --root $(TOOLS)/cargo-deny-$(CARGO_DENY_VERSION) \
	    --target-dir $(TOOLS)/build cargo-deny
	rm -rf $(TOOLS)/build

.PHONY: test
test: lint deny unit rig e2e ## Everything CI runs: lints, crates, unit tests, the local cluster's own tests, end-to-end tests

# A sixth of the API servers' time would be garbage collection.
TRIED := GOGC=400

.PHONY: rig
rig: setup ## Tests of the local cluster itself (needs root)
	$(TRIED) $(TEST) --test bare_control_plane --test cluster --test leftovers -- --test-threads=1 --nocapture

.PHONY: e2e
e2e: setup programs ## End-to-end tests on a real Kubernetes (needs root)
	$(TRIED) $(TEST) --test scenarios -- --nocapture
	$(MAKE) --no-print-directory e2e-control-plane

# They wait for a fifth of their time, so one more than there are processors run side by side.
CONTROL_PLANES ?= $(shell expr $$(nproc) + 1)

.PHONY: e2e-control-plane
e2e-control-plane: programs ## Those of the end-to-end tests that need no pods, and so no root
	$(TRIED) $(TEST) --test control_plane -- --test-threads=$(CONTROL_PLANES) --nocapture
	$(TEST) --test issue_tickets -- --nocapture

# What the API server itself decides, by policies, or else by core-provider's webhook. Without open_namespace, which creates
# compositions while core-provider is away: its webhook is required there.
AT_FLOOR := keep_to_krateo bind_roles forge_marks allow_definitions restrict_lookups restrict_namespaces delete_policies

.PHONY: kube-floor
kube-floor: programs ## Tests of admission on a control plane of the lowest Kubernetes that the charts name (builds it at first)
	E2E_KUBERNETES_FLOOR=1 $(TRIED) $(TEST) --test control_plane -- --test-threads=1 --nocapture $(AT_FLOOR)

.PHONY: programs
programs: ## The static binaries that the images are made of, and what drives kco
	$(BUILD) $(call bins,$(PROGRAMS) release-driver)

# Each starts an API server of its own and prints its result as the last line.
RELEASES = $(BUILD) --quiet $(call bins,kco release-driver releases local-cluster) && $(DEBUG)/releases

.PHONY: interop
interop: ## Every trial chart installed by kco and operated by helm 3 and 4, and the reverse; prints the table
	$(RELEASES) interop $(CHARTS)

LIVE_CHARTS ?= 60
.PHONY: live-parity
live-parity: ## LIVE_CHARTS=60 charts below CHARTS=<folder of collections> on a real API server by helm and by kco; prints differences
	@[ -n "$(CHARTS)" ] || { echo "say where the charts are: make live-parity CHARTS=<folder>" >&2; exit 2; }
	$(RELEASES) live --charts $(LIVE_CHARTS) $(CHARTS)

.PHONY: crash-matrix
crash-matrix: ## kco killed before and after every write, then run again; prints kills and converged
	$(RELEASES) crash-matrix

.PHONY: drift
drift: ## Objects of a release changed in every way; prints what is reported and healed
	$(RELEASES) drift

.PHONY: idle-releases
idle-releases: ## 100 releases reconciled 20 times; prints the writes, which must be none
	$(RELEASES) idle

.PHONY: bench-releases
bench-releases: ## Requests per action, and 200 installs against the same writes by a bare client; prints the ratio
	$(BUILD_RELEASE) --quiet --bin release-driver
	$(RELEASES) bench --driver $(RELEASE)/release-driver

.PHONY: walk-through
walk-through: ## The reference's walk-throughs, command by command, with charts from CHARTS=<clones with tags> …; prints a row for each (needs root)
	@[ -n "$(CHARTS)" ] || { echo "say where the charts are: make walk-through CHARTS=\"<clone of fireworks-app> <of composition-portal-basic> <of bitnami's charts>\"" >&2; exit 2; }
	$(MAKE) --no-print-directory setup programs
	$(BUILD) --quiet --bin walk_through
	$(DEBUG)/walk_through $(CHARTS)

# Which legs of it, in their order; without it all: run,undo,kills,after.
LEGS ?=
.PHONY: migrate
migrate: ## A cluster goes over from Krateo's real programs in KRATEO=<folder of them, built, and of their chart>, back, and over again; prints what was touched (needs root, and Go)
	@[ -n "$(KRATEO)" ] || { echo "say where Krateo's programs are: make migrate KRATEO=<folder with core-provider, composition-dynamic-controller, chart-inspector and chart>" >&2; exit 2; }
	$(MAKE) --no-print-directory setup programs
	$(BUILD) --quiet --bin migrate
	$(DEBUG)/migrate $(KRATEO) $(if $(LEGS),--legs $(LEGS))

TENANTS ?= 50
.PHONY: multicluster
multicluster: ## Passes on three live clusters of TENANTS=50 tenants each, alone and beside a cluster whose packets are lost; then 20 kubeconfigs of 4 API servers at rest
	$(BUILD) --quiet $(call bins,$(PROGRAMS) multicluster local-cluster)
	$(DEBUG)/multicluster latency --tenants $(TENANTS)
	$(DEBUG)/multicluster names

ROTATIONS ?= 20
.PHONY: rotations
rotations: ## A cluster's kubeconfig rotated ROTATIONS=20 times while its tenants are changed; prints failed passes and what stays open
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
	@! kill -0 $$(cat target/multicluster-operator.pid 2>/dev/null) 2>/dev/null || { echo "it runs already: make stop" >&2; exit 2; }
	@mkdir -p target; nohup $(DEBUG)/multicluster-operator $(FLAGS) > target/multicluster-operator.log 2>&1 & echo $$! > target/multicluster-operator.pid
	@echo "multicluster-operator runs as $$(cat target/multicluster-operator.pid), its log is target/multicluster-operator.log"

.PHONY: stop
stop: ## End what `make run-pid` started: SIGTERM, and SIGKILL after five seconds
	@pid=$$(cat target/multicluster-operator.pid 2>/dev/null) || exit 0; kill $$pid 2>/dev/null || true; \
	for _ in 1 2 3 4 5 6 7 8 9 10; do kill -0 $$pid 2>/dev/null || break; sleep 0.5; done; \
	kill -KILL $$pid 2>/dev/null && sleep 0.5; rm -f target/multicluster-operator.pid

.PHONY: bootstrap
bootstrap: setup programs ## Three bare machines to a cluster by kco init with the real kubeadm; join, reboot, renewal, removal, the platform; prints seconds of each stage and what was reached (needs root)
	$(DEBUG)/local-cluster packages --install --network-policies
	$(BUILD) --quiet --bin bootstrap
	$(DEBUG)/bootstrap trial

# A release is made of the last commit and of nothing that lies beside it. Everything in it has the time of that commit.
VERSION ?=
OUT ?= target/release-$(VERSION)
# A PEM key of ECDSA P-256; without one nothing is signed.
SIGN_KEY ?=
# Where images and charts will be published.
PUBLISH ?= ghcr.io/krateo
# amd64, arm64; empty: what this machine can build for.
ARCHITECTURES ?=
# Programs that are built already, as <architecture>/<program>: what release-binaries makes, here or elsewhere.
BINARIES ?=
COMMIT = $(shell git rev-parse HEAD)
RELEASE_TIME = $(shell git log -1 --format=%ct)
DIST = $(DEBUG)/dist
STAGE = $(abspath $(or $(CARGO_TARGET_DIR),target))/dist

.PHONY: release-binaries
release-binaries: ## The programs of the last commit as VERSION=x.y.z, static and stripped, for ARCHITECTURES="amd64 arm64" or what this machine can build for, in target/dist/binaries
	@[ -n "$(VERSION)" ] || { echo "say which version: make $@ VERSION=1.2.3" >&2; exit 2; }
	$(BUILD) --quiet --bin dist
	$(DIST) source --version $(VERSION) $(STAGE)/source
	$(DIST) build --source $(STAGE)/source --commit $(COMMIT) --time $(RELEASE_TIME) --target $(STAGE)/target \
	    --out $(STAGE)/binaries $(addprefix --architecture ,$(ARCHITECTURES))

.PHONY: release
release: ## All that users download of VERSION=x.y.z, in OUT=<folder>, signed by SIGN_KEY=<file>, of BINARIES=<folder> or what release-binaries makes; prints files and the digest of SHA256SUMS
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
dockerfile: ## The images of all programs by the Dockerfile's stage that compiles, with a cargo that compiles nothing; prints how many (needs root)
	e2e/dockerfile.sh

RELEASED ?= $(OUT)
.PHONY: release-demo
release-demo: ## RELEASED=<folder>, what `make release` made: published in the registry of a cluster of its own, installed and tried by the README's commands; prints what they print; KEEP=true leaves the cluster (needs root)
	@[ -f "$(RELEASED)/release.json" ] || { echo "say where the release is: make release-demo RELEASED=<folder>" >&2; exit 2; }
	$(BUILD) --quiet $(call bins,release_demo local-cluster)
	$(DEBUG)/local-cluster packages --install
	$(DEBUG)/release_demo $(if $(KEEP),--keep) $(RELEASED)

TOGETHER ?=
.PHONY: image-memory
image-memory: setup ## What the platform's programs take in memory on a node, in PSS, and what one file for all would save at most; TOGETHER=true builds that and measures it (needs root)
	$(BUILD_RELEASE) --quiet $(call bins,$(PROGRAMS) image_memory)
	$(if $(TOGETHER),e2e/multi-call.sh $(RELEASE)/multi-call)
	$(RELEASE)/image_memory $(if $(TOGETHER),--together $(RELEASE)/multi-call)

# What the demo runs, and how long two cores compile it when nothing is compiled yet.
DEMO_PROGRAMS := core-provider composition-dynamic-controller chart-inspector web-server
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
demo-platform: demo-parts programs ## From nothing to a running platform of 18 trial components by kco installer, its waves in the terminal
	$(BUILD) --quiet --bin demo
	$(DEBUG)/demo platform --cluster $(CLUSTER) $(if $(REGISTRY),--registry $(REGISTRY))

.PHONY: demo-multicluster
demo-multicluster: ## One home and two targets as control planes of this host, a tenant on each, one cut off and brought back
	$(BUILD) --quiet $(call bins,multicluster-operator kco demo local-cluster)
	$(DEBUG)/demo multicluster

.PHONY: first-contact
first-contact: ## `make demo` of a clean clone with empty caches, and its end; prints seconds and CPU-minutes of each step (needs root). LOCAL_CLUSTER_MIRROR=<folder or URL> for ready-made parts
	e2e/first-contact.sh

.PHONY: demo-bootstrap
demo-bootstrap: setup programs ## Three bare machines to a cluster with the platform, live, by kco init (needs root)
	$(DEBUG)/local-cluster packages --install --network-policies
	$(BUILD) --quiet --bin bootstrap
	$(DEBUG)/bootstrap demo

.PHONY: demo-down
demo-down: ## Remove all that `make demo`, `make demo-platform`, `make demo-multicluster` or `make demo-bootstrap` made
	$(BUILD) --quiet --bin demo
	$(DEBUG)/demo down --cluster $(CLUSTER)

# Without a network: schemas of some charts name others by URL, and helm would fetch them.
.PHONY: parity
parity: ## kco template against helm template on every chart below CHARTS=<folder> …; prints what was equal and what it took
	@[ -n "$(CHARTS)" ] || { echo "say where the charts are: make parity CHARTS=<folder>" >&2; exit 2; }
	$(BUILD_RELEASE) --quiet $(call bins,kco parity local-cluster)
	helm=$$($(RELEASE)/local-cluster which helm$(if $(HELM3),3)); \
	unshare --map-root-user --net $(RELEASE)/parity \
	    --kco $(RELEASE)/kco --helm "$$helm" $(if $(HELM3),--helm3) $(CHARTS)

SCHEMA_VALUES ?= 300
# Helm's own packages answer, and Helm itself where they and we disagree.
.PHONY: schema-parity
schema-parity: ## Generated types against helm on every schema below CHARTS=<folder> …; prints schemas, values, disagreements
	@[ -n "$(CHARTS)" ] || { echo "say where the charts are: make schema-parity CHARTS=<folder>" >&2; exit 2; }
	$(BUILD_RELEASE) --quiet $(call bins,schema-parity local-cluster)
	cd crates/helm/tests/goldens && go build -mod=mod -o $(CURDIR)/target/helm-judge ./judge
	helm=$$($(RELEASE)/local-cluster which helm); \
	    $(RELEASE)/schema-parity --helm "$$helm" --judge target/helm-judge --values $(SCHEMA_VALUES) $(CHARTS)

.PHONY: crdgen-times
crdgen-times: ## How long the types of all charts below CHARTS=<folder> … take to make; prints the middle and the slowest
	@[ -n "$(CHARTS)" ] || { echo "say where the charts are: make crdgen-times CHARTS=<folder>" >&2; exit 2; }
	$(BUILD_RELEASE) --quiet --bin schema-parity
	$(RELEASE)/schema-parity --types-only $(CHARTS)

STEP ?= 1
.PHONY: definition-kills
definition-kills: ## core-provider killed at every write (STEP=1) of create, move, upgrade and delete of a definition; prints kills and converged
	$(BUILD) --quiet $(call bins,core-provider kills local-cluster)
	$(DEBUG)/kills definition --step $(STEP)

.PHONY: platform-upgrade
platform-upgrade: setup programs ## The platform to the next version of its chart and back, two replicas of each program, while compositions live and clients write; prints what failed and what was touched (needs root)
	$(BUILD) --quiet --bin platform_upgrade
	$(DEBUG)/platform_upgrade

.PHONY: admission-replicas
admission-replicas: setup programs ## Two replicas judging writes while they are restarted, evicted, killed, and gone; prints failures and wrong answers (needs root)
	$(BUILD) --quiet --bin admission_replicas
	$(DEBUG)/admission_replicas

.PHONY: network-policies
network-policies: setup programs ## The chart's NetworkPolicies, enforced by kube-router: connections tried without and with them; prints allowed and refused (needs root)
	$(DEBUG)/local-cluster packages --install --network-policies
	$(BUILD) --quiet --bin network_policies
	$(DEBUG)/network_policies

.PHONY: composition-kills
composition-kills: ## A controller killed at every write (STEP=1) of create, upgrade and delete of a composition; prints kills and converged
	$(BUILD) --quiet $(call bins,$(PROGRAMS) kills local-cluster)
	$(DEBUG)/kills composition --step $(STEP)

KILLS ?= 9
.PHONY: composition-replicas
composition-replicas: ## Two replicas under load, one killed every 20 s, KILLS=9 times, one stopped; prints converged and overlapping writers
	$(BUILD) --quiet $(call bins,$(PROGRAMS) composition_replicas local-cluster)
	$(DEBUG)/composition_replicas --kills $(KILLS)

.PHONY: definition-figures
definition-figures: setup ## A definition from applied to Ready, memory and idle requests of core-provider with ten definitions (needs root)
	$(BUILD_RELEASE) $(call bins,$(PROGRAMS) definition_figures)
	$(RELEASE)/definition_figures

.PHONY: scan
scan: ## The scan behind the bound of permissions against renderings of all charts below CHARTS=<folder> …; prints kinds missed
	@[ -n "$(CHARTS)" ] || { echo "say where the charts are: make scan CHARTS=<folder>" >&2; exit 2; }
	$(BUILD_RELEASE) --quiet --bin kco
	$(RELEASE)/kco audit-rbac --check $(CHARTS)

.PHONY: scan-lookups
scan-lookups: ## Which charts below CHARTS=<folder> … have their compositions held for a lookup, and what allows it; prints counts
	@[ -n "$(CHARTS)" ] || { echo "say where the charts are: make scan-lookups CHARTS=<folder>" >&2; exit 2; }
	$(BUILD_RELEASE) --quiet --bin kco
	$(RELEASE)/kco audit-rbac --lookups $(CHARTS)

.PHONY: bench
bench: ## The template engine against Go's, on the same chart: parse and render, with their ratio
	cargo bench --locked --workspace --exclude attested-tls --quiet --bench render
	cd crates/gotemplate/tests/go && go test -run '^$$' -bench . ./bench

COMPOSITIONS ?= 100
.PHONY: bench-compositions
bench-compositions: NAMESPACES = 1
bench-compositions: setup ## What COMPOSITIONS=100 compositions over NAMESPACES=1 cost, with PROFILE=<file> of the API server: seconds, requests, writes, CPU, memory (needs root)
	$(BUILD_RELEASE) --quiet $(call bins,$(PROGRAMS) release-driver bench_compositions)
	$(RELEASE)/bench_compositions --compositions $(COMPOSITIONS) --namespaces $(NAMESPACES) $(if $(PROFILE),--profile $(PROFILE))

# As `make interop` and its like, for compositions.
ON_CONTROL_PLANE = $(BUILD) --quiet $(call bins,core-provider composition-dynamic-controller chart-inspector compositions local-cluster) && $(DEBUG)/compositions

# For figures: the programs as users have them.
RELEASE_ON_CONTROL_PLANE = $(BUILD_RELEASE) --quiet $(call bins,core-provider composition-dynamic-controller chart-inspector compositions local-cluster) && $(RELEASE)/compositions

# `make attacks ONLY="lookup-fail token-spec"` tries those alone, LATER=true also those that are not refused yet.
ONLY ?=
LATER ?=
.PHONY: attacks
attacks: ## What each of eight actors can try with his real token, ONLY=<names> of them; prints what refused it and what the victim saw
	$(BUILD) --quiet $(call bins,core-provider composition-dynamic-controller chart-inspector multicluster-operator attacks local-cluster) && \
	    $(DEBUG)/attacks $(addprefix --only ,$(ONLY)) $(if $(LATER),--later)

NAMESPACE_COMPOSITIONS ?= 20
.PHONY: namespaces
namespaces: ## Namespaces deleted with compositions in them, or with their definition; prints how soon they went and what is left
	$(ON_CONTROL_PLANE) namespaces --compositions $(NAMESPACE_COMPOSITIONS)

.PHONY: exactness
exactness: ## Each rule of the roles of 24 charts' compositions taken out in turn; prints rules, needed, denied
	$(ON_CONTROL_PLANE) exactness

.PHONY: take-over
take-over: ## Releases whose records were made by helm, before records were signed, or under a lost key; prints upgrades and faults
	$(ON_CONTROL_PLANE) take-over

FAULT_COMPOSITIONS ?= 10
.PHONY: api-faults
api-faults: ## An API server that answers 500, 409 or 410, or ends every watch after a second, while users go on; prints faults and seconds until all is well
	$(BUILD) --quiet $(call bins,core-provider composition-dynamic-controller chart-inspector api_faults local-cluster)
	$(DEBUG)/api_faults --compositions $(FAULT_COMPOSITIONS)

HONEST ?= 50
HOSTILE ?= 10
.PHONY: fairness
fairness: ## HONEST=50 compositions changed alone, then beside HOSTILE=10 of each kind that cost all they can; prints p95 of both and memory
	$(RELEASE_ON_CONTROL_PLANE) fairness --honest $(HONEST) --hostile $(HOSTILE)

.PHONY: bench-admission
bench-admission: MINUTES = 1
bench-admission: ## 500 writes a second that core-provider's webhook judges, for MINUTES=1; prints how long the API server waited for it, p50 and p99
	$(BUILD_RELEASE) --quiet $(call bins,core-provider bench_admission local-cluster)
	$(RELEASE)/bench_admission --minutes $(MINUTES)

.PHONY: soak
soak: MINUTES = 20
soak: ## 100 compositions looked at every second for MINUTES=20, some changed and some made anew all the time; prints passes, memory, threads and files
	$(RELEASE_ON_CONTROL_PLANE) soak --minutes $(MINUTES)

.PHONY: large-compositions
large-compositions: COMPOSITIONS = 400
large-compositions: ## COMPOSITIONS=400 compositions of 1.4 MB released, their controller restarted, ten changed, all moved to another version; prints memory
	$(ON_CONTROL_PLANE) large --compositions $(COMPOSITIONS)

EDITS ?= 200
.PHONY: composition-drift
composition-drift: ## EDITS=200 edits of a release's objects behind our back; prints p50 and p99 until they are put back
	$(ON_CONTROL_PLANE) drift --edits $(EDITS)

MINUTES ?= 10
.PHONY: composition-idle
composition-idle: COMPOSITIONS = 300
composition-idle: ## COMPOSITIONS=300 compositions left alone for MINUTES=10 at a resync of 30 s; prints writes, which must be none
	$(ON_CONTROL_PLANE) idle --compositions $(COMPOSITIONS) --minutes $(MINUTES)

.PHONY: bench-engine
bench-engine: ## Whole charts against Helm's engine in one process: a large one of our own, or the five largest in each CHARTS=<folder> …
	cd crates/helm/tests/goldens && go build -mod=mod -o $(CURDIR)/target/helm-bench ./bench
	cargo bench --locked --workspace --features jemalloc --quiet --bench engine -- --helm $(CURDIR)/target/helm-bench $(CHARTS)

.PHONY: big-index
big-index: ## kco show and pull from a repository with an index of 20 MiB against helm; prints the ratios of time and peak memory
	$(BUILD_RELEASE) --quiet --bin kco
	$(BUILD) --quiet $(call bins,big_index local-cluster)
	$(DEBUG)/local-cluster parts helm
	$(DEBUG)/big_index --kco $(RELEASE)/kco

FUZZ_SECONDS ?= 60
# Without sanitizers: there is no unsafe code to watch, and what is left runs several times as fast.
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
installer: setup programs ## The platform by its umbrella chart with 18 trial components: installed, left alone for IDLE=60 seconds, changed, removed, ROUNDS=1 times; prints edges, violations and what is left (needs root)
	$(BUILD) --quiet --bin installer
	$(DEBUG)/installer rounds --rounds $(ROUNDS) --idle $(IDLE) --changes

.PHONY: installer-removals
installer-removals: setup programs ## The platform removed with a definition of somebody else, core-provider killed, and a provider gone first; prints what is left (needs root; half an hour)
	$(BUILD) --quiet --bin installer
	$(DEBUG)/installer removals

FROM ?= 1
.PHONY: installer-kills
installer-kills: STEP = 5
installer-kills: setup programs ## core-provider and the Installer's controller killed at every fifth write (STEP=5) while five components are installed and removed, from write FROM=1 on; prints kills and converged (needs root)
	$(BUILD) --quiet --bin installer
	$(DEBUG)/installer kills --step $(STEP) --from $(FROM)

SUBCHARTS ?=
SCHEMA ?=
VALUES ?=
# SUBCHARTS: empty, foreign subcharts are fetched; a folder that has each under its name; none, they are left out.
# SCHEMA: none, any values are taken for components; else their charts are fetched, from where VALUES=<file> says.
.PHONY: installer-package
installer-package: ## charts/installer as target/installer/installer-VERSION.tgz, with the subcharts of SUBCHARTS=<folder>|none, or fetched, and the schemas of components unless SCHEMA=none
	@[ -n "$(VERSION)" ] || { echo "say which version: make installer-package VERSION=1.2.3" >&2; exit 2; }
	$(BUILD) --quiet $(call bins,installer_package local-cluster kco)
	$(DEBUG)/local-cluster parts helm
	$(DEBUG)/installer_package --version $(VERSION) \
	    $(if $(filter none,$(SUBCHARTS)),--without-subcharts,$(if $(SUBCHARTS),--subcharts $(SUBCHARTS))) \
	    $(if $(filter none,$(SCHEMA)),,--schema-by $(DEBUG)/kco $(if $(VALUES),--values $(VALUES)))

# The pages are what a test of each program compares its arguments with, and one of `api` its names and types.
.PHONY: reference
reference: ## Write docs/reference from the code: arguments of the programs, custom resources, names
	UPDATE_EXPECT=1 $(TEST) --quiet --lib --bins --test describe_names generated_from

.PHONY: crds
crds: ## Write the custom resource definitions of the charts from the code
	cargo run --locked --quiet --package api --example crds compositiondefinitions > charts/core-provider/crds/compositiondefinitions.yaml
	cargo run --locked --quiet --package api --example crds joiningnodes > charts/join-service/crds/joiningnodes.yaml
	for plural in tenants kryptondeployments; do \
	    cargo run --locked --quiet --package api --example crds $$plural > charts/multicluster-operator/crds/$$plural.yaml || exit 1; \
	done
