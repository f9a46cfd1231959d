package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/internal/testenv"
)

// TestBundle has other programs read an exported bundle: oras from the file, crane
// from the directory that it unpacks to. What they push, headgate fetches and flux pulls.
func TestBundle(t *testing.T) {
	addr := distribution{root: t.TempDir()}.serve(t)
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Message: "first", Files: fstest.MapFS{"app.yaml": {Data: []byte("replicas: 3\n")}}})
	h := newHome(t)
	at := func(name string) string { return filepath.Join(string(h), name) }
	write(t, at("sources.yaml"), "apiVersion: source.headgate.dev/v1\nkind: GitRepository\nmetadata: {name: app}\nspec: {interval: 1m, ref: {branch: main}, url: "+
		testenv.ServeHTTP(t, testenv.HTTP{}, repo).Repo()+"}\n")
	run := func(args ...string) {
		t.Helper()
		if out, err := headgate(t.Context(), t, args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v, %s", args, err, out)
		}
	}
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
