package rollout

import (
	"errors"
	"fmt"

	"github.com/headgate-io/headgate/internal/document"
)

// Check returns what an analysis does not start with, joined: one
// [*DocumentError] for each rule that the canary breaks. The rules are those by
// which [Decode] warns and refuses; docs/rollout.md lists them.
func (c *Canary) Check() error {
	x := examine(c)
	return errors.Join(append(x.found[invalid].Of(c.String()), x.found[broken].Of(c.String())...)...)
}

// A level says what comes of a requirement that does not hold.
type level uint8

const (
	invalid level = iota // Decode refuses the manifest, Check as well
	broken               // Decode warns, since manifests that clusters run with have it; Check refuses
	advice               // Decode warns: something has no effect, or another one than it seems
	levels
)

// A requirement is what must hold for one field of a value.
type requirement[T any] struct {
	level level
	field string                         // below the path of the value, "" for the value itself
	fails func(x *Canary, v T) complaint // what is wrong and what to do, "" for nothing
}

// A complaint is the text of a rule that is broken.
type complaint string

func complain(format string, args ...any) complaint { return complaint(fmt.Sprintf(format, args...)) }

// of returns the complaint that an error is.
func of(err error) complaint {
	if err == nil {
		return ""
	}
	return complaint(err.Error())
}

// An examination is what was found wrong with a canary.
type examination struct {
	canary *Canary
	found  [levels]document.Findings
}

// examine holds a canary against all requirements.
func examine(c *Canary) *examination {
	x := &examination{canary: c}
	a := &c.Spec.Analysis
	require(x, "", canaryRequirements, c)
	require(x, analysisPath, analysisRequirements, a)
	requireEach(x, "match", matchRequirements, a.Match)
	requireEach(x, "metrics", metricRequirements, a.Metrics)
	requireEach(x, "webhooks", hookRequirements, a.Webhooks)
	requireEach(x, "alerts", alertRequirements, a.Alerts)
	return x
}

// require holds the value at path against requirements in order. A field is
// reported once.
func require[T any](x *examination, path string, all []requirement[*T], v *T) {
	reported := make(map[string]bool)
	for _, r := range all {
		if reported[r.field] {
			continue
		}
		if text := r.fails(x.canary, v); text != "" {
			reported[r.field] = true
			x.found[r.level].Add(join(path, r.field), "%s", string(text))
		}
	}
}

// requireEach holds each item of a list of the analysis against requirements.
func requireEach[T any](x *examination, list string, all []requirement[*T], items []T) {
	for i := range items[:min(len(items), maxItems)] {
		require(x, fmt.Sprintf("%s.%s[%d]", analysisPath, list, i), all, &items[i])
	}
}

func join(path, field string) string {
	if path == "" || field == "" {
		return path + field
	}
	return path + "." + field
}
