package git_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
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

// A web is some sources, each a directory with the one file "own", that
// include each other.
type web struct {
	objects []source.Object
	store   *artifact.Store
	local   map[string]string
}

// newWeb makes n sources; what they include is to be added.
func newWeb(t testing.TB, n int) *web {
	w := &web{local: map[string]string{}}
	top := t.TempDir()
	for i := range n {
		name := fmt.Sprintf("n%d", i)
		dir := filepath.Join(top, "trees", name)
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "own"), []byte(name), 0o644)); err != nil {
			t.Fatal(err)
		}
		w.local["https://git.example.org/"+name] = dir
	}
	var err error
	if w.store, err = artifact.OpenStore(artifact.StoreConfig{Dir: filepath.Join(top, "store")}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.store.Close() })
	return w
}

// grow makes the first n sources anew, without includes.
func (w *web) grow(n int) {
	w.objects = nil
	for i := range n {
		g := new(source.GitRepository)
		g.Metadata.Name = fmt.Sprintf("n%d", i)
		g.Spec.URL = "https://git.example.org/" + g.Metadata.Name
		source.Default(g)
		w.objects = append(w.objects, g)
	}
}

func (w *web) include(i int, name, from, to string) {
	g := w.objects[i].(*source.GitRepository)
	g.Spec.Include = append(g.Spec.Include, source.GitRepositoryInclude{
		Repository: source.IncludeReference{Name: name}, FromPath: from, ToPath: to,
	})
}

// reconcile brings the sources up to date, each after those it needs.
func (w *web) reconcile(t testing.TB) (outcomes []source.Outcome, errs []error) {
	env := source.Env{Sources: &source.Inventory{Objects: w.objects, Store: w.store}, Local: w.local,
		Limits: artifact.Limits{Entries: 100_000, Temp: w.store.Temp}}
	outcomes, errs = make([]source.Outcome, len(w.objects)), make([]error, len(w.objects))
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
		r := source.Reconciler{Store: w.store}
		result, err := r.Reconcile(t.Context(), w.objects[i], git.New(w.objects[i].(*source.GitRepository), env))
		outcomes[i], errs[i] = result.Outcome, err
		var panicked *source.PanicError
		if errors.As(err, &panicked) {
			t.Fatalf("%v\n%s", err, panicked.Stack)
		}
	}
	for i := range w.objects {
		visit(i)
	}
	return outcomes, errs
}

// files returns the content of the artifact of source i.
func (w *web) files(t testing.TB, i int) map[string]string {
	t.Helper()
	r, err := w.store.Open(*w.objects[i].Artifact())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return contents(t, data)
}

// A model is what is expected of a web.
type model struct {
	*web
	files   []map[string]string // by source; nil: no artifact
	reasons []string            // of the failure, "" for none
}

// expect works out what becomes of source i: content, or the reason why there is none.
func (m *model) expect(i int) {
	if m.files[i] != nil || m.reasons[i] != "" {
		return
	}
	all := map[string]string{"own": fmt.Sprintf("n%d", i)}
	reason := ""
	inventory := &source.Inventory{Objects: m.objects}
	if _, err := source.Needed(context.Background(), m.objects[i], inventory); errors.Is(err, source.ErrInvalid) {
		m.reasons[i] = "IncludeCycle"
		return
	}
	for _, include := range m.objects[i].(*source.GitRepository).Spec.Include {
		var j int
		if fmt.Sscanf(include.Repository.Name, "n%d", &j); j >= len(m.objects) {
			m.reasons[i] = "NotFound" // comes before NoArtifact
			return
		}
		m.expect(j)
		if m.reasons[j] != "" {
			reason = "NoArtifact"
		}
		_, to, _ := include.Paths()
		for name, text := range m.files[j] {
			all[path.Join(to, name)] = text
		}
	}
	if m.reasons[i] = reason; reason == "" {
		m.files[i] = all
	}
}

// Two hundred random webs: chains, diamonds, circles of any length, includes
// that do not exist and that lie on top of each other.
func TestIncludeGraphs(t *testing.T) {
	t.Parallel()
	const most = 7
	w := newWeb(t, most)
	random := rand.New(rand.NewPCG(2, 71))
	seen := map[string]int{}
	for range 200 {
		w.grow(1 + random.IntN(most))
		for i := range w.objects {
			for range random.IntN(3) {
				w.include(i, fmt.Sprintf("n%d", random.IntN(len(w.objects)+1)), "", []string{"", "", "x", "x/y", "."}[random.IntN(5)])
			}
		}
		_, errs := w.reconcile(t)
		m := &model{w, make([]map[string]string, len(w.objects)), make([]string, len(w.objects))}
		for i, obj := range w.objects {
			m.expect(i)
			reason := ""
			var step *source.StepError
			if errors.As(errs[i], &step) {
				reason = step.Reason
			}
			seen[reason]++
			if reason != m.reasons[i] {
				t.Fatalf("%s: %v, want reason %q", obj.Head(), errs[i], m.reasons[i])
			}
			if reason == "" {
				if got := w.files(t, i); !maps.Equal(got, m.files[i]) {
					t.Fatalf("%s holds %v, want %v", obj.Head(), got, m.files[i])
				}
			}
		}
	}
	for _, reason := range []string{"", "IncludeCycle", "NotFound", "NoArtifact"} {
		if seen[reason] < 20 {
			t.Errorf("reason %q came up %d times only", reason, seen[reason])
		}
	}
}

// Whatever sources include from wherever to wherever, a run ends, with a typed
// error or with an artifact whose names are those of files below its top.
func FuzzIncludes(f *testing.F) {
	f.Add([]byte{2, 1, 1, 0, 0, 0, 0}, "", "")
	f.Add([]byte{3, 2, 1, 2, 1, 0, 1}, "own", "x/../y")
	f.Add([]byte{1, 1, 0, 0, 0}, "../..", ".git")
	f.Add([]byte{4, 3, 1, 2, 3, 3, 1, 2, 3}, ".", `a\..\b`)
	f.Add([]byte{2, 2, 1, 1}, "\xff", "own")
	f.Add([]byte{2, 2, 1, 1}, "/", "\x00/\u200c.git")
	w := newWeb(f, 4)
	f.Fuzz(func(t *testing.T, data []byte, from, to string) {
		next := func(n int) int {
			if len(data) == 0 {
				return 0
			}
			b := int(data[0]) % n
			data = data[1:]
			return b
		}
		w := &web{store: w.store, local: w.local}
		w.grow(1 + next(4))
		for i := range w.objects {
			for range next(4) {
				w.include(i, fmt.Sprintf("n%d", next(5)), []string{"", from}[next(2)], []string{"", to, to + "/x"}[next(3)])
			}
		}
		outcomes, errs := w.reconcile(t)
		for i, obj := range w.objects {
			var step *source.StepError
			switch {
			case errs[i] == nil && outcomes[i] == source.Stored:
				for name := range w.files(t, i) {
					if !fs.ValidPath(name) {
						t.Errorf("%s holds %q", obj.Head(), name)
					}
				}
			case !errors.As(errs[i], &step) || step.Reason == "":
				t.Errorf("%s: outcome %s, error %v", obj.Head(), outcomes[i], errs[i])
			}
		}
	})
}
