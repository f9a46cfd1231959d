package signature_test

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/pem"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"golang.org/x/crypto/ssh"

	"github.com/headgate-io/headgate/internal/signature"
)

func parse(t testing.TB, entries ...string) *signature.Keys {
	t.Helper()
	data := map[string][]byte{}
	for _, e := range entries {
		data[e] = fixture(t, "keys/"+e)
	}
	keys, err := signature.Parse(data)
	must(t, err)
	return keys
}

// requireRefused checks the error of a verification.
func requireRefused(t *testing.T, name string, keys *signature.Keys, payload, sig []byte, at time.Time, want string) {
	t.Helper()
	signer, err := keys.Verify(payload, sig, at)
	if err == nil || signer != "" || !regexp.MustCompile(want).MatchString(err.Error()) {
		t.Errorf("%s: signer %q, error %v, want %q", name, signer, err, want)
	}
}

// TestTime verifies signatures at several times. The keys are valid from the epoch of the
// fixtures on; the signatures were made half a year later.
func TestTime(t *testing.T) {
	at := func(s string) time.Time {
		when, err := time.Parse(time.DateOnly, s)
		must(t, err)
		return when
	}
	for _, c := range []struct{ key, at, want string }{
		{"pgp-expired", "2024-06-30", "in the future, at 2024-07-01 00:00:00 UTC"},
		{"pgp-expired", "2024-07-02", ""},
		{"pgp-expired", "2024-12-30", ""},
		{"pgp-expired", "2025-01-02", "the key [0-9A-F]{16} is expired"},
		{"pgp-expired-subkey", "2024-12-30", ""},
		{"pgp-expired-subkey", "2025-01-02", "the subkey [0-9A-F]{16} is expired"},
		{"pgp-renewed", "2024-07-02", "no valid self signature"}, // the self-signature that renewed it is from August
		{"pgp-renewed", "2024-08-02", ""},
		{"pgp-renewed", "2030-01-01", ""},
		{"pgp-expired-signature", "2024-07-01", ""},
		{"pgp-expired-signature", "2024-07-03", "it expired at 2024-07-02 00:00:00 UTC"},
		{"pgp-future", "2099-01-02", ""},
		{"pgp-revoked", "2024-01-02", "is revoked"},
		{"pgp-revoked-subkey", "2024-07-02", "is revoked"}, // although the revocation only says that it is no longer used
		{"pgp-ed25519", "2090-01-01", ""},
		{"ssh-ed25519", "1990-01-01", ""},
	} {
		entry := c.key + map[string]string{"pgp": ".asc", "ssh": ".sshpub"}[c.key[:3]]
		payload, sig := commit(t, c.key)
		if c.want != "" {
			requireRefused(t, c.key+" at "+c.at, parse(t, entry), payload, sig, at(c.at), c.want)
		} else if _, err := parse(t, entry).Verify(payload, sig, at(c.at)); err != nil {
			t.Errorf("%s at %s: %v", c.key, c.at, err)
		}
	}
}

func TestUnsigned(t *testing.T) {
	for _, sig := range []string{"", "\n", " \r\n\t"} {
		if _, err := parse(t, "pgp-ed25519.asc").Verify([]byte("a"), []byte(sig), now); !errors.Is(err, signature.ErrUnsigned) {
			t.Errorf("%q: %v", sig, err)
		}
	}
}

func TestHostilePGP(t *testing.T) {
	keys := parse(t, "pgp-ed25519.asc", "pgp-rsa3072.asc")
	payload, sig := commit(t, "pgp-ed25519")
	_, other := commit(t, "pgp-rsa3072")
	raw := content(t, sig)
	pack := func(packets ...[]byte) []byte {
		var b bytes.Buffer
		w, err := armor.Encode(&b, "PGP SIGNATURE", nil)
		must(t, err)
		w.Write(bytes.Join(packets, nil))
		w.Close()
		return b.Bytes()
	}
	with := func(at int, b byte) []byte {
		changed := bytes.Clone(raw)
		changed[at] = b
		return pack(changed)
	}
	const header = 2 // of the packet: then version, type, key algorithm, hash
	for name, c := range map[string]struct {
		sig  []byte
		want string
	}{
		"two blocks":           {bytes.Join([][]byte{sig, other}, []byte("\n")), "malformed: want one armored block"},
		"two signatures":       {pack(raw, content(t, other)), "malformed: more follows"},
		"twice the same":       {pack(raw, raw), "malformed: more follows"},
		"text behind":          {append(bytes.Clone(sig), "\nfree beer"...), "malformed: want one armored block"},
		"garbage behind":       {pack(raw, []byte{1, 2, 3}), "malformed"},
		"no end":               {sig[:len(sig)-20], "malformed|this content"},
		"half":                 {sig[:len(sig)/2], "malformed: want one armored block"},
		"cut off":              {pack(raw[:40]), "malformed"},
		"nothing":              {pack(), "malformed: unexpected EOF"},
		"no armor inside":      {[]byte("-----BEGIN PGP SIGNATURE-----\n-----END PGP SIGNATURE-----"), "malformed"},
		"a key":                {pack(content(t, fixture(t, "keys/pgp-ed25519.asc"))), "malformed: it is no detached signature"},
		"a message":            {[]byte("-----BEGIN PGP MESSAGE-----\n\nyw9iBWEudHh0AAAAAGhlbGxv\n-----END PGP MESSAGE-----"), "malformed: it is no detached signature"},
		"version 3":            {with(header, 3), "not supported, maybe an outdated one"},
		"version 5":            {with(header, 5), "version 5 is not supported|malformed|not supported"},
		"over text":            {with(header+1, 1), "ID: type 0x01 is not a signature over binary data"},
		"over a key":           {with(header+1, 0x20), "type 0x20 is not"},
		"hash MD5":             {with(header+3, 1), "not supported|too weak"},
		"hash SHA-1":           {with(header+3, 2), "too weak: its hash function is SHA-1"},
		"hash SHA-224":         {with(header+3, 11), "too weak: its hash function is SHA-224"},
		"hash is another":      {with(header+3, 10), "does not belong to this content"},
		"algorithm is another": {with(header+2, 1), "malformed|this content"},
		"last byte is another": {with(len(raw)-1, raw[len(raw)-1]^1), "does not belong to this content"},
		"unknown armor":        {[]byte("-----BEGIN WISHES-----\n"), `begins with "-----BEGIN WISHES-----" is neither OpenPGP nor SSH`},
		"no armor":             {[]byte("signed, me"), "neither OpenPGP nor SSH"},
		"text before":          {append([]byte("see\n"), sig...), "neither OpenPGP nor SSH"},
		"too large":            {append(bytes.Clone(sig), bytes.Repeat([]byte("a"), 64<<10)...), "more than the limit of 65536"},
		"of something else":    {other, "ID: it does not belong to this content"},
	} {
		want := strings.Replace(c.want, "ID", "[0-9A-F]{16}", 1)
		requireRefused(t, name, keys, payload, c.sig, now, want)
	}
	if _, err := keys.Verify(payload, bytes.ReplaceAll(sig, []byte("\n"), []byte("\r\n")), now); err != nil {
		t.Errorf("lines that end as on Windows: %v", err)
	}
}

// TestCriticalNotation rejects a signature with a notation that must be understood.
func TestCriticalNotation(t *testing.T) {
	e := entity(t)
	created := now.AddDate(0, -1, 0)
	sig := &packet.Signature{
		Version: 4, SigType: packet.SigTypeBinary, PubKeyAlgo: e.PrimaryKey.PubKeyAlgo, Hash: crypto.SHA256,
		CreationTime: created, IssuerKeyId: &e.PrimaryKey.KeyId,
		Notations: []*packet.Notation{{Name: "for@example.com", Value: []byte("tests only"), IsHumanReadable: true, IsCritical: true}},
	}
	h, err := sig.PrepareSign(nil)
	if err == nil {
		h.Write([]byte("a"))
		err = sig.Sign(h, e.PrivateKey, nil)
	}
	must(t, err)
	var armored, key bytes.Buffer
	w, _ := armor.Encode(&armored, "PGP SIGNATURE", nil)
	must(t, errors.Join(sig.Serialize(w), w.Close(), e.Serialize(&key)))
	keys, err := signature.Parse(map[string][]byte{"key": key.Bytes()})
	must(t, err)
	requireRefused(t, "critical notation", keys, []byte("a"), armored.Bytes(), now, `it depends on the notation "for@example.com"`)
}

// An sshsig holds the parts of an SSH signature; its zero value is a valid one.
type sshsig struct {
	signer                ssh.Signer
	magic, namespace      string
	version               uint32
	hash, format          string
	key, more, after, sig []byte
}

func (s sshsig) armored(t testing.TB, payload []byte) []byte {
	t.Helper()
	or := func(s *string, value string) {
		if *s == "" {
			*s = value
		}
	}
	or(&s.magic, "SSHSIG")
	or(&s.namespace, "git")
	or(&s.hash, "sha512")
	if s.version == 0 {
		s.version = 1
	}
	if s.key == nil {
		s.key = s.signer.PublicKey().Marshal()
	}
	sums := map[string]func([]byte) []byte{
		"sha1":   func(b []byte) []byte { h := sha1.Sum(b); return h[:] },
		"sha256": func(b []byte) []byte { h := sha256.Sum256(b); return h[:] },
		"sha512": func(b []byte) []byte { h := sha512.Sum512(b); return h[:] },
		"":       func([]byte) []byte { return nil },
	}
	sum := sums[s.hash]
	if sum == nil {
		sum = sums[""]
	}
	type signed struct{ Namespace, Reserved, Hash, Digest string }
	data := append([]byte("SSHSIG"), ssh.Marshal(signed{s.namespace, "", s.hash, string(sum(payload))})...)
	if s.sig == nil {
		sig, err := s.signer.(ssh.AlgorithmSigner).SignWithAlgorithm(rand.Reader, data, s.format)
		must(t, err)
		s.sig = append(ssh.Marshal(sig), s.more...)
	}
	body := append([]byte(s.magic), ssh.Marshal(struct {
		Version                        uint32
		Key                            []byte
		Namespace, Reserved, Hash, Sig string
	}{s.version, s.key, s.namespace, "", s.hash, string(s.sig)})...)
	return pem.EncodeToMemory(&pem.Block{Type: "SSH SIGNATURE", Bytes: append(body, s.after...)})
}

func TestHostileSSH(t *testing.T) {
	ed := sshSigner(t)
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	rsaKey, err := ssh.NewSignerFromKey(private)
	must(t, err)
	keys, err := signature.Parse(map[string][]byte{"a.sshpub": append(ssh.MarshalAuthorizedKey(ed.PublicKey()), ssh.MarshalAuthorizedKey(rsaKey.PublicKey())...)})
	must(t, err)
	payload := []byte("tree 1\n")
	for name, s := range map[string]sshsig{
		"sha512":       {signer: ed},
		"sha256":       {signer: ed, hash: "sha256"},
		"rsa-sha2-256": {signer: rsaKey, format: "rsa-sha2-256"},
		"rsa-sha2-512": {signer: rsaKey, format: "rsa-sha2-512", hash: "sha256"},
	} {
		if signer, err := keys.Verify(payload, s.armored(t, payload), now); err != nil || signer != ssh.FingerprintSHA256(s.signer.PublicKey()) {
			t.Errorf("%s: %q, %v", name, signer, err)
		}
	}
	c, _, _, _, _ := ssh.ParseAuthorizedKey(certificate(t))
	dss := ssh.Marshal(struct{ Type, P, Q, G, Y string }{"ssh-dss", "\x7f", "\x07", "\x03", "\x05"})
	security := ssh.Marshal(struct{ Type, Key, Application string }{"sk-ssh-ed25519@openssh.com", strings.Repeat("k", 32), "ssh:"})
	for name, c := range map[string]struct {
		s    sshsig
		want string
	}{
		"other namespace":        {sshsig{signer: ed, namespace: "file"}, `SHA256:.*: it was made for the namespace "file", not for git`},
		"longer namespace":       {sshsig{signer: ed, namespace: "git2"}, `namespace "git2"`},
		"hash SHA-1":             {sshsig{signer: ed, hash: "sha1"}, `hash function "sha1" is not supported`},
		"hash of no name":        {sshsig{signer: ed, hash: "none"}, `hash function "none" is not supported`},
		"RSA with SHA-1":         {sshsig{signer: rsaKey, format: "ssh-rsa"}, `too weak or not supported: format "ssh-rsa" of a key of type ssh-rsa`},
		"format of another type": {sshsig{signer: ed, sig: ssh.Marshal(ssh.Signature{Format: "rsa-sha2-512", Blob: []byte("a")})}, `format "rsa-sha2-512" of a key of type ssh-ed25519`},
		"signed by another key":  {sshsig{signer: rsaKey, format: "rsa-sha2-512", key: ed.PublicKey().Marshal()}, `format "rsa-sha2-512"`},
		"another magic":          {sshsig{signer: ed, magic: "SSHSAG"}, `malformed: it does not begin with SSHSIG`},
		"another version":        {sshsig{signer: ed, version: 2}, `malformed: version 2 is not supported`},
		"more behind":            {sshsig{signer: ed, after: []byte("a")}, `malformed`},
		"more in the signature":  {sshsig{signer: ed, more: []byte("a")}, `malformed: 1 bytes follow it, want 0`},
		"certificate":            {sshsig{signer: ed, key: c.Marshal()}, `SSH certificates are not supported`},
		"DSA":                    {sshsig{signer: ed, key: dss}, `malformed|too weak or not supported: type "ssh-dss"`},
		"key of no type":         {sshsig{signer: ed, key: ssh.Marshal(struct{ Type string }{"none"})}, `malformed: .*unknown key algorithm`},
		"key of a long type":     {sshsig{signer: ed, key: ssh.Marshal(struct{ Type string }{strings.Repeat("t\n", 10_000)})}, `^.{0,200}$`},
		"empty key":              {sshsig{signer: ed, key: []byte{}}, `malformed`},
		"empty signature":        {sshsig{signer: ed, sig: []byte{}}, `malformed`},
		"signature of 1 byte":    {sshsig{signer: ed, sig: ssh.Marshal(ssh.Signature{Format: "ssh-ed25519", Blob: []byte("a")})}, `does not belong to this content`},
		"security key, no flags": {sshsig{signer: ed, key: security}, `malformed: 0 bytes follow it, want 5`},
		"stranger":               {sshsig{signer: sshSigner(t)}, `it is none of the trusted keys`},
	} {
		requireRefused(t, name, keys, payload, c.s.armored(t, payload), now, c.want)
	}
	good := sshsig{signer: ed}.armored(t, payload)
	for name, sig := range map[string][]byte{
		"text behind":     append(bytes.Clone(good), "free beer\n"...),
		"two blocks":      append(bytes.Clone(good), good...),
		"header":          bytes.Replace(good, []byte("-----\n"), []byte("-----\nA: b\n\n"), 1),
		"no end":          good[:len(good)-30],
		"no base64":       []byte("-----BEGIN SSH SIGNATURE-----\n!\n-----END SSH SIGNATURE-----\n"),
		"nothing":         []byte("-----BEGIN SSH SIGNATURE-----\n-----END SSH SIGNATURE-----\n"),
		"other end":       bytes.Replace(good, []byte("END SSH"), []byte("END PGP"), 1),
		"only the header": []byte("-----BEGIN SSH SIGNATURE-----"),
	} {
		requireRefused(t, name, keys, payload, sig, now, "SSH signature is malformed")
	}
	requireRefused(t, "other content", keys, []byte("tree 2\n"), good, now, "does not belong to this content")
	touch := sshsig{signer: ed, key: security, sig: append(ssh.Marshal(ssh.Signature{Format: "sk-ssh-ed25519@openssh.com", Blob: make([]byte, 64)}), 0, 0, 0, 0, 9)}
	trusted, err := ssh.ParsePublicKey(security)
	must(t, err)
	if keys, err = signature.Parse(map[string][]byte{"a.sshpub": ssh.MarshalAuthorizedKey(trusted)}); err != nil {
		t.Fatal(err)
	}
	requireRefused(t, "no touch", keys, payload, touch.armored(t, payload), now, "without a touch of the security key")
}

// TestRealNamespace rejects a signature that ssh-keygen made for another purpose.
func TestRealNamespace(t *testing.T) {
	payload, sig := commit(t, "ssh-namespace")
	requireRefused(t, "namespace", parse(t, "ssh-namespace.sshpub"), payload, sig, now, `namespace "file", not for git`)
}
