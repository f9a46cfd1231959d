package git_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"testing"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/git"
	"github.com/headgate-io/headgate/source"
)

// A graph is some sources that include each other, and what is expected of each.
type graph struct {
	objects []source.Object
	files   []map[string]string // by source; nil: no artifact
	reasons []string            // of the failure, "" for none
}

// newGraph makes n sources, each with the one file "own", and includes of up to
// one more than there are.
func newGraph(n int, random *rand.Rand) *graph {
	w := &graph{files: make([]map[string]string, n), reasons: make([]string, n)}
	for i := range n {
		g := new(source.GitRepository)
		g.Metadata.Name = fmt.Sprintf("n%d", i)
		g.Spec.URL = "https://git.example.org/" + g.Metadata.Name
		for range random.IntN(3) {
			g.Spec.Include = append(g.Spec.Include, source.GitRepositoryInclude{
				Repository: source.IncludeReference{Name: fmt.Sprintf("n%d", random.IntN(n+1))}, ToPath: []string{"", "", "x", "x/y", "."}[random.IntN(5)],
			})
		}
		source.Default(g)
		w.objects = append(w.objects, g)
	}
	return w
}

// leads reports whether includes lead from source i to source j, however far.
func (w *graph) leads(i, j int, seen map[int]bool) bool {
	for _, include := range w.objects[i].(*source.GitRepository).Spec.Include {
		var k int
		fmt.Sscanf(include.Repository.Name, "n%d", &k)
		if k == j {
			return true
		}
		if k < len(w.objects) && !seen[k] {
			seen[k] = true
			if w.leads(k, j, seen) {
				return true
			}
		}
	}
	return false
}

// expect works out what becomes of source i: content, or the reason why there is none.
func (w *graph) expect(i int) {
	if w.files[i] != nil || w.reasons[i] != "" {
		return
	}
	if w.leads(i, i, map[int]bool{}) {
		w.reasons[i] = "IncludeCycle"
		return
	}
	all, reason := map[string]string{"own": fmt.Sprintf("n%d", i)}, ""
	for _, include := range w.objects[i].(*source.GitRepository).Spec.Include {
		var j int
		if fmt.Sscanf(include.Repository.Name, "n%d", &j); j >= len(w.objects) {
			w.reasons[i] = "NotFound" // comes before NoArtifact
			return
		}
		if w.expect(j); w.reasons[j] != "" {
			reason = "NoArtifact"
		}
		_, to, _ := include.Paths()
		for name, text := range w.files[j] {
			all[path.Join(to, name)] = text
		}
	}
	if w.reasons[i] = reason; reason == "" {
		w.files[i] = all
	}
}

// Random graphs: chains, diamonds, circles of any length, includes that do not
// exist and that lie on top of each other.
func TestIncludeGraphs(t *testing.T) {
	t.Parallel()
	const most = 7
	local := map[string]string{}
	for i := range most {
		name, dir := fmt.Sprintf("n%d", i), t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "own"), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
		local["https://git.example.org/"+name] = dir
	}
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	random, seen := rand.New(rand.NewPCG(2, 71)), map[string]int{}
	for range 100 {
		w := newGraph(1+random.IntN(most), random)
		env := source.Env{Sources: &source.Inventory{Objects: w.objects, Store: store}, Local: local}
		order, started := source.Order(w.objects), make([]bool, len(w.objects))
		var visit func(i int)
		visit = func(i int) {
			if started[i] {
				return
			}
			started[i] = true
			for _, before := range order[i] {
				visit(before)
			}
			w.expect(i)
			g := w.objects[i].(*source.GitRepository)
			r := source.Reconciler{Store: store}
			_, err := r.Reconcile(t.Context(), g, git.New(g, env))
			reason := ""
			var step *source.StepError
			if errors.As(err, &step) {
				reason = step.Reason
			}
			seen[reason]++
			if reason != w.reasons[i] || (err == nil) != (reason == "") {
				t.Fatalf("%s: %v, want reason %q", g.Head(), err, w.reasons[i])
			}
			if err == nil {
				r, err := store.Open(*g.Artifact())
				if err != nil {
					t.Fatal(err)
				}
				defer r.Close()
				data, err := io.ReadAll(r)
				if got := contents(t, data); err != nil || !maps.Equal(got, w.files[i]) {
					t.Fatalf("%s holds %v, %v, want %v", g.Head(), got, err, w.files[i])
				}
			}
		}
		for i := range w.objects {
			visit(i)
		}
	}
	for _, reason := range []string{"", "IncludeCycle", "NotFound", "NoArtifact"} {
		if seen[reason] < 10 {
			t.Errorf("reason %q came up %d times only", reason, seen[reason])
		}
	}
}
