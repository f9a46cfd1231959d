package gcp_test

import (
	"context"
	"fmt"
	"log"

	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/login/gcp"
)

// A registry of Google is asked with the identity of the program.
func Example() {
	app := &source.OCIRepository{Spec: source.OCIRepositorySpec{Provider: "gcp", URL: "oci://europe-docker.pkg.dev/team/app/web"}}
	revision, _, err := oci.New(app, source.Env{Login: gcp.New(nil, nil).Login}, nil).Resolve(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(revision.ID)
}
