package packfile

import (
	"cmp"
	"fmt"
)

// Limits bounds what a pack may hold. A zero field means its default, a
// negative one no limit.
type Limits struct {
	PackBytes     int64 // of the pack as received; default 4 GiB
	ObjectBytes   int64 // of one object or delta; default 1 GiB
	Objects       int64 // number of objects; default 4 million, at most 2³²-1
	InflatedBytes int64 // of all objects and deltas, the space of the spool; default 16 GiB
}

const noLimit = 1<<63 - 1

// orDefault returns l with defaults for zero fields and noLimit for negative ones.
func (l Limits) orDefault() Limits {
	set := func(v, def int64) int64 {
		if v = cmp.Or(v, def); v < 0 {
			return noLimit
		}
		return v
	}
	return Limits{
		PackBytes:     set(l.PackBytes, 4<<30),
		ObjectBytes:   set(l.ObjectBytes, 1<<30),
		Objects:       min(set(l.Objects, 4_000_000), 1<<32-1),
		InflatedBytes: set(l.InflatedBytes, 16<<30),
	}
}

// A LimitError says that a pack exceeds one of the [Limits].
type LimitError struct {
	Limit string // the field of Limits
	Max   int64  // its value
}

func (e *LimitError) Error() string {
	return fmt.Sprintf(limitText[e.Limit]+": raise the limit %s if this repository is meant to be so large", e.Max, e.Limit)
}

var limitText = map[string]string{
	"PackBytes":     "the pack has more than %d bytes",
	"ObjectBytes":   "an object has more than %d bytes",
	"Objects":       "the pack has more than %d objects",
	"InflatedBytes": "the objects have more than %d bytes once inflated",
}
