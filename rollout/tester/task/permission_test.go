package task

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
)

// The error of a chart test that is refused names the missing permissions.
func TestPermissionErrors(t *testing.T) {
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	<-late.Done()
	const refused = `pods "app-test" is forbidden: User "system:serviceaccount:headgate:tester" cannot get resource "pods" in API group "" in the namespace "shop"`
	for name, c := range map[string]struct {
		ctx  context.Context
		text string
		want string
	}{
		"another failure": {text: "Error: no such release"},
		"helm 3": {text: "NAME: app\nError: " + refused + "\n",
			want: `the test runner lacks the permission to get pods in namespace shop: see docs/tester.md, "Deploying"`},
		"no end of line": {text: refused, want: `the test runner lacks the permission to get pods in namespace shop: see docs/tester.md, "Deploying"`},
		"a log of a client, twice": {text: strings.Repeat(`E1122 reflector.go:227] "Failed to watch" err="jobs is forbidden: User \"u\" cannot watch resource \"jobs\" in API group \"batch\" in the namespace \"shop\""`+"\n", 2) + "timed out waiting for the condition\n",
			want: `the test runner lacks the permission to watch jobs in namespace shop: see docs/tester.md, "Deploying"`},
		"two": {text: refused + "\n" + strings.Replace(refused, "cannot get", "cannot delete", 1) + "\n",
			want: `the test runner lacks the permission to get pods in namespace shop, and to delete pods in namespace shop: see docs/tester.md, "Deploying"`},
		"cluster scope": {text: `namespaces is forbidden: User "u" cannot list resource "namespaces" in API group "" at the cluster scope`,
			want: `the test runner lacks the permission to list namespaces: see docs/tester.md, "Deploying"`},
		"control characters": {text: "forbidden: User \"u\" cannot get resource \"po\x1b[31mds\" in API group \"\" in the namespace \"shop\""},
		"helm gave up":       {text: "Error: timed out waiting for the condition\n", want: "a chart test that hangs may lack a permission; it needs " + chartPermissions + `: see docs/tester.md, "Deploying"`},
		"killed":             {ctx: late, text: "NAME: app\n", want: "a chart test that hangs may lack a permission; it needs " + chartPermissions + `: see docs/tester.md, "Deploying"`},
		"killed, refused":    {ctx: late, text: refused + "\n", want: `the test runner lacks the permission to get pods in namespace shop: see docs/tester.md, "Deploying"`},
	} {
		ctx := c.ctx
		if ctx == nil {
			ctx = t.Context()
		}
		testenv.Equal(t, missingPermissions(ctx, nil, c.text), c.want, name)
	}
	var many strings.Builder
	for i := range 100 {
		fmt.Fprintf(&many, "is forbidden: cannot get resource \"r%d\" in API group \"\"\n", i)
	}
	testenv.Equal(t, strings.Count(missingPermissions(t.Context(), nil, many.String()), "get "), maxMissing)
}
