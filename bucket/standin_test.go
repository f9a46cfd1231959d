package bucket_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/source"
)

// folder writes files, NAME, CONTENT, …, and returns their directory.
func folder(t *testing.T, nameContent ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i < len(nameContent); i += 2 {
		name := filepath.Join(dir, filepath.FromSlash(nameContent[i]))
		err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(nameContent[i+1]), 0o644))
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A directory that stands in for a bucket has the files that the bucket would have.
func TestStandIn(t *testing.T) {
	files := []string{
		"a", "1", "app/x.yaml", "2", "app/x.log", "3", "app/sub/y", "4", "apps", "5", "app-2/z", "6", ".git/config", "7",
		"app/.sourceignore", "x.yaml\n", "b[c]/d {x}", "8", "b/d", "9",
	}
	for name, c := range map[string]struct {
		edit  func(*source.BucketSpec)
		rules string
		want  string
	}{
		"all":             {nil, "", "*"},
		"prefix":          {func(s *source.BucketSpec) { s.Prefix = "app" }, "", "app/.sourceignore app/sub/y app/x.log app/x.yaml app-2/z apps"},
		"directory":       {func(s *source.BucketSpec) { s.Prefix = "app/" }, "", "app/.sourceignore app/sub/y app/x.log app/x.yaml"},
		"below":           {func(s *source.BucketSpec) { s.Prefix = "app/s" }, "", "app/sub/y"},
		"file":            {func(s *source.BucketSpec) { s.Prefix = "app/sub/y" }, "", "app/sub/y"},
		"special":         {func(s *source.BucketSpec) { s.Prefix = "b[c]/d {x}" }, "", "b[c]/d {x}"},
		"nothing":         {func(s *source.BucketSpec) { s.Prefix = "zzz/" }, "", ""},
		"file in the way": {func(s *source.BucketSpec) { s.Prefix = "a/" }, "", ""},
		"absolute":        {func(s *source.BucketSpec) { s.Prefix = "/a" }, "", ""},
		"empty part":      {func(s *source.BucketSpec) { s.Prefix = "app//x" }, "", ""},
		"outside":         {func(s *source.BucketSpec) { s.Prefix = "../a" }, "", ""},
		"rules":           {func(s *source.BucketSpec) { s.Prefix = "app/" }, "*.log\n.*\n", "app/sub/y app/x.yaml"},
		"rules of both":   {ignoring("!x.log\n/b*\n/a*\n/.git\n!/app/\n"), "*.log\n", "app/.sourceignore app/sub/y app/x.log app/x.yaml"},
	} {
		all := files
		if c.rules != "" {
			all = append(files[:len(files):len(files)], ".sourceignore", c.rules)
		}
		dir := folder(t, all...)
		b := newBucket(c.edit)
		o := bucket.New(b, source.Env{Local: map[string]string{"store.example/stuff": dir}}, nil)
		got := artifactOf(t, o)
		want := c.want
		if want == "*" {
			_, want = newMemory(all...).fetch(t, nil)
		}
		if c.rules != "" {
			want = strings.TrimSpace(".sourceignore " + want)
		}
		if got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
		if _, real := newMemory(all...).fetch(t, c.edit); real != got {
			t.Errorf("%s: a bucket has %q, the directory %q", name, real, got)
		}
	}
}

// artifactOf lists the files of the artifact of o.
func artifactOf(t *testing.T, o source.Origin) string {
	t.Helper()
	rev, state, err := o.Resolve(t.Context(), nil)
	if err != nil || !strings.HasPrefix(rev.ID, "local@sha256:") || state != nil {
		t.Fatalf("%+v, %s, %v", rev, state, err)
	}
	c, err := o.Open(t.Context(), rev)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	out := new(strings.Builder)
	if _, err := c.WriteTo(t.Context(), out); err != nil {
		t.Fatal(err)
	}
	return strings.Join(filesOf(t, strings.NewReader(out.String())), " ")
}

// The name of a bucket for a stand-in is its endpoint and its name, without the signature.
func TestStandInName(t *testing.T) {
	dir := folder(t, "a", "1")
	for endpoint, name := range map[string]string{
		"store.example":                     "store.example/stuff",
		"store.example/":                    "store.example/stuff",
		"https://acc.example":               "https://acc.example/stuff",
		"https://acc.example/?sig=canary/x": "https://acc.example/stuff",
	} {
		b := newBucket(func(s *source.BucketSpec) { s.Endpoint = endpoint })
		o := bucket.New(b, source.Env{Local: map[string]string{name: dir}}, nil)
		if got := artifactOf(t, o); got != "a" {
			t.Errorf("%s: %q", endpoint, got)
		}
	}
}

func TestStandInFails(t *testing.T) {
	for name, c := range map[string]struct {
		dir  string
		is   error
		says string
	}{
		"no directory": {filepath.Join(t.TempDir(), "none"), fs.ErrNotExist, "local directory "},
		"large rules":  {folder(t, ".sourceignore", strings.Repeat("#", 1<<20+1)), nil, ".sourceignore has more than 1048576 bytes"},
	} {
		o := bucket.New(newBucket(nil), source.Env{Local: map[string]string{"store.example/stuff": c.dir}, Limits: artifact.Limits{}}, nil)
		_, _, err := o.Resolve(t.Context(), nil)
		if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := o.Open(t.Context(), source.Revision{ID: "local@sha256:00"}); err == nil {
			t.Errorf("%s: opened", name)
		}
	}
	linked := folder(t, "a", "1", "rules", "a\n")
	if err := os.Symlink("rules", filepath.Join(linked, ".sourceignore")); err == nil {
		o := bucket.New(newBucket(nil), source.Env{Local: map[string]string{"store.example/stuff": linked}}, nil)
		if got := artifactOf(t, o); got != "a rules" { // a link is no object
			t.Errorf("rules by a link: %s", got)
		}
	}
}
