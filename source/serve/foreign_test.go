package serve_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
)

// An invalid spec stalls its object with the reason InvalidSpec until it is corrected, even over restarts. The artifact
// stays.
func TestInvalidSpec(t *testing.T) {
	good, other := repo("a", site, time.Hour), repo("b", other, time.Hour)
	withFixture(t, list(good, other), nil, func(r *fixture) {
		had := r.view("a").Object.Artifact().Digest
		defect := errors.Join(
			&source.DocumentError{File: "docs/a.yaml", Line: 7, Object: "GitRepository/default/a", Field: "spec.x", Err: errors.New("is unknown")},
			&source.DocumentError{File: "docs/a.yaml", Line: 8, Object: "GitRepository/default/a", Field: "spec.y", Err: errors.New("is unknown")},
		)
		r.feed.put(serve.Desired{Objects: list(other), Invalid: []source.Invalid{{Object: repo("a", site, time.Hour), Err: defect}}})
		r.wantRuns("a spec stalled") // although the decoded spec is unchanged
		for range 2 {
			v := r.view("a")
			c := v.Object.Common().Condition(source.StalledCondition)
			if c.Reason != "InvalidSpec" || c.Message != "invalid spec: spec.x: is unknown; spec.y: is unknown" || v.Phase != serve.Stalled || v.Missing || v.Object.Artifact().Digest != had {
				r.Errorf("%+v, %+v", c, v)
			}
			time.Sleep(10 * time.Hour)
			for _, run := range r.takeRuns() {
				testenv.Equal(r.TB, run.Object, repoRef("b"), "ran %+v", run)
			}
			r.restart(nil)
			r.wantRuns("a start stalled")
		}
		_, opens := r.upstreamCounts(site)
		r.put(repo("a", site, time.Hour), other)
		r.wantRuns("a spec unchanged")
		if _, again := r.upstreamCounts(site); again != opens {
			r.Errorf("fetched %d times again", again-opens)
		}
		r.feed.put(serve.Desired{Objects: list(good, other), Invalid: []source.Invalid{{Object: repo("a", site, 2*time.Hour), Err: defect}}})
		r.wantRuns("") // the valid one of two documents is used
	})
}

// Removing an object interrupts its run, so that its files are deleted after the retention and the object can come back.
func TestRemovedDuringRun(t *testing.T) {
	for name, hang := range map[string]func(*upstream, time.Duration){
		"resolve": func(u *upstream, d time.Duration) { u.resolveDelay = d }, "fetch": func(u *upstream, d time.Duration) { u.openDelay = d },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := repo("a", site, time.Hour), repo("b", other, time.Hour)
			withFixture(t, list(a, b), func(r *fixture) { r.Retention = time.Second }, func(r *fixture) {
				r.upstream(site).push()
				r.upstream(site).set(func(u *upstream) { hang(u, 59*time.Second) })
				r.must(r.Suspend(repoRef("b"), source.Suspension{}))
				began := time.Now()
				r.Request(repoRef("a"), serve.Request)
				settle()
				r.wantPhase(serve.Running, "a")
				r.put(b)
				time.Sleep(2 * time.Second)
				r.wantRuns("")
				r.wantFiles("b.hold b.yaml", 1)
				if took := time.Since(began); took > 10*time.Second {
					r.Errorf("it took %s", took)
				}
				r.put(a, b) // it comes back as a new object
				settle()
				r.put(b)
				r.upstream(site).set(func(u *upstream) { hang(u, 0) })
				r.put(a, b) // before or after the end of the run under way
				r.wantRuns("a start stored")
				r.wantPhase(serve.Idle, "a")
			})
		})
	}
}

// Objects that another program keeps up to date are inputs only: the server does not run, show or change them.
func TestForeign(t *testing.T) {
	keeps, old := map[source.Reference]bool{repoRef("base"): true}, strings.Repeat("0", 64)
	foreign := func(digest string) source.Object {
		base := repo("base", site, time.Hour)
		base.Status.Artifact = &artifact.Artifact{Path: "gitrepository/default/base/1/a.tar.gz", URL: "http://elsewhere/gitrepository/default/base/1/a.tar.gz", Revision: "1", Digest: "sha256:" + strings.Repeat(digest, 64)}
		return base
	}
	app := repo("app", other, time.Hour, "base")
	put := func(r *fixture, objects ...source.Object) {
		var now []source.Reference
		for ref := range keeps {
			now = append(now, ref)
		}
		r.feed.put(serve.Desired{Objects: objects, Foreign: func(ref source.Reference) bool {
			for _, one := range now {
				if one == ref {
					return true
				}
			}
			return false
		}})
	}
	withFixture(t, nil, nil, func(r *fixture) {
		r.must(os.MkdirAll(r.storePath("default", "base", old), 0o700), os.WriteFile(r.storePath("default", "base", old, "a.tar.gz"), []byte("x"), 0o600))
		put(r, app, foreign("1"))
		r.wantRuns("app start stored")
		put(r, app, foreign("2"))
		r.wantRuns("app input stored")
		again := foreign("2")
		again.Artifact().LastUpdateTime = time.Now()
		put(r, app, again) // the artifact may be available again
		r.wantRuns("app input unchanged")
		if views := r.Views(); len(views) != 1 || source.ReferenceTo(views[0].Object) != repoRef("app") {
			r.Errorf("%+v", views)
		}
		_, err := r.View(repoRef("base"))
		_, requestErr := r.Request(repoRef("base"), serve.Request)
		if !errors.Is(err, fs.ErrNotExist) || !errors.Is(requestErr, fs.ErrNotExist) {
			r.Errorf("%v, %v", err, requestErr)
		}
		r.restart(nil) // starts with garbage collection of the store
		r.wantRuns("app input unchanged")
		time.Sleep(25 * time.Hour)
		r.wantFiles("app.yaml", 2)
		r.takeRuns()

		clear(keeps) // this server takes over the object
		put(r, app, foreign("2"))
		r.wantRuns("base start stored, app input stored")
		r.upstream(site).set(func(u *upstream) { u.rev, u.openDelay = "main@sha1:3", 50*time.Second })
		r.Request(repoRef("base"), serve.Request)
		settle()
		keeps[repoRef("base")] = true // and another program takes it back during a run
		put(r, app, foreign("4"))
		r.wantRuns("app input stored")
		if len(r.Views()) != 1 || r.Stats().Fetching != 0 {
			r.Errorf("%+v", r.Views())
		}
		put(r, app)
		r.wantRuns("app input waiting")
		if _, err := os.Stat(r.storePath("default", "base")); err != nil {
			r.Error(err)
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Artifacts that are missing from the store are fetched from other servers, but never from the server itself.
func TestForeignArtifacts(t *testing.T) {
	var requests []string
	var from source.Sources
	withFixture(t, list(repo("a", site, time.Hour)), func(r *fixture) {
		r.Artifacts = &artifact.Client{Temp: r.Store.Temp, HTTP: &http.Client{Transport: roundTrip(func(req *http.Request) (*http.Response, error) {
			requests = append(requests, req.URL.String())
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("x")), ContentLength: 1}, nil
		})}}
		r.Origin = func(obj source.Object, env source.Env) (source.Origin, error) {
			from = env.Sources
			return r.origin(obj, env)
		}
	}, func(r *fixture) {
		a := artifact.Artifact{Path: "bucket/default/b/1/x", URL: "http://elsewhere/bucket/default/b/1/x", Digest: fmt.Sprintf("sha256:%x", sha256.Sum256([]byte("x")))}
		content, err := from.Open(r.Context(), a)
		r.must(err)
		defer content.Close()
		if text, err := io.ReadAll(content); err != nil || string(text) != "x" {
			r.Errorf("%q, %v", text, err)
		}
		a.URL = r.Store.URL(a.Path)
		if _, err := from.Open(r.Context(), a); !errors.Is(err, fs.ErrNotExist) {
			r.Error(err)
		}
		testenv.Equal(r.TB, strings.Join(requests, " "), "http://elsewhere/bucket/default/b/1/x")
	})
}
