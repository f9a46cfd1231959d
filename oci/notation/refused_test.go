package notation_test

import (
	"crypto/x509"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/notaryproject/notation-core-go/signature"
	"github.com/notaryproject/notation-core-go/signature/cose"
	"github.com/notaryproject/notation-core-go/signature/jws"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/internal/testenv"
)

// Each signature is refused, with the check that it fails.
func TestRefused(t *testing.T) {
	ca, other := authority(t, "root"), authority(t, "other")
	leaf, foreign := newSigner(t, ca, "builder", nil), newSigner(t, other, "builder", nil)
	short := newSigner(t, ca, "builder", func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(-4*time.Hour), time.Now().Add(-time.Hour)
	})
	picky := level("strict")
	picky.Trusted = []string{"x509.subject: C=DE, ST=BE, O=Test, CN=releaser"}
	stamped := level("strict")
	stamped.Stores = append(stamped.Stores, "tsa:clock")
	early := func(r *signature.SignRequest) { r.SigningTime = time.Now().Add(-3 * time.Hour) }
	for _, c := range []struct {
		name   string
		policy policy
		by     *identity
		change func(*signature.SignRequest)
		say    []string
	}{
		{"wrong CA", level("strict"), foreign, nil, []string{"authenticity: "}},
		{"wrong CA at level permissive", level("permissive"), foreign, nil, []string{"authenticity: "}},
		{"expired signature", level("strict"), leaf, func(r *signature.SignRequest) {
			r.SigningTime, r.Expiry = time.Now().Add(-3*time.Hour), time.Now().Add(-2*time.Hour)
		}, []string{"expiry: digital signature has expired on"}},
		{"expired certificate", level("strict"), short, early, []string{"authenticTimestamp: ", "it was expired at"}},
		{"untrusted identity", picky, leaf, nil, []string{"authenticity: ", "does not match the X.509 trusted identities", "releaser"}},
		{"no timestamp", stamped, leaf, nil, []string{"authenticTimestamp: no timestamp countersignature"}},
		{"critical attribute", level("strict"), leaf, func(r *signature.SignRequest) {
			r.ExtendedSignedAttributes = []signature.Attribute{{Key: "example.com/only-on-sundays", Critical: true, Value: "yes"}}
		}, []string{"its critical attribute \"example.com/only-on-sundays\" is not known"}},
		{"plugin", level("strict"), leaf, func(r *signature.SignRequest) {
			r.ExtendedSignedAttributes = []signature.Attribute{{Key: "io.cncf.notary.verificationPlugin", Critical: true, Value: "com.example.plugin"}}
		}, []string{"verification plugin \"com.example.plugin\"", "plugins are not run"}},
		{"plugin at level audit", level("audit"), leaf, func(r *signature.SignRequest) {
			r.ExtendedSignedAttributes = []signature.Attribute{{Key: "io.cncf.notary.verificationPlugin", Critical: true, Value: "com.example.plugin"}}
		}, []string{"plugins are not run"}},
		{"payload of another type", level("strict"), leaf, func(r *signature.SignRequest) { r.Payload.ContentType = "application/json" }, []string{"integrity: payload content type"}},
		{"payload that names nothing", level("audit"), leaf, func(r *signature.SignRequest) { r.Payload.Content = []byte(`{"targetArtifact":{}}`) }, []string{`integrity: it is the signature of ""`}},
		{"payload that is no descriptor", level("audit"), leaf, func(r *signature.SignRequest) { r.Payload.Content = []byte(`{"targetArtifact":7}`) }, []string{`integrity: it is the signature of ""`}},
	} {
		for _, mediaType := range mediaTypes {
			t.Run(c.name+" "+mediaType, func(t *testing.T) {
				s := newShop(t, testenv.RegistryConfig{})
				subject := s.artifact("hello")
				d := s.attach(subject, mediaType, c.by.sign(t, subject, mediaType, c.change))
				v, err := s.verify(subject, secret(ca.pem(), c.policy))
				wantRefused(t, err, append(c.say, "no signature of ", subject.Digest.String(), "signature "+d.Digest.String())...)
				if v.Message != "" {
					t.Errorf("got %+v", v)
				}
			})
		}
	}
}

// A signature counts for what it names, whatever it is attached to.
func TestSignatureOfSomethingElse(t *testing.T) {
	ca := authority(t, "root")
	leaf := newSigner(t, ca, "builder", nil)
	for _, lvl := range []string{"strict", "permissive", "audit"} {
		for _, mediaType := range mediaTypes {
			t.Run(lvl+" "+mediaType, func(t *testing.T) {
				s := newShop(t, testenv.RegistryConfig{})
				good, evil := s.artifact("hello"), s.artifact("evil")
				s.attach(evil, mediaType, leaf.sign(t, good, mediaType, nil))
				_, err := s.verify(evil, secret(ca.pem(), level(lvl)))
				wantRefused(t, err, fmt.Sprintf("integrity: it is the signature of %q", good.Digest))

				renamed := good
				renamed.MediaType, renamed.Size = "application/vnd.other", 7
				s.attach(good, mediaType, leaf.sign(t, renamed, mediaType, nil))
				_, err = s.verify(good, secret(ca.pem(), level(lvl)))
				wantRefused(t, err, `integrity: it is the signature of 7 bytes of type "application/vnd.other"`)
			})
		}
	}
}

// A payload that was changed after it was signed is found out.
func TestTamperedPayload(t *testing.T) {
	ca := authority(t, "root")
	leaf := newSigner(t, ca, "builder", nil)
	s := newShop(t, testenv.RegistryConfig{})
	good, evil := s.artifact("hello"), s.artifact("evil")
	genuine, forged := map[string]any{}, map[string]any{}
	check(t, json.Unmarshal(leaf.sign(t, good, jws.MediaTypeEnvelope, nil), &genuine))
	check(t, json.Unmarshal(newSigner(t, authority(t, "x"), "x", nil).sign(t, evil, jws.MediaTypeEnvelope, nil), &forged))
	genuine["payload"] = forged["payload"]
	text, err := json.Marshal(genuine)
	check(t, err)
	s.attach(evil, jws.MediaTypeEnvelope, text)
	_, err = s.verify(evil, secret(ca.pem(), level("audit")))
	wantRefused(t, err, "integrity: ")

	bytes := leaf.sign(t, good, cose.MediaTypeEnvelope, nil)
	changed := strings.Replace(string(bytes), good.Digest.Encoded(), evil.Digest.Encoded(), 1)
	changed = strings.Replace(changed, fmt.Sprint(`"size":`, good.Size), fmt.Sprint(`"size":`, evil.Size), 1)
	s.attach(evil, cose.MediaTypeEnvelope, []byte(changed))
	_, err = s.verify(evil, secret(ca.pem(), level("audit")))
	wantRefused(t, err, "integrity: ", "; signature ")
}

// Where the signature is gone, verification fails.
func TestStrippedSignature(t *testing.T) {
	ca := authority(t, "root")
	leaf := newSigner(t, ca, "builder", nil)
	for name, c := range map[string]testenv.RegistryConfig{"referrers": {}, "tag": {NoReferrers: true}} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t, c)
			subject := s.artifact("hello")
			_, err := s.verify(subject, secret(ca.pem(), level("audit")))
			wantRefused(t, err, s.Host+"/team/app@"+subject.Digest.String()+" has no signature: sign it with notation sign")

			d := s.attach(subject, jws.MediaTypeEnvelope, leaf.sign(t, subject, jws.MediaTypeEnvelope, nil))
			_, err = s.verify(subject, secret(ca.pem(), level("strict")))
			check(t, err)
			s.Plant(repository, d.Digest.String(), false, ocispec.MediaTypeImageManifest, []byte("{}"))
			_, err = s.verify(subject, secret(ca.pem(), level("strict")))
			wantRefused(t, err, "its manifest: ")
		})
	}
}
