package rollout

import (
	"maps"
	"slices"
)

// EventCodes are all events.
func EventCodes() []EventCode { return slices.Sorted(maps.Keys(eventTexts)) }
