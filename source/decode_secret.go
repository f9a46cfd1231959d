package source

import (
	"encoding/base64"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
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

var secretKey = regexp.MustCompile(`^[-._a-zA-Z0-9]{1,253}$`)

// secret files a Secret document. No error about one repeats a value.
func (d *decoding) secret(n *node) {
	name := documentName(n, "Secret")
	if n.get("sops") != nil {
		d.seal(n, name, "is encrypted with SOPS: decrypt it first (sops --decrypt), or give its keys as files or environment variables")
		return
	}
	var doc secretDocument
	dec := strict{types: d.types}
	dec.value(n, reflect.ValueOf(&doc).Elem(), place{})
	var rules findings
	checkMetadata(&doc.Metadata, &rules)
	secret := Secret{Type: doc.Type, Data: doc.decode(&rules)}
	dec.adopt(&rules)
	or(&secret.Type, opaque)
	d.errs = append(d.errs, d.place(dec.errs, n, name)...)
	if len(dec.errs) > 0 || !d.first(n, name) {
		return
	}
	if d.set.Secrets == nil {
		d.set.Secrets = make(map[string]Secret)
	}
	d.set.Secrets[doc.Metadata.space()+"/"+doc.Metadata.Name] = secret
}

// decode returns the values by key; stringData wins over data.
func (s *secretDocument) decode(found *findings) map[string][]byte {
	data := make(map[string][]byte, len(s.Data)+len(s.StringData))
	size := 0
	for _, key := range slices.Sorted(maps.Keys(s.Data)) {
		value, err := base64.StdEncoding.DecodeString(s.Data[key])
		if err != nil {
			found.add("data["+key+"]", "is not base64: use stringData for plain text")
		}
		data[key] = value
	}
	for key, value := range s.StringData {
		data[key] = []byte(value)
	}
	for _, key := range slices.Sorted(maps.Keys(data)) {
		size += len(data[key])
		if !secretKey.MatchString(key) {
			found.add("data", "the key %s must hold letters, digits, '-', '_' and '.' only", quote(key))
		}
	}
	if size > maxSecret {
		found.add("data", "must hold at most %d MiB", maxSecret>>20)
	}
	return data
}

// seal files a Secret that cannot be read, so that who asks for it is told
// why. One that can be read may be beside it.
func (d *decoding) seal(n *node, name, why string) {
	d.set.Warnings = append(d.set.Warnings, &DocumentError{
		File: d.file, Document: d.number, Line: n.line, Object: name, Err: fmt.Errorf("%s", why),
	})
	if d.set.sealed == nil {
		d.set.sealed = make(map[string]string)
	}
	space, own := documentNamespace(n), n.str("metadata", "name")
	d.set.sealed[space+"/"+own] = fmt.Sprintf("the document in %s %s", d.file, why)
}

func (d *decoding) sealedSecret(n *node) {
	d.seal(n, documentName(n, "Secret"),
		"is a SealedSecret, which only its cluster can decrypt: give its keys as files, environment variables or a Secret document")
}

// account files the pull secrets of a ServiceAccount document.
func (d *decoding) account(n *node) {
	name := documentName(n, "ServiceAccount")
	var names []string
	if list := n.get("imagePullSecrets"); list != nil {
		for i, item := range list.items {
			own := item.str("name")
			if err := objectName(own); err != nil {
				d.errs = append(d.errs, &DocumentError{
					File: d.file, Document: d.number, Line: item.line, Object: name,
					Field: fmt.Sprintf("imagePullSecrets[%d].name", i), Err: err,
				})
				return
			}
			names = append(names, own)
		}
	}
	if !d.first(n, name) {
		return
	}
	if d.set.accounts == nil {
		d.set.accounts = make(map[string][]string)
	}
	d.set.accounts[documentNamespace(n)+"/"+n.str("metadata", "name")] = names
}
