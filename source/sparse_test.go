package source_test

import (
	"strings"
	"testing"

	"github.com/headgate-io/headgate/source"
)

func TestDirectories(t *testing.T) {
	for list, want := range map[string]string{
		"":               "",
		"docs":           "docs",
		"./docs|a/b/":    "docs|a/b",
		"docs//img|././": "",
		".":              "",
		"./":             "",
		"a|.|b":          "",
		"a/./b|a/b":      "a/b|a/b",
		"...|a b|ä|*":    "...|a b|ä|*",
		"-a|.git|~":      "-a|.git|~",
	} {
		spec := source.GitRepositorySpec{}
		if list != "" {
			spec.SparseCheckout = strings.Split(list, "|")
		}
		got, err := spec.Directories()
		if err != nil || strings.Join(got, "|") != want {
			t.Errorf("%q: %q, %v; want %q", list, got, err, want)
		}
	}
	for entry, say := range map[string]string{
		"": "must not be empty", "/": "relative", "/a": "relative", "..": "'..'", "a/..": "'..'", "a/../b": "'..'", "./../a": "'..'",
		`a\b`: "must use '/'", "a\x00": "control characters", "a\nb": "control characters", "a\x7f": "control characters", "a\xff": "UTF-8",
	} {
		spec := source.GitRepositorySpec{SparseCheckout: []string{".", entry}}
		if got, err := spec.Directories(); err == nil || !strings.Contains(err.Error(), say) || !strings.Contains(err.Error(), "spec.sparseCheckout[1]") {
			t.Errorf("%q: %q, %v; want an error about the entry that says %q", entry, got, err, say)
		}
	}
}
