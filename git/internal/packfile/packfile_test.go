package packfile_test

import (
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/sha256"
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

	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/git/internal/objecttest"
	"github.com/headgate-io/headgate/git/internal/packfile"
	"github.com/headgate-io/headgate/internal/testenv"
)

// repository returns a repository with a few versions of similar files, so that its
// packs have deltas.
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

// large returns a repository with objects larger than all buffers.
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

// packOf returns a pack of the objects that git pack-objects finds for revs.
func packOf(repo *testenv.Repo, revs string, args ...string) []byte {
	return []byte(repo.GitInput(revs, append([]string{"pack-objects", "--revs", "--stdout", "-q"}, args...)...))
}

// TestReadAgreesWithGit compares every object of packs of all shapes with git's
// output.
func TestReadAgreesWithGit(t *testing.T) {
	t.Parallel()
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
	empty, err := packfile.Read(context.Background(), bytes.NewReader(objecttest.NewPack(2, 0).Sum()), packfile.Options{})
	must(t, err)
	defer empty.Close()
	for name, external := range map[string]object.Database{"none": nil, "empty": empty} {
		if err := readAndClose(t, bytes.NewReader(thin), packfile.Options{External: external}); !errors.Is(err, object.ErrCorrupt) || !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("external database %s: %v", name, err)
		}
	}
	old.Close()
	if err := readAndClose(t, bytes.NewReader(thin), packfile.Options{External: old}); !errors.Is(err, os.ErrClosed) || errors.Is(err, object.ErrCorrupt) {
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
	if done != total || done != 4*7+1 { // 4 commits, each with three trees and three files, and the empty file
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

var must = testenv.Must

// frozen is a frozen pack in memory.
type frozen struct {
	*bytes.Reader
	closed int
}

func (f *frozen) Close() error { f.closed++; return nil }

// newPackWith returns a pack that holds the objects ids of db, which Add copied.
func newPackWith(t testing.TB, db object.Database, format object.Format, temp func() (*os.File, error), ids ...object.ID) (*packfile.Pack, error) {
	t.Helper()
	data := []byte("PACK\x00\x00\x00\x02\x00\x00\x00\x00")
	sum1, sum256 := sha1.Sum(data), sha256.Sum256(data)
	data = append(data, map[object.Format][]byte{object.SHA1: sum1[:], object.SHA256: sum256[:]}[format]...)
	p, err := packfile.Read(t.Context(), bytes.NewReader(data), packfile.Options{Format: format, Temp: temp})
	must(t, err)
	return p, p.Add(t.Context(), db, ids)
}

// freeze adds the objects of db to a pack and returns the file that Freeze writes.
func freeze(t testing.TB, db object.Database, format object.Format, ids ...object.ID) []byte {
	t.Helper()
	name := filepath.Join(t.TempDir(), "spool")
	p, err := newPackWith(t, db, format, func() (*os.File, error) { return os.Create(name) }, ids...)
	if err == nil {
		err = p.Freeze([]byte("a note"))
	}
	must(t, err)
	data, err := os.ReadFile(name)
	must(t, err)
	must(t, p.Close())
	return data
}

func TestFreezeAndThaw(t *testing.T) {
	for _, format := range []object.Format{object.SHA1, object.SHA256} {
		db := objecttest.Database{}
		ids := []object.ID{db.Add(format, object.Blob, "one"), db.Add(format, object.Blob, ""), db.Add(format, object.Blob, "three")}
		data := freeze(t, db, format, append(ids, ids[0])...)
		f := &frozen{Reader: bytes.NewReader(data)}
		p, note, err := packfile.Thaw(f)
		if err != nil || string(note) != "a note" {
			t.Fatalf("note %q, %v", note, err)
		}
		testenv.Equal(t, p.Spooled(), 0, "bytes spooled")
		for _, id := range ids {
			if got, err := object.Read(p, id, object.Blob, 100); err != nil || string(got) != db[id].Data {
				t.Errorf("%v: %q, %v", id, got, err)
			}
		}
		if _, _, err := p.Stat(db.Add(format, object.Blob, "other")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("object that is not there: %v", err)
		}
		if p.Close(); f.closed != 1 {
			t.Errorf("closed %d times", f.closed)
		}
	}
}

func TestAddAbsent(t *testing.T) {
	p, err := newPackWith(t, objecttest.Database{}, object.SHA1, nil, idOf("absent"))
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent object: %v", err)
	}
	p.Close()
}

// thawHostile are changes to a frozen pack of two blobs, "one" and "two", that Freeze
// never writes. A row of its index has 37 bytes, the footer 36.
var thawHostile = map[string]func(b []byte) []byte{
	"empty":            func(b []byte) []byte { return nil },
	"truncated":        func(b []byte) []byte { return b[:len(b)-1] },
	"magic":            func(b []byte) []byte { b[len(b)-2] ^= 1; return b },
	"width of ids":     func(b []byte) []byte { b[len(b)-20] = 21; return b },
	"other width":      func(b []byte) []byte { b[len(b)-20] = 32; return b },
	"too many objects": func(b []byte) []byte { binary.BigEndian.PutUint64(b[len(b)-36:], 3); return b },
	"2^63 objects":     func(b []byte) []byte { b[len(b)-36] = 0x80; return b },
	"note too large":   func(b []byte) []byte { b[len(b)-22] = 0xff; return b },
	"2^63 of a note":   func(b []byte) []byte { b[len(b)-28] = 0x80; return b },
	"negative offset":  func(b []byte) []byte { b[6+20] = 0xff; return b },
	"offset too large": func(b []byte) []byte { b[6+20+6] = 1; return b },
	"negative size":    func(b []byte) []byte { b[6+20+8] = 0xff; return b },
	"size too large":   func(b []byte) []byte { b[6+20+15] = 100; return b },
	"type 0":           func(b []byte) []byte { b[6+36] = 0; return b },
	"type of a delta":  func(b []byte) []byte { b[6+36] = 7; return b },
	"out of order":     func(b []byte) []byte { b[6] = 0xff; return b },
	"object twice":     func(b []byte) []byte { copy(b[6+37:], b[6:6+37]); return b },
}

func frozenPair(t testing.TB) []byte {
	db := objecttest.Database{}
	return freeze(t, db, object.SHA1, db.Add(object.SHA1, object.Blob, "one"), db.Add(object.SHA1, object.Blob, "two"))
}

func TestThawHostile(t *testing.T) {
	good := frozenPair(t)
	for defect, do := range thawHostile {
		f := &frozen{Reader: bytes.NewReader(do(bytes.Clone(good)))}
		if _, _, err := packfile.Thaw(f); !errors.Is(err, object.ErrCorrupt) {
			t.Errorf("%s: %v", defect, err)
		}
		if f.closed > 0 {
			t.Errorf("%s: closed what it did not take", defect)
		}
	}
}
