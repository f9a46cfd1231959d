package server_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/source/serve"
	"github.com/headgate-io/headgate/source/serve/api"
)

const helmDocuments = `
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmRepository
metadata: {name: charts, namespace: shop}
spec: {url: "https://charts.example.org", interval: 1h}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmChart
metadata: {name: web, namespace: shop}
spec: {chart: web, interval: 1h, sourceRef: {kind: HelmRepository, name: charts}}
`

// TestSpellingOfTheDocument has objects of the reference's group: the API says
// their kinds as they do, and their pointers lead to the artifact by either name.
func TestSpellingOfTheDocument(t *testing.T) {
	r := newRig(t, false, func(r *rig) { r.server.Controller.Retention = time.Millisecond })
	r.desired <- serve.Desired{Objects: objects(t, documents+helmDocuments)}
	seen := map[string]bool{}
	err := r.client("").Watch(t.Context(), api.Filter{Namespace: "shop"}, func(n api.Notice) error {
		if n.Source != nil && strings.HasPrefix(n.Source.Kind, "Helm") && n.Source.Revision != "" {
			if seen[n.Source.Kind] = true; len(seen) == 2 {
				return errEnough
			}
		}
		return nil
	})
	if err != errEnough {
		t.Fatal(err)
	}
	for path, kind := range map[string]string{
		"/api/v1/sources/helmchart/shop/web":         `"kind":"HelmChart"`,
		"/api/v1/sources/pkgchart/shop/web":          `"kind":"HelmChart"`,
		"/api/v1/sources/helmrepository/shop/charts": `"kind":"HelmRepository"`,
	} {
		if status, _, body := r.ask("GET", path, "", ""); status != 200 || !strings.Contains(body, kind) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	for _, pointer := range []string{"repository/shop/charts/index.yaml", "chart/shop/web/latest.tar.gz"} {
		status, header, want := r.ask("GET", "/pkg"+pointer, "", "")
		if status != 200 || want == "" {
			t.Fatalf("pkg%s: %d", pointer, status)
		}
		status, other, got := r.ask("GET", "/helm"+pointer, "", "")
		if status != 200 || got != want || other.Get("Etag") != header.Get("Etag") {
			t.Errorf("helm%s: %d, %v instead of %v", pointer, status, other, header)
		}
	}
	if status, _, _ := r.ask("GET", "/HelmChart/shop/web/latest.tar.gz", "", ""); status != 404 {
		t.Errorf("a kind in capitals: %d", status)
	}
	gone := []string{}
	err = r.client("").Watch(t.Context(), api.Filter{Namespace: "shop"}, func(n api.Notice) error {
		switch {
		case n.Synced:
			r.desired <- serve.Desired{Objects: objects(t, documents)}
		case n.Gone != nil:
			if gone = append(gone, n.Gone.Kind); len(gone) == 2 {
				return errEnough
			}
		}
		return nil
	})
	if slices.Sort(gone); err != errEnough || !slices.Equal(gone, []string{"HelmChart", "HelmRepository"}) {
		t.Errorf("gone are %v, %v", gone, err)
	}
}
