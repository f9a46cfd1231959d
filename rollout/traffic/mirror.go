package traffic

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// copies are requests that are sent to the canary as well, whose answers nobody
// gets. Neither their number nor their bodies are without bound: what is over
// is left out, never waited for.
type copies struct {
	ctx     context.Context
	cancel  context.CancelFunc
	slots   chan struct{}
	mu      sync.Mutex // guards closed, and running against it
	closed  bool
	running sync.WaitGroup
	left    atomic.Int64 // copies that were left out
}

func (c *copies) start(limit int) {
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.slots = make(chan struct{}, limit)
}

func (c *copies) stop() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.running.Wait()
}

// run calls f on a goroutine of its own, unless c was stopped, and then drop.
func (c *copies) run(f, drop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		drop()
		return
	}
	c.running.Go(f)
}

// A copying collects the body of a request that is mirrored, while it is sent.
type copying struct {
	mu     sync.Mutex
	body   bytes.Buffer
	limit  int64
	launch func(body []byte) // nil once it was called, or never will be
	drop   func()
}

// add takes what was read of the body and how the reading ended.
func (c *copying) add(b []byte, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.launch == nil:
	case int64(c.body.Len()+len(b)) > c.limit, err != nil && err != io.EOF:
		c.abandon()
	default:
		c.body.Write(b)
		if err == io.EOF {
			c.launch(c.body.Bytes())
			c.launch = nil
		}
	}
}

// abandon gives up what was not launched.
func (c *copying) abandon() {
	if c.launch == nil {
		return
	}
	c.launch = nil
	c.body = bytes.Buffer{}
	c.drop()
}

func (c *copying) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.abandon()
}

// copy mirrors req, whose body is sent, once all of that was read. The function
// it returns is called when req has ended.
func (p *Proxy) copy(req *http.Request, body *sending) func() {
	none := func() {}
	limit := or(p.MirrorBody, 1<<20)
	if upgrades(req) || req.ContentLength > limit {
		p.copies.left.Add(1)
		return none
	}
	select {
	case p.copies.slots <- struct{}{}:
	default:
		p.copies.left.Add(1)
		return none
	}
	free := func() { <-p.copies.slots }
	drop := func() { p.copies.left.Add(1); free() }
	header := req.Header.Clone() // the handler may not be around any more when it is sent
	launch := func(b []byte) {
		f := &flight{began: p.now()}
		if !p.balance.beginCopy(f) {
			drop()
			return
		}
		p.copies.run(func() { defer free(); p.sendCopy(f, req, header, b) }, func() { p.balance.done(f); drop() })
	}
	if body == nil {
		launch(nil)
		return none
	}
	body.copy = &copying{limit: limit, launch: launch, drop: drop}
	return body.copy.end
}

// sendCopy sends the copy of req with body to the canary, as f.
func (p *Proxy) sendCopy(f *flight, req *http.Request, header http.Header, body []byte) {
	defer p.land(f)
	ctx, cancel := context.WithTimeout(context.WithValue(p.copies.ctx, flightKey{}, f), or(p.MirrorTimeout, 15*time.Second))
	defer cancel()
	f.end = cancel
	f.epoch = p.ends[canary].window.now()
	out := req.WithContext(ctx)
	out.Header = header
	out.Header.Del("Expect")
	out.Trailer, out.TransferEncoding, out.GetBody = nil, nil, nil
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	p.ends[canary].forward.ServeHTTP(&nobody{header: http.Header{}}, out)
}

// A nobody is a client that drops what it gets.
type nobody struct{ header http.Header }

func (n *nobody) Header() http.Header         { return n.header }
func (n *nobody) Write(b []byte) (int, error) { return len(b), nil }
func (n *nobody) WriteHeader(int)             {}
