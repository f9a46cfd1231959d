package source

import (
	"cmp"
	"encoding/base64"
	"errors"
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

// secretKey matches the keys of a Secret, which have at most maxSecretKey bytes.
var secretKey = regexp.MustCompile(`^[-._a-zA-Z0-9]+$`)

const maxSecretKey = 253

// addSecret adds a Secret document. Errors never include a value.
func (d *streamDecoder) addSecret(o document.Object) {
	if o.At("sops") != nil {
		d.addEncrypted(o, "is encrypted with SOPS: decrypt it first (sops --decrypt), or give its keys as files or environment variables")
		return
	}
	var doc secretDocument
	dec := new(document.Decoder)
	dec.Decode(o.Node, &doc, "")
	rules := new(document.Findings)
	checkMetadata(&doc.Metadata, rules)
	secret := Secret{Type: doc.Type, Data: doc.decode(rules)}
	setDefault(&secret.Type, opaque)
	adviseLogins(secret, &dec.Warnings)
	if d.registerCredentials(o, dec, rules) {
		put(&d.set.Secrets, namespacedName(o), secret)
	}
}

// partRules are the rules of documents that are decoded only in part.
func partRules(string) document.Rule { return document.Rule{Ignored: true, Optional: true} }

// addServiceAccount adds the pull secrets of a ServiceAccount document.
func (d *streamDecoder) addServiceAccount(o document.Object) {
	var doc struct {
		ImagePullSecrets []LocalReference `json:"imagePullSecrets,omitempty"`
	}
	dec := &document.Decoder{Rules: partRules}
	dec.Decode(o.Node, &doc, "")
	rules := new(document.Findings)
	names := make([]string, len(doc.ImagePullSecrets))
	for i, ref := range doc.ImagePullSecrets {
		names[i] = ref.Name
		rules.Check(fmt.Sprintf("imagePullSecrets[%d].name", i), document.CheckName(ref.Name))
	}
	if d.registerCredentials(o, dec, rules) {
		put(&d.set.accounts, namespacedName(o), names)
	}
}

// registerCredentials is [streamDecoder.register] for a Secret or ServiceAccount. A later look-up of a defective one
// returns its first defect.
func (d *streamDecoder) registerCredentials(o document.Object, dec *document.Decoder, rules *document.Findings) bool {
	ok := d.register(o, o.Name(o.Type, DefaultNamespace), dec, rules)
	if len(dec.Errors) > 0 {
		e := dec.Errors[0] // without the object, which the error of the look-up names
		put(&d.set.unusable, o.Type+"/"+namespacedName(o), error(&DocumentError{File: e.File, Line: e.Line, Field: e.Field, Err: e.Err}))
	}
	return ok
}

// addEncrypted records a Secret that headgate cannot read because it is encrypted. The set may also have a
// readable one of that name.
func (d *streamDecoder) addEncrypted(o document.Object, why string) {
	d.set.Warnings = append(d.set.Warnings, &DocumentError{
		File: d.File, Document: d.Number, Line: o.Line, Object: o.Name("Secret", DefaultNamespace), Err: errors.New(why),
	})
	put(&d.set.unusable, "Secret/"+namespacedName(o), error(&missingSecretError{unusable: fmt.Errorf("the document in %s %s", d.File, why)}))
}

// namespacedName returns NAMESPACE/NAME of an object.
func namespacedName(o document.Object) string {
	return cmp.Or(o.StringAt("metadata", "namespace"), DefaultNamespace) + "/" + o.StringAt("metadata", "name")
}

// adviseLogins warns about the output of docker login in a Secret of a type for which the reference
// implementation ignores it.
func adviseLogins(s Secret, found *document.Findings) {
	for _, key := range []string{".dockerconfigjson", ".dockercfg"} {
		want := "kubernetes.io/" + key[1:]
		if len(s.Data[key]) > 0 && s.Type != want {
			found.Add("type", "is %s, so that a cluster does not use %s: set it to %s", quote(s.Type), key, want)
			return
		}
	}
}

// decode returns the values by key; stringData takes precedence over data.
func (s *secretDocument) decode(found *document.Findings) map[string][]byte {
	data := make(map[string][]byte, len(s.Data)+len(s.StringData))
	for _, key := range slices.Sorted(maps.Keys(s.Data)) {
		value, err := base64.StdEncoding.DecodeString(s.Data[key])
		found.AddIf(err != nil, "data["+key+"]", "is not base64: use stringData for plain text")
		data[key] = value
	}
	for key, value := range s.StringData {
		data[key] = []byte(value)
	}
	size := 0
	for _, key := range slices.Sorted(maps.Keys(data)) {
		size += len(data[key])
		found.AddIf(len(key) > maxSecretKey || !secretKey.MatchString(key), "data", "the key %s must hold letters, digits, '-', '_' and '.' only", quote(key))
	}
	found.AddIf(size > maxSecret, "data", "must hold at most %d MiB", maxSecret>>20)
	return data
}
