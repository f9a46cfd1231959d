package oci_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/oci/cosign"
	"github.com/headgate-io/headgate/source"
)

// manifests is the tree that these tests publish.
var manifests = fstest.MapFS{
	"app.yaml":   {Data: []byte("replicas: 3\n"), Mode: 0o644},
	"bin/run.sh": {Data: []byte("#!/bin/sh\n"), Mode: 0o755},
}

// packed returns the archive of a tree.
func packed(t *testing.T, tree fs.FS) *bytes.Reader {
	t.Helper()
	var archive bytes.Buffer
	_, err := artifact.Pack(t.Context(), &archive, tree)
	must(t, err)
	return bytes.NewReader(archive.Bytes())
}

// length returns the size of the archive of manifests.
func length(t *testing.T) int64 { t.Helper(); return packed(t, manifests).Size() }

// tarOf returns the tar stream of an archive in normal form.
func tarOf(t *testing.T, archive io.Reader) []byte {
	t.Helper()
	tree, err := artifact.Read(archive, artifact.Limits{})
	must(t, err)
	defer tree.Close()
	var out bytes.Buffer
	_, err = artifact.Tar(t.Context(), &out, tree)
	must(t, err)
	return out.Bytes()
}

// target returns an object to publish to, and fetch from, team/app of g.
func target(g *testenv.Registry) *source.OCIRepository {
	o := &source.OCIRepository{Spec: source.OCIRepositorySpec{URL: g.URL("team/app"), Insecure: true, Interval: source.Duration(time.Minute)}}
	o.Kind, o.Metadata.Name, o.Metadata.Namespace = "OCIRepository", "app", "apps"
	source.Default(o)
	return o
}

// TestPublish checks that a published archive is fetched unchanged, under each of its tags.
func TestPublish(t *testing.T) {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	archive := packed(t, manifests)
	d, err := oci.New(target(g), source.Env{}, nil).Publish(t.Context(), archive, archive.Size(), oci.Publication{
		Tags: []string{"v1", "stable", "v1"}, Source: "https://git.example.org/app", Revision: "main@sha1:abc",
		Created:     time.Date(2024, 5, 6, 7, 8, 9, 10, time.FixedZone("JST", 9*3600)),
		Annotations: map[string]string{"team": "a", "org.opencontainers.image.source": "overridden"},
	})
	must(t, err)
	for _, tag := range []string{"v1", "stable"} {
		repo := target(g)
		repo.Spec.Ref = &source.OCIRepositoryRef{Tag: tag}
		origin := oci.New(repo, source.Env{}, nil)
		rev, _, err := origin.Resolve(t.Context(), nil)
		if err != nil || rev.ID != tag+"@"+d.Digest.String() {
			t.Fatalf("revision %q, %v", rev.ID, err)
		}
		want := map[string]string{"team": "a", "org.opencontainers.image.source": "https://git.example.org/app",
			"org.opencontainers.image.revision": "main@sha1:abc", "org.opencontainers.image.created": "2024-05-05T22:08:09Z"}
		testenv.Equal(t, rev.Metadata, want, "metadata")
		content, err := origin.Open(t.Context(), rev)
		must(t, err)
		defer content.Close()
		var got bytes.Buffer
		_, err = content.WriteTo(t.Context(), &got)
		must(t, err)
		if !bytes.Equal(tarOf(t, &got), tarOf(t, packed(t, manifests))) {
			t.Error("the tree that was fetched is not the one that was published")
		}
	}
}

// TestPublishedManifest checks the bytes of a manifest, which determine its digest.
func TestPublishedManifest(t *testing.T) {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	_, err := oci.New(target(g), source.Env{}, nil).Publish(t.Context(), strings.NewReader("\x1f\x8b..."), 5, oci.Publication{Source: "s"})
	must(t, err)
	want := `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json",` +
		`"config":{"mediaType":"application/vnd.cncf.flux.config.v1+json","digest":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","size":2},` +
		`"layers":[{"mediaType":"application/vnd.cncf.flux.content.v1.tar+gzip","digest":"sha256:bcdffea10b983e8c6d6442746069a3418f5acea25ae3909fb5b4f9785ba9c516","size":5}],` +
		`"annotations":{"org.opencontainers.image.source":"s"}}`
	testenv.Equal(t, string(g.Manifest("team/app", "latest")), want)
}

// TestPublishAgain checks that existing blobs are not uploaded again, and that a correct tag is
// not set again, which would fail if the registry's tags are immutable.
func TestPublishAgain(t *testing.T) {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	publish := func(p oci.Publication) string {
		t.Helper()
		d, err := oci.New(target(g), source.Env{}, nil).Publish(t.Context(), packed(t, manifests), length(t), p)
		must(t, err)
		return d.Digest.String()
	}
	first := publish(oci.Publication{})
	g.Reset()
	testenv.Equal(t, publish(oci.Publication{}), first, "digest, published again")
	testenv.Equal(t, g.Count(testenv.PutBlob, testenv.PutManifest), 0, "uploads")
	if other := publish(oci.Publication{Tags: []string{"v1"}, Annotations: map[string]string{"a": "b"}}); other == first {
		t.Error("an annotation is not part of the digest")
	}
	testenv.Equal(t, g.Count(testenv.PutBlob), 0, "uploads of blobs that are there")
}

// A sized archive returns its size, which may be wrong.
type sized interface {
	io.ReaderAt
	Size() int64
}

// A torn archive is shorter than its Size.
type torn struct{ *bytes.Reader }

func (t torn) Size() int64 { return t.Reader.Size() + 1 }

// A brokenArchive fails when it is read beyond its first bytes.
type brokenArchive struct{ err error }

func (brokenArchive) Size() int64 { return 100 }

func (b brokenArchive) ReadAt(p []byte, _ int64) (int, error) {
	if len(p) > 2 {
		return 0, b.err
	}
	return copy(p, "\x1f\x8b"), nil
}

func TestPublishErrors(t *testing.T) {
	good := func() sized { return packed(t, manifests) }
	errDisk := errors.New("the disk is gone")
	for name, c := range map[string]struct {
		archive sized
		p       oci.Publication
		defect  *testenv.Defect
		edit    func(*source.OCIRepository)
		is      error
		says    string
	}{
		"an empty archive":         {archive: strings.NewReader(""), says: "archive: it is not compressed by gzip"},
		"no gzip":                  {archive: strings.NewReader("tar"), says: "archive: it is not compressed by gzip"},
		"an archive that fails":    {archive: brokenArchive{errDisk}, is: errDisk, says: "archive: "},
		"a shorter archive":        {archive: torn{packed(t, manifests)}, says: "archive: it has 198 bytes, not 199"},
		"a tag with a slash":       {archive: good(), p: oci.Publication{Tags: []string{"ok", "a/b"}}, is: source.ErrInvalid, says: `"a/b" is no tag`},
		"an empty tag":             {archive: good(), p: oci.Publication{Tags: []string{""}}, is: source.ErrInvalid, says: "is no tag"},
		"an annotation's name":     {archive: good(), p: oci.Publication{Annotations: map[string]string{"": "x"}}, is: source.ErrInvalid, says: "has no name"},
		"too long annotations":     {archive: good(), p: oci.Publication{Source: strings.Repeat("x", 5<<20)}, is: source.ErrInvalid, says: "a manifest of 52"},
		"a URL with a tag":         {archive: good(), edit: func(o *source.OCIRepository) { o.Spec.URL += "/.." }, is: source.ErrInvalid, says: "spec.url"},
		"a Secret that is missing": {archive: good(), edit: func(o *source.OCIRepository) { o.Spec.SecretRef = ref("login") }, is: fs.ErrNotExist, says: "secret apps/login"},
		"a registry that forbids":  {archive: good(), defect: &testenv.Defect{Phase: testenv.PutBlob, Status: http.StatusForbidden}, is: fs.ErrPermission, says: "push 127.0.0.1"},
		"no room for a manifest":   {archive: good(), defect: &testenv.Defect{Phase: testenv.PutManifest, Status: http.StatusInsufficientStorage}, says: "507"},
		"no answer about a tag":    {archive: good(), defect: &testenv.Defect{Phase: testenv.HeadManifest, Status: http.StatusForbidden}, is: fs.ErrPermission, says: "403"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := testenv.StartRegistry(t, testenv.RegistryConfig{Defect: c.defect})
			o := target(g)
			if c.edit != nil {
				c.edit(o)
			}
			_, err := oci.New(o, source.Env{Secrets: secrets{}}, nil).Publish(t.Context(), c.archive, c.archive.Size(), c.p)
			if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v", err)
			}
			if g.Manifest("team/app", "latest") != nil {
				t.Error("it is tagged")
			}
			if c.defect == nil && g.Count() > 0 {
				t.Errorf("it asked %v before it looked at what it publishes", g.Requests())
			}
		})
	}
}

// TestAttach checks that a document is attached to a published artifact once, in registries
// with a list of referrers and without.
func TestAttach(t *testing.T) {
	for _, config := range []testenv.RegistryConfig{{}, {NoReferrers: true}} {
		g := testenv.StartRegistry(t, config)
		origin := oci.New(target(g), source.Env{}, nil)
		subject, err := origin.Publish(t.Context(), packed(t, manifests), length(t), oci.Publication{})
		must(t, err)
		const kind, text = "application/vnd.in-toto+json", `{"_type": "https://in-toto.io/Statement/v1"}`
		var attached []string
		for range 2 {
			d, err := origin.Attach(t.Context(), subject, kind, []byte(text), map[string]string{"a": "b"})
			must(t, err)
			attached = append(attached, d.Digest.String())
		}
		testenv.Equal(t, attached[0], attached[1])
		repo, err := oci.Connect(t.Context(), oci.Access{URL: g.URL("team/app"), Insecure: true}, source.Env{}, new(transport.SecretReader))
		must(t, err)
		defer repo.Close()
		var found []string
		for d, err := range repo.Referrers(t.Context(), subject, kind) {
			must(t, err)
			found = append(found, d.Digest.String())
		}
		testenv.Equal(t, found, attached[:1])
		testenv.Equal(t, string(g.Manifest("team/app", attached[0])), `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","artifactType":"`+kind+`",`+
			`"config":{"mediaType":"application/vnd.oci.empty.v1+json","digest":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","size":2,"data":"e30="},`+
			`"layers":[{"mediaType":"`+kind+`","digest":"`+digest.FromString(text).String()+`","size":44,"annotations":{"a":"b"}}],`+
			`"subject":{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"`+subject.Digest.String()+`","size":`+fmt.Sprint(subject.Size)+`},"annotations":{"a":"b"}}`)
	}
	g := testenv.StartRegistry(t, testenv.RegistryConfig{Defect: &testenv.Defect{Phase: testenv.PutManifest, Status: http.StatusForbidden}})
	_, err := oci.New(target(g), source.Env{}, nil).Attach(t.Context(), ocispec.Descriptor{}, "a/b", nil, nil)
	testenv.ErrorIs(t, err, fs.ErrPermission, "a registry that forbids")
	o := target(g)
	o.Spec.SecretRef = ref("login")
	_, err = oci.New(o, source.Env{Secrets: secrets{}}, nil).Attach(t.Context(), ocispec.Descriptor{}, "a/b", nil, nil)
	testenv.ErrorIs(t, err, fs.ErrNotExist, "a Secret that is missing")
}

// TestPublishStalled checks that publishing to a registry that stalls ends with the timeout
// of the step.
func TestPublishStalled(t *testing.T) {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{Defect: &testenv.Defect{Phase: testenv.PutBlob, Do: testenv.Stall, After: -1}})
	o := target(g)
	o.Spec.Timeout = source.Duration(50 * time.Millisecond)
	_, err := oci.New(o, source.Env{}, nil).Publish(t.Context(), packed(t, manifests), length(t), oci.Publication{})
	testenv.ErrorSays(t, err, "not done within 50ms")
}

// TestPublishWithTokens checks that a token that expires during an upload is replaced, and
// that the request is retried.
func TestPublishWithTokens(t *testing.T) {
	for _, uses := range []int{0, 1, 2, 3} {
		g := testenv.StartRegistry(t, testenv.RegistryConfig{Username: "ci", Password: "s3cret", Bearer: &testenv.Bearer{Uses: uses}})
		o := target(g)
		o.Spec.SecretRef = ref("login")
		origin := oci.New(o, source.Env{Secrets: secrets{"login": {".dockerconfigjson": dockerconfig(g.Host, "ci", "s3cret")}}}, nil)
		if _, err := origin.Publish(t.Context(), packed(t, manifests), length(t), oci.Publication{}); err != nil {
			t.Errorf("tokens that are good for %d requests: %v", uses, err)
		}
	}
}

// This example fetches an artifact if its signature was made in a job of one
// repository.
func Example() {
	var set source.Set
	if err := set.Decode("sources.yaml", strings.NewReader(`
apiVersion: source.headgate.dev/v1
kind: OCIRepository
metadata: {name: app}
spec:
  url: oci://registry.example.org/team/app
  ref: {semver: ^1.2}
  interval: 5m
  verify:
    provider: cosign
    matchOIDCIdentity:
    - {issuer: '^https://token\.actions\.example\.org$', subject: '^repo:team/app:'}
`)); err != nil {
		log.Fatal(err)
	}
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: "store"})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	app := set.Objects[0].(*source.OCIRepository)
	origin := oci.New(app, source.Env{}, map[string]oci.Technology{"cosign": cosign.New(cosign.Config{})})
	reconciler := source.Reconciler{Store: store}
	if _, err := reconciler.Reconcile(context.Background(), app, origin); err != nil {
		log.Fatal(err)
	}
	fmt.Println(app.Status.Artifact.Revision)
}

// This example packs and publishes a tree, and fetches it with the same object.
func ExampleOrigin_Publish() {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	ctx := context.Background()

	repo := &source.OCIRepository{Spec: source.OCIRepositorySpec{
		URL:      strings.Replace(server.URL, "http://", "oci://", 1) + "/team/app",
		Insecure: true,
		Ref:      &source.OCIRepositoryRef{Tag: "v1"},
	}}
	source.Default(repo)
	origin := oci.New(repo, source.Env{}, nil)

	var archive bytes.Buffer
	if _, err := artifact.Pack(ctx, &archive, fstest.MapFS{"app.yaml": {Data: []byte("replicas: 3\n")}}); err != nil {
		log.Fatal(err)
	}
	d, err := origin.Publish(ctx, bytes.NewReader(archive.Bytes()), int64(archive.Len()), oci.Publication{Source: "https://git.example.org/app", Revision: "main@sha1:abc"})
	if err != nil {
		log.Fatal(err)
	}
	rev, _, err := origin.Resolve(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(rev.ID == "v1@"+d.Digest.String(), rev.Metadata["org.opencontainers.image.revision"])
	// Output:
	// true main@sha1:abc
}
