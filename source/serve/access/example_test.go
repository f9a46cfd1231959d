package access_test

import (
	"fmt"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve/access"
)

// A caller shows a token that may download the artifacts of one namespace.
func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "tokens.yaml")
	if err := os.WriteFile(file, []byte("tokens: [{name: deploy, token: correct-horse-battery, may: [fetch], namespaces: [shop]}]\n"), 0o600); err != nil {
		log.Fatal(err)
	}
	guard, err := access.Open(access.Config{File: file})
	if err != nil {
		log.Fatal(err)
	}
	r := httptest.NewRequest("GET", "/gitrepository/shop/app/latest.tar.gz", nil)
	r.Header.Set("Authorization", "Bearer correct-horse-battery")
	grant, err := guard.Identify(r)
	if err != nil {
		log.Fatal(err)
	}
	app := source.Reference{Kind: "GitRepository", Namespace: "shop", Name: "app"}
	fmt.Println(grant.Actor, grant.Fetch(app), grant.Change(app) != nil)
	// Output:
	// deploy <nil> true
}
