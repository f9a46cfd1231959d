//go:build unix

package cosign_test

import (
	"errors"
	"io/fs"
	"os"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/oci/cosign"
	"github.com/headgate-io/headgate/source"
)

// TestCacheGone has a directory for the cache that is not there, and cannot be
// made: no signature is refused for that.
func TestCacheGone(t *testing.T) {
	s := newSigstore(t)
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	subject := subjectOf(g, "app")
	attach(t, g, "app", subject, s.good(subject.Digest).bundle(t))
	m := newMirror(t, s.trustedRoot(t))
	trust := s.trust(t)
	trust.Root.Name = ""
	v, err := cosign.New(cosign.Config{Mirror: m.url, Anchor: m.anchor, Cache: "cache"})(connect(t, g, "app"), trust)
	check(t, err)
	dir := t.TempDir()
	t.Chdir(dir)
	check(t, os.Remove(dir))
	_, err = v.Verify(t.Context(), subject)
	if !errors.Is(err, fs.ErrNotExist) || errors.Is(err, source.ErrVerification) {
		t.Errorf("error %v, want one of the cache", err)
	}
}
