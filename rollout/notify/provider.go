package notify

import (
	"cmp"
	"io"
	"maps"
	"slices"

	"github.com/headgate-io/headgate/internal/document"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/rollout"
)

// A Type is the type of the service of a provider.
type Type string

// The types of services.
const (
	Slack   Type = "slack"
	MSTeams Type = "msteams"
	Discord Type = "discord"
	Rocket  Type = "rocket"
	GChat   Type = "gchat"
	Generic Type = "generic" // the event as JSON
)

// A Provider is an AlertProvider manifest: a service that alerts are posted to.
type Provider struct {
	APIVersion string           `json:"apiVersion"`
	Kind       string           `json:"kind"`
	Metadata   rollout.Metadata `json:"metadata"`
	Spec       ProviderSpec     `json:"spec"`
}

// A ProviderSpec defines how alerts are posted to a service.
type ProviderSpec struct {
	Type     Type   `json:"type"`
	Channel  string `json:"channel,omitempty"`  // default general; for slack, discord and rocket
	Username string `json:"username,omitempty"` // default headgate
	Address  string `json:"address,omitempty"`  // URL; the key address of the Secret takes precedence
	Proxy    string `json:"proxy,omitempty"`    // URL

	// SecretRef names a Secret in the namespace of the provider, with the keys
	// address (a URL) and, for slack and generic, token.
	SecretRef *rollout.SecretRef `json:"secretRef,omitempty"`

	// CertSecretRef names a Secret with ca.crt, tls.crt and tls.key. It is an extension of headgate.
	CertSecretRef *rollout.SecretRef `json:"certSecretRef,omitempty"`
}

// String returns NAMESPACE/NAME of the provider.
func (p *Provider) String() string { return p.namespace() + "/" + p.Metadata.Name }

func (p *Provider) namespace() string { return cmp.Or(p.Metadata.Namespace, rollout.DefaultNamespace) }

// check adds the defects of the provider to found.
func (p *Provider) check(found *document.Findings) {
	found.Check("metadata.name", document.CheckName(p.Metadata.Name))
	found.Check("metadata.namespace", document.CheckNamespace(p.namespace()))
	_, known := services[p.Spec.Type]
	found.AddIf(!known, "spec.type", "%s is not known: use one of %s", document.Quote(redact.String(string(p.Spec.Type))), slices.Sorted(maps.Keys(services)))
	p.webhook().Check(found)
}

// Decode reads the AlertProvider manifests (flagger.app/v1beta1 or
// rollout.headgate.dev/v1beta1) from a stream of YAML documents or JSON values;
// documents of other kinds are skipped. It is strict: unknown fields and values of
// the wrong type are errors. The error joins all defects; providers without defects
// are returned with it. File is the name of the stream in errors.
func Decode(file string, r io.Reader) ([]*Provider, error) {
	kind := document.Manifest{Kind: "AlertProvider", Groups: []string{rollout.Group, rollout.ReferenceGroup}, Version: "v1beta1", Namespace: rollout.DefaultNamespace}
	return document.DecodeAll(file, r, kind, func(p *Provider, found *document.Findings) {
		p.Metadata.Namespace = p.namespace()
		p.check(found)
	})
}
