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
	"github.com/headgate-io/headgate/source"
)

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
