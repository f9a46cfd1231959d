package rollout

import (
	"errors"
	"fmt"
	"net/url"
	"slices"

	"github.com/headgate-io/headgate/internal/document"
)

// Check returns what an analysis does not start with, joined: one
// [*DocumentError] for each rule that the canary breaks. The rules are those by
// which [Decode] warns and refuses; docs/rollout.md lists them.
func (c *Canary) Check() error {
	x := examine(c)
	return errors.Join(append(x.found[invalid].Of(c.String()), x.found[broken].Of(c.String())...)...)
}

// A level says what comes of a requirement that does not hold.
type level uint8

const (
	invalid level = iota // Decode refuses the manifest, Check as well
	broken               // Decode warns, since manifests that clusters run with have it; Check refuses
	advice               // Decode warns: something has no effect, or another one than it seems
	levels
)

// A requirement is what must hold for one field of a value.
type requirement[T any] struct {
	level level
	field string                         // below the path of the value, "" for the value itself
	fails func(x *Canary, v T) complaint // what is wrong and what to do, "" for nothing
}

// A complaint is the text of a rule that is broken.
type complaint string

func complain(format string, args ...any) complaint { return complaint(fmt.Sprintf(format, args...)) }

// of returns the complaint that an error is.
func of(err error) complaint {
	if err == nil {
		return ""
	}
	return complaint(err.Error())
}

// An examination is what was found wrong with a canary.
type examination struct {
	canary *Canary
	found  [levels]document.Findings
}

// examine holds a canary against all requirements.
func examine(c *Canary) *examination {
	x := &examination{canary: c}
	a := &c.Spec.Analysis
	require(x, "", canaryRequirements, c)
	require(x, analysisPath, analysisRequirements, a)
	requireEach(x, "match", matchRequirements, a.Match)
	requireEach(x, "metrics", metricRequirements, a.Metrics)
	requireEach(x, "webhooks", hookRequirements, a.Webhooks)
	requireEach(x, "alerts", alertRequirements, a.Alerts)
	return x
}

// require holds the value at path against requirements in order. A field is
// reported once.
func require[T any](x *examination, path string, all []requirement[*T], v *T) {
	reported := make(map[string]bool)
	for _, r := range all {
		if reported[r.field] {
			continue
		}
		if text := r.fails(x.canary, v); text != "" {
			reported[r.field] = true
			x.found[r.level].Add(join(path, r.field), "%s", string(text))
		}
	}
}

// requireEach holds each item of a list of the analysis against requirements.
func requireEach[T any](x *examination, list string, all []requirement[*T], items []T) {
	for i := range items[:min(len(items), maxItems)] {
		require(x, fmt.Sprintf("%s.%s[%d]", analysisPath, list, i), all, &items[i])
	}
}

func join(path, field string) string {
	if path == "" || field == "" {
		return path + field
	}
	return path + "." + field
}

// maxRetries bounds how often a webhook is called again.
const maxRetries = 100

// hookTypes are the types of webhooks in the order in which they are called.
var hookTypes = []HookType{
	HookConfirmRollout, HookPreRollout, HookRollout, HookConfirmTrafficIncrease,
	HookConfirmPromotion, HookPostRollout, HookRollback, HookEvent,
}

// confirms reports whether the webhook is a gate.
func (t HookType) confirms() bool {
	return t == HookConfirmRollout || t == HookConfirmTrafficIncrease || t == HookConfirmPromotion
}

var hookRequirements = []requirement[*Hook]{
	{invalid, "name", func(_ *Canary, h *Hook) complaint { return ownName(h.Name) }},
	{invalid, "url", func(_ *Canary, h *Hook) complaint { return webURL(h.URL) }},
	{invalid, "retries", func(_ *Canary, h *Hook) complaint { return within(h.Retries, 0, maxRetries) }},
	{invalid, "metadata", func(_ *Canary, h *Hook) complaint { return smallMap(h.Metadata) }},
	{invalid, "secretRef.name", func(_ *Canary, h *Hook) complaint { return secretName(h.SecretRef) }},
	{invalid, "certSecretRef.name", func(_ *Canary, h *Hook) complaint { return secretName(h.CertSecretRef) }},
	{invalid, "deadline", func(_ *Canary, h *Hook) complaint { return notNegative(h.Deadline) }},
	{invalid, "deadline", func(_ *Canary, h *Hook) complaint {
		if h.Deadline != 0 && !h.Type.confirms() {
			return complain("is for the types %s, %s and %s: remove it", HookConfirmRollout, HookConfirmTrafficIncrease, HookConfirmPromotion)
		}
		return ""
	}},

	{broken, "type", func(_ *Canary, h *Hook) complaint { return oneOf(h.kind(), hookTypes...) }},
	{broken, "timeout", func(_ *Canary, h *Hook) complaint { return notNegative(h.Timeout) }},

	{advice, "name", sameName},
	{advice, "muteAlert", func(_ *Canary, h *Hook) complaint {
		if h.MuteAlert && !h.Type.confirms() {
			return complain("has no effect: only webhooks of the types %s, %s and %s wait for an approval",
				HookConfirmRollout, HookConfirmTrafficIncrease, HookConfirmPromotion)
		}
		return ""
	}},
	{advice, "metadata", func(_ *Canary, h *Hook) complaint {
		for _, key := range []string{"eventMessage", "eventType", "timestamp"} {
			if _, found := h.Metadata[key]; found && h.Type == HookEvent {
				return complain("has the key %s, which each event sets: rename it", key)
			}
		}
		return ""
	}},
	{advice, "url", func(_ *Canary, h *Hook) complaint {
		u, err := url.Parse(h.URL)
		if err != nil {
			return ""
		}
		if _, has := u.User.Password(); has {
			return "holds a password, which anyone who reads the manifest sees: use secretRef"
		}
		if u.Scheme == "http" && h.SecretRef != nil {
			return "is http, so that the credentials of secretRef go in the clear: use https"
		}
		return ""
	}},
	{advice, "certSecretRef", func(_ *Canary, h *Hook) complaint {
		if u, err := url.Parse(h.URL); err == nil && u.Scheme == "http" && h.CertSecretRef != nil {
			return "has no effect: url is http"
		}
		return ""
	}},
	{advice, "disableTLS", func(_ *Canary, h *Hook) complaint {
		if h.DisableTLS && h.SecretRef != nil {
			return "sends the credentials of secretRef to a server whose certificate is not verified: use certSecretRef"
		}
		return ""
	}},
}

// sameName complains about a webhook that is called as one before it.
func sameName(c *Canary, h *Hook) complaint {
	all := c.Spec.Analysis.Webhooks
	if first := slices.IndexFunc(all, func(o Hook) bool { return o.Name == h.Name }); first >= 0 && &all[first] != h {
		return complain("%s is the name of webhooks[%d] as well: events and logs do not tell them apart", document.Quote(h.Name), first)
	}
	return ""
}

func secretName(ref *SecretRef) complaint {
	if ref == nil {
		return ""
	}
	return of(document.CheckName(ref.Name))
}
