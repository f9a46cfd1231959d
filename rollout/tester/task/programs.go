package task

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/command"
)

// tool has a program of its own run with the arguments in cmd.
func (p *program) tool(r *reader, name string) error {
	args, err := command.Words(r.line())
	switch {
	case err != nil:
		return fmt.Errorf("metadata cmd: %w", err)
	case len(args) == 0:
		return fmt.Errorf("metadata cmd is empty: give the arguments of %s", name)
	}
	p.args, p.explain = append([]string{name}, args...), missingPermissions
	return p.tools.mayRun(name)
}

// mayRun returns an error unless a program may be run that metadata does not name.
func (t *Tools) mayRun(name string) error {
	if t.OnlyNamed {
		return t.onlyNamed()
	}
	return t.allowed(name)
}

// What chart tests need (specification, Errors), and where it is granted.
const (
	chartNeeds = "secrets (get, watch, list, update), pods, pods/log and, for tests that are jobs, jobs (create, list, delete, watch)"
	granting   = `docs/tester.md, "Deploying"`
	maxMissing = 5 // permissions that are named
)

// forbidden is how API servers refuse; logs of clients quote it, and escape its quotes.
var forbidden = regexp.MustCompile(`forbidden.*?cannot ([a-z]+) resource \\?"([a-z0-9./-]+)\\?" in API group \\?"[a-z0-9.-]*\\?"(?: in the namespace \\?"([a-z0-9.-]+)\\?"| at the cluster scope)?`)

// missingPermissions names the permissions which an API server said are missing; of a
// task that ended for lack of time and to which nothing was said, those that chart
// tests need.
func missingPermissions(ctx context.Context, _ error, output string) string {
	var missing []string
	for _, m := range forbidden.FindAllStringSubmatch(output, -1) {
		what := m[1] + " " + m[2]
		if m[3] != "" {
			what += " in namespace " + m[3]
		}
		if len(missing) < maxMissing && !slices.Contains(missing, what) {
			missing = append(missing, what)
		}
	}
	switch {
	case len(missing) > 0:
		return fmt.Sprintf("the test runner lacks the permission to %s: see %s", strings.Join(missing, ", and to "), granting)
	case errors.Is(ctx.Err(), context.DeadlineExceeded) || strings.Contains(output, "timed out waiting") || strings.Contains(output, "context deadline exceeded"):
		return fmt.Sprintf("a chart test that hangs may lack a permission; it needs %s: see %s", chartNeeds, granting)
	}
	return ""
}

const secretTimeout = 10 * time.Second // of all Secrets of one task

// k6Codes are the exit codes of k6.
var k6Codes = map[int]string{
	97:  "the run in the cloud failed",
	98:  "the progress of the run in the cloud was lost",
	99:  "thresholds were crossed",
	100: "setup took too long",
	101: "teardown took too long",
	102: "something took too long",
	103: "stopped through its API",
	104: "the configuration is not valid",
	105: "ended by a signal",
	106: "its API cannot start",
	107: "the script threw an exception",
	108: "the script aborted the test",
	109: "k6 itself failed",
	110: "the script marked the test as failed",
}

// k6 runs metadata script. It sees env_vars, a JSON object of variables, and the values
// that kubernetes_secrets names, a JSON object of variables and [NAMESPACE/]NAME/KEY. With
// upload_to_cloud results go to the cloud of k6 as well, as the token in the
// environment allows.
func (p *program) k6(r *reader) error {
	p.script = r.metadata["script"]
	p.explain = func(_ context.Context, err error, _ string) string { return k6Codes[exitCode(err)] }
	if strings.TrimSpace(p.script) == "" {
		return errors.New("metadata script is required: the text of the k6 script")
	}
	if err := p.tools.mayRun("k6"); err != nil {
		return err
	}
	p.args = []string{"k6", "run", "--no-usage-report", "--address", ""} // its API is one port for all runs
	if r.boolean("upload_to_cloud", false) {
		p.args = append(p.args, "--out", "cloud")
	}
	variables, references := r.object("env_vars"), r.object("kubernetes_secrets")
	if r.err != nil {
		return r.err
	}
	ctx, cancel := context.WithTimeout(context.Background(), secretTimeout)
	defer cancel()
	for _, variable := range slices.Sorted(maps.Keys(references)) {
		value, err := p.tools.secret(ctx, references[variable])
		if err != nil {
			return fmt.Errorf("metadata kubernetes_secrets: %s: %w", variable, err)
		}
		p.secrets = append(p.secrets, value)
		variables[variable] = value
	}
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		if slices.Contains([]string{"PATH", "HOME", "TMPDIR"}, name) || strings.HasPrefix(name, "LD_") || strings.HasPrefix(name, "DYLD_") {
			return fmt.Errorf("metadata env_vars or kubernetes_secrets: %s cannot be set", name)
		}
		if err := p.set(name, variables[name]); err != nil {
			return fmt.Errorf("metadata env_vars or kubernetes_secrets: %q %w", name, err)
		}
	}
	return nil
}

// secret returns the value of a reference of kubernetes_secrets.
func (t *Tools) secret(ctx context.Context, reference string) (string, error) {
	if t.Secret == nil {
		return "", errors.New("this test runner has no access to Secrets; use env_vars, or variables of the test runner")
	}
	parts := strings.Split(reference, "/")
	if len(parts) == 2 {
		parts = append([]string{""}, parts...)
	}
	if len(parts) != 3 || parts[1] == "" || parts[2] == "" {
		return "", fmt.Errorf("%q is no [NAMESPACE/]NAME/KEY", reference)
	}
	return t.Secret(ctx, parts[0], parts[1], parts[2])
}
