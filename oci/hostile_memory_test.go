package oci_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

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

// A blob is not held in memory.
func TestBlobStreams(t *testing.T) {
	const size = 256 << 20
	h := digest.Canonical.Digester()
	zeros := make([]byte, 1<<20)
	for range size >> 20 {
		h.Hash().Write(zeros)
	}
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	g.Break(serve(testenv.GetBlob, func(w http.ResponseWriter, _ *http.Request) {
		for range size >> 20 {
			w.Write(zeros)
		}
	}))
	r := plain(t, g)
	used := measure.Allocated(func() {
		content, err := r.Blob(t.Context(), ocispec.Descriptor{Digest: h.Digest(), Size: size})
		if err != nil {
			t.Fatal(err)
		}
		defer content.Close()
		if n, err := io.Copy(io.Discard, content); n != size || err != nil {
			t.Error(n, err)
		}
	})
	if used > 8<<20 {
		t.Errorf("%d MiB were allocated", used>>20)
	}
}
