package chart

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// withCache gives b a cache.
func (b *bench) withCache() {
	b.Helper()
	cache, err := artifact.OpenCache(artifact.CacheConfig{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { cache.Close() })
	b.s.env.Cache = cache
}

// TestCache fetches twice, as the same, as another and after the index changed.
func TestCache(t *testing.T) {
	c := testenv.StartCharts(t, testenv.ChartsConfig{})
	data := c.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0"})
	c.Put(testenv.ChartVersion{Name: "other", Version: "1.0.0", Digest: fmt.Sprintf("%x", sha256.Sum256(data))})
	b := newBench(t, c.URL(), c)
	b.withCache()
	want := func(requests int) {
		t.Helper()
		c.Reset()
		if _, got, err := b.get("app", "1.0.0"); err != nil || !bytes.Equal(got, data) || c.Count() != requests {
			t.Errorf("%d requests, want %d: %v", c.Count(), requests, err)
		}
	}
	want(1)
	want(0)
	b.repo.Spec.SecretRef = ref("user")
	want(1)
	want(0)
	b.s.env.Secrets.(sourcetest.Secrets)["default/user"].Data["password"] = []byte("another one")
	want(1)
	b.repo.Spec.SecretRef = nil
	want(0)
	b.repo.Spec.URL += "?token=" + password // which may be what lets us in
	want(1)
	want(0)
	b.repo.Spec.URL = c.URL()

	_, _, err := b.get("other", "1.0.0") // whose digest is that of app
	b.fails(err, source.StepFetch, "ChartPullError", false, "not what the index promises")
	next := c.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0", Files: map[string]string{"a": "b"}})
	b.text = c.Index()
	if _, got, err := b.get("app", "1.0.0"); err != nil || !bytes.Equal(got, next) {
		t.Error(err)
	}
}

// bomb is a chart of a megabyte of zeros.
func bomb(t *testing.T) []byte {
	return testenv.ChartArchive(t, map[string]string{"app/Chart.yaml": "apiVersion: v2\nname: app\nversion: 1.0.0\n", "app/zeros": strings.Repeat("\x00", 1<<20)})
}

// TestLimits bounds what arrives and what is in it.
func TestLimits(t *testing.T) {
	c := testenv.StartCharts(t, testenv.ChartsConfig{})
	c.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0", Archive: bomb(t)})
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	r, _ := newRegistry(t, g)
	g.Push("team/app", "1.0.0", chartImage(bomb(t)))
	for _, b := range []*bench{newBench(t, c.URL(), c), r} {
		if _, _, err := b.get("app", "1.0.0"); err != nil {
			t.Error(err)
		}
		for _, l := range []artifact.Limits{{Bytes: 1 << 19}, {FileBytes: 1 << 19}, {Entries: 1}, {Bytes: 100}} {
			b.s.env.Limits = l
			_, _, err := b.get("app", "1.0.0")
			b.fails(err, source.StepFetch, "ChartPullError", false, "limit")
			if _, ok := errors.AsType[*artifact.LimitError](err); !ok {
				t.Error(err)
			}
		}
	}
	b := newBench(t, c.URL(), c)
	b.s.env.Limits.Bytes = 4096
	c.Break(&testenv.Defect{Phase: testenv.GetChart, Do: testenv.Swell, After: 64 << 20})
	_, _, err := b.get("app", "1.0.0")
	b.fails(err, source.StepFetch, "ChartPullError", false)
}

// TestStalls waits for servers that say nothing more.
func TestStalls(t *testing.T) {
	c := testenv.StartCharts(t, testenv.ChartsConfig{})
	c.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0"})
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	r, _ := newRegistry(t, g, "1.0.0")
	h := newBench(t, c.URL(), c)
	for _, row := range []struct {
		b    *bench
		stop func(*testenv.Defect) <-chan struct{}
		at   testenv.Defect
		want string
		says string
		step source.Step
	}{
		{h, c.Break, testenv.Defect{Do: testenv.Stall, After: -1}, "1.0.0", "download chart: not done within", source.StepFetch},
		{h, c.Break, testenv.Defect{Do: testenv.Stall, After: 50}, "1.0.0", "download chart: not done within", source.StepFetch},
		{r, g.Break, testenv.Defect{Phase: testenv.HeadManifest, Do: testenv.Stall, After: -1}, "1.0.0", "look up tag 1.0.0: not done within", source.StepResolve},
		{r, g.Break, testenv.Defect{Phase: testenv.ListTags, Do: testenv.Stall, After: -1}, "*", "list tags: not done within", source.StepResolve},
		{r, g.Break, testenv.Defect{Phase: testenv.GetManifest, Do: testenv.Stall, After: 9}, "1.0.0", "fetch manifest: not done within", source.StepFetch},
		{r, g.Break, testenv.Defect{Phase: testenv.GetBlob, Do: testenv.Stall, After: 50}, "1.0.0", "pull chart: not done within", source.StepFetch},
	} {
		row.b.repo.Spec.Timeout = source.Duration(time.Second)
		stalled := row.stop(&row.at)
		_, _, err := row.b.get("app", row.want)
		for !closed(stalled) { // its time was over before: the machine is slow
			_, _, err = row.b.get("app", row.want)
		}
		row.b.fails(err, row.step, "ChartPullError", false, row.says)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}

		row.b.repo.Spec.Timeout = source.Duration(time.Hour)
		stalled = row.stop(&row.at)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-stalled
			cancel()
		}()
		u := row.b.open()
		o, err := u.find(ctx, "app", row.want)
		if err == nil {
			_, err = u.fetch(ctx, o)
		}
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", row.says, err)
		}
		row.stop(nil)
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// TestTornChart fetches what is damaged on its way.
func TestTornChart(t *testing.T) {
	c := testenv.StartCharts(t, testenv.ChartsConfig{})
	data := c.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0"})
	b := newBench(t, c.URL(), c)
	for name, d := range map[string]testenv.Defect{
		"cut":   {Do: testenv.Cut, After: int64(len(data) / 2)},
		"end":   {Do: testenv.End, After: int64(len(data) / 2)},
		"flip":  {Do: testenv.Flip, After: 4}, // the time in the header of gzip
		"page":  {Status: 200, Body: "<html>"},
		"empty": {Status: 200},
		"gone":  {Status: 410},
		"range": {Status: 206, Body: string(data)},
	} {
		d.Phase = testenv.GetChart
		c.Break(&d)
		_, _, err := b.get("app", "1.0.0")
		b.fails(err, source.StepFetch, "ChartPullError", false, "chart app 1.0.0: ")
		if err == nil {
			t.Error(name)
		}
	}
	for name, text := range map[string]string{"cut": string(data[:len(data)/2]), "longer": string(data) + "x", "page": "<html>"} {
		c.Break(&testenv.Defect{Phase: testenv.GetChart, Status: 200, Body: text})
		_, _, err := b.get("app", "1.0.0")
		b.fails(err, source.StepFetch, "ChartPullError", false, "not a valid chart")
		if err == nil {
			t.Error(name)
		}
	}
	// Servers that take the compression of the archive for one of the transfer.
	c.Break(&testenv.Defect{Do: testenv.Serve, Handler: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		w.Header().Set("Content-Encoding", "gzip")
		next.ServeHTTP(w, r)
	}})
	if _, got, err := b.get("app", "1.0.0"); err != nil || !bytes.Equal(got, data) {
		t.Error(err)
	}
}

// TestMixed follows oci URLs in an index.
func TestMixed(t *testing.T) {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{Username: "ann", Password: password})
	open := testenv.StartRegistry(t, testenv.RegistryConfig{})
	c := testenv.StartCharts(t, testenv.ChartsConfig{})
	data := archive(t, "app", "1.0.0+b")
	d := g.Push("team/app", "1.0.0_b", chartImage(data))
	open.Push("team/app", "1.0.0_b", chartImage(data))
	put := func(digest, url string) *bench {
		c.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0+b", Archive: data, Digest: digest, URLs: []string{url}})
		b := newBench(t, c.URL(), c)
		b.s.env.Sources = objects{namedRepository("else", g.URL("else"), "missing"), namedRepository("all", "oci://"+g.Host, "missing"), namedRepository("teams", g.URL("team"), "user"), namedRepository("root", open.URL("team"), "")}
		return b
	}
	for name, row := range map[string]struct{ digest, url string }{
		"tag": {"", g.URL("team/app:1.0.0_b")}, "no tag": {"", g.URL("team/app")}, "digest": {"", g.URL("team/app@" + d.Digest.String())},
		"both": {"", g.URL("team/app:2@" + d.Digest.String())}, "index has the digest of the manifest": {d.Digest.Encoded(), g.URL("team/app:1.0.0_b")}, "without credentials": {"", open.URL("team/app")},
	} {
		if _, got, err := put(row.digest, row.url).get("app", "1.0.0"); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b := put(strings.Repeat("0", 64), g.URL("team/app"))
	_, _, err := b.get("app", "1.0.0")
	b.fails(err, source.StepFetch, "ChartPullError", false, "not what the index promises")
	for _, url := range []string{"oci://ann:cAnArY@" + g.Host + "/team/app", g.URL("team/app") + "?token=cAnArY", "oci://" + g.Host, g.URL("Team/app")} {
		b := put("", url)
		_, _, err := b.get("app", "1.0.0")
		b.fails(err, source.StepFetch, "ChartPullError", false, "oci://")
	}
}
