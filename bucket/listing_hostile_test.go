package bucket_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// A hundred thousand keys, of which few are wanted, are listed and no more.
func TestManyKeys(t *testing.T) {
	r := newScene(t, testenv.S3Config{AccessKey: "AKIA", SecretKey: canary})
	contents := map[string]string{"a": "one", "ignored": "two", "z/z": "three"}
	for i := range 100_000 {
		contents[fmt.Sprintf("ignored/%d/%06d", i%10, i)] = ""
	}
	delete(contents, "ignored")
	r.replace(contents)
	ignore := "/ignored/"
	obj := r.object(func(s *source.BucketSpec) { s.Ignore = &ignore })
	r.stored(obj)
	if names := r.Names(obj.Artifact()); strings.Join(names, " ") != "a z/z" {
		t.Errorf("%q", names)
	}
	pages := 101
	if n := r.s.Count(testenv.ListObjects); n < pages || n > pages+2 {
		t.Errorf("%d pages were asked for", n)
	}
}
