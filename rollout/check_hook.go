package rollout

import (
	"net/url"
	"slices"

	"github.com/headgate-io/headgate/internal/document"
)

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
