package chart

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/chart/internal/bundle"
	"github.com/headgate-io/headgate/internal/testenv"
)

// A layout is a tree of charts that depend on charts of higher numbers.
type layout struct {
	tree  fstest.MapFS
	dirs  []string
	needs []map[int]bool
}

// randomLayout puts charts that need each other into directories. What needs
// nothing may be in charts/ of who needs it, as a directory or as an archive.
func randomLayout(t *testing.T, r *rand.Rand) layout {
	n := 2 + r.IntN(6)
	l := layout{tree: fstest.MapFS{}}
	for i := range n {
		l.dirs = append(l.dirs, path.Join([]string{".", "a", "a/b", "c"}[r.IntN(4)], fmt.Sprintf("dir%d", i)))
		l.needs = append(l.needs, map[int]bool{})
	}
	for i := range n {
		var list []string
		for j := i + 1; j < n; j++ {
			for k := range r.IntN(3) {
				list = append(list, fmt.Sprintf("c%d ^1 file://%s alias=c%dk%d", j, relative(l.dirs[i], l.dirs[j]), j, k))
				l.needs[i][j] = true
			}
		}
		r.Shuffle(len(list), func(a, b int) { list[a], list[b] = list[b], list[a] })
		l.put(l.dirs[i], chartYAML(fmt.Sprintf("c%d", i), fmt.Sprintf("1.%d.0", i), list...))
	}
	for i := range n {
		for j := range l.needs[i] {
			if len(l.needs[j]) == 0 && r.IntN(3) == 0 {
				l.vendor(t, r, i, j)
			}
		}
	}
	return l
}

func (l layout) put(dir, text string) {
	l.tree[dir+"/Chart.yaml"] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
	l.tree[dir+"/templates/a.yaml"] = &fstest.MapFile{Data: []byte("a: 1\n"), Mode: 0o644}
}

// vendor puts chart j into the charts/ of chart i.
func (l layout) vendor(t *testing.T, r *rand.Rand, i, j int) {
	text := string(l.tree[l.dirs[j]+"/Chart.yaml"].Data)
	at := path.Join(l.dirs[i], "charts", []string{fmt.Sprintf("c%d", j), "odd"}[r.IntN(2)])
	if _, ok := l.tree[at+"/Chart.yaml"]; ok {
		return
	}
	if r.IntN(2) == 0 {
		l.put(at, text)
		return
	}
	name := fmt.Sprintf("c%d", j)
	archive := testenv.ChartArchive(t, map[string]string{name + "/Chart.yaml": text})
	l.tree[path.Join(l.dirs[i], "charts", name+"-0.tgz")] = &fstest.MapFile{Data: archive, Mode: 0o644}
}

// relative returns the path from one directory to another.
func relative(from, to string) string {
	return strings.Repeat("../", strings.Count(from, "/")+1) + to
}

// TestTheLoaderFindsWhatIsNeeded packs charts of random layouts and lets the
// package manager's loader read them.
func TestTheLoaderFindsWhatIsNeeded(t *testing.T) {
	for seed := range uint64(60) {
		l := randomLayout(t, rand.New(rand.NewPCG(seed, 1)))
		first := packed(t, l)
		if second := packed(t, l); !bytes.Equal(first, second) {
			t.Fatalf("layout %d: the bytes differ", seed)
		}
		c, err := loader.LoadArchive(bytes.NewReader(first))
		if err != nil {
			t.Fatalf("layout %d: %v", seed, err)
		}
		l.demand(t, seed, c, 0)
	}
}

func packed(t *testing.T, l layout) []byte {
	t.Helper()
	c, err := bundle.Open(l.tree, l.dirs[0], artifact.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	charts, end, err := newSupply(t, "").complete(t.Context(), l.tree, l.dirs[0], c)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	var out bytes.Buffer
	if _, err := c.Pack(t.Context(), &out, bundle.Edit{Charts: charts}); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// demand demands that c, which is chart i, has the charts that it needs, and so
// do they.
func (l layout) demand(t *testing.T, seed uint64, c *chart.Chart, i int) {
	t.Helper()
	got := map[string]*chart.Chart{}
	for _, d := range c.Dependencies() {
		got[d.Name()] = d
	}
	if len(got) != len(c.Dependencies()) || len(got) != len(l.needs[i]) {
		t.Errorf("layout %d: chart %d has %q, needs %v", seed, i, slices.Sorted(maps.Keys(got)), l.needs[i])
	}
	for j := range l.needs[i] {
		if d := got[fmt.Sprintf("c%d", j)]; d == nil {
			t.Errorf("layout %d: chart %d lacks chart %d", seed, i, j)
		} else {
			l.demand(t, seed, d, j)
		}
	}
}
