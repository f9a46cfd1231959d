package metric

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/headgate-io/headgate/internal/document"
	"github.com/headgate-io/headgate/rollout"
)

// A Template is a query and the provider it is asked of: a document of kind
// MetricTemplate.
type Template struct {
	APIVersion string           `json:"apiVersion"`
	Kind       string           `json:"kind"`
	Metadata   rollout.Metadata `json:"metadata"`
	Spec       TemplateSpec     `json:"spec"`
}

// A TemplateSpec is what a [Template] says.
type TemplateSpec struct {
	Provider Provider `json:"provider,omitzero"`
	Query    string   `json:"query,omitempty"`
}

// A Provider is where a query is asked, and how.
type Provider struct {
	Type               string              `json:"type,omitempty"` // prometheus (default), http or exec
	Address            string              `json:"address,omitempty"`
	SecretRef          *rollout.SecretRef  `json:"secretRef,omitempty"`
	InsecureSkipVerify bool                `json:"insecureSkipVerify,omitempty"` // certificates are not verified
	Headers            map[string][]string `json:"headers,omitempty"`
	Region             string              `json:"region,omitempty"` // of providers that are not supported
}

// The types of providers.
const (
	typePrometheus = "prometheus"
	typeHTTP       = "http"
	typeExec       = "exec"
)

// kindOf returns the type of the provider, with its default.
func (p Provider) kindOf() string { return cmp.Or(p.Type, typePrometheus) }

// String names the provider in errors: its type and its address, without credentials.
func (p Provider) String() string {
	return strings.TrimSpace(p.kindOf() + " " + shown(p.Address, nil))
}

// Decode reads the MetricTemplate documents of a stream of YAML documents or
// JSON values, of the groups [rollout.Group] and [rollout.ReferenceGroup], version v1beta1.
// Documents of other kinds are skipped. The error joins what is wrong, each
// with its place, templates with providers that are not supported and others of the
// same name among that; good templates are returned all the same.
func Decode(file string, r io.Reader) ([]*Template, error) {
	manifest := document.Manifest{Kind: "MetricTemplate", Groups: []string{rollout.Group, rollout.ReferenceGroup}, Version: "v1beta1", Namespace: rollout.DefaultNamespace}
	return document.DecodeAll(file, r, manifest, (*Template).check)
}

func (t *Template) namespace() string { return cmp.Or(t.Metadata.Namespace, rollout.DefaultNamespace) }

// name returns NAMESPACE/NAME.
func (t *Template) name() string { return t.namespace() + "/" + t.Metadata.Name }

// Check returns what is wrong with the template, joined, each with its field.
func (t *Template) Check() error {
	var found document.Findings
	t.check(&found)
	return errors.Join(found.Of("")...)
}

// check adds to found what is wrong with the template.
func (t *Template) check(found *document.Findings) {
	p := t.Spec.Provider
	add := func(field string, err error) {
		if err != nil {
			found.Add(field, "%w", err)
		}
	}
	add("metadata.name", document.CheckName(t.Metadata.Name))
	add("metadata.namespace", document.CheckNamespace(t.namespace()))
	switch p.kindOf() {
	case typePrometheus:
		add("spec.provider.address", checkAddress(p.Address, false))
		add("spec.query", checkQuery(t.Spec.Query))
	case typeHTTP:
		add("spec.provider.address", checkAddress(p.Address, true))
		add("spec.query", checkPath(t.Spec.Query))
	case typeExec:
		add("spec.query", checkCommand(t.Spec.Query))
	default:
		add("spec.provider.type", fmt.Errorf("%s is not supported: use prometheus, http or exec, or a webhook", document.Quote(p.Type)))
		return
	}
	if p.SecretRef != nil {
		add("spec.provider.secretRef.name", document.CheckName(p.SecretRef.Name))
	}
	exec := p.kindOf() == typeExec
	for _, foreign := range []struct {
		field string
		set   bool
	}{
		{"address", exec && p.Address != ""}, {"headers", exec && p.Headers != nil}, {"insecureSkipVerify", exec && p.InsecureSkipVerify},
		{"region", p.Region != ""}, {"secretRef", exec && p.SecretRef != nil},
	} {
		if foreign.set {
			add("spec.provider."+foreign.field, fmt.Errorf("is not for type %s: remove it", p.kindOf()))
		}
	}
}

// checkAddress judges the address of a provider; with placeholders it may have
// them behind its host.
func checkAddress(address string, placeholders bool) error {
	if address == "" {
		return errors.New("is required: the URL of the server")
	}
	if placeholders {
		if err := parseQuery(address); err != nil {
			return err
		}
		scheme, rest, _ := strings.Cut(address, "://")
		if host, _, _ := strings.Cut(rest, "/"); strings.Contains(scheme+host, "{{") || len(rest) == 0 {
			return errors.New("may have placeholders in its path and query only: write https://HOST/")
		}
		address = address[:len(scheme)+len("://")] + rest[:strings.IndexByte(rest+"/", '/')]
	} else if strings.Contains(address, "{{") {
		return errors.New("has placeholders, which only type http knows")
	}
	_, err := parseAddress(address)
	return err
}

// parseAddress reads the URL of a server. The error does not show it.
func parseAddress(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return nil, errors.New("is no URL: write http://HOST:PORT")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("must be a URL with http or https")
	case u.Hostname() == "":
		return nil, errors.New("has no host: write http://HOST:PORT")
	case u.Fragment != "":
		return nil, errors.New("has a fragment: remove what begins with #")
	}
	return u, nil
}
