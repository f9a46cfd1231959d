package rollout

import (
	"maps"
	"slices"
)

// EventCodes returns the codes of all events.
func EventCodes() []EventCode { return slices.Sorted(maps.Keys(eventTexts)) }
