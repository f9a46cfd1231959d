package tester

import (
	"context"
	"sync"
)

// An underWay counts requests, so that a shutdown can wait for their answers.
// Its zero value is ready.
type underWay struct {
	mu    sync.Mutex
	count int
	none  chan struct{} // closed when there are none; nil when nobody waits
}

func (u *underWay) begin() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.count++
}

func (u *underWay) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.count--; u.count == 0 && u.none != nil {
		close(u.none)
		u.none = nil
	}
}

// wait returns when there are none, or when ctx has ended.
func (u *underWay) wait(ctx context.Context) {
	u.mu.Lock()
	if u.count > 0 && u.none == nil {
		u.none = make(chan struct{})
	}
	none := u.none
	u.mu.Unlock()
	if none == nil {
		return
	}
	select {
	case <-none:
	case <-ctx.Done():
	}
}
