package rollout

import (
	"context"
	"fmt"
	"maps"
	"strconv"
)

// Event posts an event to a webhook of type event (specification, "Events").
// Answer and errors are those of [Caller.Call].
//
// The metadata has eventMessage, eventType and timestamp always; then what the
// webhook has; then, unless they are zero or the webhook has them, eventCode,
// eventSequence, canaryWeight, maxWeight, iteration, failedChecks, hook and
// reason.
func (c *Caller) Event(ctx context.Context, hook Hook, event Event) (Answer, error) {
	if hook.Type != HookEvent {
		return Answer{}, fmt.Errorf("webhook %s: type: %q is not %s", hook.Name, hook.Type, HookEvent)
	}
	if event.Time.IsZero() {
		event.Time = c.now()
	}
	return c.Call(ctx, hook, Payload{
		Name:      event.Name,
		Namespace: event.Namespace,
		Phase:     event.Phase,
		Checksum:  event.Checksum,
		Metadata:  eventMetadata(event, hook.Metadata),
	})
}

func eventMetadata(event Event, own map[string]string) map[string]string {
	all := map[string]string{}
	for key, value := range map[string]string{"eventCode": string(event.Code), "hook": event.Hook, "reason": event.Reason} {
		if value != "" {
			all[key] = value
		}
	}
	for key, value := range map[string]int64{
		"eventSequence": event.Sequence,
		"canaryWeight":  int64(event.Weight),
		"maxWeight":     int64(event.MaxWeight),
		"iteration":     int64(event.Iteration),
		"failedChecks":  int64(event.FailedChecks),
	} {
		if value != 0 {
			all[key] = strconv.FormatInt(value, 10)
		}
	}
	maps.Copy(all, own)
	all["eventMessage"] = event.Message
	all["eventType"] = "Normal"
	if event.Warning {
		all["eventType"] = "Warning"
	}
	all["timestamp"] = strconv.FormatInt(event.Time.UnixMilli(), 10)
	return all
}
