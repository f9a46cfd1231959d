package access

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

// Limits of the file.
const (
	minToken   = 16   // bytes
	maxToken   = 4096 // bytes
	maxName    = 100  // bytes
	maxCallers = 1000
)

// readRoster reads the file of callers.
func readRoster[S any](scopes func(*S) []Scope, names []string, contents [][]byte) (*roster[S], []error, error) {
	stream, err := document.Open(names[0], bytes.NewReader(contents[0]))
	if err != nil {
		return nil, nil, err
	}
	out := &roster[S]{}
	var warnings []error
	for n := range stream.Documents() {
		if stream.Number() > 1 {
			stream.Fail(n, "", "a second document: write all callers into one")
			break
		}
		v := verifier[S]{scopes: scopes, stream: stream, node: n, dec: stream.Decoder(nil), names: map[string]string{}, digests: map[digest]string{}, subjects: map[string]string{}}
		v.dec.Decode(n, out, "")
		v.check(out)
		stream.Note(stream.Place(&v.dec.Findings, n, "")...)
		warnings = stream.Warn(&v.dec.Warnings, n, "")
	}
	if err := stream.Err(); err != nil {
		return nil, nil, err
	}
	if len(out.Tokens) == 0 && len(out.Certificates) == 0 {
		return nil, nil, &document.Error{File: names[0], Err: errors.New("it names no callers: write them below tokens or certificates")}
	}
	return out, append(warnings, exposed(names[0])...), nil
}

// exposed warns of a file that others can read. Those that are mounted from a
// Secret are symbolic links, and nobody else is there to read them.
func exposed(name string) []error {
	info, err := os.Lstat(name)
	if err != nil || runtime.GOOS == "windows" || !info.Mode().IsRegular() || info.Mode().Perm()&0o006 == 0 {
		return nil
	}
	return []error{&document.Error{File: name, Err: errors.New("every user of this machine can read it: make its mode 0600")}}
}

// A verifier checks what the types of a roster do not say.
type verifier[S any] struct {
	scopes   func(*S) []Scope
	stream   *document.Stream
	node     *document.Node
	dec      *document.Decoder
	names    map[string]string // where they are
	digests  map[digest]string // who has them
	subjects map[string]string
}

func (v *verifier[S]) check(r *roster[S]) {
	if len(r.Tokens)+len(r.Certificates) > maxCallers {
		v.dec.Add("", "names more than %d callers", maxCallers)
		return
	}
	for i := range r.Tokens {
		at := fmt.Sprintf("tokens[%d]", i)
		v.caller(at, v.item("tokens", i), &r.Tokens[i].caller)
		v.token(at, &r.Tokens[i])
	}
	for i := range r.Certificates {
		at := fmt.Sprintf("certificates[%d]", i)
		v.caller(at, v.item("certificates", i), &r.Certificates[i].caller)
		v.certificate(at, &r.Certificates[i])
	}
}

// item returns the node of an entry. There is one for each that was decoded.
func (v *verifier[S]) item(list string, i int) *document.Node { return v.node.At(list).Items[i] }

func (v *verifier[S]) token(at string, t *tokenEntry[S]) {
	switch {
	case (t.Token == "") == (t.SHA256 == ""):
		if !v.dec.About(at) {
			v.dec.Add(at, "wants either token or sha256")
		}
		return
	case t.SHA256 != "":
		sum, err := hex.DecodeString(t.SHA256)
		if err != nil || len(sum) != len(t.digest) {
			v.dec.Add(at+".sha256", "must be %d hexadecimal digits: that of a token is what printf %%s TOKEN | sha256sum prints", 2*len(t.digest))
			return
		}
		t.digest = digest(sum)
		if t.digest == digestOf("") {
			v.dec.Add(at+".sha256", "is that of an empty text: was the token set when it was made?")
			return
		}
	default:
		if problem := weak(t.Token); problem != "" {
			v.dec.Add(at+".token", "%s", problem)
			return
		}
		t.digest, t.Token = digestOf(t.Token), ""
	}
	if other, taken := v.digests[t.digest]; taken {
		v.dec.Add(at, "has the token of %s: each caller has its own", other)
		return
	}
	v.digests[t.digest] = at
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

func (v *verifier[S]) certificate(at string, c *certificateEntry[S]) {
	var subject string
	for _, s := range []struct{ kind, text string }{{"commonName ", c.CommonName}, {"dns ", c.DNS}, {"uri ", c.URI}} {
		if s.text == "" {
			continue
		}
		if subject != "" {
			v.dec.Add(at, "wants one of commonName, dns and uri")
			return
		}
		subject = s.kind + s.text
	}
	if subject == "" {
		if !v.dec.About(at) {
			v.dec.Add(at, "wants one of commonName, dns and uri")
		}
		return
	}
	if other, taken := v.subjects[subject]; taken {
		v.dec.Add(at, "has the subject of %s: each caller has its own", other)
	}
	v.subjects[subject] = at
}

// caller checks what tokens and certificates have in common.
func (v *verifier[S]) caller(at string, n *document.Node, c *caller[S]) {
	v.name(at+".name", c.Name)
	if !c.Expires.IsZero() && c.Expires.Before(time.Now()) {
		v.dec.Warnings.Add(at+".expires", "%s has expired", quote(c.Name))
	}
	for _, scope := range v.scopes(&c.Scope) {
		v.scope(at+"."+scope.Field, c.Name, n.At(scope.Field), scope)
	}
}

// scope checks one list of the caller of a name.
func (v *verifier[S]) scope(field, name string, given *document.Node, s Scope) {
	if given != nil && given.Kind == document.Null {
		v.dec.Add(field, "has no value: leave it out for %s, write [] for none", cmp.Or(s.Absent, "all"))
	}
	if s.List == nil {
		return
	}
	if len(*s.List) == 0 {
		v.dec.Warnings.Add(field, "is empty: %s is allowed none", quote(name))
	}
	for i, p := range *s.List {
		if problem := s.Check(p); problem != "" {
			v.dec.Add(fmt.Sprintf("%s[%d]", field, i), "%s", problem)
		} else if s.Adjust != nil {
			(*s.List)[i] = s.Adjust(p)
		}
	}
}

func (v *verifier[S]) name(field, name string) {
	if v.dec.About(field) {
		return
	}
	if name == "" || len(name) > maxName || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		v.dec.Add(field, "must be a text of at most %d bytes without control characters", maxName)
		return
	}
	if other, taken := v.names[name]; taken {
		v.dec.Add(field, "is the name of %s, too: each caller has its own", other)
	}
	v.names[name] = strings.TrimSuffix(field, ".name")
}
