package rollout

import (
	"maps"
	"slices"
	"time"
)

// EventCodes are all events.
func EventCodes() []EventCode { return slices.Sorted(maps.Keys(tellings)) }

// KeepIdle makes connections stay for long, so that what else ends them is seen to.
func (c *Caller) KeepIdle() { c.pool.Idle = time.Hour }
