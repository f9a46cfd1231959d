package source_test

import (
	"io/fs"
	"slices"
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

func FuzzDirectories(f *testing.F) {
	for _, list := range []string{"", "docs", "./a/b/|a", ".", "a|../b", "/a", "a/./b//c", `a\b`, "a\x00|\xff"} {
		f.Add(list)
	}
	f.Fuzz(func(t *testing.T, list string) {
		spec := source.GitRepositorySpec{SparseCheckout: strings.Split(list, "|")}
		dirs, err := spec.Directories()
		for _, dir := range dirs {
			if !fs.ValidPath(dir) || dir == "." {
				t.Errorf("%q: %q is no path of a directory", list, dir)
			}
		}
		if err != nil {
			return
		}
		again := source.GitRepositorySpec{SparseCheckout: dirs}
		if twice, err := again.Directories(); err != nil || !slices.Equal(twice, dirs) {
			t.Errorf("%q: %q becomes %q, %v", list, dirs, twice, err)
		}
	})
}
