package traffic

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// A body is that of a request. It notes why the client did not send all of it,
// and keeps what a copy is made of.
type body struct {
	io.ReadCloser
	mu   sync.Mutex
	over error // io.EOF when all of it was read
	kept bytes.Buffer
	room int                 // for kept
	send func(whole *[]byte) // called when the body is over or has no room, with nil when it is not whole; nil for no copy
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over == nil && !errors.Is(err, http.ErrBodyReadAfterClose) {
		b.over = err
	}
	switch {
	case b.send == nil:
	case b.kept.Len()+n > b.room, err != nil && err != io.EOF:
		b.send(nil)
		b.send, b.kept = nil, bytes.Buffer{}
	default:
		b.kept.Write(p[:n])
		if err == io.EOF {
			whole := b.kept.Bytes()
			b.send(&whole)
			b.send = nil
		}
	}
	return n, err
}

// failure returns why the client did not send all of the body, nil when it did or may still do so.
func (b *body) failure() error {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over == io.EOF {
		return nil
	}
	return b.over
}

// end lets an answer that comes before the end of the body end the connection
// of the client, which would take what is still to come for another request.
func (b *body) end(answer http.Header) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over != io.EOF {
		answer.Set("Connection", "close") // HTTP/2 has no such header, and its server drops it
	}
}

// mirror sends a copy of req to the canary once all of its body was read; the
// answer is dropped. The number of copies and their bodies have a bound: what is
// over is left out, never waited for. The function that it returns is called when req has ended.
func (p *Proxy) mirror(req *http.Request, body *body) (ended func()) {
	var once sync.Once
	out := req.Clone(p.ctx) // the handler may have returned when it is sent
	send := func(whole *[]byte) {
		once.Do(func() {
			x := &exchange{to: canary}
			p.mu.Lock()
			defer p.mu.Unlock()
			if whole == nil || !p.routes.Mirrored || p.ctx.Err() != nil {
				p.left++
				<-p.slots
				return
			}
			p.add(x)
			p.copies.Go(func() { p.sendCopy(x, out, *whole) })
		})
	}
	limit, free := or(p.MirrorBody, 1<<20), false
	if !upgrades(req) && req.ContentLength <= int64(limit) {
		select {
		case p.slots <- struct{}{}:
			free = true
		default:
		}
	}
	switch {
	case !free:
		p.mu.Lock()
		p.left++
		p.mu.Unlock()
		return func() {}
	case body == nil:
		send(new([]byte))
	default:
		body.room, body.send = limit, send
	}
	return func() { send(nil) }
}

func (p *Proxy) sendCopy(x *exchange, out *http.Request, body []byte) {
	defer func() { <-p.slots }()
	defer p.end(x)
	ctx, cancel := context.WithTimeout(context.WithValue(out.Context(), exchangeKey{}, x), or(p.MirrorTimeout, 15*time.Second))
	defer cancel()
	x.cut = cancel
	out = out.WithContext(ctx)
	out.Header.Del("Expect")
	out.Trailer, out.TransferEncoding = nil, nil
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	p.handlers[canary].ServeHTTP(discard{}, out)
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
