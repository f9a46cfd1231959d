package artifact_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"testing/iotest"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
)

// archived returns an archive of raw entries. The content of a file is its Linkname repeated to
// Size.
func archived(t testing.TB, entries ...tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	tw := tar.NewWriter(&out)
	for _, hdr := range entries {
		content := hdr.Linkname
		if hdr.Typeflag == tar.TypeReg {
			hdr.Linkname = ""
		}
		must(t, tw.WriteHeader(&hdr))
		if hdr.Typeflag == tar.TypeReg {
			must(t, second(io.WriteString(tw, strings.Repeat(content, int(hdr.Size)/max(1, len(content))))))
		}
	}
	must(t, tw.Close())
	return out.Bytes()
}

// file is an entry of [archived].
func file(name, content string) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(content)), Linkname: content}
}

func dir(name string) tar.Header {
	return tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755}
}

func compressed(t testing.TB, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	zw := gzip.NewWriter(&out)
	must(t, second(zw.Write(data)))
	must(t, zw.Close())
	return out.Bytes()
}

// opened reads an archive, which must succeed.
func opened(t *testing.T, archive []byte) *artifact.Tree {
	t.Helper()
	tree, err := artifact.Read(bytes.NewReader(archive), artifact.Limits{})
	must(t, err)
	t.Cleanup(func() { tree.Close() })
	return tree
}

func TestReadBack(t *testing.T) {
	for name, tree := range map[string]fstest.MapFS{
		"golden": golden(),
		"empty":  {},
		"many":   many(2000),
		"large":  {"a/large": {Data: noise(3 << 20)}, "b": {}},
	} {
		t.Run(name, func(t *testing.T) {
			var packed bytes.Buffer
			packReport, err := artifact.Pack(t.Context(), &packed, tree)
			must(t, err)
			read := opened(t, packed.Bytes())
			if again := tarOf(t, read); !bytes.Equal(again, tarOf(t, tree)) {
				t.Error("packed, read and packed again: other bytes")
			}
			report := read.Report()
			if report.Files != packReport.Files || report.Dirs != packReport.Dirs || report.Bytes != packReport.Bytes {
				t.Errorf("report %+v, packed %+v", report, packReport)
			}
		})
	}
}

func TestTreeIsAFileSystem(t *testing.T) {
	tree := opened(t, tarOf(t, golden()))
	if err := fstest.TestFS(tree, "a.txt", "bin/run.sh", "empty"); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]fs.FileMode{".": fs.ModeDir | 0o755, "a.txt": 0o644, "bin/run.sh": 0o755, "empty": fs.ModeDir | 0o755} {
		if info, err := tree.Stat(name); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", name, info, err, want)
		}
	}
	for _, name := range []string{"nothing", "a.txt/below", "bin/nothing", "a", "b"} {
		_, err := tree.Open(name)
		_, err2 := tree.ReadDir(name)
		_, err3 := fs.ReadFile(tree, name)
		_, err4 := tree.Stat(name)
		for _, err := range []error{err, err2, err3, err4} {
			if !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %v, want fs.ErrNotExist", name, err)
			}
		}
	}
	for _, name := range []string{"", "/a.txt", "../a.txt", "bin/", "bin/../a.txt"} {
		if _, err := tree.Open(name); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("open %q: %v, want fs.ErrInvalid", name, err)
		}
	}
	if _, err := tree.ReadDir("a.txt"); err == nil {
		t.Error("a file was listed")
	}
	if _, err := fs.ReadFile(tree, "bin"); err == nil {
		t.Error("a directory was read")
	}
}

func TestTreeAfterClose(t *testing.T) {
	tree := opened(t, tarOf(t, golden()))
	f, err := tree.Open("a.txt")
	must(t, err)
	must(t, tree.Close())
	if _, err := io.ReadAll(f); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("open file: %v, want fs.ErrClosed", err)
	}
	if _, err := fs.ReadFile(tree, "a.txt"); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("ReadFile: %v, want fs.ErrClosed", err)
	}
}

func TestReadAccepts(t *testing.T) {
	plain := archived(t, file("a", "1"))
	for name, test := range map[string]struct {
		archive []byte
		want    string // NAME=CONTENT or NAME/ of every entry
	}{
		"empty archive":           {archived(t), ""},
		"tar":                     {plain, "a=1"},
		"gzip":                    {compressed(t, plain), "a=1"},
		"several gzip members":    {append(compressed(t, plain[:512]), compressed(t, plain[512:])...), "a=1"},
		"padded to a record":      {append(bytes.Clone(plain), make([]byte, 10240)...), "a=1"},
		"one zero block at end":   {plain[:len(plain)-512], "a=1"},
		"dot slash":               {archived(t, dir("./"), file("./a", "1"), dir("./d/")), "a=1 d/"},
		"empty and dot parts":     {archived(t, file("x//y/./z", "1")), "x/ x/y/ x/y/z=1"},
		"no directory entries":    {archived(t, file("x/y/z", "1")), "x/ x/y/ x/y/z=1"},
		"directory after file":    {archived(t, file("x/y", "1"), dir("x")), "x/ x/y=1"},
		"later file wins":         {archived(t, file("a", "first"), file("b", "2"), file("a", "1")), "a=1 b=2"},
		"directory twice":         {archived(t, dir("d"), file("d/a", "1"), dir("d")), "d/ d/a=1"},
		"names that sort oddly":   {archived(t, file("a.b", "1"), file("a/z", "2"), file("a-b", "3")), "a/ a/z=2 a-b=3 a.b=1"},
		"long name":               {archived(t, file(strings.Repeat("n", 3000), "1")), strings.Repeat("n", 3000) + "=1"},
		"dots in names":           {archived(t, file("...", "1"), file("..a", "2"), file("a..", "3")), "...=1 ..a=2 a..=3"},
		"git archive's comment":   {archived(t, tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "0123"}}, file("a", "1")), "a=1"},
		"old archive, no magic":   {v7(plain), "a=1"},
		"looks like JSON, is tar": {archived(t, file("{", "1")), "{=1"},
		"links and devices": {archived(t,
			tar.Header{Typeflag: tar.TypeSymlink, Name: "s", Linkname: "/etc"}, file("s/a", "1"),
			tar.Header{Typeflag: tar.TypeLink, Name: "h", Linkname: "s/a"},
			tar.Header{Typeflag: tar.TypeChar, Name: "c"}, tar.Header{Typeflag: tar.TypeBlock, Name: "b"},
			tar.Header{Typeflag: tar.TypeFifo, Name: "p"}), "s/ s/a=1"},
	} {
		t.Run(name, func(t *testing.T) {
			tree := opened(t, test.archive)
			testenv.Equal(t, entriesOf(t, tree), test.want, "holds")
			for _, r := range []io.Reader{iotest.OneByteReader(bytes.NewReader(test.archive)), iotest.DataErrReader(bytes.NewReader(test.archive))} {
				tree, err := artifact.Read(r, artifact.Limits{})
				must(t, err)
				tree.Close()
			}
		})
	}
}

// v7 turns a one-entry archive into the format that preceded USTAR.
func v7(archive []byte) []byte {
	archive = bytes.Clone(archive)
	clear(archive[257:512])
	return summed(archive)
}

// retyped changes the type of the first entry.
func retyped(archive []byte, typeflag byte) []byte {
	archive = bytes.Clone(archive)
	archive[156] = typeflag
	return summed(archive)
}

// summed corrects the checksum of the first header.
func summed(archive []byte) []byte {
	header := archive[:512]
	copy(header[148:], "        ")
	var sum int
	for _, b := range header {
		sum += int(b)
	}
	copy(header[148:], fmt.Sprintf("%06o\x00 ", sum))
	return archive
}

// entriesOf lists the entries of a tree, except the root, in lexical order.
func entriesOf(t *testing.T, tree fs.FS) string {
	t.Helper()
	var list []string
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		if d.IsDir() {
			list = append(list, name+"/")
			return nil
		}
		content, err := fs.ReadFile(tree, name)
		list = append(list, name+"="+string(content))
		return err
	})
	must(t, err)
	return strings.Join(list, " ")
}

func TestReadReportsLinks(t *testing.T) {
	tree := opened(t, archived(t,
		tar.Header{Typeflag: tar.TypeSymlink, Name: "./s", Linkname: "/etc"},
		tar.Header{Typeflag: tar.TypeLink, Name: "h", Linkname: "s"},
		tar.Header{Typeflag: tar.TypeFifo, Name: "d/p"}))
	want := []artifact.LeftOut{{Name: "s", Mode: fs.ModeSymlink}, {Name: "h", Mode: fs.ModeIrregular}, {Name: "d/p", Mode: fs.ModeNamedPipe}}
	if got := tree.Report(); !slices.Equal(got.LeftOut, want) || got.LeftOutTotal != 3 {
		t.Errorf("left out %v, want %v", got, want)
	}
}
