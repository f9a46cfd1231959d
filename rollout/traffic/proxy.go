package traffic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/headgate-io/headgate/internal/notify"
	"github.com/headgate-io/headgate/rollout"
)

// A Proxy is a reverse proxy that divides requests between two servers. It
// implements [rollout.Traffic] and [rollout.Metrics]: it measures the two metrics
// that need no query, without a metrics server. It is safe for concurrent use.
//
// Do not change its fields once it is in use. If they are invalid, Routes and
// SetRoutes return an error, and every request is answered with status 500.
type Proxy struct {
	Primary string // base URL, http or https
	Canary  string

	Start    rollout.Routes  // initial routes, of a rollout that is resumed; zero for all to the primary
	Interval time.Duration   // how long to measure before metrics have values, if Start has traffic at the canary; default the interval of the analysis
	Match    []rollout.Match // the weights apply to requests that match one of these, others go to the primary; empty for all requests

	Next          rollout.Metrics // answers other metrics; nil for none
	MirrorWeight  int             // percent of the requests that are mirrored while the routes are mirrored; default 100
	MirrorBody    int             // requests with a longer body are not mirrored, in bytes; default 1 MiB
	MirrorTimeout time.Duration   // of one copy; default 15s
	Mirrors       int             // maximum number of concurrent copies, more are dropped; default 64, negative for none

	HeaderTimeout time.Duration    // from the end of the request to the header of the answer; default 60s
	DrainTimeout  time.Duration    // see [Proxy.Target]; default 1m
	Now           func() time.Time // default the clock

	once      sync.Once
	err       error
	matcher   matcher
	handlers  [2]*httputil.ReverseProxy
	transport *http.Transport
	resumed   time.Time       // start time; zero if Start has no traffic at the canary
	ctx       context.Context // of copies, canceled by Close
	cancel    context.CancelFunc
	slots     chan struct{} // limits concurrent copies
	copies    sync.WaitGroup

	mu       sync.Mutex // guards the fields below
	routes   rollout.Routes
	promoted bool
	turn     int // for requests that the weights apply to
	copyTurn int // for requests that may be mirrored
	running  map[*exchange]bool
	idle     chan struct{} // closed once no request to the canary runs
	window   *window       // of requests to the canary
}

// A side is one of the two servers.
type side int

const (
	primary side = iota
	canary
)

// allToPrimary are the routes that send every request to the primary.
var allToPrimary = rollout.Routes{Primary: 100}

func checkRoutes(r rollout.Routes) error {
	if r.Primary < 0 || r.Canary < 0 || r.Primary+r.Canary != 100 {
		return fmt.Errorf("routes: primary %d, canary %d: they have to be percentages that sum to 100", r.Primary, r.Canary)
	}
	return nil
}

func (p *Proxy) setUp() error {
	p.once.Do(func() { p.err = p.build() })
	return p.err
}

func (p *Proxy) build() error {
	if p.running = map[*exchange]bool{}; p.Now == nil {
		p.Now = time.Now
	}
	p.window = new(window)
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.slots = make(chan struct{}, max(0, cmp.Or(p.Mirrors, 64)))
	p.transport = &http.Transport{
		DialContext:            (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		Protocols:              new(http.Protocols),
		TLSHandshakeTimeout:    10 * time.Second,
		ResponseHeaderTimeout:  cmp.Or(p.HeaderTimeout, time.Minute),
		ExpectContinueTimeout:  time.Second,
		IdleConnTimeout:        4 * time.Second, // less than the 5 s of common servers: a request on a connection that the server closes is lost
		MaxIdleConnsPerHost:    512,
		MaxResponseHeaderBytes: 1 << 20,
		DisableCompression:     true,
	}
	p.transport.Protocols.SetHTTP1(true)
	errs := make([]error, 4)
	for i, base := range []string{p.Primary, p.Canary} {
		u, err := parseBase(base)
		if err != nil {
			errs[i] = fmt.Errorf("%s of the proxy: the URL %w", [...]string{"primary", "canary"}[i], err)
			continue
		}
		p.handlers[i] = &httputil.ReverseProxy{
			Transport: p.transport, Rewrite: func(r *httputil.ProxyRequest) { rewrite(r, u) },
			ModifyResponse: p.handleResponse, ErrorHandler: p.handleError, ErrorLog: log.New(io.Discard, "", 0), // failures are counted instead
		}
	}
	p.routes = p.Start
	if p.routes == (rollout.Routes{}) {
		p.routes = allToPrimary
	}
	p.matcher, errs[2] = newMatcher(p.Match)
	errs[3] = checkRoutes(p.routes)
	if p.routes != allToPrimary {
		p.resumed = p.Now()
	}
	return errors.Join(errs...)
}

func parseBase(base string) (*url.URL, error) {
	u, err := notify.ParseURL(base)
	if err == nil && (u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "") {
		err = errors.New("may have no user, query or fragment")
	}
	return u, err
}

// rewrite makes the outgoing request from the incoming one.
func rewrite(r *httputil.ProxyRequest, base *url.URL) {
	r.Out.URL.RawQuery = r.In.URL.RawQuery // unchanged: the proxy does not interpret it
	r.Out.Trailer = r.In.Trailer           // filled once the body was read
	r.SetURL(base)
	r.Out.Host = r.In.Host
	for name := range r.Out.Header {
		if strings.HasPrefix(name, "X-Forwarded-") || name == "X-Real-Ip" {
			delete(r.Out.Header, name)
		}
	}
	r.SetXForwarded()
}

// Routes returns the current routes.
func (p *Proxy) Routes(context.Context) (rollout.Routes, error) {
	if err := p.setUp(); err != nil {
		return rollout.Routes{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.routes, nil
}

// SetRoutes changes the routes for requests that begin from now on. If the canary
// had no traffic before, its measurements start again: those of an earlier revision
// do not count.
func (p *Proxy) SetRoutes(_ context.Context, r rollout.Routes) error {
	if err := errors.Join(p.setUp(), checkRoutes(r)); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.routes == allToPrimary && r != allToPrimary {
		p.window = new(window)
	}
	p.routes = r
	return nil
}

// Promote makes the canary the primary: all requests that begin from now on go to the
// server of the canary, whatever the routes and the conditions on requests are. Use
// it to promote a revision if only this proxy routes to its servers. To resume a
// rollout after its promotion, call Promote before the proxy serves.
func (p *Proxy) Promote() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.promoted = true
}

// An exchange is one request to a server and its answer.
type exchange struct {
	to     side
	began  time.Time
	ended  time.Time // end of the measured duration; zero until then
	window *window   // that counts it; nil for requests to the primary
	cut    func()
	body   *body         // of the request; nil without one
	copy   *http.Request // to be sent to the canary; nil for none
	status int           // of the answer; 0 if there was none
	broken bool          // the server did not answer, or not completely
	gone   bool          // the client disconnected before the answer
}

type exchangeKey struct{}

func exchangeOf(req *http.Request) *exchange { return req.Context().Value(exchangeKey{}).(*exchange) }

// ServeHTTP sends the request to the primary or the canary.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	switch {
	case p.setUp() != nil:
		refuse(w, http.StatusInternalServerError, "the proxy is not set up")
		return
	case req.Method == http.MethodConnect:
		refuse(w, http.StatusMethodNotAllowed, "CONNECT is not for this proxy")
		return
	}
	client := http.NewResponseController(w)
	ctx, cancel := context.WithCancelCause(req.Context())
	defer cancel(nil)
	x := &exchange{cut: func() {
		cancel(errCut)
		_ = client.SetReadDeadline(time.Unix(1, 0)) // do not wait for the client
		_ = client.SetWriteDeadline(time.Now().Add(time.Second / 4))
	}}
	defer func() {
		if context.Cause(ctx) == errCut { // the connection may be used again
			_ = client.SetWriteDeadline(time.Time{})
		}
	}()
	handler, mirror := p.begin(x, p.matcher.matches(req))
	defer p.end(x)
	out := req.WithContext(context.WithValue(ctx, exchangeKey{}, x))
	if req.ContentLength != 0 && req.Body != nil {
		_ = client.EnableFullDuplex() // an answer may begin before the end of the body
		x.body = &body{ReadCloser: req.Body}
		out.Body = x.body
	}
	if mirror {
		p.prepareCopy(req, x)
	}
	handler.ServeHTTP(w, out)
}

// stride turns a counter into a sequence that visits each of 0 … 99 once in any 100
// steps, and spreads shorter runs evenly: it is close to the golden section of 100
// and coprime to 100. With it, requests that come in a fixed pattern do not all go to
// one side, as they would if the proxy took every second one.
const stride = 61

// selectNext reports whether the next turn is among the weight percent.
func selectNext(turn *int, weight int) bool {
	at := *turn * stride % 100
	*turn = (*turn + 1) % 100
	return at < weight
}

// begin decides which server gets x, and whether to send a copy of it. The weights
// apply to x if counted is true.
func (p *Proxy) begin(x *exchange, counted bool) (handler http.Handler, mirror bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if counted && selectNext(&p.turn, p.routes.Canary) {
		x.to = canary
	} else if counted && p.routes.Mirrored {
		mirror = selectNext(&p.copyTurn, cmp.Or(p.MirrorWeight, 100))
	}
	p.add(x)
	if p.promoted {
		return p.handlers[canary], mirror
	}
	return p.handlers[x.to], mirror
}

// add records that x runs, if it is for the canary. p.mu must be held.
func (p *Proxy) add(x *exchange) {
	if x.to == primary {
		return
	}
	if len(p.running) == 0 {
		p.idle = make(chan struct{})
	}
	x.began, x.window, p.running[x] = p.Now(), p.window, true
}

// end counts x, however it ended. It is deferred, so that it also runs during a panic.
func (p *Proxy) end(x *exchange) {
	p.sendCopy(x)
	if x.to == primary {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if x.ended.IsZero() {
		x.ended = p.Now()
	}
	x.window.count(x)
	if delete(p.running, x); len(p.running) == 0 {
		close(p.idle)
	}
}

// errCut is the cause of the context of a request that was cut off.
var errCut = errors.New("cut off")

// handleResponse processes the answer of a server before it is passed on.
func (p *Proxy) handleResponse(resp *http.Response) error {
	ctx, x := resp.Request.Context(), exchangeOf(resp.Request)
	x.status = resp.StatusCode
	if x.status == http.StatusSwitchingProtocols || strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		x.ended = p.Now() // their length says nothing about the canary
	}
	if x.status == http.StatusSwitchingProtocols {
		// ReverseProxy does not close the connection of an upgrade that the client did not request.
		connection := resp.Body
		context.AfterFunc(ctx, func() { connection.Close() })
		return nil
	}
	x.closeOnEarlyAnswer(resp.Header)
	if x.body.readError() == io.EOF {
		p.sendCopy(x)
	}
	resp.Body = &answerBody{resp.Body, x, ctx}
	return nil
}

// closeOnEarlyAnswer closes the connection of the client after an answer that comes before the end
// of the request body. Otherwise the rest of the body would be read as another request.
func (x *exchange) closeOnEarlyAnswer(answer http.Header) {
	if x.body.readError() != io.EOF {
		answer.Set("Connection", "close") // HTTP/2 has no such header; the HTTP/2 server drops it
	}
}

// An answerBody is the body of an answer. It records whether the server broke it off.
type answerBody struct {
	io.ReadCloser
	exchange *exchange
	ctx      context.Context
}

func (a *answerBody) Read(b []byte) (int, error) {
	n, err := a.ReadCloser.Read(b)
	a.exchange.broken = err != nil && err != io.EOF && !errors.Is(a.ctx.Err(), context.Canceled)
	return n, err
}

// handleError answers the client if the server did not.
func (p *Proxy) handleError(w http.ResponseWriter, req *http.Request, err error) {
	ctx, x := req.Context(), exchangeOf(req)
	x.closeOnEarlyAnswer(w.Header())
	var tooLarge *http.MaxBytesError
	var timeout net.Error
	switch sent := x.body.readError(); {
	case errors.As(sent, &tooLarge):
		x.gone = true
		refuse(w, http.StatusRequestEntityTooLarge, "the request is too large")
	case errors.Is(ctx.Err(), context.Canceled) && context.Cause(ctx) != errCut || sent != nil && sent != io.EOF:
		x.gone = true
		refuse(w, http.StatusBadRequest, "the request did not arrive")
	case ctx.Err() != nil, errors.As(err, &timeout) && timeout.Timeout():
		x.broken = true
		refuse(w, http.StatusGatewayTimeout, "no answer in time")
	default:
		x.broken = true
		refuse(w, http.StatusBadGateway, "no answer")
	}
}

func refuse(w http.ResponseWriter, status int, text string) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	http.Error(w, text, status)
}

// Drain waits until no request to the canary runs, including copies. If the weight of
// the canary is 0, it gets no requests afterwards. The error wraps the cause of ctx if
// ctx ends first.
func (p *Proxy) Drain(ctx context.Context) error {
	p.mu.Lock()
	n, idle := len(p.running), p.idle
	p.mu.Unlock()
	if n == 0 {
		return nil
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("drain the canary: %d of its requests still run: %w", n, context.Cause(ctx))
	}
}

// Target returns t with a ScaleDown that first waits until no request to the canary
// runs. Requests that still run after DrainTimeout are cut off. After
// [Proxy.Promote], ScaleDown does nothing, since the canary serves as the primary.
func (p *Proxy) Target(t rollout.Target) rollout.Target { return drained{t, p} }

type drained struct {
	rollout.Target
	proxy *Proxy
}

func (d drained) ScaleDown(ctx context.Context) error {
	p := d.proxy
	if err := p.setUp(); err != nil {
		return err
	}
	p.mu.Lock()
	promoted := p.promoted
	p.mu.Unlock()
	if promoted {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, cmp.Or(p.DrainTimeout, time.Minute))
	defer cancel()
	if err := p.Drain(limited); err != nil {
		if ctx.Err() != nil {
			return err
		}
		p.mu.Lock()
		for x := range p.running {
			x.cut()
		}
		p.mu.Unlock()
		if err := p.Drain(ctx); err != nil {
			return err
		}
	}
	return d.Target.ScaleDown(ctx)
}

// Close cancels running copies of requests, waits for them, and closes idle
// connections. It does not end other requests.
func (p *Proxy) Close() {
	if p.setUp() != nil {
		return
	}
	p.mu.Lock()
	p.cancel() // no copy begins after it
	p.mu.Unlock()
	p.copies.Wait()
	p.transport.CloseIdleConnections()
}
