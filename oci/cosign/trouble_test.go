package cosign_test

import (
	"context"
	"crypto/elliptic"
	"errors"
	"net/http"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/oci/cosign"
	"github.com/headgate-io/headgate/source"
)

// TestTrouble is about registries that do not hand out what there is: no
// signature is refused for that, and none is thought not to be there.
func TestTrouble(t *testing.T) {
	for phase, format := range map[testenv.Phase]string{
		testenv.ListReferrers: "cosign3", testenv.HeadManifest: "cosign2", testenv.GetManifest: "cosign3", testenv.GetBlob: "cosign2",
	} {
		t.Run(string(phase), func(t *testing.T) {
			g := testenv.StartRegistry(t, testenv.RegistryConfig{Defect: &testenv.Defect{Phase: phase, Status: http.StatusForbidden}})
			l := openLayout(t, format)
			l.push(t, g, "app")
			got, err := verify(t, g, "app", recorded(t, "p256"), l.subject)
			if err == nil || errors.Is(err, source.ErrVerification) || got != (source.Verification{}) {
				t.Fatalf("got %+v, error %v", got, err)
			}
			if missing := lacks(err, "signatures of |app@sha256:|403"); missing != nil {
				t.Errorf("error %v lacks %q", err, missing)
			}
		})
	}
}

// TestTroubleAndRefusal has a registry that hides one format, and nothing good in the other.
func TestTroubleAndRefusal(t *testing.T) {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{Defect: &testenv.Defect{Phase: testenv.ListReferrers, Status: http.StatusForbidden}})
	l := openLayout(t, "cosign2")
	l.push(t, g, "app")
	got, err := verify(t, g, "app", recorded(t, "p256"), l.subject)
	judge(t, got, err, "", fingerprint(t, "p256")) // the other is enough
	_, err = verify(t, g, "app", oci.Trust{Keys: secret("a.pub", publicPEM(t, ecKey(t, elliptic.P256()).Public()))}, l.subject)
	if missing := lacks(err, "403|of those that could be read none holds: signature 1 of the tag"); missing != nil || errors.Is(err, source.ErrVerification) {
		t.Errorf("error %v lacks %q", err, missing)
	}
}

// TestCancelled is about the end of the run.
func TestCancelled(t *testing.T) {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{Defect: &testenv.Defect{Phase: testenv.GetBlob, Do: testenv.Stall}})
	l := openLayout(t, "cosign3")
	l.push(t, g, "app")
	v, err := cosign.New(cosign.Config{})(connect(t, g, "app"), recorded(t, "p256"))
	check(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := v.Verify(ctx, l.subject)
		done <- err
	}()
	<-g.Stalled()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || errors.Is(err, source.ErrVerification) {
		t.Errorf("error %v, want that of the context", err)
	}
}
