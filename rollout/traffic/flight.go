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
	epoch   int          // of the window that it is counted in
	end     func()       // cuts it off
	endless atomic.Bool  // the answer has no end of its own
	asked   atomic.Bool  // all of it was sent, and there is no answer yet
	moves   atomic.Int64 // pieces of bodies that passed
	seen    int64        // moves, when the canary was to be scaled down; guarded by the balance

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
	ctx, cancel := context.WithCancelCause(context.WithValue(req.Context(), flightKey{}, f))
	defer cancel(nil)
	f.end = func() { cut(w, cancel) }
	f.asked.Store(true)
	mirror := p.balance.begin(f, p.matcher.holds(req), or(p.MirrorWeight, 100))
	defer p.rejoin(w, ctx)
	defer p.land(f)
	f.epoch = p.ends[f.to].window.now()
	out := req.WithContext(ctx)
	if req.ContentLength != 0 && req.Body != nil {
		// Otherwise the server would take what is not read yet of the body when
		// the upstream begins to answer. It is no error when it cannot.
		_ = http.NewResponseController(w).EnableFullDuplex()
		f.sent = &sending{ReadCloser: req.Body, flight: f, alone: req.ProtoMajor == 1}
		f.asked.Store(false)
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

// errCut is why the context of a flight ended that was cut off.
var errCut = errors.New("cut off")

// parting is how long the client of a flight that is cut off may take for the
// rest of the answer.
const parting = time.Second / 4

// cut ends a flight. What waits for its client does not wait for the context:
// it has no more time. It is no error when there is no connection to say so to.
func cut(w http.ResponseWriter, cancel context.CancelCauseFunc) {
	cancel(errCut)
	client := http.NewResponseController(w)
	_ = client.SetReadDeadline(time.Unix(1, 0))
	_ = client.SetWriteDeadline(time.Now().Add(parting))
}

// rejoin gives the connection of a flight that was cut off its time back, for
// it may have ended just then.
func (p *Proxy) rejoin(w http.ResponseWriter, ctx context.Context) {
	if context.Cause(ctx) == errCut {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
	}
}

// answered looks at the answer of an upstream before it is passed on.
func (p *Proxy) answered(resp *http.Response) error {
	ctx := resp.Request.Context()
	f := flightOf(ctx)
	f.status = resp.StatusCode
	f.asked.Store(false)
	f.moves.Add(1)
	if f.sent.early() && f.status != http.StatusSwitchingProtocols {
		resp.Header.Set("Connection", "close")
	}
	switch {
	case resp.StatusCode == http.StatusSwitchingProtocols:
		// Nobody else closes a connection that nobody asked to be upgraded.
		connection := resp.Body
		context.AfterFunc(ctx, func() { connection.Close() })
		f.ended = p.now()
		f.endless.Store(true)
	case strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream"):
		f.ended = p.now()
		f.endless.Store(true)
		resp.Body = &receiving{resp.Body, f, ctx, nil}
	default:
		resp.Body = &receiving{resp.Body, f, ctx, p.now}
	}
	return nil
}

// failed answers for an upstream that did not.
func failed(w http.ResponseWriter, req *http.Request, err error) {
	f := flightOf(req.Context())
	if f.sent.early() {
		w.Header().Set("Connection", "close")
	}
	var tooLarge *http.MaxBytesError
	var timeout interface{ Timeout() bool }
	switch sent := f.sent.err(); {
	case errors.As(sent, &tooLarge):
		f.gone = true
		refuse(w, http.StatusRequestEntityTooLarge, "the request is too large")
	case left(req.Context()) && context.Cause(req.Context()) != errCut || sent != nil:
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

// left reports whether the client of a request is gone or it was cut off,
// rather than that its time is over.
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
	r.flight.moves.Add(1)
	if err != nil {
		if r.now != nil {
			r.flight.ended = r.now()
		}
		r.flight.broken = err != io.EOF && !left(r.ctx)
	}
	return n, err
}
