package run

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/summary"
)

// newEntry returns the entry of a request that is to be run.
func (d *Desk) newEntry(k key, r *Request, t Task, waits bool) *entry {
	limit := min(d.config.OutputLimit, positive(r.OutputLimit, d.config.OutputLimit))
	return &entry{
		key:         k,
		failOnError: r.FailOnError,
		run: api.Run{
			State: api.Queued, Type: r.Type,
			Namespace: short(r.Namespace), Name: short(r.Name), Phase: short(r.Phase), Checksum: short(r.Checksum),
			Metadata: recorded(r.Metadata, r.Secrets), Waits: waits, Actor: short(r.Actor),
			Created: d.config.Now().UTC(),
		},
		live: &live{
			task:    t,
			timeout: min(d.config.Timeout, positive(r.Timeout, d.config.Timeout)),
			sink:    &sink{mask: redact.NewStream(r.Secrets...), tape: newTape(limit), scan: newScanner(), secrets: slices.Clone(r.Secrets)},
			done:    make(chan struct{}),
		},
	}
}

// Bounds of what a record says of its request, in bytes.
const (
	shortMax    = 512 // what a server takes: scopes are checked against what is recorded
	valueMax    = 4 << 10
	metadataMax = 16 << 10
)

// short bounds a text of the request.
func short(text string) string { return strings.ToValidUTF8(cut(text, shortMax), "\ufffd") }

func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return text[:whole([]byte(text[:limit]))] + "…"
}

// recorded returns what is kept of metadata: without secrets, and of what is too
// long the beginning. Keys beyond the bound are left out, the last ones first.
func recorded(metadata map[string]string, secrets []string) map[string]string {
	kept, size := map[string]string{}, 0
	for _, name := range slices.Sorted(maps.Keys(metadata)) {
		value := metadata[name]
		switch {
		case value == "":
		case private(name):
			value = redact.Mask
		default:
			value = public(value, secrets)
		}
		name = redact.String(cut(name, shortMax), secrets...)
		if size += len(name) + len(value); size > metadataMax {
			break
		}
		kept[name] = value
	}
	return kept
}

// private reports whether the value of a key is a secret, by its name: a
// reference to one, such as apiKeyPath, is none.
func private(name string) bool {
	name = strings.ToLower(name)
	for _, reference := range []string{"path", "file", "from"} {
		if strings.HasSuffix(name, reference) {
			return false
		}
	}
	if strings.HasSuffix(name, "key") {
		return true
	}
	return slices.ContainsFunc([]string{"passw", "secret", "token", "apikey", "credential"}, func(part string) bool { return strings.Contains(name, part) })
}

// public masks a value, line by line: scripts have several. Of an object of
// texts, as env_vars is, the secret ones are masked too.
func public(value string, secrets []string) string {
	value = redact.Tail(cut(redact.Secrets(value, secrets...), 4*valueMax), secrets...)
	var object map[string]string
	if strings.HasPrefix(strings.TrimSpace(value), "{") && json.Unmarshal([]byte(value), &object) == nil {
		for name, inner := range object {
			if private(name) && inner != "" {
				object[name] = redact.Mask
			}
		}
		text, _ := json.Marshal(object) // of texts, which always marshal
		value = string(text)
	}
	if strings.Contains(value, "PRIVATE KEY-----") { // spans lines
		return cut(redact.String(value, secrets...), valueMax)
	}
	lines := strings.Split(value, "\n")
	for i, line := range lines {
		lines[i] = redact.String(line)
	}
	return cut(redact.Secrets(strings.Join(lines, "\n"), secrets...), valueMax)
}

// newScanner returns what reads the output of a run for tests.
func newScanner() scanner { return summary.New() }

// milliseconds that a run took.
func milliseconds(from, to time.Time) int64 {
	if from.IsZero() {
		return 0
	}
	return max(0, to.Sub(from).Milliseconds())
}
