package notation_test

import (
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/notaryproject/notation-core-go/signature/jws"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/oci/notation"
	"github.com/headgate-io/headgate/source"
)

func TestTrustIsChecked(t *testing.T) {
	ca := authority(t, "root")
	good := secret(ca.pem(), level("strict"))
	with := func(key, value string) oci.Trust {
		data := maps.Clone(good)
		data[key] = value
		return oci.Trust{Keys: secretOf(data)}
	}
	without := func(key string) oci.Trust {
		data := maps.Clone(good)
		delete(data, key)
		return oci.Trust{Keys: secretOf(data)}
	}
	document := func(p policy) oci.Trust { return with("trustpolicy.json", secret(nil, p)["trustpolicy.json"]) }
	change := func(f func(*policy)) oci.Trust {
		p := level("strict")
		f(&p)
		return document(p)
	}
	cases := map[string]struct {
		trust   oci.Trust
		invalid bool
		say     []string
	}{
		"no Secret":              {oci.Trust{}, true, []string{"spec.verify.secretRef is missing", "trustpolicy.json"}},
		"a trusted root":         {oci.Trust{Keys: secretOf(good), Root: transport.Secret{Name: "default/root"}}, true, []string{"trustedRootSecretRef is for provider cosign"}},
		"identities":             {oci.Trust{Keys: secretOf(good), Identities: []source.OIDCIdentityMatch{{}}}, true, []string{"matchOIDCIdentity", "trustedIdentities"}},
		"no policy":              {without("trustpolicy.json"), false, []string{"secret default/trust has no key trustpolicy.json"}},
		"no certificates":        {without("ca.crt"), false, []string{"secret default/trust has no certificates", ".crt or .pem"}},
		"policy is not JSON":     {with("trustpolicy.json", "{"), false, []string{"default/trust: trustpolicy.json: is not a trust policy"}},
		"policy with more":       {with("trustpolicy.json", good["trustpolicy.json"]+"{}"), false, []string{"is not a trust policy"}},
		"policy is null":         {with("trustpolicy.json", "null"), false, []string{"it is null"}},
		"policy is a number":     {with("trustpolicy.json", "7"), false, []string{"is not a trust policy"}},
		"no version":             {with("trustpolicy.json", "{}"), false, []string{"empty version"}},
		"version of tomorrow":    {with("trustpolicy.json", `{"version":"9.0"}`), false, []string{`unsupported version "9.0"`}},
		"no statements":          {with("trustpolicy.json", `{"version":"1.0"}`), false, []string{"zero trust policy statements"}},
		"no name":                {change(func(p *policy) { p.Name = "" }), false, []string{"missing a name"}},
		"no scopes":              {change(func(p *policy) { p.Scopes = nil }), false, []string{"registry scopes"}},
		"a scope in a scope":     {change(func(p *policy) { p.Scopes = []string{"registry.example/*"} }), false, []string{"wild card"}},
		"no stores":              {change(func(p *policy) { p.Stores = nil }), false, []string{"trust stores or trusted identities"}},
		"store of no type":       {change(func(p *policy) { p.Stores = []string{"team"} }), false, []string{"malformed trust store"}},
		"store of a strange":     {change(func(p *policy) { p.Stores = []string{"x:team"} }), false, []string{"unsupported trust store type"}},
		"no level":               {change(func(p *policy) { p.Level.Level = "" }), false, []string{"level is empty"}},
		"strange level":          {change(func(p *policy) { p.Level.Level = "lax" }), false, []string{`invalid signature verification level "lax"`}},
		"integrity overridden":   {change(func(p *policy) { p.Level.Override = map[string]string{"integrity": "log"} }), false, []string{"can not be overridden"}},
		"skip with override":     {change(func(p *policy) { p.Level = verification{Level: "skip", Override: map[string]string{"expiry": "log"}} }), false, []string{"can't be used to customize"}},
		"strange identity":       {change(func(p *policy) { p.Trusted = []string{"x509.subject: CN"} }), false, []string{"invalid identity value"}},
		"text for a certificate": {with("b.pem", "not one"), false, []string{"secret default/trust: b.pem: holds neither PEM nor DER"}},
		"empty certificate":      {with("b.pem", ""), false, []string{"b.pem: is empty"}},
		"a key":                  {with("b.crt", "-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n"), false, []string{`b.crt: holds a block of type "PRIVATE KEY"`}},
		"a torn certificate":     {with("b.crt", "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"), false, []string{"b.crt: holds a certificate that cannot be parsed"}},
		"torn PEM":               {with("b.crt", "-----BEGIN CERTIFICATE-----\nMAA="), false, []string{"b.crt: holds PEM that cannot be parsed"}},
		"a huge key":             {with("b.pem", string(hugeCertificate(t, ca))), false, []string{"default/trust: b.pem: holds an RSA key of more than 8192 bits"}},
	}
	s := newRepository(t, testenv.RegistryConfig{})
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := notation.New(s.repo, c.trust)
			wantError(t, err, c.say...)
			if errors.Is(err, source.ErrInvalid) != c.invalid {
				t.Errorf("invalid spec: %v", err)
			}
		})
	}
	if len(s.Requests()) > 0 {
		t.Errorf("asked the registry: %v", s.Requests())
	}
}

// Certificates are found under any key that ends in .crt or .pem, in each form.
func TestCertificates(t *testing.T) {
	ca, other := authority(t, "root"), authority(t, "other")
	leaf := newSigner(t, ca, "builder", nil)
	s := newRepository(t, testenv.RegistryConfig{})
	subject := s.artifact("hello")
	s.attach(subject, jws.MediaTypeEnvelope, leaf.sign(t, subject, jws.MediaTypeEnvelope, nil))
	base := secret(other.pem(), level("strict"))
	for name, c := range map[string]struct {
		key, value string
		good       bool
	}{
		"PEM":                {"a.pem", string(ca.pem()), true},
		"DER":                {"a.crt", string(ca.cert.Raw), true},
		"several":            {"a.pem", string(other.pem()) + string(ca.pem()), true},
		"several in DER":     {"a.pem", string(other.cert.Raw) + string(ca.cert.Raw), true},
		"text before":        {"a.pem", "the root\n" + string(ca.pem()) + "\nthat was it\n", true},
		"the signer's own":   {"a.pem", string(leaf.pem()), true},
		"under another key":  {"a.cert", string(ca.pem()), false},
		"name in the middle": {"a.pem.old", string(ca.pem()), false},
	} {
		t.Run(name, func(t *testing.T) {
			data := maps.Clone(base)
			data[c.key] = c.value
			if _, err := s.verify(subject, data); c.good {
				check(t, err)
			} else {
				wantRefused(t, err, "authenticity")
			}
		})
	}
}

// A statement counts for the repositories in its scopes.
func TestScopes(t *testing.T) {
	ca := authority(t, "root")
	leaf := newSigner(t, ca, "builder", nil)
	s := newRepository(t, testenv.RegistryConfig{})
	subject := s.artifact("hello")
	s.attach(subject, jws.MediaTypeEnvelope, leaf.sign(t, subject, jws.MediaTypeEnvelope, nil))
	own, far := s.Host+"/team/app", "registry.example/team/app"
	at := func(name, lvl string, scopes ...string) policy {
		p := level(lvl)
		p.Name, p.Scopes = name, scopes
		return p
	}
	many := make([]string, 12)
	for i := range many {
		many[i] = fmt.Sprintf("registry.example/app%d", i)
	}
	for name, c := range map[string]struct {
		policies []policy
		level    string
		say      []string
	}{
		"all":              {[]policy{at("a", "strict", "*")}, "strict", nil},
		"exact":            {[]policy{at("a", "strict", own)}, "strict", nil},
		"one of several":   {[]policy{at("a", "strict", far, own)}, "strict", nil},
		"exact before all": {[]policy{at("a", "permissive", "*"), at("b", "strict", own)}, "strict", nil},
		"exact first":      {[]policy{at("b", "strict", own), at("a", "permissive", "*")}, "strict", nil},
		"none":             {[]policy{at("a", "strict", far), at("b", "skip", s.Host+"/team")}, "", []string{"no statement for " + own, "secret default/trust", `"` + far + `"`, "add it"}},
		"none of many":     {[]policy{at("a", "skip", many...)}, "", []string{"registry.example/app9", "and 2 more"}},
	} {
		t.Run(name, func(t *testing.T) {
			v, err := s.verify(subject, secret(ca.pem(), c.policies...))
			if c.level == "" {
				wantRefused(t, err, c.say...)
				return
			}
			check(t, err)
			if v.Level != c.level {
				t.Errorf("got %+v", v)
			}
		})
	}
}
