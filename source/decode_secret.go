package source

import (
	"encoding/base64"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/headgate-io/headgate/internal/document"
)

// secretDocument is the document of a v1 Secret.
type secretDocument struct {
	Header
	Type       string            `json:"type,omitempty"`
	Immutable  bool              `json:"immutable,omitempty"`
	Data       map[string]string `json:"data,omitempty"` // base64
	StringData map[string]string `json:"stringData,omitempty"`
}

const opaque = "Opaque"

// secretKey is what keys of a Secret look like, of at most maxSecretKey bytes.
var secretKey = regexp.MustCompile(`^[-._a-zA-Z0-9]+$`)

const maxSecretKey = 253

// secret files a Secret document. No error about one repeats a value.
func (d *decoding) secret(o document.Object) {
	name := o.Name("Secret", DefaultNamespace)
	if o.At("sops") != nil {
		d.seal(o, name, "is encrypted with SOPS: decrypt it first (sops --decrypt), or give its keys as files or environment variables")
		return
	}
	var doc secretDocument
	dec := d.Decoder(nil)
	dec.Decode(o.Node, &doc, "")
	var rules document.Findings
	checkMetadata(&doc.Metadata, &rules)
	secret := Secret{Type: doc.Type, Data: doc.decode(&rules)}
	dec.Adopt(&rules)
	or(&secret.Type, opaque)
	d.Note(d.Place(&dec.Findings, o.Node, name)...)
	if len(dec.Errors) > 0 {
		d.defect(o, "Secret", "secret", false, atLine(dec.Errors[0]))
		return
	}
	if !d.first(o.Node, name, name) {
		return
	}
	if d.set.Secrets == nil {
		d.set.Secrets = make(map[string]Secret)
	}
	d.set.Secrets[doc.Metadata.space()+"/"+doc.Metadata.Name] = secret
	adviseLogins(secret, &dec.Warnings)
	d.set.Warnings = append(d.set.Warnings, d.Warn(&dec.Warnings, o.Node, name)...)
}

// adviseLogins warns of what docker login writes under a type by which the
// reference does not look for it.
func adviseLogins(s Secret, found *document.Findings) {
	for _, key := range []string{".dockerconfigjson", ".dockercfg"} {
		want := "kubernetes.io/" + key[1:]
		if len(s.Data[key]) > 0 && s.Type != want {
			found.Add("type", "is %s, so that a cluster does not use %s: set it to %s", quote(s.Type), key, want)
			return
		}
	}
}

// decode returns the values by key; stringData wins over data.
func (s *secretDocument) decode(found *document.Findings) map[string][]byte {
	data := make(map[string][]byte, len(s.Data)+len(s.StringData))
	size := 0
	for _, key := range slices.Sorted(maps.Keys(s.Data)) {
		value, err := base64.StdEncoding.DecodeString(s.Data[key])
		if err != nil {
			found.Add("data["+key+"]", "is not base64: use stringData for plain text")
		}
		data[key] = value
	}
	for key, value := range s.StringData {
		data[key] = []byte(value)
	}
	for _, key := range slices.Sorted(maps.Keys(data)) {
		size += len(data[key])
		if len(key) > maxSecretKey || !secretKey.MatchString(key) {
			found.Add("data", "the key %s must hold letters, digits, '-', '_' and '.' only", quote(key))
		}
	}
	if size > maxSecret {
		found.Add("data", "must hold at most %d MiB", maxSecret>>20)
	}
	return data
}

// defect files what is wrong with the Secret or ServiceAccount o for those that
// ask for it. One that can be used may be beside it.
func (d *decoding) defect(o document.Object, kind, what string, elsewhere bool, why error) {
	put(&d.set.defective, kind+"/"+spaceName(o), &defective{what + " " + spaceName(o), why, elsewhere})
}

// atLine is e without the object, which the error of a look-up names.
func atLine(e *DocumentError) error {
	return &DocumentError{File: e.File, Line: e.Line, Field: e.Field, Err: e.Err}
}

// seal files a Secret that only others can read.
func (d *decoding) seal(o document.Object, name, why string) {
	d.set.Warnings = append(d.set.Warnings, &DocumentError{
		File: d.File(), Document: d.Number(), Line: o.Line, Object: name, Err: fmt.Errorf("%s", why),
	})
	d.defect(o, "Secret", "secret", true, fmt.Errorf("the document in %s %s", d.File(), why))
}

func (d *decoding) sealedSecret(o document.Object) {
	d.seal(o, o.Name("Secret", DefaultNamespace),
		"is a SealedSecret, which only its cluster can decrypt: give its keys as files, environment variables or a Secret document")
}

// account files the pull secrets of a ServiceAccount document.
func (d *decoding) account(o document.Object) {
	name := o.Name("ServiceAccount", DefaultNamespace)
	var names []string
	var found document.Findings
	if list := o.At("imagePullSecrets"); list != nil && list.Kind != document.Null {
		if list.Kind != document.List {
			found.Add("imagePullSecrets", "must be a list, not %s", list.Kind)
		}
		for i, item := range list.Items {
			names = append(names, item.StringAt("name"))
			if err := objectName(names[i]); err != nil {
				found.Note(&DocumentError{Line: item.Line, Field: fmt.Sprintf("imagePullSecrets[%d].name", i), Err: err})
			}
		}
	}
	d.Note(d.Place(&found, o.Node, name)...)
	if len(found.Errors) > 0 {
		d.defect(o, "ServiceAccount", "service account", false, atLine(found.Errors[0]))
		return
	}
	if !d.first(o.Node, name, name) {
		return
	}
	if d.set.accounts == nil {
		d.set.accounts = make(map[string][]string)
	}
	d.set.accounts[spaceName(o)] = names
}

// spaceName returns NAMESPACE/NAME of an object.
func spaceName(o document.Object) string {
	return fallback(o.StringAt("metadata", "namespace"), DefaultNamespace) + "/" + o.StringAt("metadata", "name")
}
