package traffic

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// A body is that of a request. It notes how far the client has sent it, and
// keeps what a copy is made of.
type body struct {
	io.ReadCloser
	mu   sync.Mutex
	over error // io.EOF when all of it was read
	room int   // for kept; negative when it is too long
	kept []byte
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over == nil && !errors.Is(err, http.ErrBodyReadAfterClose) {
		b.over = err
	}
	if b.room -= n; b.room >= 0 {
		b.kept = append(b.kept, p[:n]...)
	} else {
		b.kept = nil
	}
	return n, err
}

// sent returns io.EOF when the client has sent all of the body, nil when it may
// still do so, or else why it does not.
func (b *body) sent() error {
	if b == nil {
		return io.EOF
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.over
}

// whole returns the body, if all of it was sent and it was not too long.
func (b *body) whole() (text []byte, ok bool) {
	if b == nil {
		return nil, true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.kept, b.over == io.EOF && b.room >= 0
}

// mirror prepares the copy of a request that the canary is to get when the
// primary answers and all of the body was read; the answer to it is dropped. The
// number of copies and their bodies have a bound: what is over is left out,
// never waited for.
func (p *Proxy) mirror(req *http.Request, x *exchange) {
	limit := cmp.Or(p.MirrorBody, 1<<20)
	if upgrades(req) || req.ContentLength > int64(limit) {
		return
	}
	select {
	case p.slots <- struct{}{}:
	default:
		return
	}
	x.copy = req.Clone(p.ctx) // the handler may have returned when it is sent
	if x.body != nil {
		x.body.room = limit
	}
}

// sendCopy sends the copy of a request, if there is one that was not sent.
func (p *Proxy) sendCopy(of *exchange) {
	out := of.copy
	if out == nil {
		return
	}
	of.copy = nil
	kept, whole := of.body.whole()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !whole || !p.routes.Mirrored || p.ctx.Err() != nil {
		<-p.slots
		return
	}
	x := &exchange{to: canary}
	p.add(x)
	p.copies.Go(func() {
		defer func() { <-p.slots }()
		defer p.end(x)
		ctx, cancel := context.WithTimeout(context.WithValue(out.Context(), exchangeKey{}, x), cmp.Or(p.MirrorTimeout, 15*time.Second))
		defer cancel()
		x.cut = cancel
		out = out.WithContext(ctx)
		out.Header.Del("Expect")
		out.Trailer, out.TransferEncoding = nil, nil
		out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(kept)), int64(len(kept))
		p.handlers[canary].ServeHTTP(discard{}, out)
	})
}

// discard is a client that drops what it gets.
type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) WriteHeader(int)             {}

// upgrades reports whether req asks for another protocol on its connection.
func upgrades(req *http.Request) bool {
	return req.Header.Get("Upgrade") != "" && strings.Contains(strings.ToLower(strings.Join(req.Header["Connection"], ",")), "upgrade")
}
