package chart

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// passwords gives each object in a namespace the same user and password.
type passwords struct{ password string }

func (p *passwords) Secret(_ context.Context, _, name string) (source.Secret, error) {
	if name != "login" {
		return source.Secret{}, fs.ErrNotExist
	}
	return source.Secret{Data: map[string][]byte{"username": []byte("user"), "password": []byte(p.password)}}, nil
}

func (p *passwords) PullSecrets(context.Context, string, string) ([]source.Secret, error) {
	return nil, nil
}

// cacheSupply returns a supply with a cache, or without.
func cacheSupply(t *testing.T, secrets source.Secrets, cached bool) *opener {
	t.Helper()
	env := source.Env{Secrets: secrets}
	if cached {
		c, err := artifact.OpenCache(artifact.CacheConfig{Dir: filepath.Join(t.TempDir(), "cache")})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		env.Cache = c
	}
	return &opener{env: env, vault: &transport.Vault{Namespace: "default", From: secrets}}
}

// indexOf returns the whole index that s fetches.
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
	secrets := &passwords{"one-passw0rd"}
	s := cacheSupply(t, secrets, true)
	repo := &source.PkgRepository{Spec: source.PkgRepositorySpec{URL: server.URL(), SecretRef: &source.LocalReference{Name: "login"}, Timeout: source.Duration(time.Minute)}}
	want := func(statuses ...int) {
		t.Helper()
		data, err := indexOf(t, s, repo)
		if err != nil || !bytes.Equal(data, server.Index()) {
			t.Errorf("%d bytes, %v; the server has %d", len(data), err, len(server.Index()))
		}
		if got := fetchStatuses(server); !slices.Equal(got, statuses) {
			t.Errorf("statuses %v, want %v", got, statuses)
		}
	}
	want(200)
	want(304)
	want(304)
	server.Put(testenv.ChartVersion{Name: "web", Version: "1.1.0"})
	want(200)
	want(304)
	secrets.password = "two-passw0rd"
	want(200) // what one may see is not what another one may
	secrets.password = "one-passw0rd"
	want(304)
	repo.Spec.URL = server.URL() + "//"
	want(304) // the same URL
	repo.Spec.URL = server.URL() + "?a=b"
	want(200)
}

func TestFetchIndexWithoutCacheOrValidators(t *testing.T) {
	for name, c := range map[string]testenv.ChartsConfig{"no cache": {}, "no validators": {NoETag: true, NoDate: true}} {
		t.Run(name, func(t *testing.T) {
			server := testenv.StartCharts(t, c)
			server.Put(testenv.ChartVersion{Name: "web", Version: "1.0.0"})
			s := cacheSupply(t, nil, name == "no validators")
			for range 2 {
				data, err := indexOf(t, s, &source.PkgRepository{Spec: source.PkgRepositorySpec{URL: server.URL()}})
				if err != nil || !bytes.Equal(data, server.Index()) {
					t.Errorf("%d bytes, %v", len(data), err)
				}
			}
			if got := fetchStatuses(server); !slices.Equal(got, []int{200, 200}) {
				t.Errorf("statuses %v", got)
			}
		})
	}
}

// A cache that forgets or is damaged costs the transfer and nothing else.
func TestFetchIndexFromADamagedEntry(t *testing.T) {
	server := testenv.StartCharts(t, testenv.ChartsConfig{})
	s := cacheSupply(t, nil, true)
	repo := &source.PkgRepository{Spec: source.PkgRepositorySpec{URL: server.URL()}}
	if _, err := indexOf(t, s, repo); err != nil {
		t.Fatal(err)
	}
	w, err := dial(t.Context(), repo, source.Env{}, s.vault)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "{}\nrest", "no JSON\nrest", `{"etag":"x"}`} {
		if err := s.env.Cache.Put("index of charts, at and as "+hex.EncodeToString(w.print[:]), func(out io.Writer) error { _, err := fmt.Fprint(out, text); return err }); err != nil {
			t.Fatal(err)
		}
		server.Reset()
		if data, err := indexOf(t, s, repo); err != nil || !bytes.Equal(data, server.Index()) {
			t.Errorf("entry %q: %q, %v", text, data, err)
		}
		if got := fetchStatuses(server); !slices.Equal(got, []int{200}) {
			t.Errorf("entry %q: statuses %v", text, got)
		}
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

func TestNormaliseRefuses(t *testing.T) {
	for _, text := range []string{"http://h/%zz", "http://u:cAnArY@h\x00/", "charts", "http:///charts", "http://[::1/", "https:h/cAnArY"} {
		_, err := normalise(text)
		if err == nil || strings.Contains(err.Error(), "cAnArY") {
			t.Errorf("normalise(%q): %v", text, err)
		}
	}
}

func TestBelowKeepsTheQuery(t *testing.T) {
	base, err := parseURL("http://h/a%2Fb?x=1")
	if err != nil {
		t.Fatal(err)
	}
	if got := below(base, "index.yaml").String(); got != "http://h/a%2Fb/index.yaml?x=1" {
		t.Error(got)
	}
	if got := below(base, "a b.tgz").String(); got != "http://h/a%2Fb/a%20b.tgz?x=1" {
		t.Error(got)
	}
}
