package s3_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/s3"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// Every credential of these tests has canary in it, which no text may show.
const (
	accessKey = "AKIDEXAMPLE"
	secretKey = "secret/canary+key="
)

// signed is a server that wants signatures.
func signed() testenv.S3Config {
	return testenv.S3Config{AccessKey: accessKey, SecretKey: secretKey}
}

func secret(name string, pairs ...string) transport.Secret {
	data := map[string][]byte{}
	for i := 0; i < len(pairs); i += 2 {
		data[pairs[i]] = []byte(pairs[i+1])
	}
	return transport.Secret{Name: "default/" + name, Secret: source.Secret{Data: data}}
}

// access returns what Connect needs for the bucket named bucket of a server,
// with a Secret.
func access(s *testenv.S3, pairs ...string) *bucket.Access {
	a := &bucket.Access{Vault: &transport.Vault{Namespace: "default"}, Spec: &source.BucketSpec{
		Provider: "generic", BucketName: "bucket", Endpoint: s.Host, Insecure: strings.HasPrefix(s.Base, "http:"),
	}}
	if len(pairs) > 0 {
		a.Spec.SecretRef, a.Secret = &source.LocalReference{Name: "keys"}, secret("keys", pairs...)
		for i := 1; i < len(pairs); i += 2 {
			a.Vault.Conceal(pairs[i])
		}
	}
	return a
}

// keyed returns the same with the right keys.
func keyed(s *testenv.S3) *bucket.Access {
	return access(s, "accesskey", accessKey, "secretkey", secretKey)
}

func connect(t *testing.T, a *bucket.Access) bucket.Driver {
	t.Helper()
	d, err := s3.Connect(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func list(ctx context.Context, d bucket.Driver, prefix string) (all []bucket.Object, err error) {
	for o, err := range d.List(ctx, prefix) {
		if err != nil {
			return all, err
		}
		all = append(all, o)
	}
	return all, nil
}

func read(ctx context.Context, d bucket.Driver, o bucket.Object, offset int64) (string, error) {
	r, err := d.Open(ctx, o, offset)
	if err != nil {
		return "", err
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	return string(text), err
}

// filled returns a server whose bucket has objects KEY, CONTENT, …
func filled(t *testing.T, c testenv.S3Config, pairs ...string) *testenv.S3 {
	t.Helper()
	s := testenv.StartS3(t, c)
	for i := 0; i < len(pairs); i += 2 {
		s.Bucket("bucket").Put(pairs[i], pairs[i+1])
	}
	return s
}

// wantError makes sure that err says all of say, which | separates, and nothing secret.
func wantError(t *testing.T, s *testenv.S3, err error, say string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want %s", say)
	}
	for part := range strings.SplitSeq(say, "|") {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v: does not say %s", err, part)
		}
	}
	wantDiscreet(t, s, err)
}

// wantDiscreet makes sure that err shows no credential and no query.
func wantDiscreet(t *testing.T, s *testenv.S3, err error) {
	t.Helper()
	secrets := []string{"canary", secretKey, "list-type", "X-Amz-", "eyJ"}
	if s != nil {
		secrets = append(secrets, s.Signatures()...)
	}
	for _, text := range secrets {
		if strings.Contains(err.Error(), text) {
			t.Errorf("%v: shows %s", err, text)
		}
	}
}

func wantReason(t *testing.T, err error, reason string, invalid bool) {
	t.Helper()
	step, ok := errors.AsType[*source.StepError](err)
	if reason != "" && (!ok || step.Reason != reason) || errors.Is(err, source.ErrInvalid) != invalid {
		t.Errorf("%v: want the reason %s, and that it wraps ErrInvalid: %v", err, reason, invalid)
	}
}

// tlsOf returns settings that trust ca, with a certificate for the name reader of own unless that is nil.
func tlsOf(t *testing.T, ca, own *testenv.CA) *tls.Config {
	t.Helper()
	c := &tls.Config{RootCAs: ca.Pool()}
	if own != nil {
		pair, err := tls.X509KeyPair(own.Client("reader"))
		if err != nil {
			t.Fatal(err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c
}
