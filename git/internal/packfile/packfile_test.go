package packfile_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/internal/testenv"

	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/git/internal/packfile"
)

// repository makes a repository of a few versions of similar files, so that its packs have deltas.
func repository(t testing.TB, format string) *testenv.Repo {
	t.Helper()
	repo := testenv.NewRepoIn(t, format)
	text := strings.Repeat("the quick brown fox jumps over the lazy dog, and so on and on\n", 200)
	for i, last := range []string{"one", "two", "three", "four"} {
		files := fstest.MapFS{"empty": {}}
		for j, name := range []string{"a", "b/c", "b/d/e"} {
			files[name] = &fstest.MapFile{Data: []byte(strings.Repeat("x", 1000*j) + text[:len(text)-100*i] + last + name)}
		}
		repo.Commit(testenv.Commit{Branch: "main", Files: files})
	}
	repo.AnnotatedTag("v1", "main", "tagged")
	return repo
}

// large makes a repository of objects that do not fit into buffers.
func large(t testing.TB, compression string) *testenv.Repo {
	t.Helper()
	repo := testenv.NewRepo(t)
	repo.Git("config", "core.compression", compression)
	random := rand.NewChaCha8([32]byte{1})
	noise := make([]byte, 200<<10)
	random.Read(noise)
	var text bytes.Buffer
	for i := range 5_000 {
		fmt.Fprintf(&text, "line %d has a random number: %d\n", i, random.Uint64()%1000)
	}
	repo.Commit(testenv.Commit{Branch: "main", Files: fstest.MapFS{
		"one":   {Data: slices.Concat(noise, text.Bytes(), noise)},
		"two":   {Data: slices.Concat(noise[1000:], text.Bytes(), []byte("inserted"), noise)},
		"three": {Data: slices.Concat(text.Bytes(), make([]byte, 1<<20), noise[:77])},
	}})
	return repo
}

func revision(t testing.TB, repo *testenv.Repo, rev string) object.ID {
	t.Helper()
	id, err := object.ParseID(repo.ID(rev))
	must(t, err)
	return id
}

// packOf returns a pack of what revs stand for, as git makes it.
func packOf(repo *testenv.Repo, revs string, args ...string) []byte {
	return []byte(repo.GitInput(revs, append([]string{"pack-objects", "--revs", "--stdout", "-q"}, args...)...))
}

// TestReadAgreesWithGit compares every object of packs of all shapes with what git says.
func TestReadAgreesWithGit(t *testing.T) {
	for name, row := range map[string]struct {
		repo *testenv.Repo
		revs string
		args []string
	}{
		"offset deltas":           {repository(t, "sha1"), "", []string{"--delta-base-offset", "--all"}},
		"offset deltas of SHA256": {repository(t, "sha256"), "", []string{"--delta-base-offset", "--all"}},
		"id deltas":               {repository(t, "sha1"), "", []string{"--all"}},
		"id deltas of SHA256":     {repository(t, "sha256"), "", []string{"--all"}},
		"no deltas":               {repository(t, "sha1"), "", []string{"--all", "--window=0"}},
		"one commit":              {repository(t, "sha256"), "main\n", []string{"--delta-base-offset"}},
		"large, stored":           {large(t, "0"), "main\n", nil},
		"large, compressed":       {large(t, "9"), "main\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			data := packOf(row.repo, row.revs, row.args...)
			f := object.SHA1
			if len(row.repo.ID("main")) == 64 {
				f = object.SHA256
			}
			p, err := packfile.Read(context.Background(), bytes.NewReader(data), packfile.Options{Format: f})
			must(t, err)
			defer p.Close()
			compare(t, row.repo, data, p)
		})
	}
}

// compare checks that p holds exactly the objects that git finds in data.
func compare(t *testing.T, repo *testenv.Repo, data []byte, p *packfile.Pack) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "x.pack")
	must(t, os.WriteFile(file, data, 0o666))
	repo.Git("index-pack", file)
	var names strings.Builder
	for line := range strings.Lines(repo.Git("verify-pack", "-v", file)) {
		name, _, _ := strings.Cut(line, " ")
		if _, err := object.ParseID(name); err == nil {
			names.WriteString(name + "\n")
		}
	}
	n := 0
	for all := []byte(repo.GitInput(names.String(), "cat-file", "--batch") + "\n"); len(all) > 0; n++ {
		head, rest, _ := bytes.Cut(all, []byte("\n"))
		fields := strings.Fields(string(head))
		size, _ := strconv.Atoi(fields[2])
		want := rest[:size]
		all = rest[size+1:]
		id, err := object.ParseID(fields[0])
		must(t, err)
		typ, _, err := p.Stat(id)
		if err != nil || typ.String() != fields[1] {
			t.Fatalf("%v: got type %v, want %s: %v", id, typ, fields[1], err)
		}
		if got, err := object.Read(p, id, typ, 1<<30); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%v: got %.80q, want %.80q: %v", id, got, want, err)
		}
	}
	if announced := binary.BigEndian.Uint32(data[8:]); n != int(announced) {
		t.Errorf("%d objects, want %d", announced, n)
	}
}

// TestReadThin reads a pack whose deltas are based on objects that it does not hold.
func TestReadThin(t *testing.T) {
	repo := repository(t, "sha1")
	old := open(t, repo, "HEAD~1\n", packfile.Options{})
	thin := packOf(repo, "HEAD\n^HEAD~1\n", "--thin")
	p, err := packfile.Read(context.Background(), bytes.NewReader(thin), packfile.Options{External: old})
	must(t, err)
	defer p.Close()
	blob := revision(t, repo, "HEAD:b/d/e")
	if got, err := object.Read(p, blob, object.Blob, 1<<20); err != nil || string(got) != repo.Git("show", "HEAD:b/d/e") {
		t.Errorf("%q, %v", got, err)
	}
	if _, _, err := p.Stat(revision(t, repo, "HEAD~1")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the pack gives out an external object: %v", err)
	}
	empty, err := packfile.Read(context.Background(), bytes.NewReader(newBuilder(2, 0).sum()), packfile.Options{})
	must(t, err)
	defer empty.Close()
	for name, external := range map[string]object.Database{"none": nil, "empty": empty} {
		if err := read(t, bytes.NewReader(thin), packfile.Options{External: external}); !errors.Is(err, object.ErrCorrupt) || !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("external database %s: %v", name, err)
		}
	}
	old.Close()
	if err := read(t, bytes.NewReader(thin), packfile.Options{External: old}); !errors.Is(err, os.ErrClosed) || errors.Is(err, object.ErrCorrupt) {
		t.Errorf("external database that fails: %v", err)
	}
}

// open returns the pack of what is reachable from revs.
func open(t testing.TB, repo *testenv.Repo, revs string, o packfile.Options) *packfile.Pack {
	t.Helper()
	data := packOf(repo, revs, "--delta-base-offset")
	p, err := packfile.Read(context.Background(), bytes.NewReader(data), o)
	must(t, err)
	t.Cleanup(func() { p.Close() })
	return p
}

// TestTreeFS reads the tree of a pack from several goroutines at once.
func TestTreeFS(t *testing.T) {
	repo := repository(t, "sha1")
	var done, total int
	p := open(t, repo, "HEAD\n", packfile.Options{Progress: func(d, n int) { done, total = d, n }})
	if done != total || done != 4*7+1 { // of each commit, with three trees and three files, and the empty one
		t.Errorf("the last progress was %d of %d objects", done, total)
	}
	fsys := object.TreeFS(p, revision(t, repo, "HEAD^{tree}"))
	var readers sync.WaitGroup
	for range 8 {
		readers.Go(func() {
			if err := fstest.TestFS(fsys, "a", "b/c", "b/d/e", "empty"); err != nil {
				t.Error(err)
			}
		})
	}
	readers.Wait()
	absent := idOf("absent")
	if _, _, _, err := p.Open(absent); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), absent.String()) {
		t.Errorf("absent object: %v", err)
	}
	_, _, content, err := p.Open(revision(t, repo, "HEAD:a"))
	must(t, err)
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadAll(content); !errors.Is(err, os.ErrClosed) {
		t.Errorf("content of a closed pack: %v", err)
	}
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
