package bucket_test

import (
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/testenv/measure"
	"github.com/headgate-io/headgate/source"
)

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
			r := newScene(t, testenv.S3Config{AccessKey: "AKIA", SecretKey: canary, LDAPUsername: "user", LDAPPassword: canary})
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
