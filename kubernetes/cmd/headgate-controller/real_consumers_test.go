package main

import (
	"encoding/json"
	"fmt"
	"path"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

const kustomizations = "kustomize.toolkit.fluxcd.io/v1"

// startKustomizeController starts kustomize-controller, which applies the directory app of GitRepository app.
func (c *cluster) startKustomizeController(t *testing.T, ns string) {
	t.Helper()
	c.startProgram(t, tool(t, "kustomize-controller", "KUSTOMIZE_CONTROLLER"), c.admin, ns, "--watch-all-namespaces=false")
	c.apply(t, object{"apiVersion": kustomizations, "kind": "Kustomization", "metadata": object{"name": "app", "namespace": ns}, "spec": object{
		"interval": "1h", "path": "./app", "prune": true, "targetNamespace": ns, "sourceRef": object{"kind": "GitRepository", "name": "app"},
	}})
}

// waitApplied waits until the cluster has the ConfigMap of a revision and the Kustomization reports the
// revision.
func (c *cluster) waitApplied(t *testing.T, ns, text, revision string) {
	t.Helper()
	waitUntilOr(t, "kustomize-controller applied "+text, func() bool {
		return c.field(t, "v1", "ConfigMap", ns, "app", "data", "text") == text && c.field(t, kustomizations, "Kustomization", ns, "app", "status", "lastAppliedRevision") == revision
	}, func() string { return c.field(t, kustomizations, "Kustomization", ns, "app", "status") })
}

// TestRealConsumers checks that kustomize-controller applies our artifact, and again after a push
// that calls our webhook. It also creates the HelmChart of a HelmRelease. The interval of all
// objects is one hour.
func TestRealConsumers(t *testing.T) {
	needFull(t)
	const ns = "shop"
	c, u, s := realCluster(t, ns), newUpstreams(t), newService(t)
	docs, _ := u.documents(ns)
	for _, o := range append(docs, secretOf(ns, "hooks", "Opaque", object{"token": "t0ken"})) {
		c.apply(t, o)
	}
	p := c.startHeadgate(t, ns, s, t.TempDir(), "--hooks-addr=127.0.0.1:0", "--hook-secret=hooks")
	c.startKustomizeController(t, ns)
	first := c.wait(t, "GitRepository", ns, "app", "is ready", isReady).Artifact()
	c.waitApplied(t, ns, "first", first.Revision)
	second := u.push("main", "second")
	served := func() string { return loggedValue(p.text(), "webhooks are served", "addr") }
	waitUntil(t, "webhooks are served", func() bool { return served() != "" })
	testenv.Equal(t, push(t, "http://"+served()+"/hook/gitrepository/"+ns+"/app", "t0ken"), 202)
	c.waitApplied(t, ns, "second", second)
	testenv.Equal(t, c.get(t, "GitRepository", ns, "app").Common().LastHandledReconcileAt, "") // no other program requested a run

	// helm-controller does not run here. This is the object that it creates for a HelmRelease, and
	// all that it reads of a source.
	chart := document("HelmChart", ns, ns+"-podinfo", object{
		"chart": "podinfo", "version": "6.x", "interval": "1h", "reconcileStrategy": "ChartVersion", "sourceRef": object{"kind": "HelmRepository", "name": "charts"},
	})
	chart["metadata"].(object)["labels"] = object{"helm.toolkit.fluxcd.io/name": "podinfo", "helm.toolkit.fluxcd.io/namespace": ns}
	c.apply(t, chart)
	a := c.wait(t, "HelmChart", ns, ns+"-podinfo", "is ready", isReady).Artifact()
	testenv.Equal(t, a.Revision, "6.0.0")
	s.waitArtifact(t, a)
	testenv.Equal(t, path.Base(a.URL), "podinfo-6.0.0.tgz")
}

// TestRealTakeover replaces source-controller with headgate-controller, which has its own volume,
// and then replaces it back.
func TestRealTakeover(t *testing.T) {
	needFull(t)
	const ns = "shop"
	c, u, s := realCluster(t, ns), newUpstreams(t), newService(t)
	docs, all := u.documents(ns)
	for _, o := range docs {
		c.apply(t, o)
	}
	made := func(name string) objectName {
		c.apply(t, document("OCIRepository", ns, name, object{"url": u.registry.URL("images"), "insecure": true, "ref": object{"tag": "1.0.0"}, "interval": "1h"}))
		c.wait(t, "OCIRepository", ns, name, "is ready", isReady)
		return objectName{"OCIRepository", name}
	}
	remove := func(o objectName) {
		testenv.Must(t, c.Delete(t.Context(), emptyObject(o.kind, ns, o.name)))
		c.waitGone(t, ns, o)
	}
	dirs := []string{t.TempDir(), t.TempDir()}
	p := c.startReference(t, ns, s, dirs[0])
	c.startKustomizeController(t, ns)
	c.request(t, ns, all, "0")
	one, two := made("one"), made("two")
	before := map[objectName]source.Object{}
	for _, o := range all {
		before[o] = c.get(t, o.kind, ns, o.name)
		s.waitArtifact(t, before[o].Artifact())
	}
	c.waitApplied(t, ns, "first", before[all[0]].Artifact().Revision)
	same := func(step string) {
		t.Helper()
		c.request(t, ns, all, step)
		equal := 0
		for _, o := range all {
			was, is := before[o].Artifact(), c.get(t, o.kind, ns, o.name).Artifact()
			testenv.Equal(t, is.Revision, was.Revision, "revision of %s %s, step %s", o.kind, o.name, step)
			if is.Digest == was.Digest {
				equal++
			}
			s.waitArtifact(t, is)
		}
		t.Logf("%s: %d of %d artifacts are equal byte for byte to those before", step, equal, len(all))
	}

	p.end(t)
	p = c.startHeadgate(t, ns, s, dirs[1])
	same("by headgate-controller")
	remove(one)
	three := made("three")
	p.end(t)
	p = c.startReference(t, ns, s, dirs[0])
	same("by source-controller again")
	remove(two)
	remove(three)

	second := u.push("main", "second")
	c.request(t, ns, all[:1], "last")
	c.waitApplied(t, ns, "second", second)
	var history []struct{ TotalReconciliations int }
	testenv.Must(t, json.Unmarshal([]byte(c.field(t, kustomizations, "Kustomization", ns, "app", "status", "history")), &history))
	testenv.Equal(t, fmt.Sprint(history), "[{1} {1}]", "how often each of the two was applied")
	p.end(t)
}
