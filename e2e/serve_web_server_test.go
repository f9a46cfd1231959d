package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
	"github.com/headgate-io/headgate/source/serve/api"
)

// A fakeServeAPI serves the HTTP API of headgate serve with data of a test,
// for example states, names, messages and amounts that real origins do not
// produce.
type fakeServeAPI struct {
	t      *testing.T
	url    string
	server *http.Server

	mu          sync.Mutex
	sources     map[string]api.Source
	runs        map[string][]api.Run
	events      []api.Event
	files       []api.File
	defects     []string
	session     api.Session
	changed     chan struct{} // closed by the next change
	changedKeys []string      // keys of changed sources in order
	requests    []string      // POST requests: METHOD PATH BODY
}

func keyOf(kind, namespace, name string) string { return kind + "/" + namespace + "/" + name }

// startFakeAPI serves the page and its API on loopback.
func startFakeAPI(t *testing.T, sources ...api.Source) *fakeServeAPI {
	t.Helper()
	s := &fakeServeAPI{t: t, sources: map[string]api.Source{}, runs: map[string][]api.Run{}, changed: make(chan struct{}),
		session: api.Session{May: []string{"fetch", "read", "change"}}}
	for _, one := range sources {
		s.sources[keyOf(one.Kind, one.Namespace, one.Name)] = one
	}
	s.open("127.0.0.1:0")
	t.Cleanup(func() { s.server.Close() })
	return s
}

// open starts serving at an address.
func (s *fakeServeAPI) open(addr string) {
	s.t.Helper()
	l, err := net.Listen("tcp", addr)
	must(s.t, err)
	s.url = "http://" + l.Addr().String()
	mux := http.NewServeMux()
	const one = "/api/v1/sources/{kind}/{namespace}/{name}"
	mux.Handle("/ui/", serve.Page())
	mux.Handle("/ui", serve.Page())
	mux.HandleFunc("GET /api/v1/session", func(w http.ResponseWriter, r *http.Request) { s.answer(w, s.session) })
	mux.HandleFunc("GET /api/v1/stats", s.serveStats)
	mux.HandleFunc("GET /api/v1/watch", s.serveWatch)
	mux.HandleFunc("GET /api/v1/events", s.serveEvents)
	mux.HandleFunc("GET "+one, s.serveSource)
	mux.HandleFunc("GET "+one+"/runs", s.serveRuns)
	mux.HandleFunc("GET "+one+"/files", s.serveFiles)
	mux.HandleFunc("POST "+one+"/{verb}", s.serveChange)
	s.server = &http.Server{Handler: mux}
	go s.server.Serve(l)
}

// restart closes all connections, calls between, and serves at the same address
// again.
func (s *fakeServeAPI) restart(between func()) {
	s.t.Helper()
	must(s.t, s.server.Close())
	between()
	s.open(strings.TrimPrefix(s.url, "http://"))
}

// edit changes a source in place.
func (s *fakeServeAPI) edit(key string, change func(*api.Source)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.sources[key]
	change(&one)
	s.sources[key] = one
	s.notify(key)
}

// endRun adds a finished run to a source and changes the source.
func (s *fakeServeAPI) endRun(key string, run api.Run, change func(*api.Source)) {
	s.mu.Lock()
	s.runs[key] = append([]api.Run{run}, s.runs[key]...)
	s.mu.Unlock()
	s.edit(key, func(one *api.Source) {
		one.Phase, one.Last, one.Checked = "idle", &run, time.Now()
		change(one)
	})
}

func (s *fakeServeAPI) remove(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sources, key)
	s.notify(key)
}

func (s *fakeServeAPI) notify(key string) {
	s.changedKeys = append(s.changedKeys, key)
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *fakeServeAPI) requestLog() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

func (s *fakeServeAPI) answer(w http.ResponseWriter, v any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answerLocked(w, 200, v)
}

func (s *fakeServeAPI) answerLocked(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}

func (s *fakeServeAPI) serveStats(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := api.Stats{Objects: len(s.sources), Phases: map[string]int{}, Ready: map[string]int{}, Defects: s.defects}
	for _, one := range s.sources {
		stats.Phases[one.Phase]++
		stats.Ready[one.Ready]++
	}
	s.answerLocked(w, 200, stats)
}

func (s *fakeServeAPI) serveSource(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, found := s.sources[keyOf(r.PathValue("kind"), r.PathValue("namespace"), r.PathValue("name"))]
	if !found {
		s.answerLocked(w, 404, api.Problem{Status: 404, Reason: "there is no such source"})
		return
	}
	s.answerLocked(w, 200, one)
}

func (s *fakeServeAPI) serveRuns(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answerLocked(w, 200, map[string]any{"runs": s.runs[keyOf(r.PathValue("kind"), r.PathValue("namespace"), r.PathValue("name"))]})
}

func (s *fakeServeAPI) serveEvents(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := r.URL.Query()
	chosen := []api.Event{}
	for _, e := range s.events {
		o := e.InvolvedObject
		if (q.Get("name") == "" || keyOf(o.Kind, o.Namespace, o.Name) == keyOf(q.Get("kind"), q.Get("namespace"), q.Get("name"))) &&
			(q.Get("severity") == "" || q.Get("severity") == e.Severity) {
			chosen = append(chosen, e)
		}
	}
	if limit, err := strconv.Atoi(q.Get("limit")); err == nil && len(chosen) > limit {
		chosen = chosen[len(chosen)-limit:]
	}
	s.answerLocked(w, 200, map[string]any{"events": chosen})
}

func (s *fakeServeAPI) serveFiles(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	after := r.URL.Query().Get("after")
	limit, err := strconv.Atoi(r.URL.Query().Get("limit"))
	must(s.t, err)
	from := slices.IndexFunc(s.files, func(f api.File) bool { return f.Path > after })
	if from < 0 {
		from = len(s.files)
	}
	to := min(from+limit, len(s.files))
	answer := map[string]any{"files": s.files[from:to]}
	if to < len(s.files) {
		answer["next"] = s.files[to-1].Path
	}
	s.answerLocked(w, 200, answer)
}

func (s *fakeServeAPI) serveChange(w http.ResponseWriter, r *http.Request) {
	var change api.Change
	if err := json.NewDecoder(r.Body).Decode(&change); err != nil {
		http.Error(w, err.Error(), 400)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := keyOf(r.PathValue("kind"), r.PathValue("namespace"), r.PathValue("name"))
	one, found := s.sources[key]
	s.requests = append(s.requests, r.PathValue("verb")+" "+key)
	switch verb := r.PathValue("verb"); {
	case !found:
		s.answerLocked(w, 404, api.Problem{Status: 404, Reason: "there is no such source"})
		return
	case verb == "reconcile":
		one.Phase = "running"
		run := int64(1)
		if one.Last != nil {
			run = one.Last.Number + 1
		}
		s.sources[key] = one
		s.notify(key)
		s.answerLocked(w, 202, api.Ticket{Run: run})
		return
	case verb == "suspend":
		one.Phase, one.Suspended = "suspended", true
		one.Suspension = &source.Suspension{By: change.By, Reason: change.Reason, Since: time.Now()}
	case verb == "resume":
		one.Phase, one.Suspended, one.Suspension = "idle", false, nil
	}
	s.sources[key] = one
	s.notify(key)
	s.answerLocked(w, 200, one)
}

func (s *fakeServeAPI) serveWatch(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(n api.Notice) {
		b, err := json.Marshal(n)
		must(s.t, err)
		fmt.Fprintf(w, "data: %s\n\n", b)
	}
	s.mu.Lock()
	seen := len(s.changedKeys)
	keys := make([]string, 0, len(s.sources))
	for key := range s.sources {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		one := s.sources[key]
		send(api.Notice{Source: &one})
	}
	send(api.Notice{Synced: true})
	changed := s.changed
	s.mu.Unlock()
	for {
		http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		}
		s.mu.Lock()
		for _, key := range s.changedKeys[seen:] {
			if one, found := s.sources[key]; found {
				send(api.Notice{Source: &one})
				continue
			}
			parts := strings.SplitN(key, "/", 3)
			send(api.Notice{Gone: &api.Gone{Kind: parts[0], Namespace: parts[1], Name: parts[2]}})
		}
		seen, changed = len(s.changedKeys), s.changed
		s.mu.Unlock()
	}
}

// sampleSources returns sources in all states.
func sampleSources() []api.Source {
	now := time.Now()
	hash := strings.Repeat("4f1c0a9e", 5)
	ready := func(kind, namespace, name, origin, revision string, minutes int) api.Source {
		digest := "sha256:" + strings.Repeat("b5bb9d80", 8)
		dir := strings.ToLower(kind) + "/" + namespace + "/" + name
		path := dir + "/" + strings.TrimPrefix(digest, "sha256:") + "/" + name + ".tar.gz"
		return api.Source{
			Kind: kind, Namespace: namespace, Name: name, APIVersion: "source.headgate.dev/v1", Origin: origin, Interval: "10m0s",
			Phase: "idle", Ready: "True", Reason: "Succeeded", Message: "stored artifact for revision '" + revision + "'", Revision: revision,
			Since: now.Add(-time.Duration(minutes) * time.Hour), Checked: now.Add(-time.Duration(minutes) * 10 * time.Second), Next: now.Add(time.Duration(minutes) * time.Minute),
			Artifact: &artifact.Artifact{Path: path, URL: "http://127.0.0.1:9090/" + path, Revision: revision, Digest: digest,
				LastUpdateTime: now.Add(-time.Duration(minutes) * time.Hour), Size: 48213},
			URL: "http://127.0.0.1:9090/" + dir + "/latest.tar.gz",
			Last: &api.Run{Number: 41, Trigger: "tick", Started: now.Add(-time.Duration(minutes) * 10 * time.Second), Took: 0.043, Outcome: "unchanged",
				Why: "the origin is at the same revision", Revision: revision},
			Conditions: []source.Condition{
				{Type: "Ready", Status: "True", Reason: "Succeeded", Message: "stored artifact for revision '" + revision + "'", LastTransitionTime: now.Add(-time.Duration(minutes) * time.Hour)},
				{Type: "ArtifactInStorage", Status: "True", Reason: "Succeeded", Message: "stored artifact for revision '" + revision + "'", LastTransitionTime: now.Add(-time.Duration(minutes) * time.Hour)},
			},
			Document: "apiVersion: source.headgate.dev/v1\nkind: " + kind + "\nmetadata:\n  name: " + name + "\n  namespace: " + namespace + "\nspec:\n  interval: 10m0s\n  url: " + origin + "\n",
			Hook:     "/hook/" + kind + "/" + namespace + "/" + name,
		}
	}
	failing := ready("GitRepository", "payments", "checkout", "https://git.example.com/payments/checkout.git", "main@sha1:"+hash, 7)
	failing.Ready, failing.Reason, failing.Failures = "False", "GitOperationFailed", 3
	failing.Message = "resolve refs/heads/main: https://git.example.com/payments/checkout.git: the credentials were refused (401): look at Secret payments/git"
	failing.Last = &api.Run{Number: 44, Trigger: "retry", Started: now.Add(-90 * time.Second), Took: 0.21, Outcome: "failed", Error: failing.Message, Revision: failing.Revision}
	failing.Conditions[0] = source.Condition{Type: "Ready", Status: "False", Reason: "GitOperationFailed", Message: failing.Message, LastTransitionTime: now.Add(-4 * time.Minute)}
	failing.Conditions = append(failing.Conditions, source.Condition{Type: "FetchFailed", Status: "True", Reason: "GitOperationFailed", Message: failing.Message, LastTransitionTime: now.Add(-4 * time.Minute)})
	stalled := ready("Bucket", "catalog", "images", "https://s3.example.com", "sha256:"+strings.Repeat("9a0b", 16), 90)
	stalled.Phase, stalled.Ready, stalled.Reason, stalled.Next = "stalled", "False", "InvalidSpec", time.Time{}
	stalled.Message = "spec.bucketName: \"Images\" is no name of a bucket: use 3 to 63 lower-case letters, digits, dots and hyphens"
	suspended := ready("OCIRepository", "shop", "frontend", "oci://registry.example.com/shop/frontend", "1.14.2@sha256:"+strings.Repeat("7c31", 16), 30)
	suspended.Phase, suspended.Suspended, suspended.Next = "suspended", true, time.Time{}
	suspended.Suspension = &source.Suspension{By: "ada", Reason: "not before the sale ends", Since: now.Add(-3 * time.Hour)}
	fresh := ready("PkgChart", "shop", "frontend", "https://charts.example.com", "", 1)
	fresh.Phase, fresh.Ready, fresh.Artifact, fresh.Message, fresh.URL, fresh.Next, fresh.Last = "blocked", "Unknown", nil, "", "", time.Time{}, nil
	fresh.Blockers, fresh.Conditions, fresh.Checked = []string{"PkgRepository/shop/charts"}, nil, time.Time{}
	return []api.Source{
		failing, stalled, suspended, fresh,
		ready("GitRepository", "catalog", "search", "https://git.example.com/catalog/search.git", "main@sha1:"+strings.Repeat("d0e1f2a3", 5), 3),
		ready("GitRepository", "shop", "cart", "https://git.example.com/shop/cart.git", "v2.3.1@sha1:"+strings.Repeat("8b7c6d5e", 5), 5),
		ready("PkgRepository", "shop", "charts", "https://charts.example.com", "sha256:"+strings.Repeat("1e2d", 16), 9),
	}
}

// startSampleAPI starts a server with at least one item of every kind.
func startSampleAPI(t *testing.T) *fakeServeAPI {
	t.Helper()
	s := startFakeAPI(t, sampleSources()...)
	failing := s.sources[checkout]
	now := time.Now()
	s.runs[checkout] = []api.Run{*failing.Last,
		{Number: 43, Trigger: "retry", Started: now.Add(-3 * time.Minute), Took: 0.2, Outcome: "failed", Error: failing.Message, Revision: failing.Revision},
		{Number: 42, Trigger: "tick", Started: now.Add(-14 * time.Minute), Took: 0.04, Outcome: "unchanged", Why: "main is at the same commit", Revision: failing.Revision},
		{Number: 41, Trigger: "hook", Started: now.Add(-7 * time.Hour), Took: 1.3, Outcome: "stored", Why: "main has moved", Revision: failing.Revision},
	}
	event := func(id int64, severity, reason, message string, ago time.Duration) api.Event {
		return api.Event{ID: id, Event: source.Event{InvolvedObject: source.ObjectReference{Kind: "GitRepository", Namespace: "payments", Name: "checkout"},
			Severity: severity, Timestamp: now.Add(-ago), Reason: reason, Message: message}}
	}
	s.events = []api.Event{
		event(1, "info", "NewArtifact", "stored artifact for commit 'pay with one click'", 7*time.Hour),
		event(2, "error", "GitOperationFailed", failing.Message, 4*time.Minute),
		event(3, "trace", "Progressing", "retry in 30 s", 2*time.Minute),
	}
	s.files = []api.File{{Path: "deploy", Dir: true}, {Path: "deploy/app.yaml", Size: 1204}, {Path: "test.sh", Size: 310, Executable: true}}
	s.defects = []string{"sources/shop.yaml: document 3: yaml: line 12: mapping values are not allowed here"}
	s.edit("GitRepository/shop/cart", func(one *api.Source) { one.Phase = "running" })
	return s
}
