package signature_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	openpgp "github.com/ProtonMail/go-crypto/openpgp/v2"
	"golang.org/x/crypto/ssh"

	"github.com/headgate-io/headgate/internal/signature"
	"github.com/headgate-io/headgate/internal/testenv"
)

// now is long after the signatures of the fixtures, and before some of their keys end.
var now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// fixture returns a file that e2e/git_signed_test.go made.
func fixture(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("../../testdata/signed/" + name)
	must(t, err)
	return b
}

// commit returns the signed content of a commit, and the signature: the header gpgsig,
// whose lines after the first begin with a space.
func commit(t testing.TB, name string) (payload, sig []byte) {
	t.Helper()
	inside := false
	for line := range bytes.Lines(fixture(t, "commits/"+name)) {
		first, is := bytes.CutPrefix(line, []byte("gpgsig "))
		switch {
		case is && sig == nil:
			inside, sig = true, first
		case inside && line[0] == ' ':
			sig = append(sig, line[1:]...)
		default:
			inside, payload = false, append(payload, line...)
		}
	}
	return payload, sig
}

// content returns the content of an armored key.
func content(t testing.TB, armored []byte) []byte {
	t.Helper()
	block, err := armor.Decode(bytes.NewReader(armored))
	must(t, err)
	b, err := io.ReadAll(block.Body)
	must(t, err)
	return b
}

// withoutRevocations returns a key without its revocations.
func withoutRevocations(t testing.TB, key []byte) []byte {
	t.Helper()
	list, err := openpgp.ReadArmoredKeyRing(bytes.NewReader(key))
	must(t, err)
	list[0].Revocations = nil
	var b bytes.Buffer
	must(t, list[0].Serialize(&b))
	return b.Bytes()
}

// TestKeys reads entries and verifies commits with their keys.
func TestKeys(t *testing.T) {
	ed, rsa, subkey := fixture(t, "keys/pgp-ed25519.asc"), fixture(t, "keys/pgp-rsa3072.asc"), fixture(t, "keys/pgp-subkey.asc")
	sshEd, sshRSA := fixture(t, "keys/ssh-ed25519.sshpub"), fixture(t, "keys/ssh-rsa.sshpub")
	revoked := fixture(t, "keys/pgp-revoked.asc")
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, []byte("\n")) }
	for name, c := range map[string]struct {
		entries map[string][]byte
		trusted string // commits, by spaces
		refused string // commit and its error
	}{
		"one block":                      {map[string][]byte{"a.asc": ed}, "pgp-ed25519", "pgp-rsa3072: none of the trusted keys"},
		"several blocks with text":       {map[string][]byte{"a.asc": join([]byte("me:"), ed, []byte("you:"), rsa, subkey)}, "pgp-ed25519 pgp-rsa3072 pgp-subkey", "ssh-rsa: none of the trusted keys"},
		"one block of several keys":      {map[string][]byte{"a.asc": rearmor(t, content(t, ed), content(t, rsa))}, "pgp-ed25519 pgp-rsa3072", ""},
		"binary":                         {map[string][]byte{"pubring.gpg": append(content(t, rsa), content(t, subkey)...)}, "pgp-rsa3072 pgp-subkey", ""},
		"any other name":                 {map[string][]byte{"author1": ed}, "pgp-ed25519", ""},
		"lines that end as on Windows":   {map[string][]byte{"a.asc": bytes.ReplaceAll(ed, []byte("\n"), []byte("\r\n"))}, "pgp-ed25519", ""},
		"SSH":                            {map[string][]byte{"a.sshpub": sshEd}, "ssh-ed25519", "ssh-rsa: none of the trusted keys"},
		"SSH, lines and comments":        {map[string][]byte{"a.sshpub": join([]byte("# team\r\n\r"), sshEd, []byte("\t # more"), sshRSA)}, "ssh-ed25519 ssh-rsa", ""},
		"SSH without end of line":        {map[string][]byte{"a.sshpub": bytes.TrimSpace(sshEd)}, "ssh-ed25519", ""},
		"both":                           {map[string][]byte{"a.asc": ed, "b.sshpub": sshRSA}, "pgp-ed25519 ssh-rsa", ""},
		"the same key twice":             {map[string][]byte{"a.asc": ed, "b.asc": join(ed, subkey, subkey)}, "pgp-ed25519 pgp-subkey", ""},
		"before it was revoked":          {map[string][]byte{"a": withoutRevocations(t, revoked)}, "pgp-revoked", ""},
		"a copy is revoked":              {map[string][]byte{"a": withoutRevocations(t, revoked), "b.asc": revoked}, "", "pgp-revoked: is revoked"},
		"a copy is revoked, other order": {map[string][]byte{"a.asc": revoked, "b": withoutRevocations(t, revoked)}, "", "pgp-revoked: is revoked"},
	} {
		keys, err := signature.Parse(c.entries)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, by := range strings.Fields(c.trusted) {
			payload, sig := commit(t, by)
			if signer, err := keys.Verify(payload, sig, now); err != nil || !strings.Contains(string(fixture(t, "ids")), by+" "+signer+"\n") {
				t.Errorf("%s: %s: %q, %v", name, by, signer, err)
			}
		}
		if by, want, some := strings.Cut(c.refused, ": "); some {
			payload, sig := commit(t, by)
			if signer, err := keys.Verify(payload, sig, now); err == nil || signer != "" || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %s: %q, %v, want %q", name, by, signer, err, want)
			}
		}
	}
}

// rearmor puts several keys into one block.
func rearmor(t testing.TB, keys ...[]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := armor.Encode(&b, "PGP PUBLIC KEY BLOCK", nil)
	must(t, err)
	w.Write(bytes.Join(keys, nil))
	must(t, w.Close())
	return b.Bytes()
}

const canary = "cAnArY"

// TestKeysRefused reads entries that cannot be used. The errors show nothing of their
// content.
func TestKeysRefused(t *testing.T) {
	good, ssh1 := fixture(t, "keys/pgp-ed25519.asc"), fixture(t, "keys/ssh-ed25519.sshpub")
	var many bytes.Buffer
	for range 1001 {
		many.Write(sshLine(t))
	}
	for name, c := range map[string]struct {
		entry, content, want string
	}{
		"nothing but comments":       {"a.sshpub", "# " + canary + "\n", `entry "a.sshpub" holds no key`},
		"empty SSH":                  {"a.sshpub", "", `entry "a.sshpub" holds no key`},
		"empty PGP":                  {"a.asc", "", `entry "a.asc" holds no key`},
		"no SSH key":                 {"a.sshpub", string(ssh1) + canary + " " + canary + "\n", `entry "a.sshpub" line 2 is not an OpenSSH public key`},
		"no SSH key, one word":       {"a.sshpub", canary, `line 1 is not an OpenSSH public key`},
		"SSH key cut off":            {"a.sshpub", string(ssh1[:40]), `line 1 is not an OpenSSH public key`},
		"SSH key of another type":    {"a.sshpub", strings.Replace(string(ssh1), "ssh-ed25519", "ssh-rsa", 1), `line 1 (is not an OpenSSH public key|has options)`},
		"SSH options":                {"a.sshpub", `restrict,command="` + canary + `" ` + string(ssh1), `line 1 has options or principals`},
		"SSH allowed signers":        {"a.sshpub", canary + "@example.com " + string(ssh1), `line 1 has options or principals`},
		"SSH certificate authority":  {"a.sshpub", "cert-authority " + string(ssh1), `line 1 has options`},
		"SSH certificate":            {"a.sshpub", string(certificate(t)), `line 1 is an SSH certificate`},
		"SSH private key":            {"a.sshpub", "-----BEGIN OPENSSH PRIVATE KEY-----\n" + canary + "\n-----END OPENSSH PRIVATE KEY-----\n", `entry "a.sshpub" holds a private key`},
		"PGP private key":            {"a.asc", "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n" + canary + "\n-----END PGP PRIVATE KEY BLOCK-----\n", `entry "a.asc" holds a private key`},
		"PGP private key behind":     {"a.asc", string(good) + "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n" + canary, `entry "a.asc" holds a private key`},
		"PGP private key, binary":    {"a", string(privateRing(t)), `entry "a" holds a private key`},
		"X.509 private key":          {"tls.key", "-----BEGIN RSA PRIVATE KEY-----\n" + canary, `entry "tls.key" holds a private key`},
		"text":                       {"password", canary, `entry "password" is not an OpenPGP public key`},
		"SSH key under another name": {"me.pub", string(ssh1), `entry "me.pub" is not an OpenPGP public key`},
		"PGP without end":            {"a.asc", string(good[:200]), `entry "a.asc" is not an OpenPGP public key: block 1 does not end`},
		"PGP second without end":     {"a.asc", string(good) + string(good[:200]), `block 2 does not end`},
		"PGP of no base64":           {"a.asc", "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n" + canary + "!\n-----END PGP PUBLIC KEY BLOCK-----\n", `entry "a.asc" is not an OpenPGP public key`},
		"PGP without content":        {"a.asc", "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n-----END PGP PUBLIC KEY BLOCK-----\n", `entry "a.asc"`},
		"PGP cut off":                {"a", string(content(t, good)[:100]), `entry "a" is not an OpenPGP public key`},
		"PGP signature, no key":      {"a.asc", "-----BEGIN PGP SIGNATURE-----\n\nAAAA\n-----END PGP SIGNATURE-----\n", `entry "a.asc" is not an OpenPGP public key`},
		"PGP of version 3":           {"a", string(version3(t)), `entry "a" holds no key: want .* version 4 or 6`},
		"PGP unreadable revocation":  {"a", string(oldRevocation(t)), `entry "a" holds a revocation that cannot be read`},
		"too many keys":              {"a.sshpub", many.String(), `more than the limit of 1000 keys`},
		"too many bytes":             {"a.sshpub", strings.Repeat("#"+canary+"\n", 1<<20), `more than the limit of 4194304`},
	} {
		keys, err := signature.Parse(map[string][]byte{c.entry: []byte(c.content)})
		if err == nil || keys != nil || !regexp.MustCompile(c.want).MatchString(err.Error()) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		} else if strings.Contains(err.Error(), canary) {
			t.Errorf("%s: the content shows: %v", name, err)
		}
	}
	if _, err := signature.Parse(nil); err == nil || !strings.Contains(err.Error(), "no entry") {
		t.Errorf("no entries: %v", err)
	}
}

func sshLine(t testing.TB) []byte {
	t.Helper()
	public, _, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	key, err := ssh.NewPublicKey(public)
	must(t, err)
	return ssh.MarshalAuthorizedKey(key)
}

// certificate returns the line of an SSH certificate.
func certificate(t testing.TB) []byte {
	t.Helper()
	signer := sshSigner(t)
	c := &ssh.Certificate{Key: signer.PublicKey(), CertType: ssh.UserCert, ValidBefore: ssh.CertTimeInfinity}
	must(t, c.SignCert(rand.Reader, signer))
	return ssh.MarshalAuthorizedKey(c)
}

func sshSigner(t testing.TB) ssh.Signer {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	signer, err := ssh.NewSignerFromKey(key)
	must(t, err)
	return signer
}

// entity returns a new OpenPGP key.
func entity(t testing.TB) *openpgp.Entity {
	t.Helper()
	e, err := openpgp.NewEntity("a", "", "a@example.com", &packet.Config{Algorithm: packet.PubKeyAlgoEdDSA, Time: func() time.Time { return now.AddDate(-1, 0, 0) }})
	must(t, err)
	return e
}

func privateRing(t testing.TB) []byte {
	t.Helper()
	var b bytes.Buffer
	must(t, entity(t).SerializePrivate(&b, nil))
	return b.Bytes()
}

// version3 returns the packet of an RSA key in the format of 1991.
func version3(t testing.TB) []byte {
	t.Helper()
	body := []byte{3, 0x30, 0, 0, 0, 0, 0, 1, 0, 8, 0xff, 0, 2, 3}
	return append([]byte{0xc0 | 6, byte(len(body))}, body...)
}

// oldRevocation returns a key with a revocation of version 3 after it.
func oldRevocation(t testing.TB) []byte {
	t.Helper()
	key := content(t, fixture(t, "keys/pgp-ed25519.asc"))
	first := 2 + int(key[1]) // the packet of the key itself
	revocation := []byte{3, 5, 0x20, 0x30, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 0, 0, 0, 8, 0xff}
	return bytes.Join([][]byte{key[:first], {0xc0 | 2, byte(len(revocation))}, revocation, key[first:]}, nil)
}

var must = testenv.Must
