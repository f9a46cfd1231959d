package main

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/source"
)

// The objects in the README are valid, and its commands have the flags that it shows.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	objects := 0
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(text, -1) {
		var set source.Set
		if err := set.Decode("README.md", bytes.NewReader(block[1])); err != nil || len(set.Warnings) > 0 {
			t.Errorf("%v, warnings %v", err, set.Warnings)
		}
		objects += len(set.Objects)
	}
	commands := regexp.MustCompile(`(?m)^    headgate (.*?)(?: +#.*)?$`).FindAllSubmatch(text, -1)
	for _, line := range commands {
		args := append(strings.Fields(strings.ReplaceAll(string(line[1]), `"`, "")), "--help")
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), args, strings.NewReader(""), &stdout, &stderr, func(string) (string, bool) { return "", false }); code != 0 || !strings.Contains(stdout.String(), "headgate "+args[0]) {
			t.Errorf("headgate %s: %d, %s", line[1], code, stderr.String())
		}
	}
	if objects < 2 || len(commands) < 9 {
		t.Errorf("%d objects and %d commands were found", objects, len(commands))
	}
}
