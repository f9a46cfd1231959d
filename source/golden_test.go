package source_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/source"
	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "rewrite the expectations in testdata")

// TestDocuments decodes the files of each archive into one set and compares
// what it holds, and what encoding gives, with the want.* files of the archive.
func TestDocuments(t *testing.T) {
	archives, err := filepath.Glob("testdata/documents/*.txtar")
	if err != nil || len(archives) == 0 {
		t.Fatalf("no archives: %v", err)
	}
	for _, name := range archives {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(name)
			if err != nil {
				t.Fatal(err)
			}
			want := make(map[string]string)
			var set source.Set
			var failures []error
			input := archive.Files[:0:0]
			for _, f := range archive.Files {
				if strings.HasPrefix(f.Name, "want.") {
					want[f.Name] = string(f.Data)
					continue
				}
				input = append(input, f)
				failures = append(failures, split(set.Decode(f.Name, bytes.NewReader(f.Data)))...)
			}
			got := map[string]string{
				"want.errors":   lines(failures),
				"want.warnings": lines(set.Warnings),
				"want.summary":  summary(&set),
				"want.yaml":     encoded(t, &set),
			}
			for _, file := range []string{"want.summary", "want.errors", "want.warnings", "want.yaml"} {
				if got[file] != want[file] && !*update {
					t.Errorf("%s:\n%s\nwant:\n%s", file, got[file], want[file])
				}
				if got[file] != "" {
					input = append(input, txtar.File{Name: file, Data: []byte(got[file])})
				}
			}
			if *update {
				text := txtar.Format(&txtar.Archive{Comment: archive.Comment, Files: input})
				if err := os.WriteFile(name, text, 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// split returns the errors that err joins.
func split(err error) []error {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		return all.Unwrap()
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

func lines(errs []error) string {
	var b strings.Builder
	for _, err := range errs {
		fmt.Fprintln(&b, err)
	}
	return b.String()
}

func summary(s *source.Set) string {
	return fmt.Sprintf("%d objects, %d secrets, %d skipped\n", len(s.Objects), len(s.Secrets), s.Skipped)
}

func encoded(t *testing.T, s *source.Set) string {
	t.Helper()
	var b strings.Builder
	for i, obj := range s.Objects {
		if i > 0 {
			b.WriteString("---\n")
		}
		text, err := source.EncodeYAML(obj)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(text)
	}
	return b.String()
}

// decodeOne decodes the only object of a text.
func decodeOne(t *testing.T, text string) source.Object {
	t.Helper()
	var s source.Set
	if err := s.Decode("test.yaml", strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	if len(s.Objects) != 1 {
		t.Fatalf("%d objects in %s", len(s.Objects), text)
	}
	return s.Objects[0]
}
