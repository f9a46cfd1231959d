package azure_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/azure"
	"github.com/headgate-io/headgate/source"
	login "github.com/headgate-io/headgate/source/login/azure"
)

// A container of Azure is fetched with the identity of the program.
func Example() {
	var set source.Set
	if err := set.Decode("sources.yaml", strings.NewReader(`
apiVersion: source.headgate.dev/v1
kind: Bucket
metadata: {name: app}
spec: {provider: azure, endpoint: "https://team.blob.core.windows.net", bucketName: app, interval: 5m}
`)); err != nil {
		log.Fatal(err)
	}
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: "store"})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	app := set.Objects[0].(*source.Bucket)
	origin := bucket.New(app, source.Env{Login: login.New(time.Now, os.LookupEnv).Login}, map[string]bucket.Provider{"azure": azure.Connect})
	reconciler := source.Reconciler{Store: store}
	if _, err := reconciler.Reconcile(context.Background(), app, origin); err != nil {
		log.Fatal(err)
	}
	fmt.Println(app.Status.Artifact.Revision)
}
