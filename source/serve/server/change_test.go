package server_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
	"github.com/headgate-io/headgate/source/serve/api"
)

// TestChange suspends, resumes and reconciles, and finds who did it in the
// answer, the events and the log.
func TestChange(t *testing.T) {
	r := newRig(t, true)
	shop := r.client("token-of-shop-001")
	one, err := shop.Suspend(t.Context(), app, api.Change{By: "mallory", Reason: "release freeze\x1b[1m"})
	if err != nil || one.Suspension == nil || one.Suspension.By != "shop" || !strings.HasPrefix(one.Suspension.Reason, "release freeze") || one.Phase != "suspended" || !one.Suspended {
		t.Fatalf("%+v, %v", one, err)
	}
	_, _, err = shop.Reconcile(t.Context(), app, api.Change{}, 0)
	if p := (*api.Problem)(nil); !errors.As(err, &p) || p.Status != 409 || !strings.Contains(err.Error(), "shop") {
		t.Errorf("reconcile what is suspended: %v", err)
	}
	if one, err = shop.Resume(t.Context(), app, api.Change{}); err != nil || one.Suspension != nil {
		t.Errorf("%+v, %v", one, err)
	}
	r.push("app")
	one, ticket, err := shop.Reconcile(t.Context(), app, api.Change{}, time.Minute)
	if err != nil || one.Last == nil || one.Last.Trigger != "request" || !strings.HasSuffix(one.Revision, "1") {
		t.Errorf("%+v, %v, %v", one, ticket, err)
	}
	events, err := shop.Events(t.Context(), api.EventQuery{Filter: api.Filter{Name: "app"}})
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]string{}
	for _, e := range events {
		said[e.Reason] = e.Message
		if strings.ContainsRune(e.Message, '\x1b') {
			t.Errorf("a control character in %q", e.Message)
		}
	}
	if said["Suspended"] != "suspended by shop: release freeze" || said["Resumed"] != "resumed by shop" || said["ReconcileRequested"] != "a run was requested by shop" {
		t.Errorf("events: %q", said)
	}
	if text := r.log.String(); !strings.Contains(text, "change=Suspended by=shop") {
		t.Errorf("log:\n%s", text)
	}
	if _, err := shop.Suspend(t.Context(), source.Reference{Kind: "GitRepository", Namespace: "docs", Name: "site"}, api.Change{}); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "HEADGATE_TOKEN") {
		t.Errorf("another namespace: %v", err)
	}
	if _, err := r.client("").Source(t.Context(), app); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "--token-file") {
		t.Errorf("without a token: %v", err)
	}
	if _, err := shop.Source(t.Context(), source.Reference{Kind: "GitRepository", Namespace: "shop", Name: "nothing"}); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "GitRepository/shop/nothing") || !strings.Contains(err.Error(), r.front.URL) {
		t.Errorf("no such object: %v", err)
	}
}

// TestResumeWhatIsNotSuspended tells of the run that comes of it, and of nothing else.
func TestResumeWhatIsNotSuspended(t *testing.T) {
	r := newRig(t, true)
	shop := r.client("token-of-shop-001")
	if _, err := shop.Resume(t.Context(), app, api.Change{}); err != nil {
		t.Fatal(err)
	}
	events, err := shop.Events(t.Context(), api.EventQuery{Filter: api.Filter{Name: "app"}})
	if err != nil {
		t.Fatal(err)
	}
	requested := false
	for _, e := range events {
		requested = requested || e.Reason == "ReconcileRequested"
		if e.Reason == "Resumed" {
			t.Errorf("an event %+v", e)
		}
	}
	if !requested {
		t.Errorf("events: %+v", events)
	}
}

// TestBy shows whom a change is put down to where nobody has to say who it is.
func TestBy(t *testing.T) {
	r := newRig(t, false)
	one, err := r.client("").Suspend(t.Context(), app, api.Change{By: "alice", Reason: "holidays"})
	if err != nil || one.Suspension == nil || one.Suspension.By != "alice" || one.Suspension.Reason != "holidays" || one.Suspension.Since.IsZero() {
		t.Errorf("%+v, %v", one.Suspension, err)
	}
}

// TestRuns shows what is remembered of runs.
func TestRuns(t *testing.T) {
	r := newRig(t, false)
	c := r.client("")
	again := func() {
		t.Helper()
		if _, _, err := c.Reconcile(t.Context(), app, api.Change{}, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	again()
	again()
	r.fail("app", errDown)
	again()
	r.fail("app", nil)
	r.push("app")
	again()
	again()
	runs, err := c.Runs(t.Context(), app)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, run := range runs {
		got = append(got, run.Outcome)
	}
	if want := []string{"unchanged", "stored", "failed", "unchanged", "stored"}; !slices.Equal(got, want) {
		t.Errorf("the runs are %v, want %v", got, want)
	}
	if runs[2].Error == "" || !strings.HasSuffix(runs[1].Revision, "1") || !strings.HasSuffix(runs[2].Revision, "0") || !strings.HasSuffix(runs[4].Revision, "0") || runs[1].Why == "" || runs[0].Started.Before(runs[1].Started) {
		t.Errorf("%+v", runs)
	}
	if log := r.log.String(); strings.Contains(log, `outcome=stored took`) {
		t.Errorf("the log lacks a revision: %s", log)
	}
	for range 30 {
		r.push("app")
		again()
	}
	if runs, err = c.Runs(t.Context(), app); err != nil || len(runs) != 20 {
		t.Errorf("%d runs, %v", len(runs), err)
	}
	if text := r.log.String(); !strings.Contains(text, "msg=recovered object=GitRepository/shop/app") {
		t.Errorf("no line of the recovery:\n%s", text)
	}
}

// TestFiles pages through the files of an artifact.
func TestFiles(t *testing.T) {
	r := newRig(t, false)
	c := r.client("")
	want := []api.File{{Path: "README.md", Size: 50}, {Path: "bin", Dir: true}, {Path: "bin/<b>\"name\"&é.html", Size: 1}, {Path: "bin/run", Size: 10, Executable: true}}
	all, next, err := c.Files(t.Context(), app, "", 0)
	if err != nil || next != "" || !reflect.DeepEqual(all, want) {
		t.Fatalf("%+v, %q, %v", all, next, err)
	}
	var paged []api.File
	for after := ""; ; {
		page, next, err := c.Files(t.Context(), app, after, 1)
		if err != nil || len(page) != 1 {
			t.Fatal(page, err)
		}
		paged = append(paged, page...)
		if after = next; after == "" {
			break
		}
	}
	if !reflect.DeepEqual(paged, want) {
		t.Errorf("page by page: %+v", paged)
	}
	if page, next, err := c.Files(t.Context(), app, "a", 1); err != nil || next == "" || page[0].Path != "bin" {
		t.Errorf("after a path that is not there: %v %q %v", page, next, err)
	}
}

// TestSources fills every field of a source at least once.
func TestSources(t *testing.T) {
	r := newRig(t, false)
	c := r.client("")
	r.fail("app", errDown)
	if _, _, err := c.Reconcile(t.Context(), app, api.Change{}, time.Minute); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Suspend(t.Context(), source.Reference{Kind: "Bucket", Namespace: "shop", Name: "assets"}, api.Change{By: "alice"}); err != nil {
		t.Fatal(err)
	}
	// One that waits for another that is under way, and those that are missing while a document is defective.
	more := objects(t, `
apiVersion: source.headgate.dev/v1
kind: GitRepository
metadata: {name: whole, namespace: shop}
spec: {url: "https://git.example.org/whole.git", interval: 1h, include: [{repository: {name: part}}]}
---
apiVersion: source.headgate.dev/v1
kind: GitRepository
metadata: {name: part, namespace: shop}
spec: {url: "https://git.example.org/part.git", interval: 1h}
`)
	release := r.hold("part")
	defer release()
	r.desired <- serve.Desired{Objects: more, Defects: []error{errors.New("objects.yaml:3: spec.url: \x1b[1mis required https://ci:" + password + "@git.example.org")}}
	filled := map[string]bool{}
	seen := errors.New("seen")
	err := c.Watch(t.Context(), api.Filter{}, func(n api.Notice) error {
		if n.Source == nil {
			return nil
		}
		one, err := c.Source(t.Context(), source.Reference{Kind: n.Source.Kind, Namespace: n.Source.Namespace, Name: n.Source.Name})
		if err != nil {
			return err
		}
		v := reflect.ValueOf(one)
		for i := range v.NumField() {
			if !v.Field(i).IsZero() {
				filled[v.Type().Field(i).Name] = true
			}
		}
		if len(filled) == v.NumField() {
			return seen
		}
		return nil
	})
	if !errors.Is(err, seen) {
		var missing []string
		for f := range reflect.TypeFor[api.Source]().Fields() {
			if !filled[f.Name] {
				missing = append(missing, f.Name)
			}
		}
		t.Fatalf("never filled: %v; %v", missing, err)
	}
	list, defects, err := c.Sources(t.Context(), api.Filter{Kind: "gitrepos", Namespace: "shop", Ready: "false"})
	if err != nil || len(list) != 1 || list[0].Name != "app" || list[0].Origin != "https://git.example.org/app.git" {
		t.Errorf("%+v, %v", list, err)
	}
	if len(defects) != 1 || strings.Contains(defects[0], password) || strings.ContainsRune(defects[0], '\x1b') {
		t.Errorf("defects: %q", defects)
	}
	text, err := c.Document(t.Context(), app)
	if err != nil || !strings.Contains(string(text), "https://ci:xxxxx@git.example.org/app.git") || !strings.Contains(string(text), "status:") {
		t.Errorf("%s, %v", text, err)
	}
	stats, err := c.Stats(t.Context())
	if err != nil || stats.Objects != 5 || stats.Phases["suspended"] != 1 || stats.Ready["False"] != 1 || len(stats.Defects) != 1 || stats.Started.IsZero() {
		text, _ := json.Marshal(stats)
		t.Errorf("%s, %v", text, err)
	}
}
