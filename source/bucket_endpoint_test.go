package source_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/source"
)

func TestEndpointURL(t *testing.T) {
	for _, test := range []struct {
		provider, endpoint string
		insecure           bool
		want               string
	}{
		{"", "h", false, "https://h"},
		{"generic", "h:9000/", true, "http://h:9000"},
		{"aws", "[::1]:9000", false, "https://[::1]:9000"},
		{"gcp", "storage.googleapis.com", false, "https://storage.googleapis.com"},
		{"gcp", "h:4443", true, "http://h:4443"},
		{"gcp", "https://h/", true, "https://h"},
		{"azure", "https://a.blob.core.windows.net/?sv=1&sig=x%2B", false, "https://a.blob.core.windows.net?sv=1&sig=x%2B"},
		{"azure", "http://127.0.0.1:10000/devstoreaccount1/", true, "http://127.0.0.1:10000/devstoreaccount1"},
	} {
		s := &source.BucketSpec{Provider: test.provider, Endpoint: test.endpoint, Insecure: test.insecure}
		u, err := s.EndpointURL()
		if err != nil || u.String() != test.want {
			t.Errorf("%+v: %v, %v", test, u, err)
		}
	}
	u, err := (&source.BucketSTSSpec{Endpoint: "http://sts:9000/"}).EndpointURL()
	if err != nil || u.String() != "http://sts:9000" {
		t.Error(u, err)
	}
	_, err = (&source.BucketSpec{Endpoint: "https://h?sig=canary"}).EndpointURL()
	if !errors.Is(err, source.ErrInvalid) || strings.Contains(err.Error(), "canary") {
		t.Error(err)
	}
}
