package task

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/rollout/tester/run"
	"github.com/headgate-io/headgate/rollout/tester/task/internal/job"
)

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
	p.script, p.explain = metadata["script"], func(code int) string { return k6Codes[code] }
	if strings.TrimSpace(p.script) == "" {
		return nil, nil, errors.New("metadata script is required: the text of the k6 script")
	}
	if t.OnlyNamed {
		return nil, nil, t.onlyNamed()
	}
	if err := t.allowed("k6"); err != nil {
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
	if err := p.setAll(variables); err != nil {
		return nil, nil, err
	}
	return p, secrets, nil
}

// setAll adds variables of a script to the environment. It may not set what
// decides about which program runs and where.
func (p *program) setAll(variables map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		if slices.Contains([]string{"PATH", "HOME", "TMPDIR", job.Mark}, name) || strings.HasPrefix(name, "LD_") || strings.HasPrefix(name, "DYLD_") {
			return fmt.Errorf("metadata env_vars or kubernetes_secrets: %s cannot be set", name)
		}
		if err := p.set(name, variables[name]); err != nil {
			return fmt.Errorf("metadata env_vars or kubernetes_secrets: %q %w", name, err)
		}
	}
	return nil
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
