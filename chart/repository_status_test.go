package chart_test

import (
	"flag"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

var update = flag.Bool("update", false, "rewrite the expectations in testdata/status")

// A repoLife is what happens to one object, step by step. After each its
// outcome, its status and its events are those of testdata/status
// (specification, "PkgRepository"; reference A2, A3, A4 and A12).
type repoLife struct {
	name  string
	steps []repoStep
}

type repoStep struct {
	name string
	do   func(r *repoRig, obj *source.PkgRepository) // before the object is reconciled
}

// indexed publishes an index of versions, generated at some time.
func indexed(generated string, versions ...string) func(*repoRig, *source.PkgRepository) {
	return func(r *repoRig, _ *source.PkgRepository) {
		text := "apiVersion: v1\nentries:\n  web:\n"
		for _, v := range versions {
			text += "  - name: web\n    version: " + v + "\n    urls:\n    - web-" + v + ".tgz\n"
		}
		r.s.Break(nil)
		r.s.SetIndex([]byte(text + "generated: \"" + generated + "\"\n"))
	}
}

func broken(d *testenv.Defect) func(*repoRig, *source.PkgRepository) {
	return func(r *repoRig, _ *source.PkgRepository) { r.s.Break(d) }
}

func respecified(edit func(*source.PkgRepositorySpec)) func(*repoRig, *source.PkgRepository) {
	return func(_ *repoRig, obj *source.PkgRepository) { edit(&obj.Spec) }
}

func unaltered(*repoRig, *source.PkgRepository) {}

var repoLives = []repoLife{
	{"repository", []repoStep{
		{"nothing is there", broken(testenv.Status(404))},
		{"published", indexed("2026-01-01", "1.0.0")},
		{"nothing changed", unaltered},
		{"stamped anew", indexed("2026-01-02", "1.0.0")},
		{"a new version, and two that are none", indexed("2026-01-03", "1.0.0", "1.1.0", "one", "1.x")},
		{"asked for by annotation", func(_ *repoRig, obj *source.PkgRepository) {
			obj.Metadata.Annotations = map[string]string{"reconcile.headgate.dev/requestedAt": "now"}
		}},
		{"suspended, and a new version", func(r *repoRig, obj *source.PkgRepository) {
			indexed("2026-01-04", "2.0.0")(r, obj)
			obj.Spec.Suspend = true
		}},
		{"resumed", respecified(func(s *source.PkgRepositorySpec) { s.Suspend = false })},
	}},
	{"repository of type oci", []repoStep{
		{"published", indexed("2026-01-01", "1.0.0")},
		{"type oci", respecified(func(s *source.PkgRepositorySpec) {
			s.Type, s.URL = source.RepositoryOCI, "oci://registry.example/charts"
		})},
		{"nothing changed", unaltered},
		{"type oci at a URL that is none", respecified(func(s *source.PkgRepositorySpec) { s.URL = "https://charts.example" })},
		{"a registry without its type", respecified(func(s *source.PkgRepositorySpec) { s.Type, s.URL = "", "oci://registry.example/charts" })},
		{"an index again", func(r *repoRig, obj *source.PkgRepository) { obj.Spec.URL = r.s.URL() }},
	}},
	{"repository failures", []repoStep{
		{"published", indexed("2026-01-01", "1.0.0")},
		{"no index", broken(&testenv.Defect{Do: testenv.Answer, Status: 200, Body: "entries: []"})},
		{"a web page", broken(&testenv.Defect{Do: testenv.Answer, Status: 200, Header: http.Header{"Content-Type": {"text/html; charset=utf-8"}}, Body: "<p>Charts</p>"})},
		{"forbidden", broken(testenv.Status(403))},
		{"busy for a while", broken(&testenv.Defect{Status: 429, Header: http.Header{"Retry-After": {"600"}}})},
		{"a new version, cut short", func(r *repoRig, obj *source.PkgRepository) {
			indexed("2026-01-01", "1.0.0", "1.1.0")(r, obj)
			r.s.Break(&testenv.Defect{Do: testenv.Cut, After: 20})
		}},
		{"mended", broken(nil)},
		{"URL that is none", respecified(func(s *source.PkgRepositorySpec) { s.URL = "https:///charts" })},
		{"no Secret", func(r *repoRig, obj *source.PkgRepository) {
			obj.Spec.URL, obj.Spec.SecretRef = r.s.URL(), &source.LocalReference{Name: "absent"}
		}},
		{"user name without password", respecified(func(s *source.PkgRepositorySpec) { s.SecretRef.Name = "half" })},
		{"with both", respecified(func(s *source.PkgRepositorySpec) { s.SecretRef.Name = "login" })},
	}},
}

func TestRepositoryStatuses(t *testing.T) {
	for _, l := range repoLives {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			r := newRepoRig(t, testenv.ChartsConfig{})
			obj := r.object(nil)
			var got strings.Builder
			for _, s := range l.steps {
				r.Now = r.Now.Add(time.Hour)
				s.do(r, obj)
				obj = &source.PkgRepository{Header: obj.Header, Spec: obj.Spec}
				obj.Metadata.Generation = 0 // the ledger knows
				result, err := r.Reconcile(obj, r.origin(obj))
				told := r.Told(obj, result, err, "nothing", strings.Join(append([]string{"notes:"}, result.Report.Notes...), " "))
				fmt.Fprintf(&got, "# %s\n%s", s.name, strings.ReplaceAll(told, r.s.Base, "http://charts.example"))
			}
			sourcetest.Golden(t, filepath.Join("testdata", "status", strings.ReplaceAll(l.name, " ", "-")+".txt"), got.String(), *update)
		})
	}
}
