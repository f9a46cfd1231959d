package e2e

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestChartProvenance lets helm package --sign write provenance files with keys
// of gpg, and PkgRepository.spec.verify ask for them.
func TestChartProvenance(t *testing.T) {
	h := newHelm(t, nil)
	alice, mallory := newPGPSigner(t, "alice", "rsa3072", "sign", "never"), newPGPSigner(t, "mallory", "rsa3072", "sign", "never")
	ring := filepath.Join(h.home, "secring.gpg") // the format of gpg 1
	alice.GPG("", "--output", ring, "--export-secret-keys")
	dir := t.TempDir()
	for i, version := range []string{"1.0.0", "1.1.0"} {
		archive := h.pack(t, packagers[i], written(t, web(version)), "--sign", "--key", "alice", "--keyring", ring)
		for _, suffix := range []string{"", ".prov"} {
			check(t, os.Rename(archive+suffix, filepath.Join(dir, filepath.Base(archive)+suffix)))
		}
	}
	unsigned := h.pack(t, "helm3", written(t, small("cache", "1.0.0")))
	check(t, os.Rename(unsigned, filepath.Join(dir, filepath.Base(unsigned))))
	check(t, os.WriteFile(filepath.Join(dir, "near-0.1.0.tgz"), []byte(read(t, h.pack(t, "helm3", written(t, small("near", "0.1.0"))))), 0o600))
	check(t, os.WriteFile(filepath.Join(dir, "near-0.1.0.tgz.prov"), []byte(read(t, filepath.Join(dir, "web-1.0.0.tgz.prov"))), 0o600))
	h.run(t, "helm3", "repo", "index", dir)
	address := serveFiles(t, dir).plain + "/public"
	for _, c := range []struct {
		name, chart, version string
		key                  *signer
		refused              string
	}{
		{"helm3", "web", "1.0.0", alice, ""},
		{"helm4", "web", "1.1.0", alice, ""},
		{"another key", "web", "*", mallory, alice.ID},
		{"unsigned", "cache", "*", alice, ".prov"},
		{"of another chart", "near", "*", alice, "near"},
	} {
		t.Run(c.name, func(t *testing.T) {
			docs := []any{secret("trust", keys{c.key.Entry: string(c.key.Public())}),
				object("PkgRepository", "charts", map[string]any{"url": address, "verify": map[string]any{"secretRef": keys{"name": "trust"}}}),
				chartOf("PkgRepository", "charts", c.chart, map[string]any{"version": c.version})}
			if c.name != "helm3" && c.name != "helm4" {
				refusedChart(t, docs, 3, c.refused)
				return
			}
			store := t.TempDir()
			got := fetchObjects(t, store, docs)
			archive := got.artifact(t, store, "PkgChart/chart")
			if why := got.status["PkgChart/chart"].condition("SourceVerified"); !strings.HasPrefix(why, "True Succeeded: ") || !strings.Contains(why, alice.ID) {
				t.Errorf("SourceVerified %q", why)
			}
			if read(t, archive) != read(t, filepath.Join(dir, "web-"+c.version+".tgz")) {
				t.Error("the chart is not what was signed")
			}
			if mode, signer := verifiedChart(t, docs); mode != "provenance" || !strings.Contains(signer, alice.ID) {
				t.Errorf("verify prints mode %q, signer %q", mode, signer)
			}
		})
	}
	// What was changed afterwards is refused, though the index names its digest.
	changed := h.pack(t, "helm3", written(t, merged(web("1.0.0"), keys{"values.yaml": "replicas: 100\nhosts: [evil]\n"})))
	check(t, os.Rename(changed, filepath.Join(dir, "web-1.0.0.tgz")))
	h.run(t, "helm3", "repo", "index", dir)
	refusedChart(t, []any{secret("trust", keys{alice.Entry: string(alice.Public())}),
		object("PkgRepository", "charts", map[string]any{"url": address, "verify": map[string]any{"secretRef": keys{"name": "trust"}}}),
		chartOf("PkgRepository", "charts", "web", map[string]any{"version": "1.0.0"})}, 3, "sha256")
}

// TestChartSigned signs charts in a registry with cosign and notation, and
// PkgChart.spec.verify asks for it.
func TestChartSigned(t *testing.T) {
	for name, create := range map[string]func(*testing.T) technology{"cosign2": newCosign2, "cosign3": newCosign3, "notation": newNotationJWS} {
		t.Run(name, func(t *testing.T) {
			h, s := newHelm(t, nil), create(t)
			addr := serveOlareg(t)
			for _, chart := range []keys{web("1.0.0"), web("1.1.0"), small("cache", "1.0.0")} {
				h.run(t, "helm3", "push", "--plain-http", h.pack(t, "helm3", written(t, chart)), "oci://"+addr+"/charts")
			}
			digest := strings.TrimSpace(newHome(t).run(t, "crane", "digest", "--insecure", addr+"/charts/web:1.0.0"))
			s.sign(t, addr+"/charts/web@"+digest)
			docs := func(chart, version string, trust keys) []any {
				return []any{secret("trust", trust),
					object("PkgRepository", "charts", map[string]any{"type": "oci", "url": "oci://" + addr + "/charts", "insecure": true}),
					chartOf("PkgRepository", "charts", chart, map[string]any{"version": version, "verify": map[string]any{"provider": s.provider, "secretRef": keys{"name": "trust"}}})}
			}
			store := t.TempDir()
			got := fetchObjects(t, store, docs("web", "1.0.0", s.trust))
			got.artifact(t, store, "PkgChart/chart")
			if why := got.status["PkgChart/chart"].condition("SourceVerified"); !strings.HasPrefix(why, "True Succeeded: verified signature of ") || !strings.Contains(why, digest) {
				t.Errorf("SourceVerified %q", why)
			}
			if mode, signer := verifiedChart(t, docs("web", "1.0.0", s.trust)); mode != s.provider || signer == "" {
				t.Errorf("verify prints mode %q, signer %q", mode, signer)
			}
			refusedChart(t, docs("web", "1.0.0", s.stranger), 3, s.says[foreign])
			refusedChart(t, docs("web", "1.1.0", s.trust), 3, s.says[bare])
			refusedChart(t, docs("cache", "*", s.trust), 3, s.says[bare])
		})
	}
}

// verifiedChart runs headgate verify on PkgChart/chart, and returns what it
// prints of the signature.
func verifiedChart(t *testing.T, docs []any) (mode, signer string) {
	t.Helper()
	out, err := headgate(t.Context(), t, "verify", "-f", writeDocuments(t, docs), "pkgchart/chart", "-o", "json").Output()
	var found []struct{ VerificationMode, Signer string }
	if err := errors.Join(err, json.Unmarshal(out, &found)); err != nil || len(found) != 1 {
		t.Fatalf("headgate verify printed %q: %v", out, err)
	}
	return found[0].VerificationMode, found[0].Signer
}
