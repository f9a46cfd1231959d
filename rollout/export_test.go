package rollout

import (
	"maps"
	"slices"
	"time"
)

// Steps are the names of the steps of a tick, in order, and their phases.
func Steps() (names []string, of [][]Phase) {
	for _, s := range order {
		names, of = append(names, s.name), append(of, s.phases)
	}
	return names, of
}

// Told reports how an event is told.
func Told(code EventCode) (text string, warning bool, alert Severity) {
	how := tellings[code]
	return how.text, how.warning, how.alert
}

// EventCodes are all events.
func EventCodes() []EventCode { return slices.Sorted(maps.Keys(tellings)) }

// KeepIdle makes connections stay for long, so that what else ends them is seen to.
func (c *Caller) KeepIdle() { c.pool.Idle = time.Hour }
