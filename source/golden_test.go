package source_test

import (
	"bytes"
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "rewrite the expectations in testdata")

// TestDocuments decodes the files of each archive into one set and compares the set, and its
// encoded objects, with the want.* files of the archive.
func TestDocuments(t *testing.T) {
	testenv.Golden(t, "testdata/documents/*.txtar", *update, func(t *testing.T, input []txtar.File) []txtar.File {
		var set source.Set
		var failures []error
		for _, f := range input {
			failures = append(failures, split(set.Decode(f.Name, bytes.NewReader(f.Data)))...)
		}
		return []txtar.File{
			{Name: "want.summary", Data: []byte(summary(&set))},
			{Name: "want.errors", Data: []byte(lines(failures))},
			{Name: "want.warnings", Data: []byte(lines(set.Warnings))},
			{Name: "want.yaml", Data: []byte(encoded(t, &set))},
		}
	})
}

var must = testenv.Must

func second[T any](_ T, err error) error { return err }

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
		must(t, err)
		b.Write(text)
	}
	return b.String()
}

// decodeOne decodes the single object in a text.
func decodeOne(t *testing.T, text string) source.Object {
	t.Helper()
	var s source.Set
	must(t, s.Decode("test.yaml", strings.NewReader(text)))
	if len(s.Objects) != 1 {
		t.Fatalf("%d objects in %s", len(s.Objects), text)
	}
	return s.Objects[0]
}
