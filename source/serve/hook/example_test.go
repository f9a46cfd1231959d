package hook_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve/hook"
)

// A push has a source checked; callers that know the token of the Secret may tell of it.
func ExampleReceiver() {
	var set source.Set
	if err := set.Decode("sources.yaml", strings.NewReader(`
apiVersion: source.headgate.dev/v1
kind: GitRepository
metadata: {name: app, annotations: {hook.headgate.dev/secret: hook}}
spec: {url: "https://git.example.org/app", ref: {branch: main}, interval: 1h}
---
apiVersion: v1
kind: Secret
metadata: {name: hook}
stringData: {token: correct horse}
`)); err != nil {
		log.Fatal(err)
	}
	receiver := &hook.Receiver{
		Object:  func(source.Reference) (source.Object, error) { return set.Objects[0], nil },
		Secrets: &set,
		Request: func(ref source.Reference) error { fmt.Println("check", ref); return nil },
	}
	push := func(body, token string) {
		mac := hmac.New(sha256.New, []byte(token))
		mac.Write([]byte(body))
		r := httptest.NewRequest(http.MethodPost, "/hook/gitrepository/app", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-GitHub-Event", "push")
		r.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
		w := httptest.NewRecorder()
		receiver.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	push(`{"ref": "refs/heads/main"}`, "correct horse")
	push(`{"ref": "refs/heads/main"}`, "guessed")
	// Output:
	// check GitRepository/default/app
	// 202
	// 401
}
