package serve_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
)

// A panic anywhere in an origin is a failure of that run, tells nothing of the
// object as changed, and gives its slots back.
func TestPanics(t *testing.T) {
	for _, at := range []string{"origin", "resolve", "open", "verify", "write", "close"} {
		t.Run(at, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.Runs, r.Fetches = 1, 1
				r.Origin = func(obj source.Object, env source.Env) (source.Origin, error) {
					from, err := r.origin(obj, env)
					if obj.Head().Metadata.Name == "b" {
						return from, err
					}
					return fragile{from, at}.now("origin"), err
				}
				r.feed.now.Objects = []source.Object{repo("a", site, time.Hour), repo("b", "https://two.example/b", time.Hour)}
				r.start()
				defer r.stop()
				failed, stored := 0, 0
				for _, run := range r.took() {
					var panicked *source.PanicError
					switch {
					case run.Object.Name == "b" && run.Result.Outcome == source.Stored:
						stored++
					case run.Result.Outcome == source.Failed && errors.As(run.Err, &panicked):
						failed++
					}
				}
				if stored != 1 || failed != 1 {
					t.Errorf("%d stored, %d failed", stored, failed)
				}
				if s := r.Stats(); s.Running != 0 || s.Fetching != 0 {
					t.Errorf("%+v", s)
				}
				if v, _ := r.View(named("a")); v.Failures != 1 || v.Next.IsZero() || v.Phase != serve.Idle {
					t.Errorf("%+v", v)
				}
			})
		})
	}
}

// A fragile origin panics at one place.
type fragile struct {
	source.Origin
	at string
}

func (f fragile) now(at string) fragile {
	if f.at == at {
		panic("a defect")
	}
	return f
}

func (f fragile) Resolve(ctx context.Context, s source.State) (source.Revision, source.State, error) {
	return f.now("resolve").Origin.Resolve(ctx, s)
}

func (f fragile) Open(ctx context.Context, rev source.Revision) (source.Content, error) {
	c, err := f.now("open").Origin.Open(ctx, rev)
	return fragileContent{c, f}, err
}

type fragileContent struct {
	source.Content
	f fragile
}

func (c fragileContent) Verify(ctx context.Context) (source.Verification, error) {
	c.f.now("verify")
	return c.Content.Verify(ctx)
}

func (c fragileContent) WriteTo(ctx context.Context, w io.Writer) (source.Report, error) {
	c.f.now("write")
	return c.Content.WriteTo(ctx, w)
}

func (c fragileContent) Close() error {
	c.f.now("close")
	return c.Content.Close()
}
