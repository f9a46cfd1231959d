package azure_test

import (
	"context"
	"fmt"
	"log"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/azure"
	"github.com/headgate-io/headgate/source"
	login "github.com/headgate-io/headgate/source/login/azure"
)

// A container of Azure is read with the identity of the program.
func Example() {
	app := &source.Bucket{Spec: source.BucketSpec{Provider: "azure", Endpoint: "https://team.blob.core.windows.net", BucketName: "app"}}
	origin := bucket.New(app, source.Env{Login: login.New(nil, nil).Login}, map[string]bucket.Provider{"azure": azure.Connect})
	revision, _, err := origin.Resolve(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(revision.ID)
}
