package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/template"
	"time"

	"github.com/dustin/go-humanize"
	prettytext "github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/headgate-io/headgate/internal/document"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/source"
)

// outputFlags select what is printed. The format is one of formats. If they include json,
// jsonpath=TEMPLATE is possible too.
type outputFlags struct {
	quiet       bool
	noTruncate  bool // table lines are not truncated
	output      string
	outputGiven func() bool // reports whether -o was given
	formats     []string
}

func (f *outputFlags) register(c *cobra.Command, formats ...string) {
	c.Flags().BoolVarP(&f.quiet, "quiet", "q", false, "print errors only, and the result if -o is given")
	f.registerFormat(c, formats...)
}

// registerFormat adds -o only. The first format is the default.
func (f *outputFlags) registerFormat(c *cobra.Command, formats ...string) {
	f.formats, f.output, f.outputGiven = formats, formats[0], func() bool { return c.Flags().Changed("output") }
	words := slices.Clone(formats)
	if slices.Contains(words, "json") {
		words = append(words, "jsonpath=TEMPLATE")
	}
	c.Flags().VarP(f, "output", "o", "output format: "+joinOr(words))
	completeFlag(c, "output", formats...)
}

// Set implements [pflag.Value]. It returns an error for a format that the command lacks.
func (f *outputFlags) Set(format string) error {
	if !slices.Contains(f.formats, format) && !(slices.Contains(f.formats, "json") && strings.HasPrefix(format, jsonPath)) {
		return errors.New("want " + joinOr(f.formats))
	}
	f.output = format
	return nil
}

func (f *outputFlags) String() string { return f.output }
func (f *outputFlags) Type() string   { return "string" }

// prints reports whether the command prints its result. -q suppresses it unless -o was given.
func (f *outputFlags) prints() bool { return !f.quiet || f.outputGiven() }

// machineReadable reports whether the output format is for programs.
func (f *outputFlags) machineReadable() bool {
	return f.output == "json" || f.output == "yaml" || strings.HasPrefix(f.output, jsonPath)
}

// A table prints rows in aligned columns, without control characters. More rows can be printed
// later, since columns never shrink.
type table struct {
	w      io.Writer
	limit  int  // maximum columns of a line: the last cell is truncated; 0 for no limit
	paint  bool // the second cell is coloured if it is a condition status
	widths []int
}

// table returns a table on standard output. Unless wide is set, it truncates lines.
func (p *program) table(wide bool) *table {
	t := &table{w: p.stdout}
	if !wide {
		t.limit = 100
	}
	t.paint = p.getenv("NO_COLOR") == "" && isTerminal(p.stdout)
	return t
}

// colours are the colours of condition statuses.
var colours = map[string]prettytext.Color{"True": prettytext.FgGreen, "False": prettytext.FgRed, "Unknown": prettytext.FgYellow}

// minCellWidth is the minimum width of a truncated last cell.
const minCellWidth = 40

func (t *table) print(rows ...[]string) error {
	for _, cells := range rows {
		for i := range cells {
			cells[i] = cmp.Or(redact.String(cells[i]), "-")
			if i == len(t.widths) {
				t.widths = append(t.widths, 0)
			}
			if i < len(cells)-1 {
				t.widths[i] = max(t.widths[i], prettytext.StringWidth(cells[i]))
			}
		}
	}
	var out strings.Builder
	for _, cells := range rows {
		used, last := 0, len(cells)-1
		for i, cell := range cells[:last] {
			used += t.widths[i] + 2
			space := strings.Repeat(" ", t.widths[i]+2-prettytext.StringWidth(cell))
			if colour, known := colours[cell]; known && t.paint && i == 1 {
				cell = colour.EscapeSeq() + cell + prettytext.Reset.EscapeSeq()
			}
			out.WriteString(cell + space)
		}
		if t.limit > 0 {
			cells[last] = prettytext.Snip(cells[last], max(minCellWidth, t.limit-used), "…")
		}
		out.WriteString(cells[last] + "\n")
	}
	_, err := io.WriteString(t.w, out.String())
	return err
}

// longHash matches long hexadecimal digests and commits in revisions.
var longHash = regexp.MustCompile(`((?:sha1|sha256):[0-9a-f]{8})[0-9a-f]{24,}`)

// shortRevision abbreviates the hashes in a revision unless full is set.
func shortRevision(revision string, full bool) string {
	if full {
		return revision
	}
	return longHash.ReplaceAllString(revision, "$1")
}

// shortDigest abbreviates ALGORITHM:HEX for display.
func shortDigest(digest string) string {
	algorithm, hex, _ := strings.Cut(digest, ":")
	return algorithm + ":" + hex[:min(len(hex), 12)]
}

// humanSize formats a number of bytes with a binary unit.
func humanSize(n int64) string { return humanize.IBytes(uint64(n)) }

// formatAge formats a time span in its largest unit.
func formatAge(d time.Duration) string {
	for _, unit := range []struct {
		name string
		of   time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}} {
		if n := int64(d / unit.of); n >= 2 {
			return fmt.Sprintf("%d%s", n, unit.name)
		}
	}
	return fmt.Sprintf("%ds", max(int64(d/time.Second), 0))
}

// formatTime formats a time. It returns "" for the zero time.
func formatTime(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(time.RFC3339)
}

// kindOfFile describes the type of a file that archives cannot contain.
func kindOfFile(m fs.FileMode) string {
	switch {
	case m&fs.ModeSymlink != 0:
		return "a symbolic link"
	case m&fs.ModeIrregular != 0:
		return "a submodule"
	}
	return "no regular file"
}

// printResult prints the result of a command as -o says: names one per line, value for programs, or
// lines as a table whose first line has the titles.
func (p *program) printResult(f *outputFlags, value any, names []string, lines [][]string) (err error) {
	switch {
	case !f.prints():
		return nil
	case f.machineReadable():
		return printValue(p.stdout, f.output, value)
	case f.output == "name":
		for _, name := range names {
			_, err = fmt.Fprintln(p.stdout, redact.String(name))
		}
		return err
	}
	return p.table(f.noTruncate || f.output == "wide" || !slices.Contains(f.formats, "wide")).print(lines...)
}

// printDocuments writes documents: YAML as a stream, JSON as one List.
func printDocuments(w io.Writer, format string, objects []source.Object) error {
	if format == "yaml" {
		var all [][]byte
		for _, obj := range objects {
			text, err := source.EncodeYAML(obj)
			if err != nil {
				return err
			}
			all = append(all, text)
		}
		_, err := w.Write(bytes.Join(all, []byte("---\n")))
		return err
	}
	list := struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Items      []json.RawMessage `json:"items"`
	}{"v1", "List", make([]json.RawMessage, len(objects))}
	for i, obj := range objects {
		text, err := source.EncodeJSON(obj)
		if err != nil {
			return err
		}
		list.Items[i] = text
	}
	return printValue(w, format, list)
}

// printValue writes v as JSON, as YAML, or through a jsonpath template.
func printValue(w io.Writer, format string, v any) error {
	if objects, ok := v.([]source.Object); ok {
		return printDocuments(w, format, objects)
	}
	if template, found := strings.CutPrefix(format, jsonPath); found {
		return printPath(w, template, v)
	}
	if format == "json" {
		return encode(w, v, "  ")
	}
	text, err := yaml.Marshal(v)
	if err == nil {
		_, err = w.Write(text)
	}
	return err
}

// printItem writes one of several values: JSON on one line, YAML as a document.
func printItem(w io.Writer, format string, v any) error {
	switch format {
	case "json":
		return encode(w, v, "")
	case "yaml":
		fmt.Fprintln(w, "---")
	}
	return printValue(w, format, v)
}

// encode writes v as JSON. If indent is "", it writes one line.
func encode(w io.Writer, v any, indent string) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", indent)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// jsonPath is the prefix of a format with a template in the syntax of kubectl: text with {PATH},
// {"TEXT"} and {range PATH}…{end}. A path consists of .NAME, ['NAME'], [INDEX] and [*]. If v is a
// List with one item, paths start at the item.
const jsonPath = "jsonpath="

var (
	templateParts = regexp.MustCompile(`\{[^}]*\}`)
	pathSteps     = regexp.MustCompile(`^(?:\.?\['((?:[^'\\]|\\.)*)'\]|\[(\*|-?\d+)\]|\.((?:[^.\[\\]|\\.)+))`)
)

// printPath writes v through a jsonpath template. It translates the template to a Go template with
// functions that look up paths.
func printPath(w io.Writer, text string, v any) error {
	document, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var root any
	if err := json.Unmarshal(document, &root); err != nil {
		return err
	}
	if list, ok := root.(map[string]any); ok && list["kind"] == "List" {
		if items, _ := list["items"].([]any); len(items) == 1 && !strings.Contains(text, "items") {
			root = items[0]
		}
	}
	parts := templateParts.ReplaceAllStringFunc(text, func(part string) string {
		part = strings.TrimSpace(part[1 : len(part)-1])
		path, isRange := strings.CutPrefix(part, "range ")
		switch {
		case isRange:
			return fmt.Sprintf("{{range find . %q}}", strings.TrimSpace(path))
		case part == "end" || strings.HasPrefix(part, `"`):
			return "{{" + part + "}}"
		}
		return fmt.Sprintf("{{show . %q}}", part)
	})
	t, err := template.New("-o jsonpath").Funcs(template.FuncMap{"find": lookUp, "show": showPath}).Parse(parts)
	if err != nil {
		return usage("%w: each {range} needs an {end}", err)
	}
	var out strings.Builder
	if err := t.Execute(&out, root); err != nil {
		return err
	}
	_, err = io.WriteString(w, strings.TrimSuffix(out.String(), "\n")+"\n")
	return err
}

// showPath returns the text of the values at a path.
func showPath(v any, path string) (string, error) {
	found, err := lookUp(v, path)
	for i, v := range found {
		if text, isText := v.(string); isText {
			found[i] = redact.String(text)
		} else if text, err := json.Marshal(v); err == nil {
			found[i] = string(text)
		}
	}
	return strings.TrimSuffix(fmt.Sprintln(found...), "\n"), err
}

// lookUp returns the values at a path.
func lookUp(v any, path string) ([]any, error) {
	found, rest := []any{v}, strings.TrimPrefix(path, "$")
	for rest != "" && rest != "." && rest != "@" {
		step := pathSteps.FindStringSubmatch(rest)
		if step == nil {
			return nil, usage("-o jsonpath: %q: want .NAME, ['NAME'], [INDEX] or [*]", rest)
		}
		rest = rest[len(step[0]):]
		every, name := step[2] == "*" || step[3] == "*", strings.ReplaceAll(step[1]+step[3], `\`, "")
		var next []any
		for _, v := range found {
			switch v := v.(type) {
			case map[string]any:
				for _, key := range slices.Sorted(maps.Keys(v)) {
					if step[2] == "*" || step[2] == "" && key == name {
						next = append(next, v[key])
					}
				}
			case []any:
				i, err := strconv.Atoi(step[2])
				if i < 0 {
					i += len(v)
				}
				if every {
					next = append(next, v...)
				} else if err == nil && i >= 0 && i < len(v) {
					next = append(next, v[i])
				}
			}
		}
		found = next
	}
	return found, nil
}

// unreachableHint returns a hint, after a colon, for errors about a server that cannot be reached. For
// other errors it returns "".
func unreachableHint(err error) string {
	op, ok := errors.AsType[*net.OpError](err)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return ": no server listens there: check the host and port"
	case ok && op.Op == "dial":
		return ": check the host, the network, and HTTPS_PROXY if a proxy is needed"
	}
	return ""
}

// warn prints warnings, one per line.
func (p *program) warn(errs ...error) {
	p.addAnnotation("warning", errs...)
	for _, err := range document.Split(errors.Join(errs...)) {
		fmt.Fprintf(p.stderr, "warning: %s\n", redact.String(err.Error()))
	}
}

// annotations are errors and warnings that a CI system shows beside the documents.
type annotations struct {
	format   string    // of --format: github, gitlab, or "" for none
	report   io.Writer // standard output; for gitlab the report replaces the result
	recorded []annotation
}

// An annotation is an error or a warning with its position.
type annotation struct {
	severity    string // error or warning
	file        string // "" for none
	line        int
	title, text string
}

// registerAnnotations adds --format.
func (p *program) registerAnnotations(c *cobra.Command) {
	choiceVar(c, &p.format, "format", "", "`SYSTEM` that shows errors and warnings beside the documents: github prints annotations beside the messages, gitlab a code quality report in place of the result", "github", "gitlab")
}

func (p *program) beginAnnotations(c *cobra.Command) error {
	switch {
	case p.format == "gitlab" && c.Flags().Changed("output"):
		return usage("--format gitlab prints its report in place of the result: leave out -o")
	case p.format == "gitlab":
		p.report, p.stdout = p.stdout, io.Discard
	}
	return nil
}

// addAnnotation records errors or warnings with the documents that they name. File names become relative to
// the working directory, as CI systems expect.
func (p *program) addAnnotation(severity string, errs ...error) {
	if p.format == "" { // a server would collect them as long as it runs
		return
	}
	dir, _ := os.Getwd()
	for _, err := range document.Split(errors.Join(errs...)) {
		at := source.DocumentError{Err: err}
		if e, ok := errors.AsType[*source.DocumentError](err); ok {
			at = *e
		}
		if inside, err := filepath.Rel(dir, at.File); err == nil && filepath.IsLocal(inside) {
			at.File = inside
		} else if at.File == "-" {
			at.File = ""
		} else if at.File != "" {
			at.File = filepath.Clean(at.File)
		}
		text := (&source.DocumentError{Field: at.Field, Err: at.Err}).Error()
		p.recorded = append(p.recorded, annotation{severity, filepath.ToSlash(at.File), max(at.Line, 1), cmp.Or(at.Object, "headgate"), redact.String(text)})
	}
}

// These replacers escape the text and the properties of a GitHub workflow command.
var (
	commandText     = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	commandProperty = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

// printAnnotations prints the recorded annotations and err, the final error of the command. The GitLab
// report has only those in files. The fingerprint of an issue does not include the line, so an
// issue that moves stays the same.
func (p *program) printAnnotations(err error) error {
	p.addAnnotation("error", err)
	issues, seen := []map[string]any{}, map[string]int{}
	for _, a := range p.recorded {
		if p.format == "github" {
			at := ""
			if a.file != "" {
				at = fmt.Sprintf("file=%s,line=%d,", commandProperty.Replace(a.file), a.line)
			}
			fmt.Fprintf(p.stderr, "::%s %stitle=%s::%s\n", a.severity, at, commandProperty.Replace(a.title), commandText.Replace(a.text))
		} else if a.file != "" {
			id := a.file + "\x00" + a.title + "\x00" + a.text
			issues = append(issues, map[string]any{
				"check_name":  "headgate",
				"description": a.title + ": " + a.text,
				"fingerprint": fmt.Sprintf("%x", sha256.Sum256(fmt.Append(nil, id, seen[id]))),
				"severity":    map[string]string{"error": "major", "warning": "minor"}[a.severity],
				"location":    map[string]any{"path": a.file, "lines": map[string]int{"begin": a.line}},
			})
			seen[id]++
		}
	}
	if p.report == nil {
		return nil
	}
	return encode(p.report, issues, "  ")
}
