package traffic

// A Measured holds the counts of requests to the canary.
type Measured struct {
	Requests, Failed, Gone int64
	Running                int
}

func (p *Proxy) Measured() Measured {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.window.sum(p.Now().Unix(), windowSeconds)
	return Measured{s.requests, s.failed, s.gone, len(p.running)}
}
