package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// TestRealFlux runs the flux command with headgate-controller. Its output must be that with
// source-controller, which is in testdata/flux.txt; -full compares source-controller, too.
func TestRealFlux(t *testing.T) {
	golden, err := os.ReadFile("testdata/flux.txt")
	testenv.Must(t, err)
	t.Run("ours", func(t *testing.T) {
		testenv.Equal(t, fluxSession(t, (*cluster).startHeadgate), string(golden))
	})
	t.Run("theirs", func(t *testing.T) {
		needFull(t)
		testenv.Equal(t, fluxSession(t, (*cluster).startReference), string(golden))
	})
}

// fluxSession starts a controller and returns the output of flux commands about its objects.
func fluxSession(t *testing.T, start func(*cluster, *testing.T, string, *service, string, ...string) *program) string {
	const ns = "shop"
	c, u := realCluster(t, ns), newUpstreams(t)
	docs, all := u.documents(ns)
	docs = append(docs,
		document("HelmRepository", ns, "oci", object{"url": u.registry.URL("charts"), "type": "oci", "interval": "1h"}),
		document("GitRepository", ns, "without", object{"url": u.git.Repo(), "ref": object{"branch": "main"}, "secretRef": object{"name": "none"}, "interval": "1h"}))
	for _, o := range docs {
		c.apply(t, o)
	}
	start(c, t, ns, newService(t), t.TempDir())
	for _, o := range all {
		c.wait(t, o.kind, ns, o.name, "is ready", isReady)
	}
	c.wait(t, "GitRepository", ns, "without", "has failed", func(obj source.Object) bool { return obj.Common().Condition("Ready").Status == "False" })
	var said strings.Builder
	flux := func(line string) { said.WriteString(c.flux(t, ns, strings.Fields(line)...)) }

	flux("get sources all")
	flux("get sources git --all-namespaces")
	u.push("main", "second")
	flux("reconcile source git app")
	flux("reconcile source git including")
	flux("get sources git app")
	u.pushImage(t, "1.1.0")
	flux("reconcile source oci images")
	u.store.Bucket("objects").Put("b.yaml", "b: 1\n")
	flux("reconcile source bucket objects")
	u.charts.Put(testenv.ChartVersion{Name: "podinfo", Version: "6.1.0"})
	flux("reconcile source helm charts")
	flux("reconcile source chart remote")
	flux("get sources all")
	flux("suspend source git app")
	flux("get sources git app")
	flux("reconcile source git app")
	u.push("main", "third")
	flux("resume source git app")
	flux("get sources git app")
	flux("create source git made --branch=dev --interval=1h --secret-ref=git --url=" + u.git.Repo())
	flux("get sources git made")
	flux("delete source git made --silent")
	flux("get sources git made")
	flux("reconcile source git none")
	return masked.Replace(digests.ReplaceAllString(spaces.ReplaceAllString(failures.ReplaceAllString(strings.NewReplacer(
		u.git.Host, "git.example", u.registry.Host, "registry.example", u.store.Host, "store.example", u.charts.Host, "charts.example",
	).Replace(said.String()), "$1 …"), " "), "sha256:…"))
}

var (
	failures = regexp.MustCompile(`(?m)(\tFalse *\tFalse *\t).*$`) // messages of failures differ between the controllers
	spaces   = regexp.MustCompile(`[ \t]+`)
	digests  = regexp.MustCompile(`sha256:[0-9a-f]{8,64}`)
	masked   = strings.NewReplacer(" \n", "\n")
)
