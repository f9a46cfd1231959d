package access

import (
	"strings"

	callers "github.com/headgate-io/headgate/internal/access"
	"github.com/headgate-io/headgate/internal/document"
	"github.com/headgate-io/headgate/rollout/tester/api"
)

// scopes are what the file says of a caller beside who it is.
type scopes struct {
	Namespaces *[]callers.Pattern `json:"namespaces,omitempty"`
	Types      *[]callers.Pattern `json:"types,omitempty"`
	Gates      *[]callers.Pattern `json:"gates,omitempty"`
	Kinds      *[]callers.Pattern `json:"kinds,omitempty"`
	ReadOnly   bool               `json:"readOnly,omitempty"`
}

func (s *scopes) lists() []callers.Scope {
	return []callers.Scope{
		{Field: "namespaces", List: s.Namespaces, Check: callers.CheckNamespace},
		{Field: "types", List: s.Types, Check: checkType, Adjust: typePattern},
		{Field: "gates", List: s.Gates, Check: callers.CheckText},
		{Field: "kinds", List: s.Kinds, Check: checkKind},
	}
}

func checkType(p callers.Pattern) string {
	if api.TypeName(string(p)) == "" && !strings.Contains(string(p), "*") {
		return document.Quote(string(p)) + " is no type of tasks: want one of " + strings.Join(api.Types(), ", ")
	}
	return ""
}

// typePattern returns a type as requests have it.
func typePattern(p callers.Pattern) callers.Pattern {
	if name := api.TypeName(string(p)); name != "" {
		return callers.Pattern(name)
	}
	return p
}

func checkKind(p callers.Pattern) string {
	if k := api.Kind(p); k != api.KindGate && k != api.KindRollback {
		return document.Quote(string(p)) + " is no kind: want gate or rollback"
	}
	return ""
}
