package github_test

import (
	"context"
	"fmt"
	"log"

	"github.com/headgate-io/headgate/git"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/login/github"
)

// A repository of GitHub is asked as a GitHub App, whose key is in the Secret.
func Example() {
	app := &source.GitRepository{Spec: source.GitRepositorySpec{Provider: "github", URL: "https://github.com/team/app", SecretRef: &source.LocalReference{Name: "app"}}}
	origin := git.New(app, source.Env{Secrets: source.DirSecrets("secrets"), Login: github.New(nil).Login})
	revision, _, err := origin.Resolve(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(revision.ID)
}
