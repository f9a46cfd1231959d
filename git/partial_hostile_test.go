package git_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// meddle stands between a client and a server: change rewrites the requests
// for packs, or answers them itself with what it returns as answer.
func meddle(t *testing.T, server *testenv.Server, change func(n int, body string) (rewritten, answer string)) (url_ string, asked func() []string) {
	behind, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(behind)
	proxy.ErrorLog = log.New(io.Discard, "", 0)
	var mu sync.Mutex
	var bodies []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			b, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			body := string(b)
			if !strings.Contains(body, "command=ls-refs") {
				mu.Lock()
				bodies = append(bodies, body)
				n := len(bodies)
				mu.Unlock()
				var answer string
				if body, answer = change(n, body); answer != "" {
					w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
					io.WriteString(w, answer)
					return
				}
			}
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
			r.Header.Set("Content-Length", strconv.Itoa(len(body)))
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL + "/repo.git", func() []string { mu.Lock(); defer mu.Unlock(); return slices.Clone(bodies) }
}

func pkt(line string) string { return fmt.Sprintf("%04x%s", len(line)+4, line) }

// without removes a line from a request.
func without(body, line string) string { return strings.Replace(body, pkt(line+"\n"), "", 1) }

// swap replaces an id in a request.
func swap(body, id, by string) string { return strings.ReplaceAll(body, id, by) }

// A server that does not take part costs a note and no more than the whole
// fetch and the tries.
func TestPartialFetchFallsBack(t *testing.T) {
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Files: forest()})
	x, y := repo.ID("main:deploy/base/x.yaml"), repo.ID("main:README.md")
	g := sparse("", "deploy")
	_, want, _ := fetch(t, withURL(g, testenv.ServeHTTP(t, testenv.HTTP{}, repo).Repo()), source.Env{})
	refuse := func(text string) string { return pkt("ERR " + text + "\n") }
	only := func(n int, change func(string) (string, string)) func(int, string) (string, string) {
		return func(i int, body string) (string, string) {
			if i == n {
				return change(body)
			}
			return body, ""
		}
	}
	for name, row := range map[string]struct {
		config   testenv.HTTP
		change   func(n int, body string) (string, string)
		requests int
		notes    int
	}{
		"no filters":              {testenv.HTTP{NoFilter: true}, nil, 1, 1},
		"version 0, tips only":    {testenv.HTTP{V0: true, NoAnyWant: true}, nil, 1, 1},
		"the filter is refused":   {testenv.HTTP{}, only(1, func(b string) (string, string) { return "", refuse("filter 'blob:none' not supported") }), 2, 1},
		"the filter is ignored":   {testenv.HTTP{}, func(_ int, b string) (string, string) { return without(b, "filter blob:none"), "" }, 1, 0},
		"blobs are refused":       {testenv.HTTP{}, only(2, func(b string) (string, string) { return "", refuse("upload-pack: not our ref " + x) }), 3, 1},
		"blobs are no such thing": {testenv.HTTP{}, only(2, func(b string) (string, string) { return "", "0008NAK\n" }), 3, 1},
		"a blob is left out":      {testenv.HTTP{}, only(2, func(b string) (string, string) { return without(b, "want "+x), "" }), 3, 1},
		"another blob is sent":    {testenv.HTTP{}, only(2, func(b string) (string, string) { return swap(b, x, y), "" }), 3, 1},
		"more than the blob": {testenv.HTTP{}, only(2, func(b string) (string, string) {
			return strings.Replace(b, pkt("want "+x+"\n"), pkt("want "+x+"\n")+pkt("want "+y+"\n"), 1), ""
		}), 3, 1},
		"a tree is sent": {testenv.HTTP{}, only(2, func(b string) (string, string) { return swap(b, x, repo.ID("main:src")), "" }), 3, 1},
	} {
		change := row.change
		if change == nil {
			change = func(_ int, b string) (string, string) { return b, "" }
		}
		at, asked := meddle(t, testenv.ServeHTTP(t, row.config, repo), change)
		_, data, report, err := try(t.Context(), withURL(g, at), source.Env{})
		if err != nil || !bytes.Equal(data, want) {
			t.Errorf("%s: %v, or another archive", name, err)
			continue
		}
		if n := len(asked()); n != row.requests || len(report.Notes) != row.notes {
			t.Errorf("%s: %d requests, notes %q; want %d and %d", name, n, report.Notes, row.requests, row.notes)
		}
		for _, note := range report.Notes {
			if !strings.Contains(note, "whole tree was transferred") {
				t.Errorf("%s: note %q", name, note)
			}
		}
	}
}

// What no fall-back can mend ends soon, with an error that says what is wrong.
func TestPartialFetchHostile(t *testing.T) {
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Files: forest()})
	x := repo.ID("main:deploy/base/x.yaml")
	pass := func(b string) (string, string) { return b, "" }
	for name, row := range map[string]struct {
		first, second, third func(body string) (string, string)
		requests             int
		say                  string
	}{
		"a blob is never sent": {pass, func(b string) (string, string) { return without(b, "want "+x), "" },
			func(b string) (string, string) {
				return strings.Replace(b, pkt("done\n"), pkt("filter blob:none\n")+pkt("done\n"), 1), ""
			}, 3, "is not in the pack"},
		"no trees": {func(b string) (string, string) {
			return strings.Replace(b, pkt("filter blob:none\n"), pkt("filter tree:0\n"), 1), ""
		}, nil, nil, 1, "is not in the pack"},
		"no commit":           {func(b string) (string, string) { return swap(b, repo.ID("main"), x), "" }, nil, nil, 1, repo.ID("main")},
		"the files break off": {pass, func(b string) (string, string) { return "", pkt("packfile\n") + pkt("\x01PACK") }, nil, 2, "ends early"},
		"the trees break off": {func(b string) (string, string) { return "", pkt("packfile\n") + pkt("\x01PACK") }, nil, nil, 1, "ends early"},
		"nothing is sent":     {pass, func(b string) (string, string) { return "", pkt("packfile\n") + "0000" }, nil, 2, "holds no pack"},
		"a pack of nobody":    {pass, func(b string) (string, string) { return "", pkt("packfile\n") + pkt("\x01PACK") + "0000" }, nil, 2, "truncated"},
	} {
		at, asked := meddle(t, testenv.ServeHTTP(t, testenv.HTTP{}, repo), func(n int, b string) (string, string) {
			if f := append([]func(string) (string, string){row.first, row.second, row.third}, nil, nil, nil)[n-1]; f != nil {
				return f(b)
			}
			return b, ""
		})
		_, _, _, err := try(t.Context(), sparse(at, "deploy"), source.Env{})
		var step *source.StepError
		if !errors.As(err, &step) || step.Reason != "GitOperationFailed" || !strings.Contains(err.Error(), row.say) {
			t.Errorf("%s: %v: want GitOperationFailed that says %q", name, err, row.say)
		}
		if n := len(asked()); n != row.requests {
			t.Errorf("%s: %d requests, want %d", name, n, row.requests)
		}
	}
}

// The limits hold for what is fetched later as for what is fetched at once.
func TestPartialFetchLimits(t *testing.T) {
	repo := testenv.NewRepo(t)
	tree := files("big/file", strings.Repeat("0123456789abcdef", 1<<12))
	for i := range 50 {
		tree[fmt.Sprintf("copies/%d", i)] = &fstest.MapFile{Data: []byte(strings.Repeat("x", 1000)), Mode: 0o644}
		tree[fmt.Sprintf("other/%d", i)] = &fstest.MapFile{Data: []byte(strconv.Itoa(i)), Mode: 0o644}
	}
	repo.Commit(testenv.Commit{Branch: "main", Files: tree})
	server := testenv.ServeHTTP(t, testenv.HTTP{}, repo)
	for _, row := range []struct {
		dir    string
		limits artifact.Limits
		say    string // "" is success
	}{
		{"big", artifact.Limits{FileBytes: 1000}, "ObjectBytes"},
		{"big", artifact.Limits{Bytes: 60_000}, "InflatedBytes"},
		{"copies", artifact.Limits{Bytes: 49_000}, "the tree holds 50000 bytes"}, // one blob fifty times
		{"copies", artifact.Limits{Bytes: 60_000, FileBytes: 10_000}, ""},        // big is not fetched
		{"copies", artifact.Limits{Entries: 20}, "20"},
	} {
		var spools []*os.File
		row.limits.Temp = func() (*os.File, error) {
			f, err := os.CreateTemp(t.TempDir(), "spool")
			spools = append(spools, f)
			return f, err
		}
		server.Reset()
		_, _, _, err := try(t.Context(), sparse(server.Repo(), row.dir), source.Env{Limits: row.limits})
		if row.say == "" && err != nil || row.say != "" && (err == nil || !strings.Contains(err.Error(), row.say)) {
			t.Errorf("%s, %+v: %v: want %q", row.dir, row.limits, err, row.say)
		}
		if n := len(packs(server)); n > 2 {
			t.Errorf("%s, %+v: %d requests", row.dir, row.limits, n)
		}
		if i := slices.IndexFunc(spools, func(f *os.File) bool { return f.Close() == nil }); i >= 0 {
			t.Errorf("%s, %+v: spool %d of %d is open", row.dir, row.limits, i, len(spools))
		}
	}
}

// A server that goes silent between the trees and the files obeys the context.
func TestPartialFetchStalls(t *testing.T) {
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Files: forest()})
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone home")
	at, asked := meddle(t, testenv.ServeHTTP(t, testenv.HTTP{}, repo), func(n int, b string) (string, string) {
		if n == 2 {
			cancel(gone)
		}
		return b, ""
	})
	if _, _, _, err := try(ctx, sparse(at, "deploy"), source.Env{}); !errors.Is(err, gone) || len(asked()) != 2 {
		t.Errorf("%v after %d requests", err, len(asked()))
	}
}
