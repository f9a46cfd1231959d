package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/headgate-io/headgate/source"
)

// objectsOf makes GitRepositories from lines "name: included included".
func objectsOf(lines ...string) []source.Object {
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

// One at a time, objects come in the order of the documents, except that what
// is included comes before.
func TestEachInOrder(t *testing.T) {
	for want, lines := range map[string][]string{
		"a b c":     {"a:", "b:", "c:"},
		"c a b":     {"a: c", "b: c", "c:"},
		"c b a d":   {"a: b", "b: c", "c: none", "d: a"},
		"b a":       {"a: b", "b: a"},
		"a":         {"a: a"},
		"d b c a e": {"a: b c", "b: d", "c: d", "d:", "e: a"},
	} {
		s := &session{flags: &sourceFlags{parallel: 1}}
		var order []string
		s.each(t.Context(), objectsOf(lines...), func(_ context.Context, r *row) {
			order = append(order, r.object.Head().Metadata.Name)
		})
		if got := strings.Join(order, " "); got != want {
			t.Errorf("%q: order %q, want %q", lines, got, want)
		}
	}
}

// Objects that do not need each other are worked on at once, and not level by
// level: fast comes to its end while slow is held up, and slow has begun by then.
func TestEachAtOnce(t *testing.T) {
	s := &session{flags: &sourceFlags{parallel: 2}}
	started, release := make(chan struct{}), make(chan struct{})
	rows := s.each(t.Context(), objectsOf("fast: first", "first:", "slow:"), func(_ context.Context, r *row) {
		switch r.object.Head().Metadata.Name {
		case "fast":
			<-started // or never
			close(release)
		case "slow":
			close(started)
			<-release // or never
		}
	})
	if len(rows) != 3 {
		t.Errorf("%d rows", len(rows))
	}
}

// Many objects, many at once: each starts once all it needs has ended.
func TestEachMany(t *testing.T) {
	lines := make([]string, 300)
	for i := range lines {
		lines[i] = fmt.Sprintf("n%d: n%d n%d", i, i*2+1, i*3+2)
	}
	slices.Reverse(lines)
	objects := objectsOf(lines...)
	before := source.Order(objects)
	s := &session{flags: &sourceFlags{parallel: 8}}
	done := make([]atomic.Bool, len(objects))
	s.each(t.Context(), objects, func(_ context.Context, r *row) {
		i := slices.Index(objects, r.object)
		for _, b := range before[i] {
			if !done[b].Load() {
				t.Errorf("%s started before %s ended", objects[i].Head(), objects[b].Head())
			}
		}
		done[i].Store(true)
	})
}
