package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestBundle reads an exported bundle with other programs: oras from the file, crane from the
// unpacked directory. Both push it to a registry, from which headgate and flux pull it.
func TestBundle(t *testing.T) {
	t.Parallel()
	addr := distribution{root: t.TempDir()}.serve(t)
	h, at, run := newAppHome(t)
	run("lock", "-f", at("sources.yaml"), "--store", at("store"))
	run("bundle", "export", at("bundle.tar"), "-f", at("sources.yaml"), "--store", at("store"))
	h.run(t, "oras", "copy", "--from-oci-layout", at("bundle.tar")+":GitRepository.default.app", "--to-plain-http", addr+"/team/app:oras")
	if out, err := exec.Command("tar", "-C", at("."), "--one-top-level=layout", "-xf", at("bundle.tar")).CombinedOutput(); err != nil {
		t.Fatalf("%v, %s", err, out)
	}
	h.run(t, "crane", "push", "--insecure", "--index", at("layout"), addr+"/team/all:crane")
	var index struct {
		Manifests []struct{ Digest string }
	}
	must(t, json.Unmarshal([]byte(h.run(t, "crane", "manifest", "--insecure", addr+"/team/all:crane")), &index))
	if len(index.Manifests) != 2 {
		t.Fatalf("%d manifests, want that of the artifact and the index of all", len(index.Manifests))
	}
	for i, url := range []string{"oci://" + addr + "/team/app:oras", "oci://" + addr + "/team/all@" + index.Manifests[0].Digest} {
		out := at("out" + string(rune('0'+i)))
		run("fetch", url, "--insecure", "--store", at("other"), "--out", out)
		pulled := out + ".flux"
		must(t, os.Mkdir(pulled, 0o755))
		h.run(t, "flux", "pull", "artifact", url, "--insecure-registry", "--output", pulled)
		for _, dir := range []string{out, pulled} {
			if text, err := os.ReadFile(filepath.Join(dir, "app.yaml")); err != nil || string(text) != "replicas: 3\n" {
				t.Errorf("%s in %s: %q, %v", url, dir, text, err)
			}
		}
	}
}
