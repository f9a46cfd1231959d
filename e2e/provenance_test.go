package e2e

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/internal/testenv"
)

// newAppHome returns a home directory with sources.yaml, which has a GitRepository with app.yaml, a
// function that returns paths in it, and a function that runs headgate and returns its output.
func newAppHome(t *testing.T) (h clientHome, at func(name string) string, run func(args ...string) string) {
	t.Helper()
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Message: "first", Files: fstest.MapFS{"app.yaml": {Data: []byte("replicas: 3\n")}}})
	h = newClientHome(t)
	at = func(name string) string { return filepath.Join(string(h), name) }
	must(t, os.Rename(writeDocuments(t, []any{object("GitRepository", "app", map[string]any{"url": testenv.ServeGit(t, testenv.GitConfig{}, repo).Repo()})}), at("sources.yaml")))
	return h, at, func(args ...string) string {
		t.Helper()
		cmd := headgate(t.Context(), t, args...)
		said := new(log)
		cmd.Stderr = said
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v, %s%s", args, err, out, said)
		}
		return string(out)
	}
}

// TestProvenance reads with oras the statement that is attached to a manifest, and signs and
// verifies it with cosign, as a file and in the registry.
func TestProvenance(t *testing.T) {
	t.Parallel()
	h, at, run := newAppHome(t)
	run("fetch", "-f", at("sources.yaml"), "--store", at("store"), "--provenance", at("app.json"), "--builder-id", "https://ci.example.org/release", "-q")
	archive := archives(t, at("store"))[0]
	write(t, at("other"), "other\n")
	write(t, at("root.json"), `{"mediaType":"application/vnd.dev.sigstore.trustedroot+json;version=0.1"}`) // otherwise cosign downloads the root of Sigstore
	var p struct{ Digest, Provenance string }
	pushed := "" // the last repository
	for _, registry := range slices.Sorted(maps.Keys(registries)) {
		pushed = registries[registry](t) + "/team/app"
		must(t, json.Unmarshal([]byte(run("push", "gitrepository/app", "oci://"+pushed+":v1", "--insecure", "--store", at("store"), "--provenance", at("app.json"), "-o", "json", "-q")), &p))
		run("verify", "--provenance", at("app.json"), "oci://"+pushed+":v1", "--insecure")
		run("verify", "--provenance", at("app.json"), "-f", at("sources.yaml"), "--store", at("store"))
		var list struct{ Referrers, Manifests []struct{ Digest string } }
		must(t, json.Unmarshal([]byte(h.run(t, "oras", "discover", "--plain-http", "--format", "json", "--artifact-type", "application/vnd.in-toto+json", pushed+":v1")), &list))
		if all := append(list.Referrers, list.Manifests...); len(all) != 1 || all[0].Digest != p.Provenance {
			t.Errorf("%s: %v is attached, want %s", registry, all, p.Provenance)
		}
		var manifest struct{ Layers []struct{ Digest string } }
		must(t, json.Unmarshal([]byte(h.run(t, "oras", "manifest", "fetch", "--plain-http", pushed+"@"+p.Provenance)), &manifest))
		if text := h.run(t, "oras", "blob", "fetch", "--plain-http", "--output", "-", pushed+"@"+manifest.Layers[0].Digest); text != read(t, at("app.json")) {
			t.Errorf("%s: attached is\n%s", registry, text)
		}
	}
	h.run(t, "cosign3", "generate-key-pair")
	for name, bundle := range map[string]string{"cosign2": "--new-bundle-format", "cosign3": "--use-signing-config=false"} {
		h.run(t, name, "attest-blob", "--statement", "app.json", "--key", "cosign.key", "--tlog-upload=false", bundle, "--bundle", "bundle.json", "--yes")
		verify := []string{"verify-blob-attestation", "--key", "cosign.pub", "--insecure-ignore-tlog", "--trusted-root", "root.json", "--bundle", "bundle.json", "--type", "slsaprovenance1"}
		if name == "cosign2" {
			verify = append(verify, bundle)
		}
		h.run(t, name, append(verify, archive)...)
		h.run(t, name, append(verify, "--digestAlg", "sha256", "--digest", strings.TrimPrefix(p.Digest, "sha256:"))...)
		if out, err := h.command(t, name, append(verify, "other")...).CombinedOutput(); err == nil {
			t.Errorf("%s: another file is verified: %s", name, out)
		}
	}
	h.run(t, "oras", "attach", "--plain-http", "--artifact-type", "application/vnd.dev.sigstore.bundle.v0.3+json", pushed+"@"+p.Digest, "bundle.json:application/vnd.dev.sigstore.bundle.v0.3+json")
	h.run(t, "cosign3", "verify-attestation", "--key", "cosign.pub", "--insecure-ignore-tlog", "--trusted-root", "root.json", "--type", "slsaprovenance1", "--allow-http-registry", pushed+"@"+p.Digest)
}
