package tester

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate-io/headgate/internal/answer"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/task"
)

// A taskType is what metadata type names (specification, "Test-runner metadata
// by type").
type taskType struct {
	name       string // of the product, as in records
	background bool   // it is answered before it runs, unless metadata says wait
	command    bool   // it runs metadata cmd, which texts of failures name
}

// types are all types. Package api knows their neutral names.
var types = []taskType{
	{name: "cmd", background: true, command: true},
	{name: "bash", command: true},
	{name: "helm", command: true},
	{name: "helmv3", command: true},
	{name: "kubectl", command: true},
	{name: "ngrinder", background: true},
	{name: "concord"},
	{name: "k6"},
}

type metadata map[string]string

// UnmarshalJSON is the default but for its error, which names the key.
func (m *metadata) UnmarshalJSON(text []byte) error {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(text, &values); err != nil || values == nil {
		return err
	}
	*m = make(metadata, len(values))
	for _, key := range slices.Sorted(maps.Keys(values)) {
		var value string
		if err := json.Unmarshal(values[key], &value); err != nil {
			if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
				wrong.Field = redact.String(shorten(key))
			}
			return err
		}
		(*m)[key] = value
	}
	return nil
}

// constructor returns the constructor of the tasks of a type.
func (s *Server) constructor(t *taskType) task.Constructor {
	switch t.name {
	case "ngrinder":
		return s.Servers.NGrinder
	case "concord":
		return s.Servers.Concord
	}
	return s.Tools.Types()[t.name]
}

const (
	typeKey        = "type"
	waitResultsKey = "wait_for_results" // of k6
)

// typeOf returns the type that metadata names. The error is a refusal.
func typeOf(m metadata) (*taskType, error) {
	name, given := m[typeKey]
	if !given {
		name = "cmd"
	}
	product := api.TypeName(name)
	for i, t := range types {
		if product == t.name {
			return &types[i], nil
		}
	}
	return nil, answer.Refuse(http.StatusBadRequest, "unknown task type %s", shorten(name))
}

// enabled returns a refusal when the type is not enabled.
func (s *Server) enabled(t *taskType) error {
	if s.Types == nil || slices.ContainsFunc(s.Types, func(name string) bool { return api.TypeName(name) == t.name }) {
		return nil
	}
	return answer.Refuse(http.StatusForbidden, "type %s is not enabled in this test runner", t.name)
}

// waits reports whether callers wait for the end of a run.
func (t *taskType) waits(o task.Common, m metadata) (bool, error) {
	if t.name == "k6" && m[waitResultsKey] != "" {
		wait, err := strconv.ParseBool(m[waitResultsKey])
		if err != nil {
			return false, fmt.Errorf("metadata %s: %s is neither true nor false", waitResultsKey, strconv.Quote(shorten(m[waitResultsKey])))
		}
		return wait || o.Wait, nil
	}
	return !t.background || o.Wait, nil
}

// shorten returns a text of a request as an error may show it.
func shorten(text string) string {
	const most = 80
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
