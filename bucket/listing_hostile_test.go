package bucket_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/testenv/measure"
	"github.com/headgate-io/headgate/source"
)

// A hundred thousand keys, of which few are wanted, are listed and no more.
func TestManyKeys(t *testing.T) {
	r := newScene(t, testenv.StoreConfig{AccessKey: "AKIA", SecretKey: canary})
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

// A gigabyte is offered wherever a store answers. What is read of it is
// bounded, and so is what that takes.
func TestGigabytes(t *testing.T) {
	const most = 128 << 20 // what all of a run may allocate, the store's part and that of the race detector included
	for _, c := range []struct {
		phase  testenv.Phase
		key    string // of an object
		spec   func(*source.BucketSpec)
		reason string
	}{
		{testenv.ListObjects, "a", nil, failed},
		{testenv.GetObject, "a", nil, failed},
		{testenv.GetObject, ".sourceignore", nil, failed},
		{testenv.AssumeRole, "a", withLDAP, authFailed},
	} {
		t.Run(string(c.phase)+" "+c.key, func(t *testing.T) {
			r := newScene(t, testenv.StoreConfig{AccessKey: "AKIA", SecretKey: canary, LDAPUsername: "user", LDAPPassword: canary})
			r.secrets["ldap"] = data("username", "user", "password", canary)
			r.holds(c.key, "content")
			r.s.Break(&testenv.Defect{Phase: c.phase, Do: testenv.Swell, After: 1 << 30})
			obj := r.object(c.spec)
			if obj.Spec.STS != nil {
				obj.Spec.SecretRef, obj.Spec.STS.Endpoint = nil, r.s.Base
			}
			if n := measure.Allocated(func() { r.refused(obj, nil, c.reason) }); n > most {
				t.Errorf("%d MiB were allocated", n>>20)
			}
		})
	}
}
