package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"testing"
)

// An ociSource is an OCIRepository and the Secrets it names.
type ociSource struct {
	url      string
	insecure bool
	ref      keys
	layer    keys // layerSelector
	ignore   string
	login    *login // nil: no secretRef
	cert     keys   // nil: no certSecretRef
	proxy    keys   // nil: no proxySecretRef
	provider string // of verify; "" for none
	trust    keys   // the Secret of verify
}

// A login is one entry of a Secret of type kubernetes.io/dockerconfigjson.
type login struct{ host, username, password string }

// manifest returns the documents of a source.
func (s ociSource) manifest(t *testing.T) string {
	t.Helper()
	spec := map[string]any{"interval": "1m", "timeout": "20s", "url": s.url, "ref": s.ref, "insecure": s.insecure}
	if s.ref == nil {
		spec["ref"] = keys{"tag": "1.0.0"}
	}
	if s.layer != nil {
		spec["layerSelector"] = s.layer
	}
	if s.ignore != "" {
		spec["ignore"] = s.ignore
	}
	docs := []any{}
	secret := func(name, kind string, data keys) keys {
		d := document("v1", "Secret", name, "stringData", data)
		d["type"] = kind
		docs = append(docs, d)
		return keys{"name": name}
	}
	if l := s.login; l != nil {
		text, err := json.Marshal(map[string]any{"auths": map[string]any{l.host: keys{"username": l.username, "password": l.password}}})
		check(t, err)
		spec["secretRef"] = secret("login", "kubernetes.io/dockerconfigjson", keys{".dockerconfigjson": string(text)})
	}
	if s.cert != nil {
		spec["certSecretRef"] = secret("cert", "Opaque", s.cert)
	}
	if s.proxy != nil {
		spec["proxySecretRef"] = secret("proxy", "Opaque", s.proxy)
	}
	if s.provider != "" {
		spec["verify"] = map[string]any{"provider": s.provider, "secretRef": secret("trust", "Opaque", s.trust)}
	}
	return writeDocuments(t, append(docs, document("source.headgate.dev/v1", "OCIRepository", "app", "spec", spec)))
}

// fetchOCI runs headgate fetch on a source.
func fetchOCI(t *testing.T, store string, s ociSource, more ...string) outcome {
	t.Helper()
	return fetchFile(t, store, s.manifest(t), more...)
}

// A home is where the clients of registries keep what they know: nothing of
// the machine's.
type home string

func newHome(t *testing.T) home { return home(t.TempDir()) }

// run runs a client to its end and returns its standard output.
func (h home) run(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), tool(t, name), args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + string(h), "COSIGN_PASSWORD="}
	cmd.Dir = string(h) // oras takes paths below it only
	out, err := cmd.Output()
	if err != nil {
		said := []byte(nil)
		if exit, ok := err.(*exec.ExitError); ok {
			said = exit.Stderr
		}
		t.Fatalf("%s %q: %v\n%s%s", name, args, err, out, said)
	}
	return string(out)
}
