package chart

import (
	"bytes"
	"crypto"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// cachingOpener returns an opener, with a cache if cached is set.
func cachingOpener(t *testing.T, secrets source.Secrets, cached bool) *opener {
	t.Helper()
	env := source.Env{Secrets: secrets}
	if cached {
		c, err := artifact.OpenCache(artifact.CacheConfig{Dir: filepath.Join(t.TempDir(), "cache")})
		must(t, err)
		t.Cleanup(func() { c.Close() })
		env.Cache = c
	}
	return &opener{env: env, secretReader: &transport.SecretReader{Namespace: "default", From: secrets}}
}

// indexOf returns the complete index that s fetches.
func indexOf(t *testing.T, s *opener, repo *source.PkgRepository) ([]byte, error) {
	t.Helper()
	in, err := s.fetchIndex(t.Context(), repo)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(in.reader())
	return data, errors.Join(err, in.Close())
}

func fetchStatuses(s *testenv.Charts) (all []int) {
	for _, q := range s.Requests() {
		all = append(all, q.Status)
	}
	s.Reset()
	return all
}

func TestFetchIndexIsKeptByURLAndCredentials(t *testing.T) {
	server := testenv.StartCharts(t, testenv.ChartsConfig{Gzip: true, Allow: func(*http.Request) bool { return true }})
	server.Put(testenv.ChartVersion{Name: "web", Version: "1.0.0"})
	secrets := sourcetest.Secrets{}
	login := func(password string) {
		secrets["default/login"] = sourcetest.Secret("username", "user", "password", password)
	}
	login("one-passw0rd")
	s := cachingOpener(t, secrets, true)
	repo := &source.PkgRepository{Spec: source.PkgRepositorySpec{URL: server.URL(), SecretRef: &source.LocalReference{Name: "login"}, Timeout: source.Duration(time.Minute)}}
	want := func(statuses ...int) {
		t.Helper()
		data, err := indexOf(t, s, repo)
		if err != nil || !bytes.Equal(data, server.Index()) {
			t.Errorf("%d bytes, %v; the server has %d", len(data), err, len(server.Index()))
		}
		testenv.Equal(t, fetchStatuses(server), statuses, "statuses")
	}
	want(200)
	want(304)
	want(304)
	server.Put(testenv.ChartVersion{Name: "web", Version: "1.1.0"})
	want(200)
	want(304)
	login("two-passw0rd")
	want(200) // other credentials do not get the cached index
	login("one-passw0rd")
	want(304)
	repo.Spec.URL = server.URL() + "//"
	want(304) // the same URL
	repo.Spec.URL = server.URL() + "?a=b"
	want(200)
}

// TestFetchIndexFromADamagedEntry repeats the transfer, and does nothing else, if the cache
// entry is missing or damaged.
func TestFetchIndexFromADamagedEntry(t *testing.T) {
	server := testenv.StartCharts(t, testenv.ChartsConfig{})
	s := cachingOpener(t, nil, true)
	repo := &source.PkgRepository{Spec: source.PkgRepositorySpec{URL: server.URL()}}
	_, err := indexOf(t, s, repo)
	must(t, err)
	w, err := dial(t.Context(), repo, source.Env{}, s.secretReader)
	must(t, err)
	for _, text := range []string{"", "{}\nrest", "no JSON\nrest", `{"etag":"x"}`} {
		must(t, s.env.Cache.Put("index of charts, at and as "+hex.EncodeToString(w.fingerprint[:]), func(out io.Writer) error { _, err := fmt.Fprint(out, text); return err }))
		server.Reset()
		if data, err := indexOf(t, s, repo); err != nil || !bytes.Equal(data, server.Index()) {
			t.Errorf("entry %q: %q, %v", text, data, err)
		}
		testenv.Equal(t, fetchStatuses(server), []int{200}, "entry %q: statuses", text)
	}
}

func TestNormalise(t *testing.T) {
	for text, want := range map[string]string{
		"":                                "",
		"http://h":                        "http://h/",
		"http://h/":                       "http://h/",
		"https://h/charts///":             "https://h/charts/",
		"https://h//a//b":                 "https://h/a/b/",
		"http://h?x=1":                    "http://h/?x=1",
		"http://h/charts?x=1&y=%2F":       "http://h/charts/?x=1&y=%2F",
		"http://h/a%2Fb/c%20d":            "http://h/a%2Fb/c%20d/",
		"http://h/a%2F%2Fb":               "http://h/a%2F%2Fb/",
		"HTTPS://Example.ORG:8443/Charts": "https://example.org:8443/Charts/",
		"https://u:p@h/charts":            "https://u:p@h/charts/",
		"https://h/charts#part":           "https://h/charts/",
		"oci://h/charts/":                 "oci://h/charts",
		"oci://h//charts//":               "oci://h/charts",
		"oci://h/":                        "oci://h",
	} {
		got, err := normalise(text)
		if err != nil || got != want {
			t.Errorf("normalise(%q) = %q, %v; want %q", text, got, err, want)
		}
		if again, err := normalise(got); err != nil || again != got {
			t.Errorf("normalise(%q) = %q, %v", got, again, err)
		}
	}
}

// TestIndexKeepsTheQuery requests the index with the query of the repository.
func TestIndexKeepsTheQuery(t *testing.T) {
	base, err := parseURL("http://h/a%2Fb?x=1")
	must(t, err)
	testenv.Equal(t, fileURL(base, nameOfIndex).String(), "http://h/a%2Fb/index.yaml?x=1")
}

func TestNormaliseRefuses(t *testing.T) {
	for _, text := range []string{"http://h/%zz", "http://u:cAnArY@h\x00/", "charts", "http:///charts", "http://[::1/", "https:h/cAnArY"} {
		_, err := normalise(text)
		if err == nil || strings.Contains(err.Error(), "cAnArY") {
			t.Errorf("normalise(%q): %v", text, err)
		}
	}
}

// pgpConfig signs with SHA-512, as the package manager does.
func pgpConfig(at time.Time, life time.Duration) *packet.Config {
	return &packet.Config{DefaultHash: crypto.SHA512, Algorithm: packet.PubKeyAlgoEdDSA, KeyLifetimeSecs: uint32(life / time.Second), Time: func() time.Time { return at }}
}

// newKey makes a key that is valid from at, for life; a life of 0 means forever.
func newKey(t testing.TB, at time.Time, life time.Duration) *openpgp.Entity {
	t.Helper()
	e, err := openpgp.NewEntity("ann", "", "ann@example.com", pgpConfig(at, life))
	must(t, err)
	return e
}

// publicKeyring returns the public key as a keyring, armored or not.
func publicKeyring(t testing.TB, e *openpgp.Entity, armored bool) []byte {
	t.Helper()
	var b bytes.Buffer
	var w io.Writer = &b
	var end io.Closer
	if armored {
		a, err := armor.Encode(&b, openpgp.PublicKeyType, nil)
		must(t, err)
		w, end = a, a
	}
	must(t, e.Serialize(w))
	if end != nil {
		end.Close()
	}
	return b.Bytes()
}

// signText makes a cleartext signature of a text.
func signText(t testing.TB, e *openpgp.Entity, at time.Time, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := clearsign.Encode(&b, e.PrivateKey, pgpConfig(at, 0))
	if err == nil {
		_, err = io.WriteString(w, text)
	}
	if err == nil {
		err = w.Close()
	}
	must(t, err)
	return b.Bytes()
}

// statement returns the text that the package manager signs for a chart.
func statement(name, version string, archive []byte) string {
	return fmt.Sprintf("apiVersion: v2\nname: %s\nversion: %s\n\n...\nfiles:\n  %s-%s.tgz: sha256:%x\n", name, version, name, version, sha256.Sum256(archive))
}

func TestProvenance(t *testing.T) {
	now := time.Now().Add(-time.Hour)
	ann, other, expired := newKey(t, now, 0), newKey(t, now, 0), newKey(t, now.Add(-48*time.Hour), 24*time.Hour)
	c := testenv.StartCharts(t, testenv.ChartsConfig{})
	chart := c.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0"})
	good := signText(t, ann, now, statement("app", "1.0.0", chart))
	sign := func(text string) []byte { return signText(t, ann, now, text) }
	right := statement("app", "1.0.0", chart)
	for name, row := range map[string]struct {
		file []byte
		says string // "" if the signature is good
	}{
		"good":                   {good, ""},
		"lines as on Windows":    {bytes.ReplaceAll(good, []byte("\n"), []byte("\r\n")), ""},
		"blank lines around":     {append([]byte("\n\n"), append(good, "\n\n"...)...), ""},
		"key of another":         {signText(t, other, now, right), "none of the trusted keys"},
		"expired key":            {signText(t, expired, now.Add(-47*time.Hour), right), "is expired"},
		"in the future":          {signText(t, ann, now.Add(48*time.Hour), right), "in the future"},
		"before the key":         {signText(t, ann, now.Add(-48*time.Hour), right), "before its key was"},
		"tampered":               {bytes.Replace(good, []byte("v2"), []byte("v3"), 1), "was changed"},
		"trailing text":          {append(bytes.Clone(good), "\nmore"...), "nothing around"},
		"text before":            {append([]byte("files: {}\n"), good...), "nothing around"},
		"two texts":              {append(bytes.Clone(good), good...), "nothing around"},
		"unsigned":               {[]byte(right), "nothing around"},
		"empty":                  {nil, "nothing around"},
		"cut off":                {good[:len(good)-40], "malformed"},
		"missing":                {[]byte("missing"), "there is no provenance file"},
		"other version":          {sign(statement("app", "1.0.1", chart)), `about chart "app" in version "1.0.1", not "app" in version "1.0.0"`},
		"other name":             {sign(statement("apple", "1.0.0", chart)), `about chart "apple"`},
		"other archive":          {sign(statement("app", "1.0.0", []byte("x"))), "app-1.0.0.tgz: "},
		"no such file":           {sign(strings.Replace(right, "app-1.0.0.tgz", "app.tgz", 1)), "no digest of app-1.0.0.tgz"},
		"no files":               {sign("name: app\nversion: 1.0.0\n\n...\n{}\n"), "no digest of"},
		"no digests":             {sign("name: app\nversion: 1.0.0\n"), "three dots"},
		"three documents":        {sign(right + "\n...\nfiles: {}\n"), "three dots"},
		"digest of another sort": {sign(strings.Replace(right, "sha256:", "sha512:", 1)), "want sha256:HEX"},
		"digest twice":           {sign(right + "  app-1.0.0.tgz: sha256:00\n"), "its digests"},
		"no YAML":                {sign("\x1b{\n...\n}"), "its Chart.yaml"},
		"too large":              {bytes.Repeat([]byte("a"), maxProvenance+1), "limit"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.PutFile("app-1.0.0.tgz.prov", row.file); string(row.file) == "missing" {
				c.RemoveFile("app-1.0.0.tgz.prov")
			}
			b := newOpenerTest(t, c.URL(), c)
			b.repo.Spec.Verify = &source.PkgRepositoryVerification{SecretRef: *ref("ring")}
			b.opener.env.Secrets.(sourcetest.Secrets)["default/ring"] = source.Secret{Data: map[string][]byte{
				"ann": publicKeyring(t, ann, false), "old.asc": publicKeyring(t, expired, true)}}
			u := b.open()
			o, err := u.find(t.Context(), "app", "*")
			if err != nil {
				t.Fatal(o, err)
			}
			c.Reset()
			v, err := u.verify(t.Context(), o, nil)
			if row.says != "" {
				b.fails(err, source.StepVerify, "ChartVerificationError", false, row.says)
				if large := name == "too large"; errors.Is(err, source.ErrVerification) == large || v != (source.Verification{}) {
					t.Error(v, err)
				}
				return
			}
			if err != nil || v.Mode != "provenance" || v.Signer != ann.PrimaryKey.KeyIdString() || !strings.Contains(v.Message, "app in version 1.0.0") {
				t.Fatal(v, err)
			}
			a, err := u.fetch(t.Context(), o)
			if err != nil || !bytes.Equal(b.drain(a), chart) || c.Count(testenv.GetChart) != 2 {
				t.Error(err, c.Count(testenv.GetChart))
			}
		})
	}
}

// TestProvenanceBeforeFetch never returns an unsigned chart, whatever the order of the
// calls.
func TestProvenanceBeforeFetch(t *testing.T) {
	now := time.Now().Add(-time.Hour)
	ann := newKey(t, now, 0)
	c := testenv.StartCharts(t, testenv.ChartsConfig{})
	chart := c.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0", Entry: map[string]any{"digest": nil}})
	c.PutFile("app-1.0.0.tgz.prov", signText(t, ann, now, statement("app", "1.0.0", chart)))
	b := newOpenerTest(t, c.URL(), c)
	b.repo.Spec.Verify = &source.PkgRepositoryVerification{SecretRef: *ref("ring")}
	b.opener.env.Secrets.(sourcetest.Secrets)["default/ring"] = source.Secret{Data: map[string][]byte{"ann": publicKeyring(t, ann, false)}}
	b.withCache()
	u := b.open()
	o, err := u.find(t.Context(), "app", "*")
	if err == nil {
		_, err = u.verify(t.Context(), o, nil)
	}
	must(t, err)
	for range 2 {
		a, err := u.fetch(t.Context(), o)
		if err != nil || !bytes.Equal(b.drain(a), chart) {
			t.Fatal(err)
		}
	}
	c.PutFile("app-1.0.0.tgz", testenv.ChartArchive(t, map[string]string{"app/Chart.yaml": "apiVersion: v2\nname: app\nversion: 1.0.0\ndescription: of another\n"}))
	_, err = u.fetch(t.Context(), o)
	b.fails(err, source.StepVerify, "ChartVerificationError", false, "app-1.0.0.tgz: ")
}

// Exported for tests of the package's public API.
var (
	NewKey     = newKey
	PublicKeys = publicKeyring
	SignText   = signText
	Statement  = statement
)
