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

// A body is the body of a request. It records whether the client has sent all of it,
// and keeps the data for a copy of the request.
type body struct {
	io.ReadCloser
	mu   sync.Mutex
	err  error // io.EOF once all of it was read
	room int   // bytes left for data; negative if the body is too long
	data []byte
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil && !errors.Is(err, http.ErrBodyReadAfterClose) {
		b.err = err
	}
	if b.room -= n; b.room >= 0 {
		b.data = append(b.data, p[:n]...)
	} else {
		b.data = nil
	}
	return n, err
}

// readError returns io.EOF if the client has sent the whole body, nil if it is still
// sending, or else the read error.
func (b *body) readError() error {
	if b == nil {
		return io.EOF
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// content returns the body; ok is false unless all of it was read and it is not too long.
func (b *body) content() (text []byte, ok bool) {
	if b == nil {
		return nil, true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data, b.err == io.EOF && b.room >= 0
}

// prepareCopy prepares a copy of a request. The canary gets it once the primary answers
// and the whole body was read; the answer to it is dropped. The number of copies and
// the size of their bodies are limited: beyond the limits no copy is made, and the
// request never waits.
func (p *Proxy) prepareCopy(req *http.Request, x *exchange) {
	limit := cmp.Or(p.MirrorBody, 1<<20)
	if upgrades(req) || req.ContentLength > int64(limit) {
		return
	}
	select {
	case p.slots <- struct{}{}:
	default:
		return
	}
	x.copy = req.Clone(p.ctx) // with p.ctx, since the handler may return before the copy is sent
	if x.body != nil {
		x.body.room = limit
	}
}

// sendCopy sends the copy of a request, if there is one that was not sent yet.
func (p *Proxy) sendCopy(of *exchange) {
	out := of.copy
	if out == nil {
		return
	}
	of.copy = nil
	content, complete := of.body.content()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !complete || !p.routes.Mirrored || p.ctx.Err() != nil {
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
		out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(content)), int64(len(content))
		p.handlers[canary].ServeHTTP(discard{}, out)
	})
}

// discard is a ResponseWriter that drops the answer.
type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) WriteHeader(int)             {}

// upgrades reports whether req asks for another protocol on its connection.
func upgrades(req *http.Request) bool {
	return req.Header.Get("Upgrade") != "" && strings.Contains(strings.ToLower(strings.Join(req.Header["Connection"], ",")), "upgrade")
}
