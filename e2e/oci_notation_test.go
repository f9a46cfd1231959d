package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// An authority can let somebody sign.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) authority {
	t.Helper()
	a := authority{}
	a.cert, a.key = certificate(t, nil, &x509.Certificate{Subject: subjectOf(name), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

func subjectOf(name string) pkix.Name {
	return pkix.Name{CommonName: name, Organization: []string{"Test"}, Province: []string{"BE"}, Country: []string{"DE"}}
}

// certificate makes a certificate from a template; by is nil for one that is signed by itself.
func certificate(t *testing.T, by *authority, c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	c.SerialNumber, c.NotBefore = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Minute)
	parent, parentKey := c, key
	if by != nil {
		parent, parentKey = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), parentKey)
	check(t, err)
	cert, err := x509.ParseCertificate(der)
	check(t, err)
	return cert, key
}

func pemOf(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// install gives the notation command in h a key whose certificate lives for a time.
func (a authority) install(t *testing.T, h home, life time.Duration) {
	t.Helper()
	cert, key := certificate(t, &a, &x509.Certificate{Subject: subjectOf("builder"), NotAfter: time.Now().Add(life),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning}})
	private, err := x509.MarshalPKCS8PrivateKey(key)
	check(t, err)
	dir := filepath.Join(string(h), ".config", "notation")
	check(t, os.MkdirAll(dir, 0o700))
	paths := keys{
		"name":     "key",
		"keyPath":  write(t, filepath.Join(dir, "key.pem"), pemOf("PRIVATE KEY", private)),
		"certPath": write(t, filepath.Join(dir, "chain.pem"), pemOf("CERTIFICATE", cert.Raw)+pemOf("CERTIFICATE", a.cert.Raw)),
	}
	text, err := json.Marshal(map[string]any{"default": "key", "keys": []keys{paths}})
	check(t, err)
	write(t, filepath.Join(dir, "signingkeys.json"), string(text))
}

// trust returns a Secret that trusts a, with a trust policy at a level.
func (a authority) trust(level string, scopes ...string) keys {
	text, err := json.Marshal(map[string]any{"version": "1.0", "trustPolicies": []any{map[string]any{
		"name": "all", "registryScopes": scopes, "signatureVerification": keys{"level": level},
		"trustStores": []string{"ca:team"}, "trustedIdentities": []string{"x509.subject: C=DE, ST=BE, O=Test, CN=builder"},
	}}})
	if err != nil {
		panic(err)
	}
	return keys{"trustpolicy.json": string(text), "ca.crt": pemOf("CERTIFICATE", a.cert.Raw)}
}

// newNotation returns how notation signs in one format of envelopes.
func newNotation(t *testing.T, format string) technology {
	a, h := newAuthority(t, "root"), newHome(t)
	a.install(t, h, time.Hour)
	return technology{
		provider: "notation", trust: a.trust("strict", "*"), stranger: newAuthority(t, "root").trust("strict", "*"),
		says: map[string]string{bare: "has no signature", foreign: "authenticity: ", moved: "integrity: it is the signature of", tampered: "integrity: "},
		sign: func(t *testing.T, reference string) {
			h.run(t, "notation", "sign", "--insecure-registry", "--force-referrers-tag=false", "--signature-format", format, reference)
		},
	}
}

func newNotationJWS(t *testing.T) technology {
	s := newNotation(t, "jws")
	s.alter = func(t *testing.T, envelope string, from, to subject) string {
		return replaceEncoded(t, base64.RawURLEncoding, envelope, "payload", func(payload string) string { return named(t, payload, from, to) })
	}
	return s
}

func newNotationCOSE(t *testing.T) technology {
	s := newNotation(t, "cose")
	s.alter = named
	return s
}

// named changes the subject that a payload names.
func named(t *testing.T, payload string, from, to subject) string {
	t.Helper()
	payload = replace(t, payload, from.digest, to.digest)
	return replace(t, payload, fmt.Sprintf(`"size":%d`, from.size), fmt.Sprintf(`"size":%d`, to.size))
}

// TestOCINotationLevels lets a certificate expire, and looks at what each level makes of it.
func TestOCINotationLevels(t *testing.T) {
	addr := serveOlareg(t)
	of := newSubject(t, addr, "1.0.0")
	a, other, h := newAuthority(t, "root"), newAuthority(t, "other"), newHome(t)
	a.install(t, h, 8*time.Second)
	h.run(t, "notation", "sign", "--insecure-registry", "--force-referrers-tag=false", of.reference())
	s := technology{provider: "notation"}

	// Sooner or later it has expired.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		got, _ := s.fetch(t, of, a.trust("strict", "*"))
		if why := got.status.condition("SourceVerified"); strings.HasPrefix(why, "False VerificationError: ") {
			if !strings.Contains(why, "authenticTimestamp: ") || !strings.Contains(why, "expired") {
				t.Errorf("refused because of %q", why)
			}
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("still accepted: %+v", got.status.Conditions)
		}
	}
	for _, c := range []struct {
		name  string
		trust keys
		code  int
		say   []string
	}{
		{"permissive", a.trust("permissive", "*"), 0, []string{"True Succeeded: verified signature of", "level permissive", "authenticTimestamp: ", "expired"}},
		{"audit", other.trust("audit", "*"), 0, []string{"Unknown VerificationIgnored: ", "level audit", "authenticity: "}},
		{"skip", other.trust("skip", "*"), 0, []string{"Unknown VerificationIgnored: ", "level skip"}},
		{"untrusted root", other.trust("permissive", "*"), 3, []string{"False VerificationError: ", "authenticity: "}},
		{"scope", a.trust("permissive", addr+"/team/app"), 0, []string{"True Succeeded: "}},
		{"another scope", a.trust("audit", addr+"/team"), 3, []string{"False VerificationError: ", "no statement for " + addr + "/team/app"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, stored := s.fetch(t, of, c.trust)
			why := got.status.condition("SourceVerified")
			if got.code != c.code || (stored > 0) != (c.code == 0) {
				t.Errorf("exit code %d, stored %d, %+v\n%s", got.code, stored, got.status.Conditions, got.stderr)
			}
			for _, text := range c.say {
				if !strings.Contains(why, text) {
					t.Errorf("SourceVerified is %q, without %q", why, text)
				}
			}
		})
	}
}
