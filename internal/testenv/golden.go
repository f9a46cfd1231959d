package testenv

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// Golden runs a subtest for each archive that matches pattern. do receives the
// files of the archive except those called want.*, and returns the want.* files with
// the content that they must have, in order; the archive omits empty ones. A file
// whose name begins with "../" is read from that path, relative to the package, and
// do receives it under its base name. With update, Golden rewrites the archives
// instead of comparing.
func Golden(t *testing.T, pattern string, update bool, do func(t *testing.T, input []txtar.File) []txtar.File) {
	t.Helper()
	archives, err := filepath.Glob(pattern)
	if err != nil || len(archives) == 0 {
		t.Fatalf("no archives: %v", err)
	}
	for _, name := range archives {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(name)
			Must(t, err)
			want := map[string]string{}
			var files []txtar.File
			for _, f := range archive.Files {
				if strings.HasPrefix(f.Name, "want.") {
					want[f.Name] = string(f.Data)
				} else {
					files = append(files, f)
				}
			}
			for _, got := range do(t, load(t, files)) {
				if string(got.Data) != want[got.Name] && !update {
					t.Errorf("%s:\n%s\nwant:\n%s", got.Name, got.Data, want[got.Name])
				}
				if len(got.Data) > 0 {
					files = append(files, got)
				}
				delete(want, got.Name)
			}
			if update {
				Must(t, os.WriteFile(name, txtar.Format(&txtar.Archive{Comment: archive.Comment, Files: files}), 0o644))
			} else if len(want) > 0 {
				t.Errorf("%s has files that nothing makes: %q", name, want)
			}
		})
	}
}

// load returns files with those whose names begin with "../" read from that path.
func load(t *testing.T, files []txtar.File) []txtar.File {
	files = slices.Clone(files)
	for i, f := range files {
		if strings.HasPrefix(f.Name, "../") {
			data, err := os.ReadFile(f.Name)
			Must(t, err)
			files[i] = txtar.File{Name: path.Base(f.Name), Data: data}
		}
	}
	return files
}

// Must ends the test if err is not nil.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Equal fails the test if got differs from want; an empty slice or map equals a nil
// one. The failure message begins with about: a value, or a format and its arguments.
func Equal[T any](t testing.TB, got, want T, about ...any) {
	t.Helper()
	verb := "%+v"
	switch v := any(got).(type) {
	case string:
		if verb = "%q"; strings.Contains(v, "\n") {
			verb = "\n%s\n"
		}
	case []string:
		verb = "%q"
	}
	if v := reflect.ValueOf(got); v.Kind() == reflect.Slice || v.Kind() == reflect.Map {
		if v.Len()+reflect.ValueOf(want).Len() == 0 {
			return
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s"+verb+", want "+verb, label(about), got, want)
	}
}

// ErrorIs fails the test unless [errors.Is] reports true for err and want. about is
// as in [Equal].
func ErrorIs(t testing.TB, err, want error, about ...any) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%serror %v, want %v", label(about), err, want)
	}
}

// ErrorSays fails the test if err is nil or its text does not contain want. about is
// as in [Equal].
func ErrorSays(t testing.TB, err error, want string, about ...any) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%serror %v, want one that says %q", label(about), err, want)
	}
}

// label returns the beginning of a failure message.
func label(about []any) string {
	switch len(about) {
	case 0:
		return ""
	case 1:
		return fmt.Sprint(about[0]) + ": "
	}
	return fmt.Sprintf(about[0].(string), about[1:]...) + ": "
}
