package httpserve

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/headgate-io/headgate/internal/document"
)

// Limits of the file of callers.
const (
	minToken   = 16   // bytes
	maxToken   = 4096 // bytes
	maxName    = 100  // bytes
	maxCallers = 1000
)

// A ListRule is the rule for a list of patterns in a scope.
type ListRule struct {
	Check  func(Pattern) string  // returns what is wrong with a pattern, "" if it is valid
	Adjust func(Pattern) Pattern // returns the pattern that is compared; nil for the same
	Absent string                // what a scope without the list allows, for messages; default all
}

// CheckText is the [ListRule] check for arbitrary printable names.
func CheckText(p Pattern) string {
	if p == "" || strings.ContainsFunc(string(p), func(r rune) bool { return !unicode.IsPrint(r) }) {
		return "must be a name, or a pattern with *"
	}
	return ""
}

// CheckNamespace is the [ListRule] check for namespaces.
func CheckNamespace(p Pattern) string {
	if p == "" || strings.Trim(string(p), "*abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return document.Quote(string(p)) + " is no namespace: write lower-case letters, digits and '-', and * for any text"
	}
	return ""
}

// A caller is an entry of the file, which is a YAML or JSON document. A file without
// tokens and certificates is refused.
//
//	tokens:
//	- name: ci                   # of the caller, in logs
//	  token: 7d0f…               # at least 16 bytes; or
//	  sha256: 9f86d0…            # the SHA-256 of the token, 64 hexadecimal digits
//	  expires: 2027-01-01T00:00:00Z
//	certificates:
//	- name: alice
//	  commonName: alice          # of the subject; or
//	  dns: ci.example.com        # a DNS name of the certificate; or
//	  uri: spiffe://example.com/ns/ci/sa/runner
type caller struct {
	Scope
	Name    string    `json:"name"`
	Expires time.Time `json:"expires,omitzero"`

	Token  string `json:"token,omitempty"`
	SHA256 string `json:"sha256,omitempty"`

	CommonName string `json:"commonName,omitempty"`
	DNS        string `json:"dns,omitempty"`
	URI        string `json:"uri,omitempty"`

	digest digest // of the token; zero for a certificate
}

// readCallers decodes the file of callers. The warnings are probable mistakes.
func readCallers(name string, content []byte, lists map[string]ListRule) ([]caller, []error, error) {
	stream, err := document.Open(name, bytes.NewReader(content))
	if err != nil {
		return nil, nil, err
	}
	var out struct {
		Tokens       []caller `json:"tokens,omitempty"`
		Certificates []caller `json:"certificates,omitempty"`
	}
	var warnings []error
	for n := range stream.Documents() {
		if stream.Number > 1 {
			stream.Fail(n, "", "a second document: write all callers into one")
			break
		}
		d, v := new(document.Decoder), verifier{lists: lists, taken: map[string]string{}}
		d.Decode(n, &out, "")
		if len(out.Tokens)+len(out.Certificates) > maxCallers {
			v.defects.Add("", "names more than %d callers", maxCallers)
		} else {
			for i := range out.Tokens {
				at := fmt.Sprintf("tokens[%d]", i)
				v.checkCaller(at, n.At("tokens").Items[i], &out.Tokens[i])
				v.checkToken(at, &out.Tokens[i])
			}
			for i := range out.Certificates {
				at := fmt.Sprintf("certificates[%d]", i)
				v.checkCaller(at, n.At("certificates").Items[i], &out.Certificates[i])
				v.checkCertificate(at, &out.Certificates[i])
			}
		}
		d.Adopt(&v.defects)
		stream.Note(stream.Locate(&d.Findings, n, "")...)
		warnings = stream.Warn(&v.warnings, n, "")
	}
	if err := stream.Err(); err != nil {
		return nil, nil, err
	}
	if len(out.Tokens) == 0 && len(out.Certificates) == 0 {
		return nil, nil, &document.Error{File: name, Err: errors.New("it names no callers: write them below tokens or certificates")}
	}
	// A file mounted from a Secret is a symbolic link. It is not checked, as no other user in the container reads it.
	if info, err := os.Lstat(name); err == nil && runtime.GOOS != "windows" && info.Mode().IsRegular() && info.Mode().Perm()&0o006 != 0 {
		warnings = append(warnings, &document.Error{File: name, Err: errors.New("every user of this machine can read it: make its mode 0600")})
	}
	return append(out.Tokens, out.Certificates...), warnings, nil
}

// A verifier checks the rules of the file that its Go types do not express.
type verifier struct {
	lists             map[string]ListRule
	taken             map[string]string // fields of names, digests and subjects, which must be unique
	defects, warnings document.Findings
}

// checkUnique records that the field at contains value, which must be unique. If another field contains it as well, checkUnique adds
// a defect; problem is its format, with the other field as argument.
func (v *verifier) checkUnique(value, at, problem string) {
	other, taken := v.taken[value]
	v.defects.AddIf(taken, at, problem, strings.TrimSuffix(other, ".name"))
	v.taken[value] = at
}

// checkCaller checks the fields that tokens and certificates have in common.
func (v *verifier) checkCaller(at string, n *document.Node, c *caller) {
	if c.Name == "" || len(c.Name) > maxName || strings.ContainsFunc(c.Name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		v.defects.Add(at+".name", "must be a text of at most %d bytes without control characters", maxName)
	} else {
		v.checkUnique("name "+c.Name, at+".name", "is the name of %s, too: each caller has its own")
	}
	v.warnings.AddIf(!c.Expires.IsZero() && c.Expires.Before(time.Now()), at+".expires", "%s has expired", document.Quote(c.Name))
	for name, list := range map[string]*[]Pattern{
		"may": c.Scope.May, "namespaces": c.Scope.Namespaces, "kinds": c.Scope.Kinds, "types": c.Scope.Types, "gates": c.Scope.Gates,
	} {
		field, rule := at+"."+name, v.lists[name]
		switch given := n.At(name); {
		case given == nil:
			continue
		case rule.Check == nil:
			v.defects.Add(field, "unknown field")
			continue
		case given.Kind == document.Null:
			v.defects.Add(field, "has no value: leave it out for %s, write [] for none", cmp.Or(rule.Absent, "all"))
			continue
		case list == nil:
			continue // the decoder reported it
		}
		v.warnings.AddIf(len(*list) == 0, field, "is empty: %s is allowed none", document.Quote(c.Name))
		for i, p := range *list {
			if problem := rule.Check(p); problem != "" {
				v.defects.Add(fmt.Sprintf("%s[%d]", field, i), "%s", problem)
			} else if rule.Adjust != nil {
				(*list)[i] = rule.Adjust(p)
			}
		}
	}
}

// checkToken checks the credential of a caller with a token. It stores only the digest of the token.
func (v *verifier) checkToken(at string, c *caller) {
	switch sum, err := hex.DecodeString(c.SHA256); {
	case (c.Token == "") == (c.SHA256 == "") || c.CommonName+c.DNS+c.URI != "":
		v.defects.Add(at, "wants either token or sha256")
		return
	case c.Token != "":
		v.defects.AddIf(len(c.Token) < minToken, at+".token", "is shorter than %d bytes: make one with openssl rand -hex 32", minToken)
		v.defects.AddIf(len(c.Token) > maxToken, at+".token", "is longer than %d bytes", maxToken)
		invalid := strings.ContainsFunc(c.Token, func(r rune) bool { return r <= ' ' || r > '~' })
		v.defects.AddIf(invalid, at+".token", "has characters that do not fit into a header: write printable ASCII without spaces")
		c.digest, c.Token = digestOf(c.Token), ""
	case err != nil || len(sum) != len(c.digest):
		v.defects.Add(at+".sha256", "must be %d hexadecimal digits: that of a token is what printf %%s TOKEN | sha256sum prints", 2*len(c.digest))
		return
	default:
		c.digest = digest(sum)
		v.defects.AddIf(c.digest == digestOf(""), at+".sha256", "is that of an empty text: was the token set when it was made?")
	}
	v.checkUnique("digest "+string(c.digest[:]), at, "has the token of %s: each caller has its own")
}

// checkCertificate checks the credential of a caller with a certificate.
func (v *verifier) checkCertificate(at string, c *caller) {
	given := slices.DeleteFunc([]string{c.CommonName, c.DNS, c.URI}, func(text string) bool { return text == "" })
	if len(given) != 1 || c.Token+c.SHA256 != "" {
		v.defects.Add(at, "wants one of commonName, dns and uri")
		return
	}
	v.checkUnique(fmt.Sprintf("subject %q %q %q", c.CommonName, c.DNS, c.URI), at, "has the subject of %s: each caller has its own")
}
