package metric

import (
	"cmp"
	"errors"
	"io"
	"net/url"
	"strings"

	"github.com/headgate-io/headgate/internal/document"
	"github.com/headgate-io/headgate/internal/notify"
	"github.com/headgate-io/headgate/rollout"
)

// A Template is a document of kind MetricTemplate: a query and the provider that
// answers it.
type Template struct {
	APIVersion string           `json:"apiVersion"`
	Kind       string           `json:"kind"`
	Metadata   rollout.Metadata `json:"metadata"`
	Spec       TemplateSpec     `json:"spec"`
}

// A TemplateSpec is the specification of a [Template].
type TemplateSpec struct {
	Provider Provider `json:"provider,omitzero"`
	Query    string   `json:"query,omitempty"`
}

// A Provider is the server or program that answers a query.
type Provider struct {
	Type               string              `json:"type,omitempty"` // prometheus (default), http or exec
	Address            string              `json:"address,omitempty"`
	SecretRef          *rollout.SecretRef  `json:"secretRef,omitempty"`
	InsecureSkipVerify bool                `json:"insecureSkipVerify,omitempty"` // certificates are not verified
	Headers            map[string][]string `json:"headers,omitempty"`
	Region             string              `json:"region,omitempty"` // used only by unsupported providers
}

// The types of providers.
const (
	typePrometheus = "prometheus"
	typeHTTP       = "http"
	typeExec       = "exec"
)

// typeOrDefault returns the type of the provider, by default prometheus.
func (p Provider) typeOrDefault() string { return cmp.Or(p.Type, typePrometheus) }

// String returns the type and the address of the provider, without credentials.
func (p Provider) String() string {
	return strings.TrimSpace(p.typeOrDefault() + " " + excerpt(p.Address, nil))
}

// Decode reads the MetricTemplate documents of the groups [rollout.Group] and
// [rollout.ReferenceGroup], version v1beta1, from a stream of YAML documents or JSON
// values. Documents of other kinds are skipped. The error joins all defects, each
// with its position; unsupported providers and duplicate names are defects.
// Templates without defects are returned with the error. File is the name of the
// stream in errors.
func Decode(file string, r io.Reader) ([]*Template, error) {
	manifest := document.Manifest{Kind: "MetricTemplate", Groups: []string{rollout.Group, rollout.ReferenceGroup}, Version: "v1beta1", Namespace: rollout.DefaultNamespace}
	return document.DecodeAll(file, r, manifest, (*Template).check)
}

func (t *Template) namespace() string { return cmp.Or(t.Metadata.Namespace, rollout.DefaultNamespace) }

// name returns NAMESPACE/NAME.
func (t *Template) name() string { return t.namespace() + "/" + t.Metadata.Name }

// Check returns the defects of the template, joined, each with its field.
func (t *Template) Check() error {
	var found document.Findings
	t.check(&found)
	return errors.Join(found.ErrorsFor("")...)
}

// check adds the defects of the template to found.
func (t *Template) check(found *document.Findings) {
	p, kind := t.Spec.Provider, t.Spec.Provider.typeOrDefault()
	found.Check("metadata.name", document.CheckName(t.Metadata.Name))
	found.Check("metadata.namespace", document.CheckNamespace(t.namespace()))
	exec := kind == typeExec
	if kind == typePrometheus || kind == typeHTTP {
		found.Check("spec.provider.address", checkAddress(p.Address, kind == typeHTTP))
	}
	switch kind {
	case typePrometheus:
		found.Check("spec.query", checkQuery(t.Spec.Query))
	case typeHTTP:
		found.Check("spec.query", checkPath(t.Spec.Query))
	case typeExec:
		found.Check("spec.query", checkCommand(t.Spec.Query))
	default:
		found.Add("spec.provider.type", "%s is not supported: use prometheus, http or exec, or a webhook", document.Quote(p.Type))
		return
	}
	if p.SecretRef != nil {
		found.Check("spec.provider.secretRef.name", document.CheckName(p.SecretRef.Name))
	}
	const foreign = "is not for type %s: remove it"
	found.AddIf(exec && p.Address != "", "spec.provider.address", foreign, kind)
	found.AddIf(exec && p.Headers != nil, "spec.provider.headers", foreign, kind)
	found.AddIf(exec && p.InsecureSkipVerify, "spec.provider.insecureSkipVerify", foreign, kind)
	found.AddIf(p.Region != "", "spec.provider.region", foreign, kind)
	found.AddIf(exec && p.SecretRef != nil, "spec.provider.secretRef", foreign, kind)
}

// checkAddress validates the address of a provider. If placeholders is true, the
// address may have placeholders after its host.
func checkAddress(address string, placeholders bool) error {
	scheme, rest, _ := strings.Cut(address, "://")
	host, _, path := strings.Cut(rest, "/")
	switch {
	case address == "":
		return errors.New("is required: the URL of the server")
	case !strings.Contains(address, "{{"):
	case !placeholders:
		return errors.New("has placeholders, which only type http knows")
	case !path || strings.Contains(scheme+host, "{{"):
		return errors.New("may have placeholders in its path and query only: write https://HOST/")
	}
	if err := parseQuery(address); err != nil {
		return err
	}
	_, err := parseAddress(address)
	return err
}

// parseAddress parses the URL of a server. The error does not show the URL.
func parseAddress(address string) (*url.URL, error) {
	u, err := notify.ParseURL(address)
	if err == nil && u.Fragment != "" {
		err = errors.New("has a fragment: remove what begins with #")
	}
	return u, err
}
