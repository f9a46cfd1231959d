package task

import (
	"context"
	"strings"
	"testing"
)

// A chart test that is refused, or hangs, is told what it may lack.
func TestExplained(t *testing.T) {
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	for text, want := range map[string]bool{
		"Error: no such release": false,
		`Error: pods "app-test" is forbidden: User "u" cannot get resource "pods" in API group "" in the namespace "shop"`: true,
		"Error: timed out waiting for the condition\n":                                                                     true,
	} {
		if got := missingPermissions(t.Context(), nil, text); strings.Contains(got, "pods/log") != want {
			t.Errorf("%s: %s", text, got)
		}
	}
	if missingPermissions(late, nil, "NAME: app\n") == "" {
		t.Error("nothing is said of one that was killed")
	}
}
