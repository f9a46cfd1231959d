package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/headgate-io/headgate/rollout"
)

var update = flag.Bool("update", false, "write what documents show of the command anew")

// pages returns the paths of the documents that show commands.
func pages(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(all) < 10 {
		t.Fatalf("%d documents, %v", len(all), err)
	}
	return append(all, "../../README.md")
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	return string(text)
}

// A block is a fenced code block of a document: its language, the name after the language, and its
// text.
type block struct{ lang, name, text string }

var blockForm = regexp.MustCompile("(?ms)^```(\\w+)(?: (\\S+))?\n(.*?)^```$")

func blocks(text string) (all []block) {
	for _, m := range blockForm.FindAllStringSubmatch(text, -1) {
		all = append(all, block{m[1], m[2], m[3]})
	}
	return all
}

// referencePages returns the paths of the reference documents.
func referencePages(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob("../../docs/reference/*.md")
	if err != nil || len(all) == 0 {
		t.Fatalf("no references, %v", err)
	}
	return all
}

// examplePages returns the paths of the documents of the examples.
func examplePages(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob("../../examples/*/README.md")
	if err != nil || len(all) < 6 {
		t.Fatalf("%d examples, %v", len(all), err)
	}
	return append(all, "../../examples/README.md")
}

// TestDocsManifests checks that objects in documents are valid and cause no warnings.
func TestDocsManifests(t *testing.T) {
	for _, page := range append(pages(t), referencePages(t)...) {
		for _, b := range blocks(read(t, page)) {
			if b.lang != "yaml" || !strings.Contains(b.text, "apiVersion: ") {
				continue
			}
			var out bytes.Buffer
			if code := run(t.Context(), []string{"validate", "-f", "-"}, strings.NewReader(b.text), &out, &out, emptyEnv); code != exitReady || strings.Contains(out.String(), "warning") {
				t.Errorf("%s: %d, %s in\n%s", page, code, &out, b.text)
			}
		}
	}
}

// TestDocsUsage checks that flags in documents exist, for the commands that no other test types.
func TestDocsUsage(t *testing.T) {
	for _, page := range pages(t) {
		for _, m := range regexp.MustCompile(`(?m)^    headgate (.*?)(?: +#.*)?$`).FindAllStringSubmatch(read(t, page), -1) {
			args := append(strings.Fields(strings.NewReplacer(`"`, "", `'`, "").Replace(m[1])), "--help")
			var out, stderr bytes.Buffer
			if code := run(t.Context(), args, strings.NewReader(""), &out, &stderr, emptyEnv); code != exitReady || !strings.Contains(out.String(), "headgate "+args[0]) {
				t.Errorf("%s: headgate %s: %d, %s", page, m[1], code, &stderr)
			}
		}
	}
}

// TestDocsLinks checks that links in documents lead to existing files and headings.
func TestDocsLinks(t *testing.T) {
	for _, page := range append(append(append(pages(t), referencePages(t)...), examplePages(t)...), "../../CONTRIBUTING.md", "../../CHANGELOG.md", "../../SECURITY.md") {
		for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(read(t, page), -1) {
			file, heading, _ := strings.Cut(m[1], "#")
			if strings.Contains(file, "://") {
				continue
			}
			to := page
			if file != "" {
				to = filepath.Join(filepath.Dir(page), file)
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s: %v", page, err)
			} else if heading != "" && !slices.Contains(headings(read(t, to)), heading) {
				t.Errorf("%s: %s has no heading #%s", page, to, heading)
			}
		}
	}
}

// headings returns the anchors of a document's headings.
func headings(text string) (all []string) {
	text = blockForm.ReplaceAllString(text, "")
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		anchor := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		all = append(all, strings.ReplaceAll(anchor, " ", "-"))
	}
	return all
}

// TestDocsCommands checks that the command reference is equal to the help texts; -update writes it.
func TestDocsCommands(t *testing.T) {
	var out bytes.Buffer
	fmt.Fprint(&out, "# Command line\n\nThis page is made of the command's help: `go test ./cmd/headgate -run TestDocsCommands -update`.\n"+
		"[Common flags](#common-flags) have the same meaning wherever they are named.\n")
	var all []*cobra.Command
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		c.InitDefaultHelpFlag()
		if c.Runnable() && c.HasParent() && c.Name() != "help" && !c.Hidden {
			all = append(all, c)
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk((&program{lookupEnv: emptyEnv}).root())
	flagRow := func(f *pflag.Flag) string {
		value, text := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		if !slices.Contains([]string{"", "false", "0", "0s", "[]"}, f.DefValue) {
			text += " (default " + f.DefValue + ")"
		}
		return fmt.Sprintf("| `%s` | %s |\n", strings.TrimSpace(name+" "+value), strings.ReplaceAll(text, "|", `\|`))
	}
	uses := map[string]int{} // by row
	for _, c := range all {
		c.Flags().VisitAll(func(f *pflag.Flag) { uses[flagRow(f)]++ })
	}
	for _, c := range all {
		long := c.Long
		if long == "" {
			long = c.Short + "."
		}
		fmt.Fprintf(&out, "\n## %s\n\n```text\n%s\n\n%s\n```\n", c.CommandPath(), c.UseLine(), strings.TrimSpace(long))
		var ownRows, common []string
		c.Flags().VisitAll(func(f *pflag.Flag) {
			switch row := flagRow(f); {
			case f.Hidden, f.Name == "help":
			case uses[row] > 2:
				common = append(common, "`--"+f.Name+"`")
			default:
				ownRows = append(ownRows, row)
			}
		})
		if len(ownRows) > 0 {
			fmt.Fprintf(&out, "\n| Flag | Meaning |\n|---|---|\n%s", strings.Join(ownRows, ""))
		}
		if len(common) > 0 {
			fmt.Fprintf(&out, "\nCommon flags: %s.\n", strings.Join(common, ", "))
		}
	}
	fmt.Fprint(&out, "\n## Common flags\n\n| Flag | Meaning |\n|---|---|\n")
	for row, n := range uses {
		if n <= 2 || strings.Contains(row, "`-h, --help`") {
			delete(uses, row)
		}
	}
	rows := make([]string, 0, len(uses))
	for row := range uses {
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b string) int { return strings.Compare(longFlagName(a), longFlagName(b)) })
	fmt.Fprint(&out, strings.Join(rows, ""))
	const file = "../../docs/reference/cli.md"
	if *update {
		must(t, os.WriteFile(file, out.Bytes(), 0o644))
	}
	if read(t, file) != out.String() {
		t.Errorf("%s is not what the command says of itself: run this test with -update", file)
	}
}

// longFlagName returns the text after the two dashes in the row of a flag.
func longFlagName(row string) string {
	_, name, _ := strings.Cut(row, "--")
	return name
}

// TestDocsVerdicts checks that the table of verdicts agrees with [rollout.HookType.Judge].
func TestDocsVerdicts(t *testing.T) {
	rows := regexp.MustCompile("(?m)^\\| `([a-z-]+)`(?: \\(default\\))? \\| ([a-z ]+) \\| ([a-z ]+) \\| ([a-z ]+) \\| (yes|no) \\|$").FindAllStringSubmatch(read(t, "../../docs/reference/canaries.md"), -1)
	if len(rows) != 8 {
		t.Errorf("the table has %d rows", len(rows))
	}
	for _, row := range rows {
		of := rollout.HookType(row[1])
		for column, codes := range map[int][]int{2: {200}, 3: {201, 202}, 4: {204, 302, 403, 500}} {
			for _, code := range codes {
				var err error = &rollout.StatusError{Code: code}
				if got := of.Judge(err).String(); got != row[column] {
					t.Errorf("%s, %d: %s, the table says %s", of, code, got, row[column])
				}
			}
		}
		if counts := of.Judge(os.ErrDeadlineExceeded) == rollout.Halt; counts != (row[5] == "yes") {
			t.Errorf("%s: counts %v", of, counts)
		}
	}
}
