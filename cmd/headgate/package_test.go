package main

import (
	"cmp"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/headgate-io/headgate/internal/testenv"
)

var packaged = flag.String("package", "", "directory that TestPackage writes man pages and completions to")

// TestPackage writes a manual page for each command and completions for three shells. The release
// runs this test to create them (.ci/package), so the command does not link the packages that
// render them.
func TestPackage(t *testing.T) {
	dir := cmp.Or(*packaged, t.TempDir())
	pages, completion := filepath.Join(dir, "man"), filepath.Join(dir, "completion")
	must(t, os.MkdirAll(pages, 0o755))
	must(t, os.MkdirAll(completion, 0o755))
	root := (&program{lookupEnv: emptyEnv}).root()
	root.DisableAutoGenTag = true
	var keepLines func(c *cobra.Command)
	keepLines = func(c *cobra.Command) { // the text is parsed as Markdown, where four spaces preserve lines
		c.Long = regexp.MustCompile(`(?m)^  `).ReplaceAllString(c.Long, "    ")
		for _, sub := range c.Commands() {
			keepLines(sub)
		}
	}
	keepLines(root)
	must(t, doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "headgate", Manual: "headgate"}, pages))
	must(t, root.GenBashCompletionFileV2(filepath.Join(completion, "headgate.bash"), true))
	must(t, root.GenZshCompletionFile(filepath.Join(completion, "headgate.zsh")))
	must(t, root.GenFishCompletionFile(filepath.Join(completion, "headgate.fish"), true))

	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		page := read(t, filepath.Join(pages, strings.ReplaceAll(c.CommandPath(), " ", "-")+".1"))
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && !strings.Contains(page, "--"+f.Name) {
				t.Errorf("the page of %s does not have --%s", c.CommandPath(), f.Name)
			}
		})
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				walk(sub)
			}
		}
	}
	walk(root)
	scripts := "../../docs/deploy/package/"
	for file, shell := range map[string]string{
		completion + "/headgate.bash": "bash", completion + "/headgate.zsh": "zsh", completion + "/headgate.fish": "fish",
		scripts + "postinstall": "sh", scripts + "preremove": "sh", scripts + "postremove": "sh",
	} {
		if _, err := exec.LookPath(shell); err != nil {
			continue
		}
		if out, err := exec.Command(shell, "-n", file).CombinedOutput(); err != nil {
			t.Errorf("%s: %v, %s", file, err, out)
		}
	}
}

// TestDependabot checks that each directory in the Dependabot configuration has dependencies.
func TestDependabot(t *testing.T) {
	var config struct {
		Updates []struct {
			Ecosystem   string   `json:"package-ecosystem"`
			Directories []string `json:"directories"`
		} `json:"updates"`
	}
	must(t, yaml.Unmarshal([]byte(read(t, "../../.github/dependabot.yml")), &config))
	manifests := map[string]string{"gomod": "go.mod", "docker": "*file", "github-actions": ".github/workflows/*.yml"}
	for _, u := range config.Updates {
		for _, dir := range u.Directories {
			found, err := filepath.Glob(filepath.Join("../..", dir, manifests[u.Ecosystem]))
			if manifests[u.Ecosystem] == "" || err != nil || len(found) == 0 {
				t.Errorf("%s of %s: nothing is there (%v)", u.Ecosystem, dir, err)
			}
		}
	}
	testenv.Equal(t, len(config.Updates), len(manifests))
}
