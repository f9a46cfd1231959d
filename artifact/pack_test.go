package artifact_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
)

// golden is the tree of the test vector in reference A6.
func golden() fstest.MapFS {
	return fstest.MapFS{
		"a.txt":      {Data: []byte("hello\n"), Mode: 0o644},
		"bin/run.sh": {Data: []byte("#!/bin/sh\n"), Mode: 0o755},
		"empty":      {Mode: fs.ModeDir | 0o755},
		"link":       {Data: []byte("a.txt"), Mode: fs.ModeSymlink | 0o777},
	}
}

const goldenTar = "5863177f1fb932dabc3b34d84857abd231a0b3202f7a60a94502c1def7d1b194"

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// tarOf packs a tree, which must succeed.
func tarOf(t *testing.T, tree fs.FS) []byte {
	t.Helper()
	var out bytes.Buffer
	must(t, second(artifact.Tar(t.Context(), &out, tree)))
	return out.Bytes()
}

func TestGoldenVector(t *testing.T) {
	var out bytes.Buffer
	report, err := artifact.Tar(t.Context(), &out, golden())
	must(t, err)
	if got := sum(out.Bytes()); out.Len() != 4608 || got != goldenTar {
		t.Errorf("%d bytes with digest %s, want 4608 and %s", out.Len(), got, goldenTar)
	}
	if report.Files != 2 || report.Dirs != 3 || report.Bytes != 16 || report.LeftOutTotal != 1 {
		t.Errorf("report %+v", report)
	}
	if want := []artifact.LeftOut{{Name: "link", Mode: fs.ModeSymlink}}; !slices.Equal(report.LeftOut, want) {
		t.Errorf("left out %v, want %v", report.LeftOut, want)
	}
}

// oracle packs a tree in the simplest way, with archive/tar.
func oracle(t *testing.T, tree fs.FS) []byte {
	t.Helper()
	var out bytes.Buffer
	tw := tar.NewWriter(&out)
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&^fs.ModeDir != 0 {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if d.IsDir() {
			return tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o750})
		}
		mode := int64(0o600)
		if info.Mode()&0o111 != 0 {
			mode = 0o700
		}
		if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: info.Size()}); err != nil {
			return err
		}
		content, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		_, err = tw.Write(content)
		return err
	})
	must(t, errors.Join(err, tw.Close()))
	return out.Bytes()
}

func TestNamesAndSizes(t *testing.T) {
	long := strings.Repeat("x", 99)
	for name, tree := range map[string]fstest.MapFS{
		"empty tree":        {},
		"100 byte name":     {long + "x": {}},
		"101 byte name":     {long + "xy": {}},
		"prefix and name":   {long + "/" + long: {Data: []byte("p")}},
		"256 bytes in all":  {long + "/" + long + "/" + long[:56]: {Data: []byte("p")}},
		"too long for both": {long + "/" + long + "/" + long: {Data: []byte("p")}},
		"255 byte name":     {strings.Repeat("y", 255): {Data: []byte("p")}},
		"not ASCII":         {"grün/日本語.txt": {Data: []byte("u")}, "a": {}},
		"control character": {"a\nb": {}, "c\x7f": {}},
		"lexical order":     {"a/z": {}, "a.b": {}, "a-b/c": {}, "a": {Mode: fs.ModeDir}},
		"block sizes":       {"0": {}, "1": {Data: make([]byte, 511)}, "2": {Data: make([]byte, 512)}, "3": {Data: make([]byte, 513)}},
		"executable bits":   {"u": {Mode: 0o700}, "g": {Mode: 0o010}, "o": {Mode: 0o001}, "none": {Mode: 0}, "all": {Mode: 0o7777}},
		"large files":       {"1": {Data: make([]byte, 1<<20)}, "2": {Data: make([]byte, 1<<20+1)}, "3": {Data: []byte("s")}, "4": {Data: make([]byte, 5<<20-7)}},
		"many files":        many(5000),
	} {
		t.Run(name, func(t *testing.T) {
			if got, want := tarOf(t, tree), oracle(t, tree); !bytes.Equal(got, want) {
				t.Errorf("%d bytes differ from the %d of archive/tar", len(got), len(want))
			}
		})
	}
}

// many returns a tree of n small files in directories of one hundred files.
func many(n int) fstest.MapFS {
	tree := fstest.MapFS{}
	for i := range n {
		tree[fmt.Sprintf("d%03d/f%02d", i/100, i%100)] = &fstest.MapFile{Data: []byte(strings.Repeat(fmt.Sprint(i), i%977))}
	}
	return tree
}

// latin1 is a tree with a name that is not UTF-8, as in Git trees.
type latin1 struct{ fstest.MapFS }

func (l latin1) ReadDir(string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(l.MapFS, ".")
	return []fs.DirEntry{renamedEntry{entries[0], "gr\xfcn"}}, err
}

func (l latin1) Open(name string) (fs.File, error) {
	if name == "gr\xfcn" {
		name = "a.txt"
	}
	return l.MapFS.Open(name)
}

// renamedEntry is a directory entry under another name.
type renamedEntry struct {
	fs.DirEntry
	name string
}

func (r renamedEntry) Name() string { return r.name }

func TestNameThatIsNotUTF8(t *testing.T) {
	archive := tarOf(t, latin1{golden()})
	tree, err := artifact.Read(bytes.NewReader(archive), artifact.Limits{})
	must(t, err)
	defer tree.Close()
	if got, err := fs.ReadFile(tree, "gr\xfcn"); string(got) != "hello\n" {
		t.Errorf("read %q, %v", got, err)
	}
	if again := tarOf(t, tree); !bytes.Equal(again, archive) {
		t.Error("not the same archive again")
	}
}

// invalidNamesFS is a tree whose root lists the given names, valid or not.
type invalidNamesFS struct {
	fstest.MapFS
	names []string
}

func (e invalidNamesFS) ReadDir(string) ([]fs.DirEntry, error) {
	list, err := fs.ReadDir(e.MapFS, ".")
	var renamedList []fs.DirEntry
	for _, name := range e.names {
		renamedList = append(renamedList, renamedEntry{list[0], name})
	}
	return renamedList, err
}

func TestHostileNames(t *testing.T) {
	for _, name := range []string{"", ".", "..", "a/b", "../a", `a\b`, "a\x00b"} {
		_, err := artifact.Pack(t.Context(), io.Discard, invalidNamesFS{golden(), []string{name}})
		if !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("name %q: %v, want fs.ErrInvalid", name, err)
		}
	}
}

// omittingFS is a tree that leaves out the entry of a directory.
type omittingFS struct {
	fstest.MapFS
	dir string
}

func (o omittingFS) Omits(dir string) bool { return dir == o.dir }

func TestOmittedDirectory(t *testing.T) {
	archive := tarOf(t, omittingFS{golden(), "bin"})
	var names []string
	for tr := tar.NewReader(bytes.NewReader(archive)); ; {
		hdr, err := tr.Next()
		if err != nil {
			break
		}
		names = append(names, hdr.Name)
	}
	if want := []string{".", "a.txt", "bin/run.sh", "empty"}; !slices.Equal(names, want) {
		t.Errorf("entries %q, want %q", names, want)
	}
	testenv.Equal(t, sum(tarOf(t, omittingFS{golden(), "."})), goldenTar, "the root can be omitted")
}

func TestLeftOutIsBounded(t *testing.T) {
	tree := fstest.MapFS{}
	for i := range 1500 {
		tree[fmt.Sprintf("l%04d", i)] = &fstest.MapFile{Mode: fs.ModeNamedPipe}
	}
	report, err := artifact.Tar(t.Context(), io.Discard, tree)
	if err != nil || report.LeftOutTotal != 1500 || len(report.LeftOut) != 1000 || report.Files != 0 {
		t.Errorf("%d of %d names, %d files, %v", len(report.LeftOut), report.LeftOutTotal, report.Files, err)
	}
}

// noise returns n bytes that do not compress.
func noise(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{}).Read(b)
	return b
}
