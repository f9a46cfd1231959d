package testenv

import (
	"sync/atomic"
	"time"
)

// A clock is that of a server.
type clock struct{ ahead atomic.Int64 }

// Shift sets the clock of the server ahead of that of the machine.
func (c *clock) Shift(d time.Duration) { c.ahead.Store(int64(d)) }

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }
