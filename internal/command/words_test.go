package command_test

import (
	"slices"
	"testing"

	"github.com/headgate-io/headgate/internal/command"
)

func TestWords(t *testing.T) {
	for line, want := range map[string][]string{
		"":                              nil,
		" \t\n":                         nil,
		"a  b\tc":                       {"a", "b", "c"},
		`a 'b c' "d e"f`:                {"a", "b c", "d ef"},
		`'' ""`:                         {"", ""},
		`a\ b \'`:                       {"a b", "'"},
		`"a\"b" 'a\b'`:                  {`a"b`, `a\b`},
		`x={{ .Canary }} "{{ "a b" }}"`: {"x={{ .Canary }}", `{{ "a b" }}`},
		`--set a=b\,c "d\.e" \{\{`:      {"--set", `a=b\,c`, `d\.e`, "{{"},
		"größe ü":                       {"größe", "ü"},
	} {
		if got, err := command.Words(line); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v", line, got, err)
		}
	}
	for _, line := range []string{"'a", `"a`, `a\`, "{{ a", `"{{ a`, `"a\`} {
		if got, err := command.Words(line); err == nil {
			t.Errorf("%q: %q", line, got)
		}
	}
}
