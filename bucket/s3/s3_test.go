package s3_test

import (
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/s3"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

func secret(name string, pairs ...string) bucket.Secret {
	data := map[string][]byte{}
	for i := 0; i < len(pairs); i += 2 {
		data[pairs[i]] = []byte(pairs[i+1])
	}
	return bucket.Secret{Name: "default/" + name, Secret: source.Secret{Data: data}}
}

// access returns what Connect needs for the bucket b of a server.
func access(s *testenv.S3) *bucket.Access {
	return &bucket.Access{Vault: &bucket.Vault{Namespace: "default"}, Spec: &source.BucketSpec{
		Provider: "generic", BucketName: "bucket", Endpoint: s.Host, Insecure: true,
	}}
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

func TestRead(t *testing.T) {
	s := testenv.StartS3(t, testenv.S3Config{AccessKey: "AKID", SecretKey: "secret-canary", PageSize: 2})
	b := s.Bucket("bucket")
	for i, key := range []string{"a", "dir/b c", "dir/ü%20+&=?.txt", "dir/d", "z~'()*!"} {
		b.Put(key, fmt.Sprint("content ", i))
	}
	a := access(s)
	a.Spec.SecretRef, a.Secret = &source.LocalReference{Name: "keys"}, secret("keys", "accesskey", "AKID", "secretkey", "secret-canary")
	d := connect(t, a)
	all, err := list(t.Context(), d, "")
	if err != nil || len(all) != 5 {
		t.Fatal(all, err)
	}
	for _, o := range all {
		for _, from := range []int64{0, 3, o.Size} {
			r, err := d.Open(t.Context(), o, from)
			if err != nil {
				t.Fatal(o.Key, err)
			}
			text, err := io.ReadAll(r)
			r.Close()
			if want := b.Contents()[o.Key][from:]; string(text) != want || err != nil {
				t.Errorf("%s from %d: %q, %v", o.Key, from, text, err)
			}
		}
	}
}
