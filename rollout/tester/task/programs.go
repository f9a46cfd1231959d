package task

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/command"
	"github.com/headgate-io/headgate/rollout/tester/run"
)

// Helm is the constructor of types helm and helmv3: arguments for helm.
func (t *Tools) Helm(metadata map[string]string) (run.Task, []string, error) {
	return t.tool(metadata, "helm")
}

// Kubectl is the constructor of type kubectl: arguments for kubectl.
func (t *Tools) Kubectl(metadata map[string]string) (run.Task, []string, error) {
	return t.tool(metadata, "kubectl")
}

// tool returns the task of a type that is a program of its own.
func (t *Tools) tool(metadata map[string]string, name string) (run.Task, []string, error) {
	line, p, secrets, err := t.line(metadata)
	if err == nil {
		err = t.mayRun(name)
	}
	if err != nil {
		return nil, nil, err
	}
	args, err := command.Words(line)
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("metadata cmd: %w", err)
	case len(args) == 0:
		return nil, nil, fmt.Errorf("metadata cmd is empty: give the arguments of %s", name)
	}
	p.args, p.explain = append([]string{name}, args...), missingPermissions
	return p, secrets, nil
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

// K6 is the constructor of type k6: metadata script is run by k6. It sees
// env_vars, a JSON object of variables, and the values that kubernetes_secrets
// names, a JSON object of variables and [NAMESPACE/]NAME/KEY. With upload_to_cloud
// results go to the cloud of k6 as well, as the token in the environment allows.
func (t *Tools) K6(metadata map[string]string) (run.Task, []string, error) {
	p, secrets, err := t.program(metadata)
	if err != nil {
		return nil, nil, err
	}
	p.script = metadata["script"]
	p.explain = func(_ context.Context, err error, _ string) string { return k6Codes[exitCode(err)] }
	if strings.TrimSpace(p.script) == "" {
		return nil, nil, errors.New("metadata script is required: the text of the k6 script")
	}
	if err := t.mayRun("k6"); err != nil {
		return nil, nil, err
	}
	p.args = []string{"k6", "run", "--no-usage-report", "--address", ""} // its API is one port for all runs
	upload, err := boolean(metadata, "upload_to_cloud", false)
	if err != nil {
		return nil, nil, err
	}
	if upload {
		p.args = append(p.args, "--out", "cloud")
	}
	if _, err := boolean(metadata, "wait_for_results", true); err != nil {
		return nil, nil, err
	}
	variables, err := object(metadata, "env_vars")
	if err != nil {
		return nil, nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		secrets = appendSecret(secrets, variables[name])
	}
	found, err := t.secrets(metadata)
	if err != nil {
		return nil, nil, err
	}
	secrets = append(secrets, slices.Sorted(maps.Values(found))...)
	maps.Copy(variables, found)
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		if slices.Contains([]string{"PATH", "HOME", "TMPDIR"}, name) || strings.HasPrefix(name, "LD_") || strings.HasPrefix(name, "DYLD_") {
			return nil, nil, fmt.Errorf("metadata env_vars or kubernetes_secrets: %s cannot be set", name)
		}
		if err := p.set(name, variables[name]); err != nil {
			return nil, nil, fmt.Errorf("metadata env_vars or kubernetes_secrets: %q %w", name, err)
		}
	}
	return p, secrets, nil
}

// object reads a JSON object of texts; it is empty when there is none.
func object(metadata map[string]string, key string) (map[string]string, error) {
	all := make(map[string]string)
	if metadata[key] == "" {
		return all, nil
	}
	if err := json.Unmarshal([]byte(metadata[key]), &all); err != nil || all == nil {
		return nil, fmt.Errorf("metadata %s: is no JSON object whose values are strings", key) // the error might quote a secret
	}
	return all, nil
}

// secrets returns the values that kubernetes_secrets names, by variable.
func (t *Tools) secrets(metadata map[string]string) (map[string]string, error) {
	references, err := object(metadata, "kubernetes_secrets")
	if err != nil || len(references) == 0 {
		return nil, err
	}
	if t.Secret == nil {
		return nil, errors.New("metadata kubernetes_secrets: this test runner has no access to Secrets; use env_vars, or variables of the test runner")
	}
	ctx, cancel := context.WithTimeout(context.Background(), secretTimeout)
	defer cancel()
	for _, variable := range slices.Sorted(maps.Keys(references)) {
		parts := strings.Split(references[variable], "/")
		if len(parts) == 2 {
			parts = append([]string{""}, parts...)
		}
		if len(parts) != 3 || parts[1] == "" || parts[2] == "" {
			return nil, fmt.Errorf("metadata kubernetes_secrets: %s: %q is no [NAMESPACE/]NAME/KEY", variable, references[variable])
		}
		value, err := t.Secret(ctx, parts[0], parts[1], parts[2])
		if err != nil {
			return nil, fmt.Errorf("metadata kubernetes_secrets: %s: %w", variable, err)
		}
		references[variable] = value
	}
	return references, nil
}
