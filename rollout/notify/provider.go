package notify

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

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
	spec := &p.Spec
	s := services[spec.Type]
	if s == nil {
		errs = append(errs, fmt.Errorf("spec.type %q is not known: use one of %s", spec.Type, strings.Join(types(), ", ")))
	}
	if spec.Address == "" && spec.SecretRef == nil {
		errs = append(errs, errors.New("spec.address is missing: give it, or a spec.secretRef to a Secret with the key address"))
	}
	if spec.Address != "" {
		if _, err := parseURL(spec.Address); err != nil {
			errs = append(errs, fmt.Errorf("spec.address %w", err))
		}
	}
	if spec.Proxy != "" {
		if _, err := parseProxy(spec.Proxy); err != nil {
			errs = append(errs, fmt.Errorf("spec.proxy %w", err))
		}
	}
	return errors.Join(errs...)
}

func types() []string {
	var names []string
	for _, t := range slices.Sorted(maps.Keys(services)) {
		names = append(names, string(t))
	}
	return names
}

// Decode reads the AlertProvider manifests of a stream of YAML documents or
// JSON values; documents of other kinds are skipped. The error joins what is
// wrong with them.
func Decode(file string, r io.Reader) ([]*Provider, error) { return nil, errors.New("not built") }
