# make help lists what can be made. Tools are pinned in .ci/versions.

include .ci/versions

GO      ?= go
MODULES := . bench e2e kubernetes
PACKAGES ?= ./...
FUZZTIME ?= 4s
BENCHFLAGS ?=
# What others wrote and only computes: under the race detector it would take most of the time.
PLAIN := github.com/klauspost/compress/... go.yaml.in/yaml/... compress/flate golang.org/x/crypto/blowfish
# Leaves out what Google's SDK links of gRPC and nothing here uses: xDS, and pages of traces whose
# templates keep every method of every type. The command is a fifth smaller, in memory too.
export GOFLAGS := -tags=disable_grpc_modules,grpcnotrace $(GOFLAGS)
FLUXTOOLS := etcd kube-apiserver flux source-controller source-controller-crds kustomize-controller kustomize-controller-crds
TARGETS := linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64

.PHONY: help build test race lint vuln fuzz e2e e2e-kubernetes bench-git bench-oci bench-bucket bench-chart bench-rollout bench-tester bench-serve bench-kubernetes journeys cross tidy release-check release-modules

help: ## list what can be made
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' Makefile | expand -t 18

build: ## build bin/headgate
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/headgate ./cmd/headgate

test: ## run the tests; needs Go and git only
	$(GO) test -ldflags=-w $(PACKAGES)

race: ## run the tests in random order under the race detector
	GORACE=atexit_sleep_ms=0 GOFLAGS="$(GOFLAGS) $(PLAIN:%=-gcflags=%=-race=false) -ldflags=-w" \
		$(GO) test -race -vet=off -shuffle=on -timeout=30m $(PACKAGES)

lint: ## gofmt, go vet and staticcheck in every module
	@out=$$(gofmt -l .); [ -z "$$out" ] || { echo "not formatted: $$out"; exit 1; }
	@set -e; for m in $(MODULES); do echo "$$m: go vet, staticcheck"; \
		(cd $$m && $(GO) vet ./... && $(GO) run $(STATICCHECK) ./...); done

vuln: ## look for known vulnerabilities, where their database can be reached
	@GOVULNCHECK=$(GOVULNCHECK) .ci/vuln

fuzz: ## run every fuzz target for FUZZTIME
	@.ci/fuzz $(FUZZTIME)

# The snapshot of a release uses what this compiles.
cross: export GOFLAGS += -trimpath
cross: ## build for every system that is supported, and vet for those that lint does not
	@set -e; for t in $(TARGETS); do echo "$$t"; CGO_ENABLED=0 GOOS=$${t%/*} GOARCH=$${t#*/} $(GO) build ./...; done
	@set -e; for os in darwin windows; do echo "go vet $$os"; CGO_ENABLED=0 GOOS=$$os GOARCH=amd64 $(GO) vet ./...; done
	@set -e; for t in linux/amd64 linux/arm64; do echo "kubernetes $$t"; \
		(cd kubernetes && CGO_ENABLED=0 GOOS=$${t%/*} GOARCH=$${t#*/} $(GO) build ./...); done

tidy: ## say what go mod tidy would change
	@set -e; for m in $(MODULES); do echo "$$m: go mod tidy -diff"; (cd $$m && $(GO) mod tidy -diff); done

e2e: ## run the command against real servers and real clients; installs them (Debian, root)
	@.ci/servers
	cd e2e && $(GO) test -count=1 -parallel=4 -timeout=30m ./...
	cd kubernetes && $(GO) test -count=1 -timeout=20m ./...
	$(GO) test -count=1 -run='^(TestKill|TestServeChaos)$$' ./cmd/headgate -chaos.for=2m

e2e-kubernetes: ## run the controller beside those of Flux and through kills, and compare it with source-controller; builds them
	@.ci/servers $(FLUXTOOLS)
	cd kubernetes && $(GO) test -count=1 -timeout=40m -v -run='^TestReal' ./cmd/headgate-controller -full

bench-git: ## compare fetching from Git with other ways, side by side
	cd bench && $(GO) run ./git $(BENCHFLAGS)

bench-oci: ## compare fetching from a registry with other ways, side by side
	cd bench && $(GO) run ./oci $(BENCHFLAGS)

bench-bucket: ## compare fetching a bucket with other ways, side by side; builds them first
	@.ci/servers minio s5cmd
	cd bench && $(GO) run ./bucket $(BENCHFLAGS)

bench-chart: ## compare finding a chart in an index with helm's way, side by side
	cd bench && $(GO) run ./chart $(BENCHFLAGS)

bench-rollout: ## compare calling webhooks by one client with a client for each call, side by side
	cd bench && $(GO) run ./rollout $(BENCHFLAGS)

bench-tester: ## compare the test runner with the load tester of Flagger, side by side
	@.ci/servers loadtester
	cd bench && $(GO) run ./tester $(BENCHFLAGS)

bench-serve: ## measure continuous mode with 10,000 objects, and the serving of artifacts side by side with nginx
	cd bench && $(GO) run ./serve $(BENCHFLAGS)

bench-kubernetes: ## compare the controller with source-controller, side by side at one API server; builds them
	@.ci/servers $(FLUXTOOLS)
	cd kubernetes && $(GO) test -count=1 -timeout=40m -v -run='^TestRealSideBySide$$' ./cmd/headgate-controller -full

journeys: ## count the functions that the shortest ways through the command execute
	cd bench && $(GO) run ./journeys $(BENCHFLAGS)

release-check: ## check the workflows and the configuration of releases, and make a snapshot for this machine
	@.ci/release-check

release-modules: ## make the tag kubernetes/VERSION beside the tag VERSION, which is there
	@.ci/release-modules $(VERSION)
