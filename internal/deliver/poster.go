package deliver

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// Timeout is that of a post whose target has none.
const Timeout = 5 * time.Second

const maxRedirects = 5

// A Poster posts to one target at a time and keeps its connections as long as the
// settings for them are the same. It is safe for concurrent use. Its owner ends idle
// connections with Close.
type Poster struct {
	mu     sync.Mutex
	client *http.Client
	made   [sha256.Size]byte // of what client was made from
}

// An Answer is what came back.
type Answer struct {
	Code     int
	Header   http.Header
	Body     []byte // as much of it as was asked for
	Location string // the origin of the redirect that it is, "" for none
}

// Post posts JSON: one attempt. Redirects are followed when they keep the request and
// its origin. The error has neither the URL nor the headers.
func (p *Poster) Post(ctx context.Context, t *Target, body []byte, maxAnswer int64) (*Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, t.timeout())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.URL.String(), bytes.NewReader(body))
	if err != nil {
		return nil, Permanent{bare(err)}
	}
	for name, values := range t.Header {
		req.Header[name] = values
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := p.clientFor(t).Do(req)
	if err != nil {
		return nil, bare(err)
	}
	defer resp.Body.Close()
	a := &Answer{Code: resp.StatusCode, Header: resp.Header}
	a.Body, _ = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if at, err := resp.Location(); err == nil && a.Code < 400 {
		a.Location = at.Scheme + "://" + at.Host
	}
	return a, nil
}

// Close ends idle connections.
func (p *Poster) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.client != nil {
		p.client.CloseIdleConnections()
	}
}

// bare returns err without the URL that net/http puts in front of it.
func bare(err error) error {
	if e := (*url.Error)(nil); errors.As(err, &e) {
		if e.Timeout() {
			return fmt.Errorf("no answer: %w", e.Err)
		}
		return e.Err
	}
	return err
}

// clientFor returns the client for t: that of the last post if it was made for the same settings.
func (p *Poster) clientFor(t *Target) *http.Client {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.client != nil && p.made == t.Made {
		return p.client
	}
	if p.client != nil {
		p.client.CloseIdleConnections()
	}
	p.client, p.made = &http.Client{Transport: t.transport(t.timeout()), CheckRedirect: sameOrigin}, t.Made
	return p.client
}

// sameOrigin follows redirects that repeat the request where it was meant for.
func sameOrigin(req *http.Request, via []*http.Request) error {
	first := via[0]
	if req.Method != first.Method || req.URL.Scheme != first.URL.Scheme || req.URL.Host != first.URL.Host || len(via) > maxRedirects {
		return http.ErrUseLastResponse
	}
	req.Header.Del("Referer")
	return nil
}
