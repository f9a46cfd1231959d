package notify

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/headgate-io/headgate/internal/deliver"
	"github.com/headgate-io/headgate/internal/document"
	"github.com/headgate-io/headgate/source"
)

// A Receiver is a webhook that is told events.
type Receiver struct {
	URL      string `json:"url,omitempty"`      // http or https; the key address of the Secret counts before it
	Severity string `json:"severity,omitempty"` // info (default) or error: the least that is told
	Proxy    string `json:"proxy,omitempty"`    // URL: http, https, socks5 or socks5h

	// SecretRef names a Secret with any of the keys address (a URL), token or
	// bearerToken, or username and password, and headers, one "Name: value" a line.
	SecretRef *SecretRef `json:"secretRef,omitempty"`
	// CertSecretRef names a Secret with ca.crt, tls.crt and tls.key.
	CertSecretRef *SecretRef `json:"certSecretRef,omitempty"`
}

// A SecretRef names a Secret.
type SecretRef struct {
	Namespace string `json:"namespace,omitempty"` // default: default
	Name      string `json:"name"`
}

func (r *SecretRef) namespace() string { return cmp.Or(r.Namespace, source.DefaultNamespace) }

// String returns NAMESPACE/NAME.
func (r *SecretRef) String() string { return r.namespace() + "/" + r.Name }

// ParseReceiver reads a receiver as a command has it: its URL, for all events, or
// error=URL. The error does not show the URL.
func ParseReceiver(text string) (Receiver, error) {
	r := Receiver{URL: text}
	for severity := range ranks {
		if rest, found := strings.CutPrefix(text, severity+"="); found {
			r = Receiver{Severity: severity, URL: rest}
		}
	}
	for _, d := range r.defects() {
		return Receiver{}, errors.New("the URL " + d.rule)
	}
	return r, nil
}

// A file is what a file of receivers holds.
type file struct {
	Receivers []Receiver `json:"receivers"`
}

// Decode reads a file of receivers: one YAML or JSON document.
//
//	receivers:
//	- url: https://events.example.org/hooks/sources
//	  severity: error              # default info, which is all
//	  secretRef: {name: events}    # token, username and password, headers or address
//	  certSecretRef: {name: tls}   # ca.crt, tls.crt, tls.key
//	  proxy: http://proxy.example.org:3128
//
// It is strict: unknown fields and values of the wrong type are errors. The error
// joins what is wrong. Name is the file's, for errors.
func Decode(name string, r io.Reader) ([]Receiver, error) {
	s, err := document.Open(name, r)
	if err != nil {
		return nil, err
	}
	var all []Receiver
	for n := range s.Documents() {
		var f file
		d := s.Decoder(nil)
		d.Decode(n, &f, "")
		if len(d.Errors) == 0 {
			for i := range f.Receivers {
				for _, defect := range f.Receivers[i].defects() {
					d.Add(fmt.Sprintf("receivers[%d].%s", i, defect.field), "%s", defect.rule)
				}
			}
		}
		if s.Number() > 1 {
			d.Add("receivers", "are in one document: put them into the first")
		}
		s.Note(s.Place(&d.Findings, n, "")...)
		all = append(all, f.Receivers...)
	}
	if err := s.Err(); err != nil {
		return nil, err
	}
	return all, nil
}

// A defect is a rule that a field breaks.
type defect struct{ field, rule string }

func (r *Receiver) defects() []defect {
	var list []defect
	check := func(field string, err error) {
		if err != nil {
			list = append(list, defect{field, err.Error()})
		}
	}
	if r.URL == "" && r.SecretRef == nil {
		check("url", errors.New("is missing: give it, or a secretRef to a Secret with the key address"))
	}
	if r.URL != "" {
		_, err := deliver.ParseURL(r.URL)
		check("url", err)
	}
	if r.Severity != "" && ranks[r.Severity] == 0 {
		check("severity", errors.New(document.Quote(r.Severity)+" is not known: use info or error"))
	}
	if r.Proxy != "" {
		_, err := deliver.ParseProxy(r.Proxy)
		check("proxy", err)
	}
	for _, ref := range []struct {
		field string
		ref   *SecretRef
	}{{"secretRef", r.SecretRef}, {"certSecretRef", r.CertSecretRef}} {
		if ref.ref != nil {
			check(ref.field+".name", document.CheckName(ref.ref.Name))
			check(ref.field+".namespace", document.CheckNamespace(ref.ref.namespace()))
		}
	}
	return list
}
