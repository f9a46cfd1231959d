package gcs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/source"
)

// A token is used for 80 % of its life, one without an end until it is refused.
func TestLife(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	issued, life := 0, 100*time.Second
	held := newTokens(func(context.Context) (source.Credential, error) {
		issued++
		c := source.Credential{Token: fmt.Sprint(issued)}
		if life > 0 {
			c.Expires = now.Add(life)
		}
		return c, nil
	})
	held.now = func() time.Time { return now }
	get := func(want string) *lease {
		t.Helper()
		l, err := held.get(t.Context())
		if err != nil || l.Token != want {
			t.Fatalf("%+v, %v; want %s", l, err, want)
		}
		return l
	}
	get("1")
	now = now.Add(79 * time.Second)
	first := get("1")
	now, life = now.Add(time.Second), 0
	second := get("2")
	now = now.Add(1000 * time.Hour)
	held.refused(first) // which was replaced meanwhile
	get("2")
	held.refused(second)
	get("3")
}

// Many requests at once ask for one token; who gives up waits no longer.
func TestTurns(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	issued := 0
	held := newTokens(func(context.Context) (source.Credential, error) {
		issued++
		close(begun)
		<-release
		return source.Credential{Token: "t"}, nil
	})
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			if l, err := held.get(t.Context()); err != nil || l.Token != "t" {
				t.Errorf("%+v, %v", l, err)
			}
		})
	}
	<-begun
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("given up"))
	if _, err := held.get(ctx); err == nil || err.Error() != "given up" {
		t.Error(err)
	}
	close(release)
	all.Wait()
	if issued != 1 {
		t.Errorf("%d tokens", issued)
	}
}

func FuzzKey(f *testing.F) {
	for _, s := range []string{"", "{}", "null", `{"type":"service_account"}`, `{"type":"external_account","credential_source":{}}`,
		`{"type":"service_account","client_email":"a@b","private_key":"-----BEGIN PRIVATE KEY-----\nYQ==\n-----END PRIVATE KEY-----"}`,
		`{"type":"service_account","client_email":"a@b","private_key":"","token_uri":"http://[::1]/","universe_domain":"/../"}`} {
		f.Add([]byte(s), true)
	}
	f.Fuzz(func(t *testing.T, text []byte, insecure bool) {
		k, err := parseKey(text, insecure)
		if err != nil {
			if len(err.Error()) > 512 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		if k.private == nil || k.email == "" || k.tokenURI.Hostname() == "" || k.tokenURI.Scheme != "https" && (!insecure || k.tokenURI.Scheme != "http") {
			t.Errorf("%+v", k)
		}
	})
}

func FuzzTokenURI(f *testing.F) {
	for _, s := range []string{"https://oauth2.googleapis.com/token", "http://127.0.0.1:1/token", "http://localhost", "http://[::1]:80", "http://10.0.0.1", "ftp://h", "https://u:p@h", "https://"} {
		f.Add(s, true)
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, text string, insecure bool) {
		u, err := parseTokenURI(text, insecure)
		if err != nil {
			return
		}
		if u.User != nil || u.Hostname() == "" || u.Scheme != "https" && !(insecure && u.Scheme == "http" && loopback(u.Hostname())) {
			t.Errorf("%q was taken for %s", text, u)
		}
		if _, err := http.NewRequest(http.MethodPost, u.String(), nil); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	})
}

func FuzzToken(f *testing.F) {
	for _, s := range []string{"", "{}", "null", `{"access_token":"a","expires_in":3599}`, `{"access_token":"a","expires_in":-1}`, `{"access_token":"a b"}`, `{"expires_in":9223372036854775807,"access_token":"a"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		c, err := decodeToken(body)
		if err != nil {
			return
		}
		if c.Token == "" || strings.ContainsFunc(c.Token, func(r rune) bool { return r <= ' ' || r > '~' }) || time.Until(c.Expires) > life {
			t.Errorf("%+v", c)
		}
	})
}

func FuzzSum(f *testing.F) {
	for _, s := range []string{"", "crc32c=mnG7TA==", "crc32c=mnG7TA==,md5=XUFAKrxLKna5cZ2REBfFkg==", "md5=, crc32c=AAAAAA==", "crc32c=AA", ",,crc32c="} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		sum, announced := announcedSum(http.Header{"X-Goog-Hash": {line}})
		if !announced && sum != 0 || announced && !strings.Contains(line, "crc32c=") {
			t.Errorf("%q: %x, %t", line, sum, announced)
		}
	})
}
