package e2e

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fluxcd/pkg/tar"
	"github.com/google/go-containerregistry/pkg/crane"
)

// A pushed is what headgate push prints.
type pushed struct {
	URL, Digest string
	Tags        []string
}

// push runs headgate push on a directory or an object of a store.
func push(t *testing.T, env []string, args ...string) pushed {
	t.Helper()
	cmd := headgate(t.Context(), t, append([]string{"push", "--insecure", "-o", "json"}, args...)...)
	cmd.Env = append(cmd.Env, env...)
	said := new(log)
	cmd.Stderr = said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("headgate push %q: %v\n%s", args, err, said)
	}
	var p pushed
	check(t, json.Unmarshal(out, &p))
	return p
}

// written makes a directory of files.
func written(t *testing.T, files keys) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		check(t, os.MkdirAll(filepath.Dir(path), 0o700))
		write(t, path, text)
	}
	return dir
}

var published = keys{"app.yaml": strings.Repeat("replicas: 3\n", 5000), "base/naïve name": "ü\n", "empty": ""}

// TestPush lets registries take what headgate pushes, and what Flux pulls
// artifacts with, crane and its own archive reader, pull it.
func TestPush(t *testing.T) {
	for name, serve := range registries {
		t.Run(name, func(t *testing.T) {
			f := newFront(t, serve(t))
			dir := written(t, published)
			check(t, os.Symlink("app.yaml", filepath.Join(dir, "link")))
			p := push(t, nil, dir, "oci://"+f.addr+"/team/app:1.0.0", "--tag", "stable", "--revision", "main@sha1:abc")
			for _, tag := range []string{"1.0.0", "stable"} {
				img, err := crane.Pull(f.addr+"/team/app:"+tag, crane.Insecure)
				check(t, err)
				digest, err := img.Digest()
				check(t, err)
				manifest, err := img.Manifest()
				check(t, err)
				if digest.String() != p.Digest || manifest.Annotations["org.opencontainers.image.revision"] != "main@sha1:abc" {
					t.Errorf("pulled %s, %v", digest, manifest.Annotations)
				}
				layers, err := img.Layers()
				check(t, err)
				blob, err := layers[0].Compressed()
				check(t, err)
				out := t.TempDir()
				check(t, tar.Untar(blob, out))
				check(t, blob.Close())
				wantFiles(t, filesOf(t, os.DirFS(out)), published)
			}
			store := t.TempDir()
			got := fetchOCI(t, store, ociSource{url: "oci://" + f.addr + "/team/app", insecure: true})
			if got.code != 0 || got.status.Artifact.Revision != "1.0.0@"+p.Digest {
				t.Fatalf("fetch: %+v", got)
			}
			wantFiles(t, tree(t, store), published)

			f.took()
			cmd := push(t, []string{"TZ=Asia/Tokyo"}, written(t, published), "oci://"+f.addr+"/team/app:1.0.0", "--revision", "main@sha1:abc")
			if seen := f.took(); cmd.Digest != p.Digest || count(seen, "PUT")+count(seen, "POST") > 0 {
				t.Errorf("pushed %s again, as %s, by %q", p.Digest, cmd.Digest, seen)
			}
		})
	}
}

// TestPushAccess pushes where a user has to log in, with the logins of docker.
func TestPushAccess(t *testing.T) {
	issuer := newIssuer(t)
	for name, d := range map[string]distribution{"basic": {basic: true}, "tokens": {issuer: issuer}} {
		t.Run(name, func(t *testing.T) {
			d.root = t.TempDir()
			addr := d.serve(t)
			login, err := json.Marshal(map[string]any{"auths": map[string]any{addr: keys{"auth": "YWxpY2U6czNjcmV0"}}})
			check(t, err)
			config := write(t, filepath.Join(t.TempDir(), "config.json"), string(login))
			dir := written(t, published)
			p := push(t, []string{"DOCKER_CONFIG=" + filepath.Dir(config)}, dir, "oci://"+addr+"/team/app:1.0.0", "--docker-config")
			cmd := headgate(t.Context(), t, "diff", dir, "oci://"+addr+"/team/app@"+p.Digest, "--insecure", "--docker-config="+config)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("diff: %v\n%s", err, out)
			}
			changed := maps.Clone(published)
			changed["app.yaml"] = "replicas: 5\n"
			cmd = headgate(t.Context(), t, "diff", "oci://"+addr+"/team/app:1.0.0", written(t, changed), "--insecure", "--docker-config="+config, "-o", "name")
			if out, _ := cmd.Output(); string(out) != "app.yaml\n" || cmd.ProcessState.ExitCode() != 4 {
				t.Errorf("diff: %s, exit code %d", out, cmd.ProcessState.ExitCode())
			}
			refused := headgate(t.Context(), t, "push", dir, "oci://"+addr+"/team/app:2.0.0", "--insecure")
			if out, err := refused.CombinedOutput(); err == nil || refused.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), "401") {
				t.Errorf("without credentials: %s", out)
			}
		})
	}
}
