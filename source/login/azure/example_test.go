package azure_test

import (
	"context"
	"fmt"
	"log"

	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/login/azure"
)

// A registry of Azure is asked with the identity of the program.
func Example() {
	app := &source.OCIRepository{Spec: source.OCIRepositorySpec{Provider: "azure", URL: "oci://team.azurecr.io/app"}}
	revision, _, err := oci.New(app, source.Env{Login: azure.New(nil, nil).Login}, nil).Resolve(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(revision.ID)
}
