package github_test

import (
	"context"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/git"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/login/github"
)

// A repository of GitHub is fetched as a GitHub App, whose key is in the Secret.
func Example() {
	var set source.Set
	if err := set.Decode("sources.yaml", strings.NewReader(`
apiVersion: source.headgate.dev/v1
kind: GitRepository
metadata: {name: app}
spec: {provider: github, url: "https://github.com/team/app", interval: 5m, secretRef: {name: app}}
`)); err != nil {
		log.Fatal(err)
	}
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: "store"})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	app := set.Objects[0].(*source.GitRepository)
	origin := git.New(app, source.Env{Secrets: source.DirSecrets("secrets"), Login: github.New(time.Now).Login})
	reconciler := source.Reconciler{Store: store}
	if _, err := reconciler.Reconcile(context.Background(), app, origin); err != nil {
		log.Fatal(err)
	}
	fmt.Println(app.Status.Artifact.Revision)
}
