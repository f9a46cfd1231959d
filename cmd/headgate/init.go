package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/internal/durable"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/schema"
)

// initFlags are those of headgate init.
type initFlags struct {
	sourceFlags
	file  string
	force bool
}

func (p *program) init() *cobra.Command {
	f := new(initFlags)
	f.plain, f.parallel = true, 1
	c := &cobra.Command{
		Use:   "init {URL[@REF]... | --chart NAME URL}",
		Short: "Write a first file of sources for URLs",
		Long: `Init writes the objects that headgate fetch makes of URLs into a file, as a beginning: comments say what fields mean, and
name some more. The first line leads editors to the schema. It asks an origin only what @REF is in a Git repository, a
branch or a tag. See headgate fetch for the forms of URLs.`,
		Example: `  headgate init https://example.org/app.git --semver ">=1.0.0"
  headgate init oci://registry.example.org/app:v1.2.3 s3://assets/app/
  headgate init --chart app --version "^1.2" https://charts.example.org -f charts.yaml`,
		Args: arguments(1, -1),
		RunE: func(c *cobra.Command, args []string) error { return asFailure(p.runInit(c.Context(), f, args)) },
	}
	f.registerAccess(c, true)
	c.Flags().StringVarP(&f.file, "filename", "f", "sources.yaml", "`FILE` that is written, or - for standard output")
	c.Flags().BoolVar(&f.force, "force", false, "replace the file if it is there")
	return c
}

func (p *program) runInit(ctx context.Context, f *initFlags, args []string) error {
	s, objects, err := p.prepare(ctx, &f.sourceFlags, args)
	if err != nil {
		return err
	}
	for _, dir := range s.env.Local {
		return usage("%s is a directory of this machine: give its URL, and read the directory in its place with headgate fetch --from", dir)
	}
	text, written := "# yaml-language-server: $schema="+schema.URL("", source.V1)+"\n", map[string]string{}
	for _, obj := range slices.Concat(s.set.Objects, objects) { // the repository of a chart is in the set
		name := argumentOf(obj)
		document, err := source.EncodeYAML(obj)
		masked, err2 := source.EncodeYAML(source.Masked(obj))
		switch other, known := written[name]; {
		case err != nil || err2 != nil:
			return errors.Join(err, err2)
		case known && other != string(document):
			return usage("%s: another URL has the same name: write them into two files", name)
		case known:
			continue
		case !bytes.Equal(document, masked):
			return usage("%s: the URL has credentials, which do not belong into a file: put them into a Secret, and name it with --secret-ref", name)
		}
		if len(written) > 0 {
			text += "---\n"
		}
		text, written[name] = text+commented(obj, string(document)), string(document)
	}
	switch {
	case f.file == "-":
		_, err = p.stdout.Write([]byte(text))
		return err
	case exists(f.file) && !f.force:
		return usage("%s is there already: choose another file with -f, or replace it with --force", f.file)
	}
	if err = durable.Replace(f.file, []byte(text)); err == nil {
		err = os.Chmod(f.file, 0o644)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", f.file, err)
	}
	_, err = fmt.Fprintf(p.stdout, `wrote %[1]s. Next:
  headgate fetch -f %[1]s                                  # fetch, verify and store in ./.headgate
  headgate lock -f %[1]s                                   # write down what it is at now: commit the lock too
  headgate fetch -f %[1]s --locked --out ./sources         # in CI: exactly that
`, redact.String(f.file))
	return err
}

// explained are fields of specs: those that are set get the comment, and those that have an
// example are named in a comment where they are not.
var explained = []struct{ field, kinds, example, comment string }{
	{"interval", "GitRepository OCIRepository Bucket PkgRepository PkgChart", "", "how often headgate serve checks it"},
	{"timeout", "GitRepository OCIRepository Bucket PkgRepository", "", "time limit of each step: log in, look up, fetch, verify"},
	{"ref", "GitRepository", "", "branch, tag, semver (a range, the highest tag in it), name or commit"},
	{"ref", "OCIRepository", "", "tag, semver (a range, the highest tag in it) or digest"},
	{"version", "PkgChart", "", "a version, or a range of versions"},
	{"secretRef", "GitRepository OCIRepository Bucket PkgRepository", "{name: login}", "credentials: a directory of --secrets, or variables HEADGATE_SECRET_NAME_KEY"},
	{"verify", "GitRepository", "{mode: HEAD, secretRef: {name: keys}}", "the signature that the commit must have"},
	{"verify", "OCIRepository", "{provider: cosign, secretRef: {name: keys}}", "the signature that the artifact must have"},
	{"ignore", "GitRepository OCIRepository Bucket", `"*.md"`, "what is left out, as in .gitignore"},
	{"sparseCheckout", "GitRepository", "[deploy]", "the directories that are fetched; default all"},
	{"valuesFiles", "PkgChart", "[values-production.yaml]", "in place of values.yaml of the chart; the last one wins"},
}

// implied are lines of a document that it means without them too.
var implied = regexp.MustCompile(`(?m)^  (?:namespace: default|provider: generic|type: default|reconcileStrategy: ChartVersion)\n`)

// commented adds comments to the document of an object.
func commented(obj source.Object, document string) string {
	document = strings.ReplaceAll(implied.ReplaceAllString(document, ""), ": 1m0s\n", ": 1m\n")
	head, spec, _ := strings.Cut(document, "\nspec:\n")
	for _, e := range explained {
		line := regexp.MustCompile(`(?m)^  ` + e.field + `:.*$`)
		switch known := slices.Contains(strings.Fields(e.kinds), source.ReferenceTo(obj).Kind); {
		case !known:
		case line.MatchString(spec):
			spec = line.ReplaceAllString(spec, "$0 # "+e.comment)
		case e.example != "":
			spec += "  # " + e.field + ": " + e.example + " # " + e.comment + "\n"
		}
	}
	return head + "\nspec:\n" + spec
}
