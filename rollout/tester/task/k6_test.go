//go:build unix

package task_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/rollout/tester/task"
)

// fakeK6 shows its arguments, the script and variables.
const fakeK6 = `for last; do :; done
test "$(ls -l "$last" | cut -c1-10)" = -rw------- || exit 1
printf '%s|' "$@" | sed "s|$PWD||"; echo
cat "$last"; echo
echo "$TARGET $PASSWORD"
exit $CODE`

func TestK6(t *testing.T) {
	_, path := bin(t, map[string]string{"k6": fakeK6})
	secret := func(_ context.Context, namespace, name, key string) (string, error) {
		if name != "load" {
			return "", errors.New("no such Secret")
		}
		return namespace + "-" + key, nil
	}
	tools := &task.Tools{Env: []string{path}, Secret: secret}
	metadata := map[string]string{
		"script": "export default function() {}", "env_vars": `{"TARGET": "http://canary.test", "CODE": "0"}`,
		"kubernetes_secrets": `{"PASSWORD": "prod/load/pw"}`, "wait_for_results": "true", "upload_to_cloud": "false",
	}
	todo, secrets, err := tools.Task("k6", metadata)
	if want := []string{"prod-pw", "http://canary.test"}; err != nil || !slices.Equal(secrets, want) {
		t.Fatalf("got %q, %v, want %q", secrets, err, want)
	}
	var out bytes.Buffer
	err = todo.Run(t.Context(), &out)
	if want := "run|--no-usage-report|--address||/script.js|\nexport default function() {}\nhttp://canary.test prod-pw\n"; err != nil || out.String() != want {
		t.Errorf("got %q, %v, want %q", out.String(), err, want)
	}

	metadata["upload_to_cloud"], metadata["kubernetes_secrets"] = "true", `{"PASSWORD": "load/pw"}`
	if out, err := run(t, tools, "k6", metadata); err != nil || !strings.HasPrefix(out, "run|--no-usage-report|--address||--out|cloud|/script.js|\n") || !strings.HasSuffix(out, " -pw\n") {
		t.Errorf("got %q, %v", out, err)
	}
	for code, want := range map[string]string{"99": "exit status 99", "1": "exit status 1"} {
		metadata["env_vars"] = `{"CODE": "` + code + `"}`
		if _, err := run(t, tools, "k6", metadata); text(err) != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestK6Secrets(t *testing.T) {
	tools := &task.Tools{Secret: func(context.Context, string, string, string) (string, error) { return "", errors.New("forbidden") }}
	for references, want := range map[string]string{
		`{"A": "a/b"}`:     "metadata kubernetes_secrets: A: forbidden",
		`{"A": "a"}`:       `metadata kubernetes_secrets: A: "a" is no [NAMESPACE/]NAME/KEY`,
		`{"A": "a/b/c/d"}`: `metadata kubernetes_secrets: A: "a/b/c/d" is no [NAMESPACE/]NAME/KEY`,
		`{"A": "a//c"}`:    `metadata kubernetes_secrets: A: "a//c" is no [NAMESPACE/]NAME/KEY`,
		`{"A": 5}`:         "metadata kubernetes_secrets: is no JSON object whose values are strings",
		`null`:             "metadata kubernetes_secrets: is no JSON object whose values are strings",
	} {
		if _, _, err := tools.Task("k6", map[string]string{"script": "x", "kubernetes_secrets": references}); text(err) != want {
			t.Errorf("%s: got %v, want %s", references, err, want)
		}
	}
}
