package task_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/headgate-io/headgate/rollout/tester/task"
)

// This example runs a command of the test runner's owner with a parameter of the
// caller, and refuses all other commands.
func ExampleTools() {
	tools := &task.Tools{
		Env:      []string{"PATH=" + os.Getenv("PATH")},
		Commands: map[string]string{"where": "go env ${VARIABLE}"}, OnlyNamed: true,
	}
	t, _, err := tools.Task("bash", map[string]string{"cmd": "@where", "arg.VARIABLE": "GOROOT"})
	if err != nil {
		log.Fatal(err)
	}
	var out strings.Builder
	fmt.Println(t.Run(context.Background(), &out), out.Len() > 0)
	_, _, err = tools.Task("bash", map[string]string{"cmd": "rm -r /"})
	fmt.Println(err)
	// Output:
	// <nil> true
	// metadata cmd: only named commands may be run here, by types cmd and bash: @where
}
