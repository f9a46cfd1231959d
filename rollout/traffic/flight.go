package traffic

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// A flight is one request on its way to an upstream.
type flight struct {
	to      end
	began   time.Time
	epoch   int // of the window that it is counted in
	cancel  context.CancelFunc
	endless atomic.Bool // the answer has no end of its own

	sent   *sending // the body of the client; nil without one
	status int      // of the upstream; 0 when there was none
	ended  time.Time
	broken bool // the upstream did not answer, or not to the end
	gone   bool // the client left before there was an answer
}

type flightKey struct{}

func flightOf(ctx context.Context) *flight {
	f, _ := ctx.Value(flightKey{}).(*flight)
	return f
}

// ServeHTTP sends the request to the upstream that it is for.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if p.setUp() != nil {
		refuse(w, http.StatusInternalServerError, "the proxy is not set up")
		return
	}
	if req.Method == http.MethodConnect {
		refuse(w, http.StatusMethodNotAllowed, "CONNECT is not for this proxy")
		return
	}
	f := &flight{began: p.now()}
	ctx, cancel := context.WithCancel(context.WithValue(req.Context(), flightKey{}, f))
	defer cancel()
	f.cancel = cancel
	mirror := p.balance.begin(f, p.matcher.holds(req), or(p.MirrorWeight, 100))
	defer p.land(f)
	f.epoch = p.ends[f.to].window.now()
	out := req.WithContext(ctx)
	if req.ContentLength != 0 && req.Body != nil {
		// Otherwise the server would take what is not read yet of the body when
		// the upstream begins to answer. It is no error when it cannot.
		_ = http.NewResponseController(w).EnableFullDuplex()
		f.sent = &sending{ReadCloser: req.Body}
		defer f.sent.over.Store(true)
		out.Body, out.GetBody = f.sent, f.sent.again
	}
	if mirror {
		defer p.copy(req, f.sent)()
	}
	p.forward(f.to).ServeHTTP(w, out)
}

// land counts f, however it ended: it runs while a panic passes.
func (p *Proxy) land(f *flight) {
	if f.ended.IsZero() {
		f.ended = p.now()
	}
	p.ends[f.to].window.record(f)
	p.balance.done(f)
}

// answered looks at the answer of an upstream before it is passed on.
func (p *Proxy) answered(resp *http.Response) error {
	f := flightOf(resp.Request.Context())
	f.status = resp.StatusCode
	switch {
	case resp.StatusCode == http.StatusSwitchingProtocols:
		f.ended = p.now()
		f.endless.Store(true)
	case strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream"):
		f.ended = p.now()
		f.endless.Store(true)
		resp.Body = &receiving{resp.Body, f, resp.Request.Context(), nil}
	default:
		resp.Body = &receiving{resp.Body, f, resp.Request.Context(), p.now}
	}
	return nil
}

// failed answers for an upstream that did not.
func failed(w http.ResponseWriter, req *http.Request, err error) {
	f := flightOf(req.Context())
	var tooLarge *http.MaxBytesError
	var timeout interface{ Timeout() bool }
	switch sent := f.sent.err(); {
	case errors.As(sent, &tooLarge):
		f.gone = true
		refuse(w, http.StatusRequestEntityTooLarge, "the request is too large")
	case left(req.Context()) || sent != nil:
		f.gone = true
		refuse(w, http.StatusBadRequest, "the request did not arrive")
	case req.Context().Err() != nil, errors.As(err, &timeout) && timeout.Timeout():
		f.broken = true
		refuse(w, http.StatusGatewayTimeout, "no answer in time")
	default:
		f.broken = true
		refuse(w, http.StatusBadGateway, "no answer")
	}
}

// left reports whether the client of a request is gone, rather than that its
// time is over.
func left(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

func refuse(w http.ResponseWriter, status int, text string) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	http.Error(w, text, status)
}

// A receiving is the body of an answer. It notes when it ended, and whether the
// upstream broke it off.
type receiving struct {
	io.ReadCloser
	flight *flight
	ctx    context.Context
	now    func() time.Time // nil when it does not count how long it takes
}

func (r *receiving) Read(b []byte) (int, error) {
	n, err := r.ReadCloser.Read(b)
	if err != nil {
		if r.now != nil {
			r.flight.ended = r.now()
		}
		r.flight.broken = err != io.EOF && !left(r.ctx)
	}
	return n, err
}
