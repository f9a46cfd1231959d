package oci_test

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
)

// contentOf opens the content of team/app:latest.
func contentOf(t *testing.T, obj *source.OCIRepository, env source.Env) source.Explainer {
	t.Helper()
	o := oci.New(obj, env, technologies)
	rev, _, err := o.Resolve(t.Context(), nil)
	must(t, err)
	c, err := o.Open(t.Context(), rev)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return c.(source.Explainer)
}

// TestExtract tests layers that contain the file a, and other entries that are left out or
// extracted.
func TestExtract(t *testing.T) {
	tree := text("a", "1")
	plain := testenv.Tar(t, testenv.TarEntries(tree)...)
	entry := func(kind byte, name, link string) testenv.TarEntry {
		return testenv.TarEntry{Header: tar.Header{Typeflag: kind, Name: name, Linkname: link, Mode: 0o644}}
	}
	holding := func(extra ...testenv.TarEntry) []byte {
		return testenv.Gzip(t, testenv.Tar(t, append(testenv.TarEntries(tree), extra...)...))
	}
	for name, test := range map[string]struct {
		mediaType string
		layer     []byte
		ignore    string
		want      []string // files in addition to a
		leftOut   int
	}{
		"gzip":                    {testenv.LayerTarGzip, testenv.Gzip(t, plain), "", nil, 0},
		"zstd":                    {testenv.LayerTarZstd, testenv.Zstd(t, plain), "", nil, 0},
		"plain":                   {testenv.LayerTar, plain, "", nil, 0},
		"gzip that says zstd":     {testenv.LayerTarZstd, testenv.Gzip(t, plain), "", nil, 0},
		"zstd that says gzip":     {testenv.LayerTarGzip, testenv.Zstd(t, plain), "", nil, 0},
		"plain that says nothing": {"", plain, "", nil, 0},
		"chart":                   {"application/vnd.cncf.helm.chart.content.v1.tar+gzip", testenv.Gzip(t, plain), "", nil, 0},
		"links and devices": {testenv.LayerTarGzip, holding(entry(tar.TypeSymlink, "s", "/etc/passwd"), entry(tar.TypeLink, "h", "../../etc/passwd"),
			entry(tar.TypeChar, "dev/null", ""), entry(tar.TypeBlock, "dev/sda", ""), entry(tar.TypeFifo, "p", "")), "", nil, 5},
		"file below a link":    {testenv.LayerTarGzip, holding(entry(tar.TypeSymlink, "s", "/etc"), entry(tar.TypeReg, "s/passwd", "")), "", []string{"s/passwd"}, 1},
		"whiteouts":            {testenv.LayerTarGzip, holding(entry(tar.TypeReg, ".wh.gone", ""), entry(tar.TypeReg, "d/.wh..wh..opq", "")), "", []string{".wh.gone", "d/.wh..wh..opq"}, 0},
		"names with a dot":     {testenv.LayerTarGzip, holding(entry(tar.TypeDir, "./", ""), entry(tar.TypeReg, "./b", "")), "", []string{"b"}, 0},
		"one name twice":       {testenv.LayerTarGzip, holding(entry(tar.TypeReg, "b", ""), entry(tar.TypeReg, "b", "")), "", []string{"b"}, 0},
		"default ignore rules": {testenv.LayerTarGzip, holding(entry(tar.TypeReg, "logo.png", ""), entry(tar.TypeReg, ".github/b", "")), "", nil, 0},
		"spec.ignore":          {testenv.LayerTarGzip, holding(entry(tar.TypeReg, "logo.png", ""), entry(tar.TypeReg, "b", "")), "/b", []string{"logo.png"}, 0},
		"ignore files": {testenv.LayerTarGzip, holding(testenv.TarEntries(fstest.MapFS{".sourceignore": {Data: []byte("/b\n")}, "b": {}, "d/.sourceignore": {Data: []byte("c\n")}, "d/b": {}, "d/c": {}})...),
			"", []string{".sourceignore", "d/.sourceignore", "d/b"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newSetup(t, testenv.RegistryConfig{})
			r.push(testenv.Blob{MediaType: test.mediaType, Data: test.layer})
			obj := r.object("app", func(s *source.OCIRepositorySpec) { s.Ignore = &test.ignore })
			result, err := r.reconcile(obj)
			must(t, err)
			want := append([]string{"a"}, test.want...)
			slices.Sort(want)
			testenv.Equal(t, r.Names(obj.Artifact()), want, "the artifact holds")
			if got := result.Report; got.LeftOutTotal != test.leftOut || got.Files != len(want) {
				t.Errorf("report %+v, want %d files, %d left out", got, len(want), test.leftOut)
			}
		})
	}
}

// TestCopyHashes copies a layer whose digest algorithm the store does not use.
func TestCopyHashes(t *testing.T) {
	r := newSetup(t, testenv.RegistryConfig{})
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: r.Dir, Algorithm: artifact.BLAKE3})
	must(t, err)
	defer store.Close()
	r.Store = store
	obj := r.object("app", copied)
	r.push(testenv.TarGzip(t, text("a", "one\n")))
	r.mustStore(obj)
	if got := obj.Artifact().Digest; !strings.HasPrefix(got, "blake3:") {
		t.Errorf("digest %s", got)
	}
	r.push(testenv.TarGzip(t, text("a", "two\n")))
	r.g.Break(&testenv.Defect{Phase: testenv.GetBlob, Do: testenv.Flip, After: 50})
	r.mustRefuse(obj, obj.Artifact(), pullFailed, "instead of sha256:")
}

// TestStoreAtFault tests failures that the registry does not cause.
func TestStoreAtFault(t *testing.T) {
	full := errors.New("no space left on device")
	for name, spec := range map[string]func(*source.OCIRepositorySpec){"extract": nil, "copy": copied} {
		t.Run(name, func(t *testing.T) {
			r := newSetup(t, testenv.RegistryConfig{})
			r.push(testenv.TarGzip(t, text("a", "one\n")))
			_, err := contentOf(t, r.object("app", spec), source.Env{Secrets: r.secrets}).WriteTo(t.Context(), failingWriter{full})
			if _, chosen := errors.AsType[*source.StepError](err); !errors.Is(err, full) || chosen {
				t.Errorf("error %v (%T), want the writer's and no step", err, err)
			}
		})
	}
	t.Run("spool", func(t *testing.T) {
		r := newSetup(t, testenv.RegistryConfig{})
		r.push(testenv.TarGzip(t, text("a", "one\n")))
		r.limits.Temp = func() (*os.File, error) { return nil, full }
		obj := r.object("app", nil)
		_, err := r.reconcile(obj)
		if step, ok := errors.AsType[*source.StepError](err); !ok || step.Step != source.StepStore || !errors.Is(err, full) {
			t.Errorf("error %v, want one of the store", err)
		}
	})
}

type failingWriter struct{ err error }

func (f failingWriter) Write([]byte) (int, error) { return 0, f.err }

func TestProgress(t *testing.T) {
	r := newSetup(t, testenv.RegistryConfig{})
	layer := testenv.TarGzip(t, text("a", strings.Repeat("one\n", 1000)))
	r.push(layer)
	var last source.Progress
	env := source.Env{Secrets: r.secrets, Progress: func(p source.Progress) {
		if p.Done < last.Done {
			t.Errorf("%+v after %+v", p, last)
		}
		last = p
	}}
	_, err := contentOf(t, r.object("app", nil), env).WriteTo(t.Context(), io.Discard)
	must(t, err)
	n := int64(len(layer.Data))
	testenv.Equal(t, last, source.Progress{Object: "ocirepository/default/app", Phase: "receiving layer", Done: n, Total: n, Unit: "bytes"}, "last progress")
}

func TestExplain(t *testing.T) {
	r := newSetup(t, testenv.RegistryConfig{})
	r.push(testenv.TarGzip(t, fstest.MapFS{"a": {Data: []byte("1")}, "logo.png": {}}))
	c := contentOf(t, r.object("app", nil), source.Env{Secrets: r.secrets})
	tree, rules, err := c.Explain(t.Context())
	must(t, err)
	if data, err := fs.ReadFile(tree, "a"); string(data) != "1" || err != nil {
		t.Errorf("a: %q, %v", data, err)
	}
	if rule, ok, err := rules.Match(t.Context(), "logo.png", false); err != nil || !ok || rule.Pattern != "*.png" {
		t.Errorf("logo.png: %+v, %t", rule, ok)
	}
	if report, err := c.WriteTo(t.Context(), io.Discard); err != nil || report.Files != 1 {
		t.Errorf("then %+v, %v", report, err)
	}
	testenv.Equal(t, r.g.Count(testenv.GetBlob), 1, "requests for the layer")
	unproved := r.object("app", signed)
	_, _, err = contentOf(t, unproved, source.Env{Secrets: r.secrets}).Explain(t.Context())
	testenv.ErrorIs(t, err, source.ErrVerification, "before it was verified")
	_, _, err = contentOf(t, r.object("app", copied), source.Env{Secrets: r.secrets}).Explain(t.Context())
	testenv.ErrorSays(t, err, "ignore rules do not apply", "of a copy")
}

// A listTechnology is a technology whose signatures are a list of digests. It accepts the
// key "good".
type listTechnology struct {
	signed map[string]bool // by digest
	level  string
	trusts []oci.Trust // arguments of its calls
	asked  []ocispec.Descriptor
}

func (n *listTechnology) technology(r *oci.Repository, t oci.Trust) (oci.Verifier, error) {
	n.trusts = append(n.trusts, t)
	if key := string(t.Keys.Data["key.pub"]); key != "good" && key != "better" {
		return nil, fmt.Errorf("secret %s: key.pub: no key", t.Keys.Name)
	}
	return n, nil
}

func (n *listTechnology) Verify(ctx context.Context, d ocispec.Descriptor) (source.Verification, error) {
	n.asked = append(n.asked, d)
	switch {
	case n.level == "stall":
		<-ctx.Done()
		return source.Verification{}, ctx.Err()
	case n.level == "nothing":
		return source.Verification{}, nil
	case n.level == "audit":
		return source.Verification{Mode: "notation", Level: n.level, Ignored: true}, nil
	case !n.signed[d.Digest.String()]:
		return source.Verification{}, fmt.Errorf("%w: no signature", source.ErrVerification)
	}
	return source.Verification{Mode: "notation", Signer: "ann"}, nil
}

// withSignature returns a setup with a signed artifact, and an object that requires its
// verification.
func withSignature(t *testing.T) (*setup, *listTechnology, *source.OCIRepository) {
	r := newSetup(t, testenv.RegistryConfig{})
	d := r.g.Push("team/app", "latest", files(t, "a", "one"))
	n := &listTechnology{signed: map[string]bool{d.Digest.String(): true}}
	r.verify = map[string]oci.Technology{"notation": n.technology}
	r.secrets["default/keys"] = source.Secret{Data: map[string][]byte{"key.pub": []byte("good")}}
	return r, n, r.object("app", func(s *source.OCIRepositorySpec) {
		s.Verify = &source.OCIRepositoryVerification{Provider: "notation", SecretRef: ref("keys")}
	})
}

func TestVerification(t *testing.T) {
	r, n, obj := withSignature(t)
	index := r.g.PushIndex("team/app", "latest", testenv.Index{Manifests: []ocispec.Descriptor{r.g.Push("team/app", "", files(t, "a", "two"))}})
	n.signed = map[string]bool{index.Digest.String(): true} // not the manifest in it
	result := r.want(obj, source.Stored)
	if result.Verification.Signer != "ann" || len(n.asked) != 1 || n.asked[0].Digest != index.Digest || n.asked[0].Size != index.Size || n.asked[0].MediaType != index.MediaType {
		t.Errorf("%+v, asked for %+v", result.Verification, n.asked)
	}
	c := obj.Common().Condition(source.SourceVerifiedCondition)
	if c.Status != "True" || c.Reason != "Succeeded" || c.Message != "verified signature of revision latest@"+index.Digest.String() {
		t.Errorf("%+v", c)
	}
	r.want(obj, source.Unchanged)
	for _, change := range []func(){
		func() { r.secrets["default/keys"].Data["key.pub"] = []byte("better") },
		func() { r.secrets["default/keys"].Data["more.pub"] = []byte("good") },
		func() {
			r.secrets["default/root"] = source.Secret{}
			obj.Spec.Verify.TrustedRootSecretRef = ref("root")
		},
		func() { obj.Spec.Verify.MatchOIDCIdentity = []source.OIDCIdentityMatch{{Issuer: "a", Subject: "b"}} },
	} {
		change()
		r.want(obj, source.Stored)
		r.want(obj, source.Unchanged)
	}
	last := n.trusts[len(n.trusts)-1]
	if last.Keys.Name != "default/keys" || last.Root.Name != "default/root" || len(last.Identities) != 1 {
		t.Errorf("trust %+v", last)
	}
}

func TestVerificationLetsPass(t *testing.T) {
	r, n, obj := withSignature(t)
	n.level = "audit"
	r.want(obj, source.Stored)
	c := obj.Common().Condition(source.SourceVerifiedCondition)
	if c.Status != "Unknown" || c.Reason != "VerificationIgnored" || obj.Common().Condition(source.ReadyCondition).Status != "True" {
		t.Errorf("%+v", obj.Common().Conditions)
	}
	r.want(obj, source.Unchanged)
}

func TestUnverified(t *testing.T) {
	for name, row := range map[string]struct {
		change  func(*setup, *listTechnology, *source.OCIRepository)
		outcome source.Outcome
		says    string
	}{
		"unsigned":        {func(_ *setup, n *listTechnology, _ *source.OCIRepository) { clear(n.signed) }, source.Failed, "no signature"},
		"nothing checked": {func(_ *setup, n *listTechnology, _ *source.OCIRepository) { n.level = "nothing" }, source.Failed, "nothing to verify"},
		"stall": {func(r *setup, n *listTechnology, obj *source.OCIRepository) {
			n.level = "stall"
			r.Stalls = func() (int, bool) { return len(n.asked), true }
			shortTimeout(&obj.Spec)
		}, source.Failed, "verify: not done within"},
		"no such Secret": {func(r *setup, _ *listTechnology, _ *source.OCIRepository) { delete(r.secrets, "default/keys") }, source.Failed, "spec.verify.secretRef: secret default/keys"},
		"no such root": {func(_ *setup, _ *listTechnology, obj *source.OCIRepository) {
			obj.Spec.Verify.TrustedRootSecretRef = ref("root")
		}, source.Failed, "spec.verify.trustedRootSecretRef: secret default/root"},
		"bad key": {func(r *setup, _ *listTechnology, _ *source.OCIRepository) {
			r.secrets["default/keys"].Data["key.pub"] = []byte("worse")
		}, source.Failed, "no key"},
		"unknown technology":  {func(_ *setup, _ *listTechnology, obj *source.OCIRepository) { obj.Spec.Verify.Provider = "gpg" }, source.Stalled, `spec.verify.provider "gpg": this program verifies with notation`},
		"the default":         {func(_ *setup, _ *listTechnology, obj *source.OCIRepository) { obj.Spec.Verify.Provider = "" }, source.Stalled, `spec.verify.provider "cosign"`},
		"no technology known": {func(r *setup, _ *listTechnology, _ *source.OCIRepository) { r.verify = map[string]oci.Technology{} }, source.Stalled, "this program verifies with none"},
	} {
		t.Run(name, func(t *testing.T) {
			r, n, obj := withSignature(t)
			row.change(r, n, obj)
			testenv.Equal(t, r.mustRefuse(obj, nil, "VerificationError", row.says).Outcome, row.outcome, "outcome")
			if c := obj.Common().Condition(source.SourceVerifiedCondition); c.Status != "False" || c.Reason != "VerificationError" {
				t.Errorf("%+v", c)
			}
			testenv.Equal(t, r.g.Count(testenv.GetBlob), 0, "blobs were asked for")
		})
	}
}

// opened resolves o and opens its current revision.
func opened(t *testing.T, o *oci.Origin) source.Content {
	t.Helper()
	rev, _, err := o.Resolve(t.Context(), nil)
	must(t, err)
	c, err := o.Open(t.Context(), rev)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// TestKeysChangeMeanwhile changes keys between Resolve and Verify. Verify must use those of
// Resolve, whose fingerprint is in the state, and the next run must verify again.
func TestKeysChangeMeanwhile(t *testing.T) {
	r, n, obj := withSignature(t)
	o := r.origin(obj)
	_, state, err := o.Resolve(t.Context(), nil)
	must(t, err)
	c := opened(t, o)
	r.secrets["default/keys"] = source.Secret{Data: map[string][]byte{"key.pub": []byte("better")}}
	if v, err := c.Verify(t.Context()); err != nil || v.Signer != "ann" || string(n.trusts[0].Keys.Data["key.pub"]) != "good" {
		t.Error(v, err)
	}
	if rev, _, err := o.Resolve(t.Context(), state); err != nil || !rev.Reverify {
		t.Error(rev, err)
	}
}
