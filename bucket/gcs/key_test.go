package gcs

import (
	"net/http"
	"testing"
)

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
		if checkPrivate(k.Private) != nil || k.Email == "" || k.tokenURI.Hostname() == "" || k.tokenURI.Scheme != "https" && (!insecure || k.tokenURI.Scheme != "http") {
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
