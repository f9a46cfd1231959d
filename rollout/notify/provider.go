package notify

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/internal/deliver"
	"github.com/headgate-io/headgate/internal/document"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/rollout"
)

// A Type is that of a notifier.
type Type string

// The types of notifiers.
const (
	Slack   Type = "slack"
	MSTeams Type = "msteams"
	Discord Type = "discord"
	Rocket  Type = "rocket"
	GChat   Type = "gchat"
	Generic Type = "generic" // the event as JSON
)

// A Provider is an AlertProvider manifest: where alerts are posted.
type Provider struct {
	APIVersion string           `json:"apiVersion"`
	Kind       string           `json:"kind"`
	Metadata   rollout.Metadata `json:"metadata"`
	Spec       ProviderSpec     `json:"spec"`
}

// A ProviderSpec says where alerts are posted, and how.
type ProviderSpec struct {
	Type     Type   `json:"type"`
	Channel  string `json:"channel,omitempty"`  // default general; of slack, discord and rocket
	Username string `json:"username,omitempty"` // default headgate
	Address  string `json:"address,omitempty"`  // URL; the key address of the Secret counts before it
	Proxy    string `json:"proxy,omitempty"`    // URL

	// SecretRef names a Secret in the namespace of the provider, with the keys
	// address (a URL) and, for slack and generic, token.
	SecretRef *rollout.SecretRef `json:"secretRef,omitempty"`

	// CertSecretRef names a Secret with ca.crt, tls.crt and tls.key: extension of headgate.
	CertSecretRef *rollout.SecretRef `json:"certSecretRef,omitempty"`
}

func (p *ProviderSpec) channel() string {
	if p.Channel == "" {
		return "general"
	}
	return p.Channel
}

func (p *ProviderSpec) username() string {
	if p.Username == "" {
		return "headgate"
	}
	return p.Username
}

// String returns the name of the provider as alerts refer to it.
func (p *Provider) String() string {
	return namespace(p.Metadata.Namespace) + "/" + p.Metadata.Name
}

// Check returns what is wrong with the provider, joined.
func (p *Provider) Check() error {
	var errs []error
	for _, d := range p.defects() {
		errs = append(errs, fmt.Errorf("%s %s", d.field, d.rule))
	}
	return errors.Join(errs...)
}

// A defect is a rule that a field breaks.
type defect struct{ field, rule string }

func (p *Provider) defects() []defect {
	var list []defect
	spec := &p.Spec
	add := func(field, format string, args ...any) {
		list = append(list, defect{"spec." + field, fmt.Sprintf(format, args...)})
	}
	if services[spec.Type] == nil {
		add("type", "%s is not known: use one of %s", document.Quote(redact.String(string(spec.Type))), strings.Join(types(), ", "))
	}
	if spec.Address == "" && spec.SecretRef == nil {
		add("address", "is missing: give it, or a spec.secretRef to a Secret with the key address")
	}
	secret := func(field string, ref *rollout.SecretRef) {
		if ref == nil {
			return
		}
		if err := document.CheckName(ref.Name); err != nil {
			add(field+".name", "%v", err)
		}
	}
	secret("secretRef", spec.SecretRef)
	secret("certSecretRef", spec.CertSecretRef)
	if spec.Address != "" {
		if _, err := deliver.ParseURL(spec.Address); err != nil {
			add("address", "%v", err)
		}
	}
	if spec.Proxy != "" {
		if _, err := deliver.ParseProxy(spec.Proxy); err != nil {
			add("proxy", "%v", err)
		}
	}
	return list
}

func types() []string {
	var names []string
	for _, t := range slices.Sorted(maps.Keys(services)) {
		names = append(names, string(t))
	}
	return names
}
