package cosign

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/tuf"
	"github.com/theupdateframework/go-tuf/v2/metadata"
)

const (
	rootAge   = 24 * time.Hour // after which the TUF repository is asked again
	rootPause = time.Minute    // between two requests because something failed
	maxTarget = 8 << 20        // bytes of one file of a TUF repository
)

// roots is the trusted root of a TUF repository. It is safe for concurrent use.
type roots struct {
	config Config
	turn   chan struct{} // held by whoever reads or writes what follows

	material *root.TrustedRoot // nil: none yet
	since    time.Time         // when material came
	asked    time.Time         // when the repository was asked last
	err      error             // what it said then
}

func newRoots(c Config) *roots {
	if c.Mirror == "" {
		c.Mirror = tuf.DefaultMirror
	}
	if c.Anchor == nil {
		c.Anchor = tuf.DefaultRoot()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &roots{config: c, turn: make(chan struct{}, 1)}
}

// current returns the trusted root, asked for through web when it is older
// than a day.
func (r *roots) current(ctx context.Context, web *http.Client) (*root.TrustedRoot, error) {
	if err := r.enter(ctx); err != nil {
		return nil, err
	}
	defer r.leave()
	if r.material != nil && r.config.Now().Sub(r.since) < rootAge {
		return r.material, nil
	}
	err := r.err
	if !r.recent() || err == nil {
		err = r.fetch(ctx, web)
	}
	if err != nil {
		return nil, fmt.Errorf("whom keyless signatures can be trusted for, from %s: %w "+
			"(a Secret in spec.verify.trustedRootSecretRef would say it without the network)", r.config.Mirror, err)
	}
	return r.material, nil
}

// newer returns the trusted root now that used was of no use, at most once a
// minute by asking for it.
func (r *roots) newer(ctx context.Context, web *http.Client, used *root.TrustedRoot) *root.TrustedRoot {
	if r.enter(ctx) != nil {
		return used
	}
	defer r.leave()
	if r.material == used && !r.recent() {
		_ = r.fetch(ctx, web) // what failed with used failed whatever this says
	}
	return r.material
}

// recent reports whether the repository was asked within the last minute.
func (r *roots) recent() bool {
	return !r.asked.IsZero() && r.config.Now().Sub(r.asked) < rootPause
}

// enter waits for the turn.
func (r *roots) enter(ctx context.Context) error {
	select {
	case r.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *roots) leave() { <-r.turn }

// fetch asks the TUF repository, or the cache when there is no root yet. What
// comes of a run that was cancelled is not remembered.
func (r *roots) fetch(ctx context.Context, web *http.Client) error {
	f := &fetcher{ctx: ctx, web: web}
	material, err := r.ask(f)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	r.err = err
	now := r.config.Now()
	if f.used {
		r.asked = now
	}
	if err == nil {
		r.material, r.since = material, now
	}
	return err
}

func (r *roots) ask(f *fetcher) (*root.TrustedRoot, error) {
	client, err := tuf.New(&tuf.Options{
		Root:              r.config.Anchor,
		RepositoryBaseURL: r.config.Mirror,
		CachePath:         r.config.Cache,
		DisableLocalCache: r.config.Cache == "",
		CacheValidity:     int(rootAge / (24 * time.Hour)),
		Fetcher:           f,
	})
	if err != nil {
		return nil, err
	}
	if r.config.Cache != "" && r.material != nil { // what was cached is what r has
		if err := client.Refresh(); err != nil {
			return nil, err
		}
	}
	return root.GetTrustedRoot(client)
}

// A fetcher downloads the files of a TUF repository, within one call of [roots.fetch].
type fetcher struct {
	ctx  context.Context
	web  *http.Client
	used bool
}

// DownloadFile implements the fetcher of go-tuf.
func (f *fetcher) DownloadFile(url string, limit int64, _ time.Duration) ([]byte, error) {
	f.used = true
	req, err := http.NewRequestWithContext(f.ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	res, err := f.web.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, &metadata.ErrDownloadHTTP{StatusCode: res.StatusCode, URL: url}
	}
	limit = min(limit, maxTarget)
	data, err := io.ReadAll(io.LimitReader(res.Body, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = &metadata.ErrDownloadLengthMismatch{Msg: fmt.Sprintf("%s has more than %d bytes", url, limit)}
	}
	return data, err
}

// A view is the shared trusted root as one verification sees it.
type view struct {
	shared *roots
	repo   repository
	used   *root.TrustedRoot
}

func (v *view) root(ctx context.Context) (root.TrustedMaterial, error) {
	if v.used != nil {
		return v.used, nil
	}
	material, err := v.shared.current(ctx, v.repo.Web())
	if err != nil {
		return nil, err
	}
	v.used = material
	return material, nil
}

func (v *view) renew(ctx context.Context) bool {
	before := v.used
	if before == nil {
		return false
	}
	v.used = v.shared.newer(ctx, v.repo.Web(), before)
	return v.used != before
}
