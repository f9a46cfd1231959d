package cosign

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
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

// roots is the trusted root of a TUF repository, shared by verifiers that may
// reach it in different ways. So none waits for a request of another, or
// fails for it. It is safe for concurrent use.
type roots struct {
	config Config

	mu       sync.Mutex
	material *root.TrustedRoot // nil: none yet
	since    time.Time         // when material came
	asked    time.Time         // when the repository was asked last
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
	return &roots{config: c}
}

// current returns the trusted root, asked for through web when there is none of the last
// day, or when it is useless, unless that was done within the last minute.
func (r *roots) current(ctx context.Context, web *http.Client, useless *root.TrustedRoot) (*root.TrustedRoot, error) {
	r.mu.Lock()
	known, now := r.material, r.config.Now()
	fresh := known != nil && now.Sub(r.since) < rootAge
	again := fresh && known == useless && now.Sub(r.asked) >= rootPause
	if again {
		r.asked = now
	}
	r.mu.Unlock()
	if fresh && !again {
		return known, nil
	}
	material, err := r.fetch(ctx, web, known != nil)
	switch {
	case err == nil:
		return material, nil
	case again:
		return known, nil // what failed with it failed, whatever the repository has to say
	}
	return nil, fmt.Errorf("whom keyless signatures can be trusted for, from %s: %w "+
		"(a Secret in spec.verify.trustedRootSecretRef would say it without the network)", r.config.Mirror, err)
}

// fetch asks the TUF repository or, unless what was cached is known, the cache.
func (r *roots) fetch(ctx context.Context, web *http.Client, known bool) (material *root.TrustedRoot, err error) {
	f := &fetcher{ctx: ctx, web: web}
	client, err := tuf.New(&tuf.Options{
		Root:              r.config.Anchor,
		RepositoryBaseURL: r.config.Mirror,
		CachePath:         r.config.Cache,
		DisableLocalCache: r.config.Cache == "",
		CacheValidity:     int(rootAge / (24 * time.Hour)),
		Fetcher:           f,
	})
	if err == nil && r.config.Cache != "" && known {
		err = client.Refresh()
	}
	if err == nil {
		material, err = root.GetTrustedRoot(client)
	}
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.material, r.since = material, r.config.Now()
	if f.used {
		r.asked = r.since
	}
	return material, nil
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
