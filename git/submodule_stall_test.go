package git_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// A submodule that stalls obeys cancellation, and every spool is closed.
func TestSubmoduleStalls(t *testing.T) {
	sub, app := testenv.NewRepo(t), testenv.NewRepo(t)
	pin := linked(sub, map[string]string{"x": "1"})
	slow := testenv.ServeHTTP(t, testenv.HTTP{Defect: &testenv.Defect{Phase: testenv.Pack, Do: testenv.Stall, After: 20}}, sub)
	good := testenv.ServeHTTP(t, testenv.HTTP{}, sub)
	linked(app, nil, link{"a", good.Repo(), pin}, link{"b", slow.Repo(), pin})
	var mu sync.Mutex
	var spools []*os.File
	dir := t.TempDir()
	env := source.Env{Limits: artifact.Limits{Temp: func() (*os.File, error) {
		f, err := os.CreateTemp(dir, "spool")
		mu.Lock()
		defer mu.Unlock()
		spools = append(spools, f)
		return f, err
	}}}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-slow.Stalled()
		cancel()
	}()
	_, _, _, err := try(ctx, recursing(testenv.ServeHTTP(t, testenv.HTTP{}, app).Repo()), env)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v: want the cancellation", err)
	}
	for _, f := range spools {
		if f.Close() == nil {
			t.Errorf("a spool is open")
		}
	}
}

// The transfers of all submodules are one to who watches.
func TestSubmoduleProgress(t *testing.T) {
	server := testenv.ServeAll(t, testenv.HTTP{}, family(t))
	var mu sync.Mutex
	last := map[string]source.Progress{}
	_, _, _ = fetch(t, recursing(server.URL+"/org/app.git"), source.Env{Progress: func(p source.Progress) {
		mu.Lock()
		defer mu.Unlock()
		if was := last[p.Phase]; p.Done < was.Done || p.Object != "gitrepository/default/app" && was.Object != "" && p.Object != was.Object {
			t.Errorf("%+v after %+v", p, was)
		}
		last[p.Phase] = p
	}})
	got := last["receiving objects of submodules"]
	if got.Done == 0 || got.Done != got.Total || last["receiving objects"].Total == 0 {
		t.Errorf("progress %+v", last)
	}
}
