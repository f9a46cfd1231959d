package e2e

import (
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

	"github.com/headgate-io/headgate/internal/testenv"
)

// A technology creates signatures with a real tool and with keys made for the test.
type technology struct {
	provider           string
	trust, otherSigner stringMap // Secrets that trust the signer, and another signer
	suffix             bool      // the signature has its own tag sha256-HEX.sig; otherwise it refers to its subject

	says map[string]string // texts of the refusals, by kind of attack

	sign func(t *testing.T, reference string)
	// alter changes the subject that a signature names, without the key.
	alter func(t *testing.T, signature string, from, to subject) string
}

// These are the attacks on signatures.
const (
	attackStripped    = "stripped signature"
	attackWrongKey    = "wrong key"
	attackOtherDigest = "signature of another digest"
	attackPayload     = "tampered payload"
)

// A subject is a signed manifest.
type subject struct {
	addr, digest string
	size         int
}

// reference returns HOST/PATH@DIGEST.
func (s subject) reference() string { return s.addr + "/team/app@" + s.digest }

// tag returns HOST/PATH:sha256-HEX.sig.
func (s subject) tag() string {
	return s.addr + "/team/app:" + strings.Replace(s.digest, ":", "-", 1) + ".sig"
}

func newSubject(t *testing.T, addr, tag string) subject {
	t.Helper()
	digest := publish(t, addr, tag, stringMap{"tag": tag})
	return subject{addr, digest, len(newClientHome(t).run(t, "oras", "manifest", "fetch", "--plain-http", addr+"/team/app@"+digest))}
}

// newCosign returns the technology of cosign with a key pair. It passes more to cosign sign.
func newCosign(t *testing.T, name string, more ...string) technology {
	h, other := newClientHome(t), newClientHome(t)
	for _, one := range []clientHome{h, other} {
		one.run(t, name, "generate-key-pair")
	}
	public := func(h clientHome) stringMap {
		return stringMap{"cosign.pub": read(t, filepath.Join(string(h), "cosign.pub"))}
	}
	return technology{
		provider: "cosign", trust: public(h), otherSigner: public(other),
		says: map[string]string{
			attackStripped: "is not signed", attackWrongKey: "it was not made with the key", attackOtherDigest: "it is the signature of something else", attackPayload: "it was not made with the key",
		},
		sign: func(t *testing.T, reference string) {
			args := append([]string{"sign", "--key", "cosign.key", "--tlog-upload=false", "--allow-http-registry", "--yes"}, more...)
			h.run(t, name, append(args, reference)...)
		},
	}
}

// newCosign2 returns the technology of cosign 2: a payload whose signature is in an annotation.
func newCosign2(t *testing.T) technology {
	s := newCosign(t, "cosign2")
	s.suffix = true
	s.alter = func(t *testing.T, payload string, from, to subject) string {
		return replace(t, payload, from.digest, to.digest)
	}
	return s
}

// newCosign3 returns the technology of cosign 3: a bundle with a DSSE envelope.
func newCosign3(t *testing.T) technology {
	s := newCosign(t, "cosign3", "--use-signing-config=false")
	s.alter = func(t *testing.T, bundle string, from, to subject) string {
		return replaceEncoded(t, base64.StdEncoding, bundle, "payload", func(payload string) string {
			return replace(t, payload, strings.TrimPrefix(from.digest, "sha256:"), strings.TrimPrefix(to.digest, "sha256:"))
		})
	}
	return s
}

// replace replaces all occurrences of old, of which there must be at least one.
func replace(t *testing.T, text, old, new string) string {
	t.Helper()
	if !strings.Contains(text, old) {
		t.Fatalf("%q does not hold %q", text, old)
	}
	return strings.ReplaceAll(text, old, new)
}

// replaceEncoded changes a field of a JSON text, at any depth, whose value is an encoded text.
func replaceEncoded(t *testing.T, encoding *base64.Encoding, text, field string, change func(string) string) string {
	t.Helper()
	_, rest, ok := strings.Cut(text, `"`+field+`":`)
	_, rest, more := strings.Cut(rest, `"`)
	old, _, end := strings.Cut(rest, `"`)
	inner, err := encoding.DecodeString(old)
	if !ok || !more || !end || err != nil {
		t.Fatalf("no %s in %q: %v", field, text, err)
	}
	return strings.Replace(text, old, encoding.EncodeToString([]byte(change(string(inner)))), 1)
}

// A found is a signature in a registry.
type found struct {
	digest    string    // digest of its manifest
	kind      string    // artifact type
	mediaType string    // media type of the layer
	text      string    // content of the layer
	notes     stringMap // annotations of the layer
}

// find returns the signature of a subject, which it reads with oras.
func (s technology) find(t *testing.T, of subject) found {
	t.Helper()
	h := newClientHome(t)
	at := of.tag()
	if !s.suffix {
		var list struct{ Referrers, Manifests []struct{ Digest string } }
		must(t, json.Unmarshal([]byte(h.run(t, "oras", "discover", "--plain-http", "--format", "json", of.reference())), &list))
		if all := append(list.Referrers, list.Manifests...); len(all) != 1 {
			t.Fatalf("%d signatures of %s", len(all), of.digest)
		} else {
			at = of.addr + "/team/app@" + all[0].Digest
		}
	}
	var m struct {
		ArtifactType string
		Config       struct{ MediaType string }
		Layers       []struct {
			MediaType, Digest string
			Annotations       stringMap
		}
	}
	must(t, json.Unmarshal([]byte(h.run(t, "oras", "manifest", "fetch", "--plain-http", at)), &m))
	f := found{digest: strings.TrimSpace(h.run(t, "oras", "resolve", "--plain-http", at)), kind: m.ArtifactType}
	if f.kind == "" {
		f.kind = m.Config.MediaType
	}
	if len(m.Layers) != 1 {
		t.Fatalf("the signature has %d layers", len(m.Layers))
	}
	f.mediaType, f.notes = m.Layers[0].MediaType, m.Layers[0].Annotations
	f.text = h.run(t, "oras", "blob", "fetch", "--plain-http", "--output", "-", of.addr+"/team/app@"+m.Layers[0].Digest)
	return f
}

// attach attaches f to a subject as a signature, with oras.
func (s technology) attach(t *testing.T, f found, of subject) {
	t.Helper()
	h := newClientHome(t)
	write(t, filepath.Join(string(h), "signature"), f.text)
	if !s.suffix {
		h.run(t, "oras", "attach", "--plain-http", "--artifact-type", f.kind, of.reference(), "signature:"+f.mediaType)
		return
	}
	notes, err := json.Marshal(map[string]stringMap{"signature": f.notes})
	must(t, err)
	write(t, filepath.Join(string(h), "notes.json"), string(notes))
	write(t, filepath.Join(string(h), "config.json"), "{}")
	h.run(t, "oras", "push", "--plain-http", "--config", "config.json:"+f.kind, "--annotation-file", "notes.json", of.tag(), "signature:"+f.mediaType)
}

// fetch runs headgate fetch on a subject with an empty store.
func (s technology) fetch(t *testing.T, of subject, trust stringMap) (got outcome, stored int) {
	t.Helper()
	store := t.TempDir()
	got = fetchSource(t, store, ociSource{url: "oci://" + of.addr + "/team/app", insecure: true, ref: stringMap{"digest": of.digest}, provider: s.provider, trust: trust})
	return got, len(archives(t, store))
}

// requireVerified checks that a subject is accepted.
func (s technology) requireVerified(t *testing.T, of subject) {
	t.Helper()
	got, stored := s.fetch(t, of, s.trust)
	if !strings.HasPrefix(got.status.condition("SourceVerified"), "True Succeeded: verified signature of ") || got.code != 0 || stored != 1 {
		t.Fatalf("exit code %d, stored %d, %+v\n%s", got.code, stored, got.status.Conditions, got.stderr)
	}
}

// requireRefused checks that a subject is refused with the text for this attack.
func (s technology) requireRefused(t *testing.T, of subject, trust stringMap, done string) {
	t.Helper()
	got, stored := s.fetch(t, of, trust)
	why := got.status.condition("SourceVerified")
	if !strings.HasPrefix(why, "False VerificationError: ") || got.code != 3 || stored != 0 || got.status.Artifact != nil {
		t.Fatalf("exit code %d, stored %d, %+v\n%s", got.code, stored, got.status.Conditions, got.stderr)
	}
	if !strings.Contains(why, s.says[done]) {
		t.Errorf("%s: refused because of %q, want %q", done, why, s.says[done])
	}
}

// TestOCISigned signs with real tools and then attacks the signatures in several ways.
func TestOCISigned(t *testing.T) {
	t.Parallel()
	for name, create := range technologies {
		s := create(t)
		for registry, serve := range registries {
			t.Run(name+" "+registry, func(t *testing.T) {
				addr := serve(t)
				good, evil := newSubject(t, addr, "good"), newSubject(t, addr, "evil")
				s.requireRefused(t, good, s.trust, attackStripped)
				s.sign(t, good.reference())
				s.requireVerified(t, good)
				f := s.find(t, good)
				s.attach(t, f, evil)
				s.requireRefused(t, evil, s.trust, attackOtherDigest)
				s.requireRefused(t, good, s.otherSigner, attackWrongKey)

				forged, other := f, newSubject(t, addr, "other")
				forged.text = s.alter(t, f.text, good, other)
				s.attach(t, forged, other)
				s.requireRefused(t, other, s.trust, attackPayload)
				if !s.suffix { // only referrers allow several signatures
					s.attach(t, forged, good)
					s.requireVerified(t, good)
				}

				s.sign(t, evil.reference())
				s.requireVerified(t, evil)
				last := newSubject(t, addr, "last")
				s.sign(t, last.reference())
				s.requireVerified(t, last)
				newClientHome(t).run(t, "oras", "manifest", "delete", "--plain-http", "--force", addr+"/team/app@"+s.find(t, last).digest)
				s.requireRefused(t, last, s.trust, attackStripped)
			})
		}
	}
}

// technologies are the signing technologies by name.
var technologies = map[string]func(*testing.T) technology{
	"cosign2": newCosign2, "cosign3": newCosign3, "notation JWS": newNotationJWS, "notation COSE": newNotationCOSE,
}

// TestOCISignedInPrivate reads signatures with the credentials of the spec.
func TestOCISignedInPrivate(t *testing.T) {
	t.Parallel()
	root, ca, clerk := t.TempDir(), testenv.NewCA(t), newIssuer(t)
	plain := distribution{root: root}.serve(t)
	basic, token := distribution{root: root, ca: ca, basic: true}.serve(t), distribution{root: root, issuer: clerk}.serve(t)
	for name, create := range technologies {
		t.Run(name, func(t *testing.T) {
			s := create(t)
			of := newSubject(t, plain, "1.0.0")
			s.sign(t, of.reference())
			for addr, source := range map[string]ociSource{
				basic: {cert: stringMap{"ca.crt": string(ca.PEM())}},
				token: {insecure: true},
			} {
				source.url, source.ref = "oci://"+addr+"/team/app", stringMap{"digest": of.digest}
				source.provider, source.trust, source.login = s.provider, s.trust, &login{addr, "alice", "s3cret"}
				got := fetchSource(t, t.TempDir(), source)
				if why := got.status.condition("SourceVerified"); got.code != 0 || !strings.HasPrefix(why, "True Succeeded: ") {
					t.Errorf("exit code %d, SourceVerified %q\n%s", got.code, why, got.stderr)
				}
			}
		})
	}
}

// An authority issues certificates to signers.
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

// certificate creates a certificate from a template. If by is nil, it is self-signed.
func certificate(t *testing.T, by *authority, c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	c.SerialNumber, c.NotBefore = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Minute)
	parent, parentKey := c, key
	if by != nil {
		parent, parentKey = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), parentKey)
	must(t, err)
	cert, err := x509.ParseCertificate(der)
	must(t, err)
	return cert, key
}

func pemOf(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// install creates a key for the notation command in h. Its certificate is valid for life.
func (a authority) install(t *testing.T, h clientHome, life time.Duration) {
	t.Helper()
	cert, key := certificate(t, &a, &x509.Certificate{Subject: subjectOf("builder"), NotAfter: time.Now().Add(life),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning}})
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	dir := filepath.Join(string(h), ".config", "notation")
	must(t, os.MkdirAll(dir, 0o700))
	paths := stringMap{
		"name":     "key",
		"keyPath":  write(t, filepath.Join(dir, "key.pem"), pemOf("PRIVATE KEY", private)),
		"certPath": write(t, filepath.Join(dir, "chain.pem"), pemOf("CERTIFICATE", cert.Raw)+pemOf("CERTIFICATE", a.cert.Raw)),
	}
	text, err := json.Marshal(map[string]any{"default": "key", "keys": []stringMap{paths}})
	must(t, err)
	write(t, filepath.Join(dir, "signingkeys.json"), string(text))
}

// trust returns a Secret that trusts a, with a trust policy of the given level.
func (a authority) trust(level string, scopes ...string) stringMap {
	text, err := json.Marshal(map[string]any{"version": "1.0", "trustPolicies": []any{map[string]any{
		"name": "all", "registryScopes": scopes, "signatureVerification": stringMap{"level": level},
		"trustStores": []string{"ca:team"}, "trustedIdentities": []string{"x509.subject: C=DE, ST=BE, O=Test, CN=builder"},
	}}})
	if err != nil {
		panic(err)
	}
	return stringMap{"trustpolicy.json": string(text), "ca.crt": pemOf("CERTIFICATE", a.cert.Raw)}
}

// newNotation returns the technology of notation with an envelope format.
func newNotation(t *testing.T, format string) technology {
	a, h := newAuthority(t, "root"), newClientHome(t)
	a.install(t, h, time.Hour)
	return technology{
		provider: "notation", trust: a.trust("strict", "*"), otherSigner: newAuthority(t, "root").trust("strict", "*"),
		says: map[string]string{attackStripped: "has no signature", attackWrongKey: "authenticity: ", attackOtherDigest: "integrity: it is the signature of", attackPayload: "integrity: "},
		sign: func(t *testing.T, reference string) {
			h.run(t, "notation", "sign", "--insecure-registry", "--force-referrers-tag=false", "--signature-format", format, reference)
		},
	}
}

func newNotationJWS(t *testing.T) technology {
	s := newNotation(t, "jws")
	s.alter = func(t *testing.T, envelope string, from, to subject) string {
		return replaceEncoded(t, base64.RawURLEncoding, envelope, "payload", func(payload string) string { return replaceSubject(t, payload, from, to) })
	}
	return s
}

func newNotationCOSE(t *testing.T) technology {
	s := newNotation(t, "cose")
	s.alter = replaceSubject
	return s
}

// replaceSubject changes the subject in a payload.
func replaceSubject(t *testing.T, payload string, from, to subject) string {
	t.Helper()
	payload = replace(t, payload, from.digest, to.digest)
	return replace(t, payload, fmt.Sprintf(`"size":%d`, from.size), fmt.Sprintf(`"size":%d`, to.size))
}

// TestOCINotationLevels checks how each verification level treats an expired certificate.
func TestOCINotationLevels(t *testing.T) {
	addr := serveOlareg(t)
	of := newSubject(t, addr, "1.0.0")
	a, other, h := newAuthority(t, "root"), newAuthority(t, "other"), newClientHome(t)
	a.install(t, h, 8*time.Second)
	h.run(t, "notation", "sign", "--insecure-registry", "--force-referrers-tag=false", of.reference())
	s := technology{provider: "notation"}

	why := ""
	waitUntil(t, "the certificate has expired", func() bool {
		got, _ := s.fetch(t, of, a.trust("strict", "*"))
		why = got.status.condition("SourceVerified")
		return strings.HasPrefix(why, "False VerificationError: ")
	})
	if !strings.Contains(why, "authenticTimestamp: ") || !strings.Contains(why, "expired") {
		t.Errorf("refused because of %q", why)
	}
	for _, c := range []struct {
		name  string
		trust stringMap
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
