package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	eventv1 "github.com/fluxcd/pkg/apis/event/v1beta1"
	"github.com/fluxcd/pkg/sourceignore"
	"github.com/fluxcd/pkg/sourceignore/gitignore"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve/notify"
)

// TestEventMatchesReference checks that a posted event is an event of the
// reference: the reference's type accepts all fields, and encodes to the same
// JSON.
func TestEventMatchesReference(t *testing.T) {
	t.Parallel()
	bodies := make(chan []byte, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		must(t, err)
		bodies <- body
	}))
	defer server.Close()
	d, err := notify.Start(notify.Config{Receivers: []notify.Receiver{{URL: server.URL}}, Instance: "host-1"})
	must(t, err)
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600))
	d.Emit(source.Event{
		InvolvedObject: source.ObjectReference{APIVersion: "source.toolkit.fluxcd.io/v1", Kind: "HelmChart", Namespace: "shop", Name: "app"},
		Severity:       "error", Timestamp: at, Message: strings.Repeat("ü<", 13000), Reason: "ChartPullError", Controller: "headgate",
		Metadata: map[string]string{"source.toolkit.fluxcd.io/revision": "1.2.3"},
	})
	body := <-bodies
	must(t, d.Close(t.Context()))
	var e eventv1.Event
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	must(t, dec.Decode(&e))
	if e.InvolvedObject.Kind != "HelmChart" || e.Severity != eventv1.EventSeverityError || !e.Timestamp.Time.Equal(at.Truncate(time.Second)) || len(e.Message) != 39000 ||
		e.Reason != "ChartPullError" || e.ReportingController != "headgate" || e.ReportingInstance != "host-1" || e.Metadata["source.toolkit.fluxcd.io/revision"] != "1.2.3" {
		t.Errorf("%.2000s", body)
	}
	again, err := json.Marshal(e)
	must(t, err)
	if !bytes.Equal(canonicalJSON(t, again), canonicalJSON(t, body)) {
		t.Errorf("got %.300s\nwant %.300s", body, again)
	}
}

// canonicalJSON returns the JSON object text with its keys in a canonical order.
func canonicalJSON(t *testing.T, text []byte) []byte {
	t.Helper()
	var v map[string]any
	must(t, json.Unmarshal(text, &v))
	out, err := json.Marshal(v)
	must(t, err)
	return out
}

// An ignoreGen generates random trees and rules from a few names, so that rules
// often match.
type ignoreGen struct{ *rand.Rand }

func pick[T any](g ignoreGen, list []T) T { return list[g.IntN(len(list))] }

var ignoreNames = strings.Fields("a b ab deploy docs keep.yaml a.md b.md logo.png .git .gitignore .github x.zip .flux.yaml #a !b *")

// tree returns 200 paths and whether each is a directory.
func (g ignoreGen) tree() map[string]bool {
	paths, dirs := map[string]bool{}, []string{""}
	for len(paths) < 200 {
		name := path.Join(pick(g, dirs), pick(g, ignoreNames)+pick(g, []string{"", "", "1", "2", "3"}))
		if _, ok := paths[name]; ok {
			continue
		}
		paths[name] = g.IntN(4) == 0 && strings.Count(name, "/") < 4
		if paths[name] {
			dirs = append(dirs, name)
		}
	}
	return paths
}

// line returns a line of an ignore file. Half of the lines contain a path of the
// tree.
func (g ignoreGen) line(names []string) string {
	pieces := strings.Fields(`a b ab / / * * ** ** ? [ab] [!a] [^b] [a-b] []a] [a \a \* \! \# \ # ! . deploy docs *.md *.yaml /** **/ /**/ a** [[:alpha:]] é`)
	if g.IntN(12) == 0 {
		return pick(g, []string{"", "# a", "#a", " ", " a", "!", "/", "//", "!/", "**", "/**", "**/", "***", "*", "!*", "/*", "\r", "a\r", "a  ", `a\ `, `\`, `*\`, "[", "!.gitignore"})
	}
	var b strings.Builder
	b.WriteString(pick(g, []string{"", "", "!"}) + pick(g, []string{"", "", "/", "**/"}))
	if g.IntN(2) == 0 {
		parts := strings.Split(pick(g, names), "/")
		from := g.IntN(len(parts))
		for i, part := range parts[from : from+1+g.IntN(len(parts)-from)] {
			if i > 0 {
				b.WriteString("/")
			}
			b.WriteString(pick(g, []string{part, part, part, "*", "**", part[:1] + "*", "?" + part[1:]}))
		}
	} else {
		for range 1 + g.IntN(4) {
			b.WriteString(pick(g, pieces))
		}
	}
	b.WriteString(pick(g, []string{"", "", "", "/", "/**", "/*", " ", "\r"}))
	return b.String()
}

func (g ignoreGen) text(names []string) string {
	lines := make([]string, g.IntN(6))
	for i := range lines {
		lines[i] = g.line(names)
	}
	return strings.Join(lines, "\n")
}

// TestIgnoreAgreesWithFlux compares the verdict about each path of a tree with
// that of the reference's matcher, for random rules in spec.ignore and in ignore
// files, with default patterns (as for Git and OCI sources) and without (as for
// buckets). It also compares the files in a view.
func TestIgnoreAgreesWithFlux(t *testing.T) {
	t.Parallel()
	const sets, trees = 20_000, 100
	g := ignoreGen{rand.New(rand.NewPCG(16, 8))}
	different, paths, ignored, viewed := 0, 0, 0, 0
	var all map[string]bool
	var names []string
	for set := range sets {
		if set%(sets/trees) == 0 {
			all = g.tree()
			names = names[:0]
			for name := range all {
				names = append(names, name)
			}
			slices.Sort(names)
		}
		texts := map[string]string{} // of ignore files by directory
		for range g.IntN(3) {
			dir := pick(g, names)
			if all[dir] && !slices.Contains(strings.Split(dir, "/"), ".git") {
				texts[dir] = g.text(names)
			} else {
				texts[""] = g.text(names)
			}
		}
		extra, bucket := g.text(names), g.IntN(3) == 0
		if bucket {
			texts = map[string]string{"": texts[""]}
		}
		want := fluxMatcher(texts, extra, bucket)
		ignore := artifact.Ignore{File: ".sourceignore", Extra: extra}
		if !bucket {
			ignore = artifact.DefaultIgnore()
			ignore.Extra = extra
		}
		files := fstest.MapFS{}
		for dir, text := range texts {
			files[path.Join(dir, ".sourceignore")] = &fstest.MapFile{Data: []byte(text)}
		}
		rules, err := ignore.Compile(t.Context(), files)
		must(t, err)
		differs := ""
		kept := map[string]bool{}
		for _, name := range names {
			_, got, err := rules.Match(t.Context(), name, all[name])
			must(t, err)
			expected := want.Match(strings.Split(name, "/"), all[name])
			if paths++; expected {
				ignored++
			}
			if got != expected {
				differs = fmt.Sprintf("%s: ignored %v, the reference says %v", name, got, expected)
			}
			if !expected && !all[name] {
				kept[name] = true
			}
		}
		if set%20 == 0 { // a view must show exactly the kept files
			viewed++
			whole := fstest.MapFS{}
			for name, dir := range all {
				if !dir {
					whole[name] = &fstest.MapFile{}
				}
			}
			view := rules.View(t.Context(), whole)
			for name := range whole {
				if _, err := view.Open(name); (err == nil) != kept[name] {
					differs = fmt.Sprintf("%s: opened %v, the reference keeps it: %v", name, err, kept[name])
				}
			}
		}
		if differs != "" {
			if different++; different <= 5 {
				t.Errorf("files %q, spec.ignore %q, bucket %v: %s", texts, extra, bucket, differs)
			}
		}
	}
	t.Logf("%d of %d rule sets differ; %d paths, %d ignored; %d views", different, sets, paths, ignored, viewed)
	if ignored < paths/20 || ignored > paths*19/20 {
		t.Error("the rules say too little to tell")
	}
}

// fluxMatcher combines the patterns as the reference's controllers do (reference
// A8).
func fluxMatcher(texts map[string]string, extra string, bucket bool) gitignore.Matcher {
	var patterns []gitignore.Pattern
	dirs := make([]string, 0, len(texts))
	for dir := range texts {
		dirs = append(dirs, dir)
	}
	slices.SortFunc(dirs, func(a, b string) int { return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/")) })
	for _, dir := range dirs {
		var domain []string
		if dir != "" {
			domain = strings.Split(dir, "/")
		}
		patterns = append(patterns, sourceignore.ReadPatterns(strings.NewReader(texts[dir]), domain)...)
	}
	patterns = append(patterns, sourceignore.ReadPatterns(strings.NewReader(extra), nil)...)
	switch {
	case bucket:
		return sourceignore.NewMatcher(patterns)
	case len(patterns) > 0:
		return sourceignore.NewMatcher(append(sourceignore.VCSPatterns(nil), patterns...))
	}
	return sourceignore.NewDefaultMatcher(nil, nil)
}
