package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/internal/document"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/metric"
	"github.com/headgate-io/headgate/rollout/notify"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/schema"
)

// initFlags are the flags of headgate init.
type initFlags struct {
	sourceFlags
	file  string
	force bool
}

func (p *program) init() *cobra.Command {
	f := new(initFlags)
	f.noHash, f.parallel = true, 1
	c := &cobra.Command{
		Use:   "init {URL[@REF]... | --chart NAME URL}",
		Short: "Write a first file of sources for URLs",
		Long: `Init writes the objects that headgate fetch makes of URLs into a file, as a beginning: comments say what fields mean, and
name some more. The first line leads editors to the schema. It asks an origin only what @REF is in a Git repository, a
branch or a tag. See headgate fetch for the forms of URLs.`,
		Example: `  headgate init https://example.org/app.git --semver ">=1.0.0"
  headgate init oci://registry.example.org/app:v1.2.3 s3://assets/app/
  headgate init --chart app --version "^1.2" https://charts.example.org -f charts.yaml`,
		Args: rangeArgs(1, -1),
		RunE: func(c *cobra.Command, args []string) error { return p.runInit(c.Context(), f, args) },
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
	for _, obj := range slices.Concat(s.set.Objects, objects) { // the set has the repository of a chart
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
		text, written[name] = text+addComments(obj, string(document)), string(document)
	}
	switch {
	case f.file == "-":
		_, err = p.stdout.Write([]byte(text))
		return err
	case exists(f.file) && !f.force:
		return usage("%s is there already: choose another file with -f, or replace it with --force", f.file)
	}
	if err := writePublic(f.file, []byte(text)); err != nil {
		return fmt.Errorf("write %s: %w", f.file, err)
	}
	_, err = fmt.Fprintf(p.stdout, `wrote %[1]s. Next:
  headgate fetch -f %[1]s                                  # fetch, verify and store in ./.headgate
  headgate lock -f %[1]s                                   # write down what it is at now: commit the lock too
  headgate fetch -f %[1]s --locked --out ./sources         # in CI: exactly that
`, redact.String(f.file))
	return err
}

// specComments lists fields of specs. A field that is set gets the comment. A field that is not set is
// shown in a comment if it has an example.
var specComments = []struct{ field, kinds, example, comment string }{
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

// defaultLines matches lines of a document that only repeat defaults.
var defaultLines = regexp.MustCompile(`(?m)^  (?:namespace: default|provider: generic|type: default|reconcileStrategy: ChartVersion)\n`)

// addComments adds comments to the document of an object.
func addComments(obj source.Object, document string) string {
	document = strings.ReplaceAll(defaultLines.ReplaceAllString(document, ""), ": 1m0s\n", ": 1m\n")
	head, spec, _ := strings.Cut(document, "\nspec:\n")
	for _, e := range specComments {
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

// validateFlags are the flags of headgate validate.
type validateFlags struct {
	documentFlags
	outputFlags
	strict bool
}

func (p *program) validate() *cobra.Command {
	f := new(validateFlags)
	c := &cobra.Command{
		Use:   "validate -f FILE|DIR|-",
		Short: "Check objects as an API server would, and report deprecated fields",
		Long: `Validate checks sources, Secrets, and the Canary, MetricTemplate and AlertProvider objects of rollouts, and lists those
that are valid. It reads directories as headgate fetch does: files named in .headgateignore are left out, and a Helm
template is a warning.

Documents of other kinds are counted; -v lists them, and --strict makes them errors. A document that is not a mapping is
an error, and so is a misspelled apiVersion or kind.

Exit codes: 0 all objects are valid, 2 there are errors.`,
		Args: f.noArguments,
		RunE: func(*cobra.Command, []string) error { return p.runValidate(f) },
	}
	f.registerFiles(c)
	f.outputFlags.register(c, "text", "json")
	p.registerAnnotations(c)
	c.Flags().BoolVar(&f.strict, "strict", false, "treat documents of other kinds as errors")
	return c
}

// noArguments returns a usage error if there are arguments, or no files.
func (f *documentFlags) noArguments(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage("%s takes no arguments, but got %q: give files and directories with -f", c.Name(), args[0])
	}
	if len(f.files) == 0 {
		return usage("give objects with -f FILE or -f DIR")
	}
	return nil
}

// A validation is the result of headgate validate, and its output with -o json.
type validation struct {
	Objects  []validObject  `json:"objects"`
	Errors   []defectLine   `json:"errors"`
	Warnings []defectLine   `json:"warnings"`
	Others   []source.Other `json:"others"`  // the first 1000 of each file
	Skipped  int            `json:"skipped"` // number of other documents

	set    source.Set
	errs   []error
	warned []error
}

// A validObject is a valid object and its file.
type validObject struct {
	Object string `json:"object"` // KIND/NAMESPACE/NAME
	File   string `json:"file"`
}

// A defectLine is an error or a warning in the output.
type defectLine struct {
	source.DocumentError
	Message string `json:"message"`
}

func defectLines(errs []error) []defectLine {
	return mapSlice(errs, func(err error) defectLine {
		if e, ok := errors.AsType[*source.DocumentError](err); ok {
			return defectLine{*e, e.Err.Error()}
		}
		return defectLine{Message: err.Error()}
	})
}

func (p *program) runValidate(f *validateFlags) error {
	v := &validation{Objects: []validObject{}, Others: []source.Other{}}
	for _, name := range f.files {
		v.addError(p.decode(name, f.exclude, &v.warned, v.read))
	}
	v.judgeOthers(f.strict)
	warnings := append(v.set.Warnings, v.warned...)
	var err error
	if v.Errors, v.Warnings = defectLines(v.errs), defectLines(warnings); f.machineReadable() {
		p.addAnnotation("warning", warnings...)
		err = printValue(p.stdout, f.output, v)
	} else if p.warn(warnings...); f.prints() {
		p.printSkipped(v.Others, v.Skipped, f.verbose)
		for _, o := range v.Objects {
			_, err = fmt.Fprintf(p.stdout, "%s valid\n", o.Object)
		}
	}
	if err == nil && len(v.errs) > 0 {
		err = &exitError{exitUsage, errors.Join(v.errs...)}
	}
	return err
}

// addError records errors, each once: every decoder finds the same syntax errors.
func (v *validation) addError(err error) {
	for _, err := range document.Split(err) {
		if !slices.ContainsFunc(v.errs, func(other error) bool { return other.Error() == err.Error() }) {
			v.errs = append(v.errs, err)
		}
	}
}

// read checks the documents of one file.
func (v *validation) read(t fileText) error {
	objects, others, skipped := len(v.set.Objects), len(v.set.Others), v.set.Skipped
	errs := []error{v.set.Decode(t.name, bytes.NewReader(t.data))}
	for _, o := range v.set.Objects[objects:] {
		v.valid(t, o.Head().String())
	}
	canaries, warnings, err := rollout.Decode(t.name, bytes.NewReader(t.data))
	errs = append(errs, err)
	b := &rolloutDocuments{warnings: warnings}
	for _, c := range canaries {
		if err := b.checkCanary(c); err != nil {
			errs = append(errs, err)
		} else {
			v.valid(t, c.String())
		}
	}
	templates, err := metric.Decode(t.name, bytes.NewReader(t.data))
	errs = append(errs, err)
	for _, m := range templates {
		v.valid(t, "MetricTemplate/"+cmp.Or(m.Metadata.Namespace, rollout.DefaultNamespace)+"/"+m.Metadata.Name)
	}
	providers, err := notify.Decode(t.name, bytes.NewReader(t.data))
	errs = append(errs, err)
	for _, a := range providers {
		v.valid(t, "AlertProvider/"+a.String())
	}
	err = errors.Join(errs...)
	v.warned = append(v.warned, b.warnings...)
	v.Skipped += v.set.Skipped - skipped
	for _, o := range v.set.Others[others:] {
		if group, _, _ := strings.Cut(o.APIVersion, "/"); group == rollout.Group || group == rollout.ReferenceGroup || isReported(err, o) {
			v.Skipped--
		} else {
			v.Others = append(v.Others, o)
		}
	}
	return err
}

func (v *validation) valid(t fileText, object string) {
	v.Objects = append(v.Objects, validObject{object, t.name})
}

// isReported reports whether one of the joined errors is about the document o.
func isReported(err error, o source.Other) bool {
	return slices.ContainsFunc(document.Split(err), func(err error) bool {
		e, ok := errors.AsType[*source.DocumentError](err)
		return ok && e.File == o.File && e.Line == o.Line && e.Document == o.Document
	})
}

// judgeOthers records errors for documents that are lists and, if strict is set, for all other
// documents.
func (v *validation) judgeOthers(strict bool) {
	named := len(v.Others)
	for _, o := range v.Others {
		at := &source.DocumentError{File: o.File, Line: o.Line, Document: o.Document}
		switch {
		case o.List:
			at.Err = errors.New("the document is a list, not a mapping")
		case strict && o.Kind == "":
			at.Err = errors.New("the document is no object: with --strict only objects that are known may be there")
		case strict:
			at.Object = o.Kind + "/" + cmp.Or(o.Namespace, source.DefaultNamespace) + "/" + o.Name
			at.Err = errors.New("is of another kind: with --strict only objects that are known may be there")
		default:
			continue
		}
		v.addError(at)
	}
	v.Others = slices.DeleteFunc(v.Others, func(o source.Other) bool { return o.List })
	if v.Skipped -= named - len(v.Others); strict && v.Skipped > len(v.Others) {
		v.addError(fmt.Errorf("there are %d more documents of other kinds", v.Skipped-len(v.Others)))
	}
}

func (p *program) convert() *cobra.Command {
	var f documentFlags
	var out outputFlags
	var version, group string
	c := &cobra.Command{
		Use:   "convert -f FILE|DIR|- [--to v1|v1beta2] [--group GROUP]",
		Short: "Rewrite objects in another API version or group",
		Long: `Convert prints objects in another version (v1, v1beta2), in another group (` + source.Group + `, or
` + source.ReferenceGroup + ` with its names of kinds), or both. Fields that the version lacks are dropped with a warning.`,
		Args: f.noArguments,
	}
	c.RunE = func(*cobra.Command, []string) error {
		var set source.Set
		loadErr := p.load(&set, &f)
		p.warn(set.Warnings...)
		p.printSkipped(set.Others, set.Skipped, f.verbose)
		var converted []source.Object
		for _, obj := range set.Objects {
			if e, ok := obj.(*source.ExternalArtifact); ok && e.Composed != nil {
				continue // made by a generator, not in a document
			}
			to, warnings, err := source.Convert(obj, version, group)
			if p.warn(warnings...); err == nil {
				converted = append(converted, to)
			}
			loadErr = errors.Join(loadErr, err)
		}
		err := printValue(p.stdout, out.output, converted)
		if err == nil && loadErr != nil {
			err = &exitError{exitUsage, loadErr}
		}
		return err
	}
	f.registerFiles(c)
	c.Flags().StringVar(&version, "to", "", "`VERSION`: v1 or v1beta2; default unchanged")
	c.Flags().StringVar(&group, "group", "", "`GROUP` of the result; default unchanged")
	out.registerFormat(c, "yaml", "json")
	completeFlag(c, "to", "v1", "v1beta2")
	completeFlag(c, "group", source.Group, source.ReferenceGroup)
	return c
}

func (p *program) schema() *cobra.Command {
	var version string
	c := &cobra.Command{
		Use:   "schema [KIND] [--api-version v1|v1beta2]",
		Short: "Print the JSON Schema of a kind of source",
		Long: `Schema prints the JSON Schema (draft 2020-12) of the documents of a kind, in either group; without KIND, of all kinds.
headgate validate refuses all that the schema refuses, and checks more, such as ranges of versions.`,
		Example: `  headgate schema gitrepository > gitrepository.json`,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			kind := ""
			if len(args) > 0 {
				ref, err := source.ParseReference(args[0])
				if err != nil || ref.Name != "" {
					return usage("schema %q: name a kind, such as GitRepository", args[0])
				}
				kind = ref.Kind
			}
			text, err := schema.JSON(kind, version)
			if err != nil {
				return &exitError{exitUsage, err}
			}
			_, err = p.stdout.Write(text)
			return err
		},
	}
	kinds := slices.Concat(source.Kinds(source.Group), source.Kinds(source.GeneratorGroup))
	c.ValidArgs = mapSlice(kinds, func(k source.Kind) string { return k.Name })
	c.Flags().StringVar(&version, "api-version", source.V1, "`VERSION` of the documents: v1 or v1beta2")
	completeFlag(c, "api-version", source.V1, source.V1Beta2)
	return c
}
