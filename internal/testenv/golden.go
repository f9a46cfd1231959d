package testenv

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/tools/txtar"
)

// Golden runs a subtest for each archive that matches pattern. do gets the
// files of the archive except those called want.*, and returns what the want.*
// files have to be, in order; an empty one is not in the archive. A file whose
// name begins with "../" is read from that path, relative to the package, and do
// gets it under its base name. With update the archives are written anew instead.
func Golden(t *testing.T, pattern string, update bool, do func(t *testing.T, input []txtar.File) []txtar.File) {
	t.Helper()
	archives, err := filepath.Glob(pattern)
	if err != nil || len(archives) == 0 {
		t.Fatalf("no archives: %v", err)
	}
	for _, name := range archives {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(name)
			check(t, err)
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
				check(t, os.WriteFile(name, txtar.Format(&txtar.Archive{Comment: archive.Comment, Files: files}), 0o644))
			} else if len(want) > 0 {
				t.Errorf("%s has files that nothing makes: %q", name, want)
			}
		})
	}
}

// load reads the files of an archive that are elsewhere.
func load(t *testing.T, files []txtar.File) []txtar.File {
	files = slices.Clone(files)
	for i, f := range files {
		if strings.HasPrefix(f.Name, "../") {
			data, err := os.ReadFile(f.Name)
			check(t, err)
			files[i] = txtar.File{Name: path.Base(f.Name), Data: data}
		}
	}
	return files
}

// Must ends a test that cannot go on after an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// URL parses a URL that has no mistake.
func URL(t testing.TB, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	check(t, err)
	return u
}

// Files makes a tree from path and content pairs.
func Files(pairs ...string) fstest.MapFS {
	tree := fstest.MapFS{}
	for i := 0; i < len(pairs); i += 2 {
		tree[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1]), Mode: 0o644}
	}
	return tree
}

// Contents returns the files of a tree by name.
func Contents(t testing.TB, tree fs.FS) map[string]string {
	t.Helper()
	found := map[string]string{}
	check(t, fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Size() != int64(len(content)) {
			t.Errorf("%s: size %d, has %d bytes", name, info.Size(), len(content))
		}
		found[name] = string(content)
		return err
	}))
	return found
}

// Spool returns what makes spools, each of which must be closed when the test ends.
func Spool(t testing.TB) func() (*os.File, error) {
	t.Helper()
	dir := t.TempDir()
	return func() (*os.File, error) {
		f, err := os.CreateTemp(dir, "spool")
		t.Cleanup(func() {
			if f.Close() == nil {
				t.Error("a spool was left open")
			}
		})
		return f, err
	}
}

// Equal reports a value that is not the wanted one; an empty list or map is like
// none. About says of what: a value, or a format and its arguments.
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

func label(about []any) string {
	switch len(about) {
	case 0:
		return ""
	case 1:
		return fmt.Sprint(about[0]) + ": "
	}
	return fmt.Sprintf(about[0].(string), about[1:]...) + ": "
}
