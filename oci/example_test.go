package oci_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"strings"
	"testing/fstest"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/oci/cosign"
	"github.com/headgate-io/headgate/source"
)

// An artifact in a registry is fetched if its signature was made in a job of one
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

// A tree is packed and published, and the same object fetches it.
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
