package notation_test

import (
	"crypto/x509"
	"strings"
	"testing"
	"time"

	"github.com/notaryproject/notation-core-go/signature"
	"github.com/notaryproject/notation-core-go/signature/cose"
	"github.com/notaryproject/notation-core-go/signature/jws"
	notaryproject "github.com/notaryproject/notation-go"
	"github.com/notaryproject/notation-go/registry"
	"github.com/notaryproject/notation-go/signer"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/headgate-io/headgate/internal/testenv"
)

// Signatures that the notation library made and pushed are good.
func TestSignedByNotation(t *testing.T) {
	ca := authority(t, "root")
	leaf := newSigner(t, ca, "builder", nil)
	for name, c := range map[string]testenv.RegistryConfig{"referrers": {}, "tag": {NoReferrers: true}} {
		for _, mediaType := range mediaTypes {
			t.Run(name+" "+mediaType, func(t *testing.T) {
				s := newShop(t, c)
				subject := s.artifact("hello")
				target, err := remote.NewRepository(s.Host + "/" + repository)
				check(t, err)
				target.PlainHTTP = true
				by, err := signer.NewGenericSigner(leaf.key, leaf.chain())
				check(t, err)
				_, err = notaryproject.Sign(t.Context(), by, registry.NewRepository(target), notaryproject.SignOptions{
					ArtifactReference: subject.Digest.String(),
					SignerSignOptions: notaryproject.SignerSignOptions{SignatureMediaType: mediaType, ExpiryDuration: time.Hour},
				})
				check(t, err)
				v, err := s.verify(subject, secret(ca.pem(), level("strict")))
				check(t, err)
				if want := "verified signature of '" + subject.Digest.String() + "' by 'CN=builder,O=Test,ST=BE,C=DE' at level strict"; v.Message != want {
					t.Errorf("message %q, want %q", v.Message, want)
				}
				if v.Mode != "notation" || v.Level != "strict" || v.Ignored || v.Signer != "CN=builder,O=Test,ST=BE,C=DE" {
					t.Errorf("got %+v", v)
				}
			})
		}
	}
}

// What a level does not enforce passes, and is named.
func TestLevels(t *testing.T) {
	ca, other := authority(t, "root"), authority(t, "other")
	leaf := newSigner(t, ca, "builder", nil)
	foreign := newSigner(t, other, "mallory", nil)
	short := newSigner(t, ca, "short", func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(-4*time.Hour), time.Now().Add(-time.Hour)
	})
	expired := func(r *signature.SignRequest) {
		r.SigningTime, r.Expiry = time.Now().Add(-3*time.Hour), time.Now().Add(-2*time.Hour)
	}
	custom := level("strict")
	custom.Level.Override = map[string]string{"expiry": "log", "revocation": "skip"}
	unsure := level("strict")
	unsure.Level.Override = map[string]string{"authenticity": "log"}
	sure := level("audit")
	sure.Level.Override = map[string]string{"authenticity": "enforce"}
	skip := level("skip")
	for _, c := range []struct {
		name    string
		policy  policy
		by      *identity
		change  func(*signature.SignRequest)
		level   string
		ignored bool
		say     []string
		silent  string
	}{
		{"strict", level("strict"), leaf, nil, "strict", false, []string{"at level strict"}, "enforce"},
		{"permissive", level("permissive"), leaf, nil, "permissive", false,
			[]string{"verified signature of", "at level permissive, which does not enforce authenticTimestamp, expiry, revocation"}, "expired"},
		{"permissive expired", level("permissive"), leaf, expired, "permissive", false, []string{"verified", "expiry: digital signature has expired on"}, ""},
		{"permissive expired certificate", level("permissive"), short, expired, "permissive", false,
			[]string{"authenticTimestamp: ", "it was expired at"}, ""},
		{"audit", level("audit"), leaf, nil, "audit", true, []string{"verified signature of", "does not enforce authenticity, authenticTimestamp, expiry, revocation"}, "nobody"},
		{"audit foreign", level("audit"), foreign, nil, "audit", true,
			[]string{"nobody trusted vouches", "authenticity: "}, "verified"},
		{"audit that enforces authenticity", sure, leaf, nil, "custom", false, []string{"verified signature of", "does not enforce authenticTimestamp, expiry, revocation"}, "nobody"},
		{"skip", skip, foreign, expired, "skip", true, []string{"no signature was looked for", "'all'", "level skip"}, "verified"},
		{"custom", custom, leaf, expired, "custom", false, []string{"at level custom, which does not enforce expiry, revocation; expiry: "}, ""},
		{"custom authenticity", unsure, foreign, nil, "custom", true, []string{"nobody trusted vouches"}, ""},
		{"custom authenticity that holds", unsure, leaf, nil, "custom", true, []string{"verified signature of", "does not enforce authenticity"}, ""},
	} {
		for _, mediaType := range mediaTypes {
			t.Run(c.name+" "+mediaType, func(t *testing.T) {
				s := newShop(t, testenv.RegistryConfig{})
				subject := s.artifact("hello")
				s.attach(subject, mediaType, c.by.sign(t, subject, mediaType, c.change))
				s.Reset()
				v, err := s.verify(subject, secret(ca.pem(), c.policy))
				check(t, err)
				if v.Mode != "notation" || v.Level != c.level || v.Ignored != c.ignored || (v.Signer == "") != (c.by == foreign) {
					t.Errorf("got %+v", v)
				}
				for _, text := range c.say {
					if !strings.Contains(v.Message, text) {
						t.Errorf("message %q does not say %q", v.Message, text)
					}
				}
				if c.silent != "" && strings.Contains(v.Message, c.silent) {
					t.Errorf("message %q says %q", v.Message, c.silent)
				}
				if c.level == "skip" && len(s.Requests()) > 0 {
					t.Errorf("asked the registry: %v", s.Requests())
				}
			})
		}
	}
}

// One signature that holds is enough, wherever it stands.
func TestOneOfSeveral(t *testing.T) {
	ca, other := authority(t, "root"), authority(t, "other")
	s := newShop(t, testenv.RegistryConfig{})
	subject := s.artifact("hello")
	for range 6 {
		mallory := newSigner(t, other, "mallory", nil)
		s.attach(subject, jws.MediaTypeEnvelope, mallory.sign(t, subject, jws.MediaTypeEnvelope, nil))
	}
	s.attach(subject, cose.MediaTypeEnvelope, []byte("nonsense"))
	s.Push(repository, "", testenv.Manifest{ArtifactType: "application/vnd.sbom", Subject: &subject})
	leaf := newSigner(t, ca, "builder", nil)
	s.attach(subject, cose.MediaTypeEnvelope, leaf.sign(t, subject, cose.MediaTypeEnvelope, nil))
	v, err := s.verify(subject, secret(ca.pem(), level("strict")))
	check(t, err)
	if !strings.Contains(v.Signer, "builder") {
		t.Errorf("got %+v", v)
	}
}

// The authority of a signing service is trusted through its own kind of store,
// and counts what was signed while the certificate was valid.
func TestSigningAuthority(t *testing.T) {
	ca := authority(t, "root")
	short := newSigner(t, ca, "service", func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(-4*time.Hour), time.Now().Add(-time.Hour)
	})
	s := newShop(t, testenv.RegistryConfig{})
	subject := s.artifact("hello")
	s.attach(subject, jws.MediaTypeEnvelope, short.sign(t, subject, jws.MediaTypeEnvelope, func(r *signature.SignRequest) {
		r.SigningScheme, r.SigningTime = signature.SigningSchemeX509SigningAuthority, time.Now().Add(-2*time.Hour)
	}))
	p := level("strict")
	_, err := s.verify(subject, secret(ca.pem(), p))
	wantRefused(t, err, "authenticity")
	p.Stores = []string{"signingAuthority:services"}
	v, err := s.verify(subject, secret(ca.pem(), p))
	check(t, err)
	if !strings.Contains(v.Signer, "service") {
		t.Errorf("got %+v", v)
	}
}
