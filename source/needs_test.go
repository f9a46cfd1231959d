package source_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// graph returns GitRepositories from lines "name: included included".
func graph(lines ...string) []source.Object {
	var objects []source.Object
	for _, line := range lines {
		name, included, _ := strings.Cut(line, ":")
		g := new(source.GitRepository)
		g.Metadata.Name = name
		for _, other := range strings.Fields(included) {
			g.Spec.Include = append(g.Spec.Include, source.GitRepositoryInclude{Repository: source.IncludeReference{Name: other}})
		}
		source.Default(g)
		objects = append(objects, g)
	}
	return objects
}

// cyclePath returns the names on the path from obj back to itself, from the error of [source.Needed].
func cyclePath(t *testing.T, obj source.Object, objects []source.Object) string {
	t.Helper()
	_, err := source.Needed(t.Context(), obj, &source.Inventory{Objects: objects})
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	_, names, found := strings.Cut(err.Error(), "one of these references: ")
	if !found || !errors.Is(err, source.ErrInvalid) {
		t.Fatal(err)
	}
	return strings.NewReplacer("GitRepository/default/", "", "→ ", "").Replace(names)
}

func TestCycle(t *testing.T) {
	for _, c := range []struct {
		name, want string
		lines      []string
	}{
		{"none", "", []string{"a: b c", "b: d", "c: d", "d:"}},
		{"itself", "a a", []string{"a: a"}},
		{"two", "a b a", []string{"a: b", "b: a"}},
		{"three, behind others", "a c d a", []string{"a: b c", "b:", "c: e d", "d: e a", "e:"}},
		{"the shortest", "a c a", []string{"a: b c", "b: d", "d: a", "c: a"}},
		{"one that a does not belong to", "", []string{"a: b", "b: c", "c: b"}},
		{"what does not exist", "", []string{"a: b none", "b: none"}},
	} {
		objects := graph(c.lines...)
		testenv.Equal(t, cyclePath(t, objects[0], objects), c.want, c.name)
	}
}

// A chain longer than the limit ends the search, whatever follows.
func TestCycleIsBounded(t *testing.T) {
	var lines []string
	for i := range 2000 {
		lines = append(lines, fmt.Sprintf("n%d: n%d", i, i+1))
	}
	objects := graph(lines...)
	inventory := &source.Inventory{Objects: objects}
	_, err := source.Needed(t.Context(), objects[0], inventory)
	testenv.ErrorIs(t, err, source.ErrInvalid, "2000 in a row")
	if _, err := source.Needed(t.Context(), objects[1500], inventory); err != nil {
		t.Errorf("500 in a row: %v", err)
	}
	wide := graph("wide:" + strings.Repeat(" lib", 1001))[0]
	_, err = source.Needed(t.Context(), wide, inventory)
	testenv.ErrorIs(t, err, source.ErrInvalid, "1001 includes")
}

// unreachableSources is a Sources that fails.
type unreachableSources struct{ source.Sources }

var errUnreachable = errors.New("unreachable")

func (unreachableSources) Source(context.Context, source.Reference) (source.Object, error) {
	return nil, errUnreachable
}

func TestNeeded(t *testing.T) {
	objects := graph("a: b b", "b:", "lost: b none", "round: around", "around: round", "alone:")
	inventory := &source.Inventory{Objects: objects}
	needed, err := source.Needed(t.Context(), objects[0], inventory)
	if err != nil || len(needed) != 2 || needed[0] != objects[1] || needed[1] != objects[1] {
		t.Errorf("needed %v, error %v", needed, err)
	}
	_, err = source.Needed(t.Context(), objects[2], inventory)
	if !errors.Is(err, source.ErrWaiting) || !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "GitRepository/default/none: no such object") {
		t.Errorf("missing: %v", err)
	}
	_, err = source.Needed(t.Context(), objects[3], inventory)
	testenv.ErrorIs(t, err, source.ErrInvalid, "cycle")
	testenv.ErrorSays(t, err, "GitRepository/default/round → GitRepository/default/around → GitRepository/default/round", "cycle")
	if needed, err := source.Needed(t.Context(), objects[5], nil); needed != nil || err != nil {
		t.Errorf("alone: %v, error %v", needed, err)
	}
	_, err = source.Needed(t.Context(), objects[0], nil)
	testenv.ErrorIs(t, err, fs.ErrNotExist, "no sources")
	_, need := source.Needed(t.Context(), objects[0], unreachableSources{})
	_, with := source.WithNeeds(t.Context(), objects, unreachableSources{})
	for _, err := range []error{need, with} {
		testenv.ErrorIs(t, err, errUnreachable, "unreachable")
	}
}

func TestWithNeeds(t *testing.T) {
	objects := graph("a: b none", "b: c", "c: a", "d: c", "e: a", "f: e")
	objects[4].(*source.GitRepository).Spec.Suspend = true
	inventory := &source.Inventory{Objects: objects}
	for from, want := range map[int]string{0: "a b c", 3: "d c a b", 4: "e", 5: "f e"} {
		all, err := source.WithNeeds(t.Context(), objects[from:from+1], inventory)
		must(t, err)
		var names []string
		for _, obj := range all {
			names = append(names, obj.Head().Metadata.Name)
		}
		testenv.Equal(t, strings.Join(names, " "), want, "from %d", from)
	}
}

// checkOrder checks that an order has no circle and omits only dependencies between objects in
// circles.
func checkOrder(t *testing.T, objects []source.Object) {
	t.Helper()
	order := source.Order(objects)
	done := make([]bool, len(objects))
	for range objects { // each round does at least one, or all are done
		for i, before := range order {
			done[i] = done[i] || !slices.ContainsFunc(before, func(b int) bool { return !done[b] })
		}
	}
	for i, obj := range objects {
		if !done[i] {
			t.Errorf("%s waits for ever: %v", obj.Head(), order)
		}
		circle := cyclePath(t, obj, objects) != ""
		for _, ref := range obj.Plan().Needs {
			at := slices.IndexFunc(objects, func(o source.Object) bool { return source.ReferenceTo(o) == ref })
			if at >= 0 && !circle && !slices.Contains(order[i], at) {
				t.Errorf("%s does not wait for %s: %v", obj.Head(), ref, order)
			}
		}
	}
}

func TestOrderOfNeeds(t *testing.T) {
	checkOrder(t, graph("a: b c", "b: d", "c: d", "d:", "e: none"))
	checkOrder(t, graph("a: a", "b: c", "c: b", "d: b"))
	var chain []string
	for i := range 20000 {
		chain = append(chain, fmt.Sprintf("n%d: n%d", i, i+1))
	}
	if order := source.Order(graph(chain...)); len(order[0]) != 1 || order[0][0] != 1 {
		t.Errorf("chain: %v", order[0])
	}
	random := rand.New(rand.NewPCG(3, 14))
	for range 200 {
		checkOrder(t, randomGraph(random.IntN, 1+random.IntN(12)))
	}
}

// randomGraph returns n objects that include each other at random; roll returns a number below its
// argument. Some includes do not exist.
func randomGraph(roll func(int) int, n int) []source.Object {
	lines := make([]string, n)
	for i := range lines {
		lines[i] = fmt.Sprintf("n%d:", i)
		for range roll(4) {
			lines[i] += fmt.Sprintf(" n%d", roll(n+1))
		}
	}
	return graph(lines...)
}

func TestInventory(t *testing.T) {
	config := artifact.StoreConfig{Dir: t.TempDir()}
	store, err := artifact.OpenStore(config)
	must(t, err)
	defer store.Close()
	otherStore, err := artifact.OpenStore(artifact.StoreConfig{Dir: t.TempDir()})
	must(t, err)
	defer otherStore.Close()
	server := httptest.NewServer(otherStore.Handler())
	defer server.Close()
	put := func(s *artifact.Store, text string) artifact.Artifact {
		a, err := s.Put(t.Context(), "bucket/default/a", "a.tar.gz", func(w io.Writer) error {
			_, err := io.WriteString(w, text)
			return err
		})
		must(t, err)
		return a
	}
	stored, foreign := put(store, "own"), put(otherStore, "foreign")
	local := foreign
	foreign.URL = server.URL + "/" + foreign.Path
	altered := foreign
	altered.Digest = stored.Digest
	altered.Path = strings.Replace(altered.Path, "a.tar.gz", "b.tar.gz", 1)

	full := &source.Inventory{Store: store, Client: &artifact.Client{Attempts: 1}}
	for _, c := range []struct {
		name string
		from *source.Inventory
		a    artifact.Artifact
		want string
		err  error
	}{
		{"in the store", full, stored, "own", nil},
		{"elsewhere", full, foreign, "foreign", nil},
		{"elsewhere, without a client", &source.Inventory{Store: store}, foreign, "", fs.ErrNotExist},
		{"without a store", &source.Inventory{}, stored, "", fs.ErrNotExist},
		{"a file of this machine", full, local, "", fs.ErrNotExist},
		{"no digest", full, artifact.Artifact{URL: foreign.URL, Path: foreign.Path}, "", fs.ErrInvalid},
	} {
		var content bytes.Buffer
		r, err := c.from.Open(t.Context(), c.a)
		if err == nil {
			_, err = content.ReadFrom(r)
			r.Close()
		}
		if content.String() != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %q, error %v", c.name, content.String(), err)
		}
	}
	var mismatch *artifact.DigestError
	if _, err := full.Open(t.Context(), altered); !errors.As(err, &mismatch) {
		t.Errorf("another content: %v", err)
	}
}

// Hostile and valid paths of an include.
func TestIncludePaths(t *testing.T) {
	for _, c := range []struct{ from, to, wantFrom, wantTo string }{
		{"", "", ".", "lib"},
		{"/", ".", ".", "."},
		{"./deploy/", "/base//x/", "deploy", "base/x"},
		{"a/../b", "a/./b", "b", "a/b"},
	} {
		i := source.GitRepositoryInclude{Repository: source.IncludeReference{Name: "lib"}, FromPath: c.from, ToPath: c.to}
		from, to, err := i.Paths()
		if err != nil || from != c.wantFrom || to != c.wantTo {
			t.Errorf("%q %q: %q %q, error %v", c.from, c.to, from, to, err)
		}
	}
	for _, bad := range []string{"..", "../x", "a/../../x", `a\b`, `..\x`, "a\x00b", "a\nb", "a\xffb", "/.."} {
		from := source.GitRepositoryInclude{FromPath: bad, ToPath: "x"}
		if f, _, err := from.Paths(); err == nil || !strings.Contains(err.Error(), "fromPath") {
			t.Errorf("fromPath %q: %q, error %v", bad, f, err)
		}
		to := source.GitRepositoryInclude{ToPath: bad}
		_, _, err := to.Paths()
		testenv.ErrorSays(t, err, "toPath", "toPath %q", bad)
	}
}
