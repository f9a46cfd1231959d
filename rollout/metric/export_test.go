package metric

import "time"

// SetTimeout changes how long an answer may take.
func (q *Querier) SetTimeout(d time.Duration) { q.timeout = d }
