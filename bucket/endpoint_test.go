package bucket_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

func TestEndpoint(t *testing.T) {
	for _, c := range []struct {
		provider, text string
		insecure       bool
		want, query    string
		says           string // of the error
	}{
		{"generic", "minio.example:9000", false, "https://minio.example:9000", "", ""},
		{"generic", "minio.example:9000/", true, "http://minio.example:9000", "", ""},
		{"aws", "s3.amazonaws.com", false, "https://s3.amazonaws.com", "", ""},
		{"", "[::1]:9000", true, "http://[::1]:9000", "", ""},
		{"generic", "https://minio.example", false, "", "", "has a scheme"},
		{"generic", "minio.example/bucket", false, "", "", "has a path"},
		{"generic", "minio.example?a=canary", false, "", "", "has a query"},
		{"generic", "minio.example?", false, "", "", "has a query"},
		{"generic", "user:canary@minio.example", false, "", "", "user information"},
		{"generic", "minio.example#canary", false, "", "", "fragment"},
		{"generic", "minio.example\ncanary", false, "", "", "control characters"},
		{"generic", "", false, "", "", "is required"},
		{"generic", ":9000", false, "", "", "names no host"},
		{"generic", "minio.example:", false, "", "", "names no host"},
		{"generic", "minio.example:0", false, "", "", "names no host"},
		{"generic", "minio.example:65536", false, "", "", "names no host"},
		{"generic", "mini!o", false, "", "", "names no host"},
		{"generic", strings.Repeat("a", 8193), false, "", "", "8193 bytes"},
		{"gcp", "storage.googleapis.com", false, "https://storage.googleapis.com", "", ""},
		{"gcp", "http://127.0.0.1:4443/storage/v1/", true, "http://127.0.0.1:4443/storage/v1", "", ""},
		{"gcp", "http://127.0.0.1:4443", false, "", "", "set spec.insecure"},
		{"gcp", "https://storage.example?a=b", false, "", "", "has a query"},
		{"gcp", "ftp://storage.example", true, "", "", "another scheme"},
		{"azure", "https://acc.blob.core.windows.net", true, "https://acc.blob.core.windows.net", "", ""},
		{"azure", "https://acc.blob.core.windows.net/?sv=1&sig=ca%2Fnary%3D", false, "https://acc.blob.core.windows.net", "sv=1&sig=ca%2Fnary%3D", ""},
		{"azure", "http://127.0.0.1:10000/devstoreaccount1", true, "http://127.0.0.1:10000/devstoreaccount1", "", ""},
		{"azure", "https://canary@acc.example?sig=canary", false, "", "", "user information"},
		{"azure", "https://acc.example:port?sig=canary", false, "", "", "cannot be parsed"},
	} {
		vault := &transport.Vault{}
		a := &bucket.Access{Spec: &source.BucketSpec{Provider: c.provider, Endpoint: c.text, Insecure: c.insecure}, Vault: vault}
		u, query, err := a.Endpoint()
		if c.says == "" {
			if err != nil || u.String() != c.want || query != c.query {
				t.Errorf("%s %q: %v, %q, %v; want %s", c.provider, c.text, u, query, err, c.want)
			}
			continue
		}
		wantURLInvalid(t, err, "spec.endpoint", c.says)
	}
	vault := &transport.Vault{}
	a := &bucket.Access{Spec: &source.BucketSpec{Provider: "azure", Endpoint: "https://acc.example:?sv=1&SIG=ca%2Fnary%3D"}, Vault: vault}
	_, _, err := a.Endpoint()
	wantURLInvalid(t, err, "names no host")
	for _, s := range []string{"sv=1&SIG=ca%2Fnary%3D", "ca%2Fnary%3D", "ca/nary="} {
		if !slices.Contains(vault.Values(), s) {
			t.Errorf("%q may show", s)
		}
	}
}

// wantURLInvalid checks the error about an endpoint, which says nothing private.
func wantURLInvalid(t *testing.T, err error, says ...string) {
	t.Helper()
	step, ok := errors.AsType[*source.StepError](err)
	if !ok || step.Reason != "URLInvalid" || !errors.Is(err, source.ErrInvalid) || strings.Contains(err.Error(), "canary") {
		t.Errorf("%v: want a defect of the spec with the reason URLInvalid", err)
		return
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%v: want %q", err, s)
		}
	}
}

func TestETag(t *testing.T) {
	for s, want := range map[string]string{
		`"abc"`: "abc", `W/"abc"`: "abc", `abc`: "abc", ` "abc" `: "abc", `""`: "", ``: "", `"`: `"`, `W/`: "", `"a"b"`: `a"b`,
	} {
		if got := bucket.ETag(s); got != want {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
	}
}
