package httpserve

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"runtime"
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

// A List says what a list of patterns of a scope may have.
type List struct {
	Check  func(Pattern) string  // says what is wrong with a pattern, "" for nothing
	Adjust func(Pattern) Pattern // makes it the one that is compared; nil for the same
	Absent string                // what leaving it out allows; default all
}

// CheckText is the check of names that may be anything.
func CheckText(p Pattern) string {
	if p == "" || strings.ContainsFunc(string(p), func(r rune) bool { return !unicode.IsPrint(r) }) {
		return "must be a name, or a pattern with *"
	}
	return ""
}

// CheckNamespace is the check of namespaces.
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
//	- name: ci                   # who it is, in logs
//	  token: 7d0f…               # at least 16 bytes; or
//	  sha256: 9f86d0…            # the SHA-256 of it, 64 hexadecimal digits
//	  expires: 2027-01-01T00:00:00Z
//	certificates:
//	- name: alice
//	  commonName: alice          # of the subject; or
//	  dns: ci.example.com        # a DNS name of the certificate; or
//	  uri: spiffe://example.com/ns/ci/sa/runner
type caller struct {
	Name    string    `json:"name"`
	Scope   Scope     `json:",inline"`
	Expires time.Time `json:"expires,omitzero"`

	Token  string `json:"token,omitempty"`
	SHA256 string `json:"sha256,omitempty"`

	CommonName string `json:"commonName,omitempty"`
	DNS        string `json:"dns,omitempty"`
	URI        string `json:"uri,omitempty"`

	digest digest // of the token; zero for a certificate
}

// A roster is the callers of one version of the file.
type roster struct {
	Tokens       []caller `json:"tokens,omitempty"`
	Certificates []caller `json:"certificates,omitempty"`
}

// find returns the last caller that is meant, nil for none. It looks at all of them.
func (r *roster) find(meant func(*caller) bool) (found *caller) {
	for _, list := range [][]caller{r.Tokens, r.Certificates} {
		for i := range list {
			if meant(&list[i]) {
				found = &list[i]
			}
		}
	}
	return found
}

// readRoster reads the file of callers. Warnings are about what looks like a mistake.
func readRoster(name string, content []byte, lists map[string]List) (*roster, []error, error) {
	stream, err := document.Open(name, bytes.NewReader(content))
	if err != nil {
		return nil, nil, err
	}
	out := &roster{}
	var warnings []error
	for n := range stream.Documents() {
		if stream.Number > 1 {
			stream.Fail(n, "", "a second document: write all callers into one")
			break
		}
		v := verifier{lists: lists, node: n, dec: stream.Decoder(nil), taken: map[string]string{}}
		v.dec.Decode(n, out, "")
		v.check(out)
		stream.Note(stream.Place(&v.dec.Findings, n, "")...)
		warnings = stream.Warn(&v.dec.Warnings, n, "")
	}
	if err := stream.Err(); err != nil {
		return nil, nil, err
	}
	if len(out.Tokens) == 0 && len(out.Certificates) == 0 {
		return nil, nil, &document.Error{File: name, Err: errors.New("it names no callers: write them below tokens or certificates")}
	}
	// Files that are mounted from a Secret are symbolic links, and no other user of the container reads them.
	if info, err := os.Lstat(name); err == nil && runtime.GOOS != "windows" && info.Mode().IsRegular() && info.Mode().Perm()&0o006 != 0 {
		warnings = append(warnings, &document.Error{File: name, Err: errors.New("every user of this machine can read it: make its mode 0600")})
	}
	return out, warnings, nil
}

// A verifier checks what the types of a roster do not say.
type verifier struct {
	lists map[string]List
	node  *document.Node
	dec   *document.Decoder
	taken map[string]string // where names, digests and subjects are, which each caller has for itself
}

func (v *verifier) check(r *roster) {
	if len(r.Tokens)+len(r.Certificates) > maxCallers {
		v.dec.Add("", "names more than %d callers", maxCallers)
		return
	}
	for i := range r.Tokens {
		at := fmt.Sprintf("tokens[%d]", i)
		v.caller(at, v.node.At("tokens").Items[i], &r.Tokens[i])
		v.token(at, &r.Tokens[i])
	}
	for i := range r.Certificates {
		at := fmt.Sprintf("certificates[%d]", i)
		v.caller(at, v.node.At("certificates").Items[i], &r.Certificates[i])
		v.certificate(at, &r.Certificates[i])
	}
}

// alone notes where something is, and what is wrong when it is elsewhere, too.
func (v *verifier) alone(what, at, problem string) {
	if other, taken := v.taken[what]; taken {
		v.dec.Add(at, problem, strings.TrimSuffix(other, ".name"))
		return
	}
	v.taken[what] = at
}

// caller checks what tokens and certificates have in common.
func (v *verifier) caller(at string, n *document.Node, c *caller) {
	if field := at + ".name"; !v.dec.About(field) {
		if c.Name == "" || len(c.Name) > maxName || strings.ContainsFunc(c.Name, func(r rune) bool { return !unicode.IsPrint(r) }) {
			v.dec.Add(field, "must be a text of at most %d bytes without control characters", maxName)
		} else {
			v.alone("name "+c.Name, field, "is the name of %s, too: each caller has its own")
		}
	}
	if !c.Expires.IsZero() && c.Expires.Before(time.Now()) {
		v.dec.Warnings.Add(at+".expires", "%s has expired", quote(c.Name))
	}
	for name, list := range map[string]*[]Pattern{
		"may": c.Scope.May, "namespaces": c.Scope.Namespaces, "kinds": c.Scope.Kinds, "types": c.Scope.Types, "gates": c.Scope.Gates,
	} {
		v.list(at+"."+name, c.Name, n.At(name), list, name)
	}
}

// list checks a list of the scope of the caller of a name.
func (v *verifier) list(field, caller string, given *document.Node, list *[]Pattern, name string) {
	rule, known := v.lists[name]
	switch {
	case given == nil:
		return
	case !known:
		v.dec.Add(field, "unknown field")
		return
	case given.Kind == document.Null:
		v.dec.Add(field, "has no value: leave it out for %s, write [] for none", cmp.Or(rule.Absent, "all"))
		return
	case list == nil:
		return // which the decoder said
	case len(*list) == 0:
		v.dec.Warnings.Add(field, "is empty: %s is allowed none", quote(caller))
	}
	for i, p := range *list {
		if problem := rule.Check(p); problem != "" {
			v.dec.Add(fmt.Sprintf("%s[%d]", field, i), "%s", problem)
		} else if rule.Adjust != nil {
			(*list)[i] = rule.Adjust(p)
		}
	}
}

func (v *verifier) token(at string, c *caller) {
	switch {
	case (c.Token == "") == (c.SHA256 == "") || c.CommonName+c.DNS+c.URI != "":
		if !v.dec.About(at) {
			v.dec.Add(at, "wants either token or sha256")
		}
		return
	case c.SHA256 != "":
		sum, err := hex.DecodeString(c.SHA256)
		if err != nil || len(sum) != len(c.digest) {
			v.dec.Add(at+".sha256", "must be %d hexadecimal digits: that of a token is what printf %%s TOKEN | sha256sum prints", 2*len(c.digest))
			return
		}
		if c.digest = digest(sum); c.digest == digestOf("") {
			v.dec.Add(at+".sha256", "is that of an empty text: was the token set when it was made?")
			return
		}
	default:
		if problem := weak(c.Token); problem != "" {
			v.dec.Add(at+".token", "%s", problem)
			return
		}
		c.digest, c.Token = digestOf(c.Token), ""
	}
	v.alone("digest "+string(c.digest[:]), at, "has the token of %s: each caller has its own")
}

// weak says what is wrong with a token, without repeating it.
func weak(token string) string {
	switch {
	case len(token) < minToken:
		return fmt.Sprintf("is shorter than %d bytes: make one with openssl rand -hex 32", minToken)
	case len(token) > maxToken:
		return fmt.Sprintf("is longer than %d bytes", maxToken)
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "has characters that do not fit into a header: write printable ASCII without spaces"
	}
	return ""
}

func (v *verifier) certificate(at string, c *caller) {
	given := 0
	for _, text := range []string{c.CommonName, c.DNS, c.URI} {
		if text != "" {
			given++
		}
	}
	if given != 1 || c.Token+c.SHA256 != "" {
		if !v.dec.About(at) {
			v.dec.Add(at, "wants one of commonName, dns and uri")
		}
		return
	}
	v.alone(fmt.Sprintf("subject %q %q %q", c.CommonName, c.DNS, c.URI), at, "has the subject of %s: each caller has its own")
}
