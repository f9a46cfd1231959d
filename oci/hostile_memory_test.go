package oci_test

import (
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/testenv/measure"
	"github.com/headgate-io/headgate/source"
)

// A gigabyte is offered wherever a registry answers with a document. What is
// read of it is bounded, and so is what that takes.
func TestGigabytes(t *testing.T) {
	const most = 128 << 20 // what all of a run may allocate, the registry's part and that of the race detector included
	for _, c := range []struct {
		phase  testenv.Phase
		bearer *testenv.Bearer
		spec   func(*source.OCIRepositorySpec)
		reason string
	}{
		{testenv.GetManifest, nil, nil, pullFailed},
		{testenv.GetBlob, nil, nil, pullFailed},
		{testenv.ListTags, nil, ranged, listFailed},
		{testenv.GetToken, &testenv.Bearer{}, nil, pullFailed},
		{testenv.ListReferrers, nil, signed, "VerificationError"},
	} {
		t.Run(string(c.phase), func(t *testing.T) {
			r := newRig(t, testenv.RegistryConfig{Username: "user", Password: canary, Bearer: c.bearer})
			r.push(testenv.TarGzip(t, text("a", "one\n")))
			r.g.Break(&testenv.Defect{Phase: c.phase, Do: testenv.Swell, After: 1 << 30})
			obj := r.object("app", c.spec)
			if n := measure.Allocated(func() { r.refused(obj, nil, c.reason) }); n > most {
				t.Errorf("%d MiB were allocated", n>>20)
			}
		})
	}
}
