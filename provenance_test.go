package headgate_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/provenance"
)

// Artifacts of all kinds have a provenance. It is the same whether the content comes from the
// origin, the store or the cache, and the in-toto library accepts it.
func TestProvenance(t *testing.T) {
	u := startUpstreams(t)
	names := slices.Sorted(maps.Keys(u.documents))
	statements := map[string]*provenance.Statement{} // the last, by object
	fetch := func(o headgate.Options) map[string]string {
		t.Helper()
		o.Origins, o.Builder = s3Origins, provenance.Builder{ID: "https://ci.example.org/release", Version: map[string]string{"headgate": "v1.2.3"}}
		texts := map[string]string{}
		for r, err := range headgate.Fetch(t.Context(), u.set(names...), o) {
			must(t, err)
			if r.Provenance == nil {
				if r.Object.Artifact() != nil {
					t.Errorf("%s has an artifact without provenance", r.Object.Head())
				}
				continue
			}
			text, err := r.Provenance.Encode()
			must(t, err)
			texts[r.Provenance.Object()], statements[r.Provenance.Object()] = string(text), r.Provenance
			requireProvenance(t, text)
			again, err := provenance.Parse(text)
			must(t, err)
			archive, err := o.Store.Open(*r.Object.Artifact())
			must(t, err)
			if _, err := again.VerifyArchive(archive); err != nil {
				t.Error(err)
			}
			must(t, archive.Close())
			must(t, again.VerifySpec(r.Object))
		}
		return texts
	}
	first := fetch(headgate.Options{Store: openStore(t)})
	if len(first) < len(names)-2 { // an OCI chart repository and a generator have no artifact of their own
		t.Errorf("%d statements about %d objects", len(first), len(names))
	}
	entries, _ := lockAll(t, u.set(names...))
	for name, s := range statements {
		ref, err := source.ParseReference(name)
		must(t, err)
		if params := s.Predicate.BuildDefinition.ExternalParameters; params.SpecDigest != entries[ref].SpecDigest || params.SpecDigest == "" {
			t.Errorf("%s: specDigest %s, locked is %s", name, params.SpecDigest, entries[ref].SpecDigest)
		}
		if content := s.Subject[0].Annotations["content"]; entries[ref].Content != "" && content != entries[ref].Content {
			t.Errorf("%s: content %s, locked is %s", name, content, entries[ref].Content)
		}
	}
	otherStore, ledger := openStore(t), &source.Ledger{Dir: t.TempDir()}
	testenv.Equal(t, fetch(headgate.Options{Store: otherStore, Ledger: ledger}), first, "in another store")
	testenv.Equal(t, fetch(headgate.Options{Store: otherStore, Ledger: ledger}), first, "again")
	delete(first, "PkgRepository/default/charts") // it is locked without its index
	for _, o := range []headgate.Options{{Store: openStore(t)}, {Store: otherStore, Ledger: ledger}, {Store: otherStore, Ledger: ledger, Offline: true}} {
		o.Locked, o.Lock = true, entries
		testenv.Equal(t, fetch(o), first, "as locked")
	}
	for name, want := range map[string]string{
		"GitRepository/default/tagged": `"uri":"git+` + u.git.URL + `/tagged.git","digest":{"gitCommit":"*"},"annotations":{"revision":"v1.0.0@sha1:*","tag":"*"}},` +
			`{"name":"GitRepository/default/branch","uri":"git+` + u.git.URL + `/branch.git","digest":{"sha256":"*"},"annotations":{"revision":"master@sha1:*"}}`,
		"OCIRepository/default/copied": `"uri":"` + u.registry.URL("team/copied") + `","digest":{"sha256":"*"},"annotations":{"revision":"latest@sha256:*"}}`,
		"Bucket/default/assets":        `"uri":"http://` + u.s3.Host + `/assets","digest":{"sha256":"*"},"annotations":{"revision":"sha256:*"}}`,
		"PkgChart/default/web":         `"uri":"` + u.charts.URL() + `/web-1.0.0.tgz","digest":{"sha256":"*"},"annotations":{"revision":"1.0.0"}}`,
		"PkgChart/default/regweb":      `"uri":"` + u.registry.URL("charts/regweb") + `:2.0.0","digest":{"sha256":"*"},"annotations":{"revision":"2.0.0"}}`,
		"PkgChart/default/app": `"name":"dep","uri":"` + u.charts.URL() + `/dep-1.0.0.tgz","digest":{"sha256":"*"},"annotations":{"revision":"1.0.0"}},` +
			`{"name":"GitRepository/default/tree","uri":"git+` + u.git.URL + `/tree.git","digest":{"sha256":"*"},"annotations":{"revision":"master@sha1:*"}},` +
			`{"name":"GitRepository/default/branch","uri":"git+` + u.git.URL + `/branch.git","digest":{"sha256":"*"},"annotations":{"revision":"master@sha1:*"}}`,
	} {
		text, err := json.Marshal(statements[name].Predicate.BuildDefinition.ResolvedDependencies)
		must(t, err)
		if got := longHash.ReplaceAllString(string(text), "*"); got != "[{"+want+"]" {
			t.Errorf("%s was made of\n%s, want\n[{%s]", name, got, want)
		}
		if strings.Contains(first[name], "s3cret") {
			t.Errorf("a password is in\n%s", first[name])
		}
	}

	// If an artifact is lost before its provenance is known, the object fails and all others are
	// withdrawn.
	dir := t.TempDir()
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: dir})
	must(t, err)
	defer store.Close()
	lose := func(e source.Event) {
		if e.InvolvedObject.Name == "copied" {
			must(t, os.RemoveAll(filepath.Join(dir, "ocirepository", "default", "copied")))
		}
	}
	for r, err := range headgate.Fetch(t.Context(), u.set("GitRepository/tree", "OCIRepository/copied"), headgate.Options{Lock: entries, Locked: true, Store: store, Emit: lose, Builder: provenance.Builder{ID: "urn:ci"}}) {
		if reason := map[bool]string{false: "not stored: another object", true: "no such file"}[r.Object.Head().Metadata.Name == "copied"]; r.Outcome != source.Failed || r.Provenance != nil || !strings.Contains(fmt.Sprint(err), reason) {
			t.Errorf("%s: %s, %v, want %q", r.Object.Head(), r.Outcome, err, reason)
		}
	}
	requireEmpty(t, store)

	u.lose["PkgChart/web"]()
	options := headgate.Options{Origins: s3Origins, Lock: entries, Locked: true, Store: openStore(t), Builder: provenance.Builder{ID: "urn:ci"}}
	for r := range headgate.Fetch(t.Context(), u.set(names...), options) {
		if r.Provenance != nil {
			t.Errorf("%s was taken back, and has a provenance", r.Object.Head())
		}
	}
}

var longHash = regexp.MustCompile(`[0-9a-f]{40,}`)

// requireProvenance requires that a text is a statement with a SLSA provenance.
func requireProvenance(t *testing.T, text []byte) {
	t.Helper()
	var statement intoto.Statement
	must(t, protojson.Unmarshal(text, &statement))
	must(t, statement.Validate())
	predicate, err := protojson.Marshal(statement.Predicate)
	must(t, err)
	var provenance slsa.Provenance
	must(t, protojson.Unmarshal(predicate, &provenance))
	must(t, provenance.Validate())
}
