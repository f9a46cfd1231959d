//go:build unix

package task_test

import (
	"bytes"
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
echo "$TARGET"
exit $CODE`

func TestK6(t *testing.T) {
	_, path := bin(t, map[string]string{"k6": fakeK6})
	tools := &task.Tools{Env: []string{path}}
	metadata := map[string]string{
		"script": "export default function() {}", "env_vars": `{"TARGET": "http://canary.test", "CODE": "0"}`,
		"wait_for_results": "true", "upload_to_cloud": "false",
	}
	todo, secrets, err := tools.Task("k6", metadata)
	if want := []string{"http://canary.test"}; err != nil || !slices.Equal(secrets, want) {
		t.Fatalf("got %q, %v, want %q", secrets, err, want)
	}
	var out bytes.Buffer
	err = todo.Run(t.Context(), &out)
	if want := "run|--no-usage-report|--address||/script.js|\nexport default function() {}\nhttp://canary.test\n"; err != nil || out.String() != want {
		t.Errorf("got %q, %v, want %q", out.String(), err, want)
	}

	metadata["upload_to_cloud"] = "true"
	if out, err := run(t, tools, "k6", metadata); err != nil || !strings.HasPrefix(out, "run|--no-usage-report|--address||--out|cloud|/script.js|\n") {
		t.Errorf("got %q, %v", out, err)
	}
	for code, want := range map[string]string{"99": "exit status 99", "1": "exit status 1"} {
		metadata["env_vars"] = `{"CODE": "` + code + `"}`
		if _, err := run(t, tools, "k6", metadata); text(err) != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
