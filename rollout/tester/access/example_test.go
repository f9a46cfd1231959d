package access_test

import (
	"fmt"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/headgate-io/headgate/rollout/tester/access"
)

// A caller shows a token, which is for one namespace and one type of test.
func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "tokens.yaml")
	if err := os.WriteFile(file, []byte("tokens: [{name: shop, token: correct-horse-battery, namespaces: [shop], types: [bash]}]\n"), 0o600); err != nil {
		log.Fatal(err)
	}
	guard, err := access.Open(access.Config{File: file})
	if err != nil {
		log.Fatal(err)
	}
	r := httptest.NewRequest("POST", "/", nil)
	r.Header.Set("Authorization", "Bearer correct-horse-battery")
	grant, err := guard.Identify(r, "")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(grant.Actor, grant.Run("shop", "bash"))
	fmt.Println(grant.Run("payment", "bash") != nil, grant.Run("shop", "helm") != nil)
	// Output:
	// shop <nil>
	// true true
}
