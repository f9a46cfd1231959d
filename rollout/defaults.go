package rollout

import (
	"cmp"
	"time"
)

// What a manifest leaves out (reference B.2). A [Canary] holds what is written;
// its methods fill in the rest.
const (
	DefaultInterval         = 60 * time.Second
	MinInterval             = 10 * time.Second
	DefaultTimeout          = 10 * time.Second // of one attempt of a webhook
	DefaultProgressDeadline = 600 * time.Second
	DefaultNamespace        = "default"
)

// String returns Canary/NAMESPACE/NAME.
func (c *Canary) String() string { return kindCanary + "/" + c.Namespace() + "/" + c.Metadata.Name }

// Namespace returns the namespace of the canary, the default one when none is named.
func (c *Canary) Namespace() string { return cmp.Or(c.Metadata.Namespace, DefaultNamespace) }

// Interval returns the time between two steps of the analysis: at least
// [MinInterval], [DefaultInterval] when none is given.
func (c *Canary) Interval() time.Duration {
	d := time.Duration(c.Spec.Analysis.Interval)
	if d <= 0 {
		return DefaultInterval
	}
	return max(d, MinInterval)
}

// Threshold returns how many failed checks roll the canary back: at least 1.
func (c *Canary) Threshold() int { return max(c.Spec.Analysis.Threshold, 1) }

// ProgressDeadline returns how long the primary or the canary may be without
// progress, and setting the routes may fail, before that is a failure.
func (c *Canary) ProgressDeadline() time.Duration {
	if s := c.Spec.ProgressDeadlineSeconds; s > 0 {
		return time.Duration(min(s, maxDeadlineSeconds)) * time.Second
	}
	return DefaultProgressDeadline
}

const maxDeadlineSeconds = 1<<33 - 1 // of what a time.Duration holds

// timeout returns how long one attempt may take.
func (h *Hook) timeout() time.Duration {
	if h.Timeout <= 0 {
		return DefaultTimeout
	}
	return time.Duration(h.Timeout)
}

// kind returns the type of the webhook: rollout when none is given.
func (h *Hook) kind() HookType { return cmp.Or(h.Type, HookRollout) }

const kindCanary = "Canary"
