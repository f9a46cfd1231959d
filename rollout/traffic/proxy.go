package traffic

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/rollout"
)

// A Proxy is a reverse proxy that divides requests between two upstreams. It is
// the Traffic of a rollout and, with [Proxy.Metrics], answers the two metrics
// every canary has, without a server of metrics. It is safe for concurrent use.
//
// Its fields are not changed once it is in use. Wrong ones are the error of
// Routes and SetRoutes, and status 500 for every request.
type Proxy struct {
	Primary string // base URL, http or https
	Canary  string

	Start    rollout.Routes  // the routes to begin with: those of a rollout that is resumed; zero for all to the primary
	Interval time.Duration   // how long it measures, when it begins with traffic at the canary, before metrics have values; default the interval of the analysis
	Match    []rollout.Match // the weights are for requests that match one, others go to the primary; none for all requests

	MirrorWeight  int           // percent of the requests that are mirrored while the routes say so; default 100
	MirrorBody    int64         // requests with a longer body are not mirrored, in bytes; default 1 MiB
	MirrorTimeout time.Duration // of one copy; default 15s
	Mirrors       int           // copies at one time, others are left out; default 64

	HeaderTimeout  time.Duration     // until an upstream answers, after the request was sent; default 60s
	DrainTimeout   time.Duration     // see [Proxy.Target]; default 1m
	TrustForwarded bool              // the clients are proxies: X-Forwarded-For is appended to, the others are kept
	Transport      http.RoundTripper // to the upstreams; default connects directly and keeps connections open
	Now            func() time.Time  // default the clock

	once    sync.Once
	err     error
	matcher matcher
	balance balance
	ends    [2]*upstream
	own     *http.Transport // to be closed; nil when Transport is given
	copies  copies

	promoted atomic.Bool
	resumed  time.Time // zero when it began without traffic at the canary
}

// errRoutes is of routes that are none.
var errRoutes = errors.New("primary and canary are percentages that sum to 100")

func checkRoutes(r rollout.Routes) error {
	if r.Primary < 0 || r.Canary < 0 || r.Primary+r.Canary != 100 || r.Primary > 100 {
		return fmt.Errorf("routes: primary %d, canary %d: %w", r.Primary, r.Canary, errRoutes)
	}
	return nil
}

// all has the routes that send everything to the primary.
var all = rollout.Routes{Primary: 100}

func (p *Proxy) setUp() error {
	p.once.Do(func() { p.err = p.build() })
	return p.err
}

func (p *Proxy) build() error {
	p.balance.flights = map[*flight]struct{}{}
	p.copies.start(or(p.Mirrors, 64))
	transport := p.Transport
	if transport == nil {
		p.own = newTransport(or(p.HeaderTimeout, time.Minute))
		transport = p.own
	}
	shared := new(buffers)
	var errs []error
	for i, base := range []string{p.Primary, p.Canary} {
		u, err := parseBase(base)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s of the proxy: %w", [...]string{"primary", "canary"}[i], err))
			continue
		}
		p.ends[i] = p.newUpstream(u, transport, shared)
	}
	start := p.Start
	if start.Primary == 0 && start.Canary == 0 {
		start.Primary = 100
	}
	var err error
	p.matcher, err = newMatcher(p.Match)
	errs = append(errs, err, checkRoutes(start))
	if p.balance.set(start); start != all {
		p.resumed = p.now()
	}
	return errors.Join(errs...)
}

func parseBase(base string) (*url.URL, error) {
	u, err := url.Parse(base)
	switch {
	case err != nil:
		return nil, errors.New("not a URL") // the text may be a credential
	case u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		return nil, errors.New("give a URL such as http://127.0.0.1:8080")
	case u.User != nil, u.RawQuery != "", u.ForceQuery, u.Fragment != "":
		return nil, errors.New("the URL may have no user, query or fragment")
	}
	return u, nil
}

func newTransport(header time.Duration) *http.Transport {
	dialer := net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Transport{
		DialContext:            dialer.DialContext,
		Protocols:              protocols,
		TLSHandshakeTimeout:    10 * time.Second,
		ResponseHeaderTimeout:  header,
		ExpectContinueTimeout:  time.Second,
		IdleConnTimeout:        30 * time.Second, // less than servers have, which would close while a request is on its way
		MaxIdleConnsPerHost:    512,
		MaxResponseHeaderBytes: 1 << 20,
		DisableCompression:     true,
	}
}

// Routes returns the routes as they are now.
func (p *Proxy) Routes(context.Context) (rollout.Routes, error) {
	if err := p.setUp(); err != nil {
		return rollout.Routes{}, err
	}
	return p.balance.now(), nil
}

// SetRoutes changes the routes for the requests that begin from now on. When
// the canary gets requests again after it had none, its measurements begin anew:
// those of an earlier revision do not count.
func (p *Proxy) SetRoutes(_ context.Context, r rollout.Routes) error {
	if err := p.setUp(); err != nil {
		return err
	}
	if err := checkRoutes(r); err != nil {
		return err
	}
	if p.balance.set(r) {
		p.ends[canary].window.reset()
	}
	return nil
}

// Drain waits until the canary has no request, copies included: once its
// weight is 0, nothing is sent to it afterwards. The error wraps the cause of
// ctx, when that ends first.
func (p *Proxy) Drain(ctx context.Context) error { return p.balance.drain(ctx) }

// Close ends the copies of requests that run, waits for them, and closes idle
// connections. Requests that run are not touched.
func (p *Proxy) Close() {
	if p.setUp() != nil {
		return
	}
	p.copies.stop()
	if p.own != nil {
		p.own.CloseIdleConnections()
	}
}

func (p *Proxy) now() time.Time {
	if p.Now != nil {
		return p.Now()
	}
	return time.Now()
}

// or returns v, or otherwise when that is not positive.
func or[T int | int64 | time.Duration](v, otherwise T) T {
	if v > 0 {
		return v
	}
	return otherwise
}
