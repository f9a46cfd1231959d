package git_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/git"
	"github.com/headgate-io/headgate/source"
)

// The newest release of a repository is fetched and stored, with the login of a Secret.
func Example() {
	var set source.Set
	if err := set.Decode("sources.yaml", strings.NewReader(`
apiVersion: source.headgate.dev/v1
kind: GitRepository
metadata: {name: app}
spec:
  url: https://git.example.org/app
  ref: {semver: ^1.2}
  interval: 5m
  secretRef: {name: login}
---
apiVersion: v1
kind: Secret
metadata: {name: login}
stringData: {username: ci, password: topsecret}
`)); err != nil {
		log.Fatal(err)
	}
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: "store"})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	app := set.Objects[0].(*source.GitRepository)
	reconciler := source.Reconciler{Store: store}
	if _, err := reconciler.Reconcile(context.Background(), app, git.New(app, source.Env{Secrets: &set})); err != nil {
		log.Fatal(err)
	}
	fmt.Println(app.Status.Artifact.Revision)
}
