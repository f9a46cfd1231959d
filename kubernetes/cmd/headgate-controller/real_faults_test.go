package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

var seed = flag.Uint64("seed", 0, "of TestRealKills; 0 is another one each time")

// TestRealKills kills the controller at random moments while objects, Secrets and upstreams change,
// restarts the API server, and empties the volume. At the end each status must be equal to that of
// a new object with a new controller and volume.
func TestRealKills(t *testing.T) {
	needFull(t)
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("-seed=%d", *seed)
	random := rand.New(rand.NewPCG(*seed, 0))
	const ns, fresh = "killed", "fresh"
	c, u, s := realCluster(t, ns), newUpstreams(t), newService(t)
	docs, all := u.documents(ns)
	for _, o := range docs {
		c.apply(t, o)
	}
	dir := t.TempDir()
	w := &changes{t: t, c: c, u: u, ns: ns, docs: docs, all: all, random: random}
	const kills, restarts, empties = 50, 5, 3
	for n := range kills {
		if n%(kills/empties) == kills/empties-1 {
			testenv.Must(t, os.RemoveAll(dir))
		}
		p := c.startHeadgate(t, ns, s, dir)
		if n%(kills/restarts) == 0 {
			c.restart(t)
		}
		for end := time.Now().Add(time.Duration(random.IntN(2000)) * time.Millisecond); time.Now().Before(end); {
			w.change()
			time.Sleep(time.Duration(random.IntN(200)) * time.Millisecond)
		}
		select {
		case <-p.ended:
			t.Fatalf("kill %d: the controller had ended:\n%s", n, p.logTail())
		default:
			p.kill()
		}
		w.change()
	}
	t.Logf("%d changes: %v", w.made, w.byKind)

	w.repair()
	c.startHeadgate(t, ns, s, dir)
	c.restore(t, w.docs)
	c.request(t, ns, all, "last")
	c.apply(t, object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": fresh}})
	c.roles(t, fresh)
	for _, o := range w.docs {
		c.apply(t, withFields(o, object{"metadata": withFields(o["metadata"].(object), object{"namespace": fresh})}))
	}
	c.startHeadgate(t, fresh, &service{host: s.host}, t.TempDir())
	c.request(t, fresh, all, "last")
	for _, o := range all {
		var killed, computed string
		waitUntilOr(t, "the status of "+o.kind+" "+o.name+" is as that of a new one", func() bool {
			killed, computed = statusOf(t, c.get(t, o.kind, ns, o.name), ns), statusOf(t, c.get(t, o.kind, fresh, o.name), fresh)
			return killed == computed
		}, func() string { return killed + "\nthe new one:\n" + computed })
		s.waitArtifact(t, c.get(t, o.kind, ns, o.name).Artifact())
	}
	for _, o := range all {
		testenv.Must(t, c.Delete(t.Context(), emptyObject(o.kind, ns, o.name)))
	}
	for _, o := range all {
		c.waitGone(t, ns, o)
	}
	waitUntil(t, "no artifact is left", func() bool {
		left, err := filepath.Glob(filepath.Join(dir, "*", ns, "*", "*"))
		testenv.Must(t, err)
		return len(left) == 0
	})
}

// statusOf returns a status without times, generations and the namespace.
func statusOf(t *testing.T, obj source.Object, ns string) string {
	t.Helper()
	text, err := source.EncodeStatus(obj)
	testenv.Must(t, err)
	var status any
	testenv.Must(t, json.Unmarshal(text, &status))
	var strip func(any)
	strip = func(v any) {
		switch v := v.(type) {
		case object:
			for _, name := range []string{"lastUpdateTime", "lastTransitionTime", "observedGeneration"} {
				delete(v, name)
			}
			for _, one := range v {
				strip(one)
			}
		case []any:
			for _, one := range v {
				strip(one)
			}
		}
	}
	strip(status)
	text, err = json.MarshalIndent(status, "", " ")
	testenv.Must(t, err)
	return strings.ReplaceAll(string(text), "/"+ns+"/", "/NAMESPACE/")
}

// changes makes random changes.
type changes struct {
	t      *testing.T
	c      *cluster
	u      *upstreams
	ns     string
	docs   []object
	all    []objectName
	random *rand.Rand
	made   int
	byKind [9]int
}

// change makes one random change.
func (w *changes) change() {
	t, n, which := w.t, w.made, w.random.IntN(9)
	w.made++
	w.byKind[which]++
	o := w.all[w.random.IntN(len(w.all))]
	switch which {
	case 0:
		w.u.push([]string{"main", "dev"}[w.random.IntN(2)], fmt.Sprintf("change-%d", n))
	case 1:
		w.u.pushImage(t, fmt.Sprintf("1.0.%d", n))
		w.u.store.Bucket("objects").Put(fmt.Sprintf("%d.yaml", n%10), fmt.Sprintf("n: %d\n", n))
	case 2:
		w.u.charts.Put(testenv.ChartVersion{Name: "podinfo", Version: fmt.Sprintf("6.0.%d", n)})
	case 3: // changes the spec
		w.patch(w.all[0], false, fmt.Sprintf(`{"spec":{"ref":{"branch":%q},"ignore":"/change-%d"}}`, []string{"main", "dev"}[w.random.IntN(2)], n))
	case 4: // rotates the password, on either side first
		password := fmt.Sprintf("s3cret-%d", n)
		if w.random.IntN(2) == 0 {
			w.u.password.Store(password)
		}
		w.c.apply(t, loginSecret(w.ns, password))
	case 5: // deletes an object, which is recreated immediately or later
		if w.random.IntN(2) == 0 {
			w.patch(o, false, `{"metadata":{"finalizers":["finalizers.fluxcd.io"]}}`)
		}
		testenv.Must(t, client.IgnoreNotFound(w.c.Delete(t.Context(), emptyObject(o.kind, w.ns, o.name))))
	case 6:
		w.patch(o, true, `{"status":{"artifact":{"revision":"main@sha1:0000000000000000000000000000000000000000","digest":"sha256:00","path":"x","url":"http://x","lastUpdateTime":"2026-01-01T00:00:00Z"},"conditions":[]}}`)
	case 7:
		w.patch(o, false, fmt.Sprintf(`{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":"%d"}}}`, n))
	case 8:
		w.patch(o, false, fmt.Sprintf(`{"spec":{"suspend":%v}}`, w.random.IntN(2) == 0))
	}
	if which != 5 {
		missing := w.docs[w.random.IntN(len(w.docs))]
		if missing["kind"] != "Secret" {
			testenv.Must(t, client.IgnoreAlreadyExists(w.c.Create(t.Context(), &unstructured.Unstructured{Object: plainCopy(t, missing)})))
		}
	}
}

// patch patches an object if it exists.
func (w *changes) patch(o objectName, status bool, text string) {
	w.t.Helper()
	u, patch := emptyObject(o.kind, w.ns, o.name), client.RawPatch(types.MergePatchType, []byte(text))
	if status {
		testenv.Must(w.t, client.IgnoreNotFound(w.c.Status().Patch(w.t.Context(), u, patch)))
	} else {
		testenv.Must(w.t, client.IgnoreNotFound(w.c.Patch(w.t.Context(), u, patch)))
	}
}

// repair removes the obstacles to readiness. It also updates the documents to the specs in the
// cluster.
func (w *changes) repair() {
	w.t.Helper()
	w.u.password.Store("settled")
	w.docs[0] = loginSecret(w.ns, "settled")
	w.c.apply(w.t, w.docs[0])
	for i, o := range w.all {
		w.patch(o, false, `{"spec":{"suspend":null}}`)
		doc := w.docs[len(w.docs)-len(w.all)+i]
		u := emptyObject(o.kind, w.ns, o.name)
		if err := w.c.Get(w.t.Context(), client.ObjectKeyFromObject(u), u); err == nil && u.GetDeletionTimestamp() == nil {
			doc["spec"] = u.Object["spec"]
		} else if client.IgnoreNotFound(err) != nil {
			w.t.Fatal(err)
		}
	}
}

// restore creates missing objects. It first waits for the end of deletions.
func (c *cluster) restore(t *testing.T, docs []object) {
	t.Helper()
	for _, doc := range docs {
		u := &unstructured.Unstructured{Object: plainCopy(t, doc)}
		waitUntil(t, u.GetKind()+" "+u.GetName()+" is there", func() bool {
			testenv.Must(t, client.IgnoreAlreadyExists(c.Create(t.Context(), u.DeepCopy())))
			now := u.DeepCopy()
			err := c.Get(t.Context(), client.ObjectKeyFromObject(u), now)
			testenv.Must(t, client.IgnoreNotFound(err))
			return err == nil && now.GetDeletionTimestamp() == nil
		})
	}
}

// plainCopy returns a copy whose values have the types that unstructured accepts.
func plainCopy(t *testing.T, o object) object {
	t.Helper()
	text, err := json.Marshal(o)
	testenv.Must(t, err)
	u := new(unstructured.Unstructured)
	testenv.Must(t, u.UnmarshalJSON(text))
	return u.Object
}

// TestRealDeletionDuringFetch deletes an object with source-controller's finalizer while its
// upstream stalls.
func TestRealDeletionDuringFetch(t *testing.T) {
	needFull(t)
	const ns = "shop"
	c, u, s := realCluster(t, ns), newUpstreams(t), newService(t)
	c.startHeadgate(t, ns, s, t.TempDir())
	stalled := u.git.Break(&testenv.Defect{Phase: testenv.Pack, Do: testenv.Stall})
	docs, all := u.documents(ns)
	app := docs[2]
	app["spec"].(object)["timeout"] = "10m"
	app["metadata"].(object)["finalizers"] = []string{"finalizers.fluxcd.io"}
	c.apply(t, docs[0])
	c.apply(t, app)
	<-stalled
	testenv.Must(t, c.Delete(t.Context(), emptyObject(all[0].kind, ns, all[0].name)))
	c.waitGone(t, ns, all[0])
	u.git.Break(nil)
	c.apply(t, app)
	s.waitArtifact(t, c.wait(t, all[0].kind, ns, all[0].name, "is ready", isReady).Artifact())
}

// TestRealLostLease lets another holder take the lease. The controller must end, and the next
// controller must wait until the lease expires.
func TestRealLostLease(t *testing.T) {
	needFull(t)
	const ns = "shop"
	c, u, s := realCluster(t, ns), newUpstreams(t), newService(t)
	docs, all := u.documents(ns)
	for _, o := range docs {
		c.apply(t, o)
	}
	election := []string{"--enable-leader-election", "--leader-election-lease-duration=3s", "--leader-election-renew-deadline=2s", "--leader-election-retry-period=200ms"}
	dir := t.TempDir()
	p := c.startHeadgate(t, ns, s, dir, election...)
	c.request(t, ns, all, "1")
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "source-controller-leader-election"}}
	other, now := "another", metav1.NowMicro()
	waitUntil(t, "the lease is another's", func() bool {
		testenv.Must(t, c.Get(t.Context(), client.ObjectKeyFromObject(lease), lease))
		lease.Spec.HolderIdentity, lease.Spec.RenewTime = &other, &now
		return c.Update(t.Context(), lease) == nil
	})
	select {
	case <-p.ended:
	case <-time.After(time.Minute):
		t.Fatal("the controller goes on without its lease")
	}
	if p.cmd.ProcessState.Success() || !strings.Contains(p.logTail(), "leader election lost") {
		t.Errorf("it ended with %v, want an error about the lease", p.cmd.ProcessState)
	}
	c.startHeadgate(t, ns, s, dir, election...)
	c.request(t, ns, all, "2")
}
