package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fluxcd/pkg/oci"
)

// TestFluxRegistryClient lets the client that flux pushes and pulls artifacts
// with pull what headgate pushed, and push what headgate fetches.
func TestFluxRegistryClient(t *testing.T) {
	for name, serve := range registries {
		t.Run(name, func(t *testing.T) {
			addr, client := serve(t), oci.NewClient(oci.DefaultOptions())
			dir := written(t, published)
			ours := push(t, nil, dir, "oci://"+addr+"/team/ours:1.0.0", "--revision", "main@sha1:abc", "--source", "https://example.com/app.git")

			out := t.TempDir()
			meta, err := client.Pull(t.Context(), addr+"/team/ours:1.0.0", out)
			check(t, err)
			wantFiles(t, filesOf(t, os.DirFS(out)), published)
			if meta.Revision != "main@sha1:abc" || meta.Source != "https://example.com/app.git" || meta.Digest != addr+"/team/ours@"+ours.Digest {
				t.Errorf("pulled %+v", meta)
			}

			_, err = client.Push(t.Context(), addr+"/team/theirs:1.0.0", dir, oci.WithPushMetadata(oci.Metadata{
				Created: "2026-01-02T03:04:05Z", Revision: "main@sha1:def", Source: "https://example.com/app.git"}))
			check(t, err)
			digests := map[string]bool{}
			for _, repository := range []string{"ours", "theirs"} {
				store := t.TempDir()
				got := fetchOCI(t, store, ociSource{url: "oci://" + addr + "/team/" + repository, insecure: true})
				if got.code != 0 || got.status.Artifact == nil {
					t.Fatalf("exit code %d, %+v\n%s", got.code, got.status, got.stderr)
				}
				wantFiles(t, tree(t, store), published)
				digests[got.status.Artifact.Digest] = true
			}
			if len(digests) != 1 {
				t.Errorf("one tree, pushed by two, has the digests %v", digests)
			}
		})
	}
}

// TestLayout lets oras copy an artifact, with its signature, into an image
// layout, which stands in for the registry.
func TestLayout(t *testing.T) {
	addr := serveOlareg(t)
	s := newNotationJWS(t)
	of := newSubject(t, addr, "1.0.0")
	s.sign(t, of.reference())
	h := newHome(t)
	layout := filepath.Join(string(h), "layout")
	h.run(t, "oras", "copy", "--from-plain-http", "--to-oci-layout", "--recursive", of.addr+"/team/app:1.0.0", "layout:1.0.0")
	for _, c := range []struct {
		name  string
		trust keys
		code  int
	}{{"verified", s.trust, 0}, {"refused", s.stranger, 3}} {
		store := t.TempDir()
		got := fetchOCI(t, store, ociSource{url: "oci://registry.example/team/app", provider: s.provider, trust: c.trust}, "--from", "oci://registry.example/team/app="+layout)
		if got.code != c.code {
			t.Fatalf("%s: exit code %d, %+v\n%s", c.name, got.code, got.status, got.stderr)
		}
		if c.code == 0 {
			wantFiles(t, tree(t, store), keys{"tag": "1.0.0"})
		}
	}
}
