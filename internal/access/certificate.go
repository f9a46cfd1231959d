package access

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/internal/redact"
)

// byCertificate returns the grant of a client certificate that was verified.
func (g *Guard[S]) byCertificate(state *tls.ConnectionState) (Grant[S], error) {
	if !g.certificates || state == nil || len(state.VerifiedChains) == 0 {
		return Grant[S]{}, &Denial{Kind: "missing", reason: "there is no credential in the request", err: ErrUnknown}
	}
	return g.byLeaf(state.VerifiedChains[0][0])
}

// byLeaf returns the grant of a certificate that was verified when its connection
// began, which may have been long ago.
func (g *Guard[S]) byLeaf(leaf *x509.Certificate) (Grant[S], error) {
	if g.now().After(leaf.NotAfter) {
		return Grant[S]{}, &Denial{Kind: "expired", Actor: subject(leaf), reason: "the certificate has expired", err: ErrUnknown}
	}
	if g.file == nil {
		return Grant[S]{Actor: subject(leaf), all: true, leaf: leaf}, nil
	}
	if caller := g.known().certificate(leaf); caller != nil {
		return g.grant(Grant[S]{Actor: caller.Name, caller: caller, leaf: leaf})
	}
	return Grant[S]{}, &Denial{Kind: "invalid", reason: "the certificate of " + quote(subject(leaf)) + " is not known", err: ErrUnknown}
}

// certificate returns the first caller with a certificate, nil when there is none.
func (r *roster[S]) certificate(leaf *x509.Certificate) *caller[S] {
	for i := range r.Certificates {
		if c := &r.Certificates[i]; c.names(leaf) {
			return &c.caller
		}
	}
	return nil
}

// names reports whether leaf has the subject of an entry.
func (c *subjectEntry) names(leaf *x509.Certificate) bool {
	switch {
	case c.CommonName != "":
		return leaf.Subject.CommonName == c.CommonName
	case c.DNS != "":
		return slices.Contains(leaf.DNSNames, c.DNS)
	}
	for _, u := range leaf.URIs {
		if u.String() == c.URI {
			return c.URI != ""
		}
	}
	return false
}

// subject returns what names a certificate best.
func subject(leaf *x509.Certificate) string {
	names := append([]string{leaf.Subject.CommonName}, leaf.DNSNames...)
	for _, u := range leaf.URIs {
		names = append(names, u.String())
	}
	name := redact.String(cmp.Or(cmp.Or(names...), leaf.Subject.String(), "certificate "+leaf.SerialNumber.String()))
	if len(name) > maxName {
		name = strings.ToValidUTF8(name[:maxName], "")
	}
	return name
}
