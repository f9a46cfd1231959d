package artifact_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/iotest"

	"github.com/klauspost/compress/zstd"

	"github.com/headgate-io/headgate/artifact"
)

// archived makes an archive of raw entries; a file's content is its Linkname
// repeated to Size.
func archived(t testing.TB, entries ...tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	tw := tar.NewWriter(&out)
	for _, hdr := range entries {
		content := hdr.Linkname
		if hdr.Typeflag == tar.TypeReg {
			hdr.Linkname = ""
		}
		if err := tw.WriteHeader(&hdr); err != nil {
			t.Fatal(err)
		}
		if hdr.Typeflag == tar.TypeReg {
			if _, err := io.WriteString(tw, strings.Repeat(content, int(hdr.Size)/max(1, len(content)))); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
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
	if _, err := zw.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := zw.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// opened reads an archive that must read.
func opened(t *testing.T, archive []byte) *artifact.Tree {
	t.Helper()
	tree, err := artifact.Read(bytes.NewReader(archive), artifact.Limits{})
	if err != nil {
		t.Fatal(err)
	}
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
			if err != nil {
				t.Fatal(err)
			}
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
		_, err3 := tree.ReadFile(name)
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
	if _, err := tree.ReadFile("bin"); err == nil {
		t.Error("a directory was read")
	}
}

func TestTreeIsSafeForConcurrentUse(t *testing.T) {
	source := many(500)
	tree := opened(t, tarOf(t, source))
	var running sync.WaitGroup
	for range 8 {
		running.Go(func() {
			for name, want := range source {
				if got, err := tree.ReadFile(name); err != nil || !bytes.Equal(got, want.Data) {
					t.Errorf("%s: %d bytes, %v", name, len(got), err)
				}
			}
		})
	}
	running.Wait()
}

func TestTreeAfterClose(t *testing.T) {
	tree := opened(t, tarOf(t, golden()))
	f, err := tree.Open("a.txt")
	if err != nil {
		t.Fatal(err)
	}
	if err := tree.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(f); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("open file: %v, want fs.ErrClosed", err)
	}
	if _, err := tree.ReadFile("a.txt"); !errors.Is(err, fs.ErrClosed) {
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
			if got := entriesOf(t, tree); got != test.want {
				t.Errorf("holds %q, want %q", got, test.want)
			}
			for _, r := range []io.Reader{iotest.OneByteReader(bytes.NewReader(test.archive)), iotest.DataErrReader(bytes.NewReader(test.archive))} {
				tree, err := artifact.Read(r, artifact.Limits{})
				if err != nil {
					t.Fatal(err)
				}
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

// retyped gives the first entry another type.
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

// entriesOf lists the entries of a tree, the root aside, in lexical order.
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
	if err != nil {
		t.Fatal(err)
	}
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

func TestReadRefuses(t *testing.T) {
	plain := archived(t, file("a", strings.Repeat("text ", 1000)), file("b", "2"))
	packed := compressed(t, plain)
	hostile := func(entries ...tar.Header) []byte { return archived(t, entries...) }
	damagedAt := func(b []byte, i int) []byte {
		b = bytes.Clone(b)
		b[i] ^= 0xff
		return b
	}
	sparse := append(retyped(archived(t, file("pax", "22 GNU.sparse.major=0\n22 GNU.sparse.minor=1\n26 GNU.sparse.numblocks=1\n22 GNU.sparse.map=0,1\n21 GNU.sparse.size=1\n")), 'x')[:1024], archived(t, file("holes", "1"))...)
	gnu := file("holes", "")
	gnu.Format = tar.FormatGNU
	paxThenEnd := archived(t, file(strings.Repeat("n", 300), ""))[:1024]
	for name, test := range map[string]struct {
		archive []byte
		want    string // in the error
	}{
		"empty input":            {nil, "empty"},
		"short input":            {[]byte("not an archive"), "ends after 14 bytes"},
		"text":                   {bytes.Repeat([]byte("text"), 1000), "invalid tar header"},
		"text in gzip":           {compressed(t, bytes.Repeat([]byte("text"), 1000)), "invalid tar header"},
		"xz":                     {[]byte("\xfd7zXZ\x00 rest"), "xz"},
		"bzip2":                  {[]byte("BZh9 rest"), "bzip2"},
		"zip":                    {[]byte("PK\x03\x04 rest"), "zip"},
		"error page":             {[]byte("<!DOCTYPE html>"), "HTML"},
		"error document":         {[]byte(`{"message": "not found"}`), "JSON"},
		"absolute name":          {hostile(file("/etc/passwd", "")), "absolute"},
		"parent":                 {hostile(file("..", "")), "out of the archive"},
		"parent first":           {hostile(file("../a", "")), "out of the archive"},
		"parent inside":          {hostile(file("a/../../b", "")), "out of the archive"},
		"parent as directory":    {hostile(dir("a/../")), "out of the archive"},
		"backslash":              {hostile(file(`..\a`, "")), "backslash"},
		"link with hostile name": {hostile(tar.Header{Typeflag: tar.TypeSymlink, Name: "../l"}), "out of the archive"},
		"empty name":             {hostile(file("", "")), "empty"},
		"file as root":           {hostile(file(".", "")), "type"},
		"file and directory":     {hostile(file("a", ""), dir("a")), "both a file and a directory"},
		"file as parent":         {hostile(file("a", ""), file("a/b", "")), "both a file and a directory"},
		"parent as file":         {hostile(file("a/b", ""), file("a", "")), "both a file and a directory"},
		"sparse":                 {sparse, "sparse"},
		"sparse, GNU":            {retyped(hostile(gnu), 'S'), "sparse"},
		"unknown type":           {hostile(tar.Header{Typeflag: 'Z', Name: "z"}), "type 'Z'"},
		"contiguous file":        {hostile(tar.Header{Typeflag: tar.TypeCont, Name: "z"}), "type '7'"},
		"no end":                 {plain[:len(plain)-1024], "truncated"},
		"cut in padding":         {plain[:len(plain)-1200], "truncated"},
		"cut in content":         {plain[:1000], "unexpected EOF"},
		"cut in header":          {plain[:700], "unexpected EOF"},
		"cut after PAX header":   {paxThenEnd, "truncated"},
		"cut gzip":               {packed[:len(packed)-20], "unexpected EOF"},
		"cut gzip trailer":       {packed[:len(packed)-3], "unexpected EOF"},
		"cut gzip header":        {packed[:5], "EOF"},
		"bad gzip checksum":      {damagedAt(packed, len(packed)-6), "checksum"},
		"damaged gzip":           {damagedAt(packed, 30), ""},
		"data after end":         {append(bytes.Clone(plain), plain...), "data follows"},
		"data after end in gzip": {compressed(t, append(bytes.Clone(plain), "x"...)), "data follows"},
		"data after gzip":        {append(bytes.Clone(packed), "garbage"...), ""},
		"bad header checksum":    {damagedAt(plain, 3), "invalid tar header"},
	} {
		t.Run(name, func(t *testing.T) {
			before := openFiles(t)
			_, err := artifact.Read(bytes.NewReader(test.archive), artifact.Limits{})
			if !errors.Is(err, artifact.ErrFormat) || !strings.Contains(fmt.Sprint(err), test.want) {
				t.Errorf("error %v, want ErrFormat and %q", err, test.want)
			}
			if after := openFiles(t); after > before {
				t.Errorf("%d open files, %d before", after, before)
			}
		})
	}
}

// openFiles counts this process's open files, where the system tells.
func openFiles(t *testing.T) int {
	t.Helper()
	if runtime.GOOS != "linux" {
		return 0
	}
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// longNames returns n entries with names of 4096 bytes.
func longNames(n int) []tar.Header {
	var list []tar.Header
	for i := range n {
		list = append(list, dir(fmt.Sprintf("%04096d", i)))
	}
	return list
}

func TestReadLimits(t *testing.T) {
	bomb := compressed(t, archived(t, tar.Header{Typeflag: tar.TypeReg, Name: "zeros", Size: 20 << 20, Linkname: "\x00"}))
	deep := strings.Repeat("d/", 1000) + "f"
	for name, test := range map[string]struct {
		archive []byte
		limit   artifact.Limits
		want    string
	}{
		"bytes":                 {bomb, artifact.Limits{Bytes: 1 << 20}, "more than 1048576 bytes in the archive"},
		"bytes, not packed":     {archived(t, file("a", strings.Repeat("x", 4096))), artifact.Limits{Bytes: 4096}, "4096 bytes in the archive"},
		"file bytes":            {archived(t, file("a", "12"), file("b", "123")), artifact.Limits{FileBytes: 2}, `"b" has more than 2 bytes`},
		"entries":               {archived(t, file("a", ""), dir("b"), file("c", "")), artifact.Limits{Entries: 2}, "more than 2 entries"},
		"links":                 {archived(t, tar.Header{Typeflag: tar.TypeSymlink, Name: "a"}, tar.Header{Typeflag: tar.TypeSymlink, Name: "b"}), artifact.Limits{Entries: 1}, "more than 1 entries"},
		"name bytes":            {archived(t, file("abcdef", "")), artifact.Limits{NameBytes: 5}, "more than 5 bytes in its name"},
		"all names":             {archived(t, longNames(300)...), artifact.Limits{Entries: 300}, "more than 1048576 bytes in all names"},
		"default name bytes":    {archived(t, file(strings.Repeat("n", 4097), "")), artifact.Limits{}, "more than 4096 bytes in its name"},
		"implied directories":   {archived(t, file(deep, "")), artifact.Limits{Entries: 999}, "more than 999 directories"},
		"ratio":                 {bomb, artifact.Limits{Ratio: 100}, "more than 100 bytes for each compressed byte"},
		"default ratio, no end": {compressed(t, make([]byte, 24<<20)), artifact.Limits{}, "for each compressed byte"},
		"zeros against a size":  {archived(t, tar.Header{Typeflag: tar.TypeReg, Name: "zeros", Size: 4 << 20, Linkname: "\x00"}), artifact.Limits{Bytes: 2 << 20}, "bytes in the archive"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := artifact.Read(bytes.NewReader(test.archive), test.limit)
			var limit *artifact.LimitError
			if !errors.As(err, &limit) || errors.Is(err, artifact.ErrFormat) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want a LimitError with %q", err, test.want)
			}
		})
	}
	t.Run("no limit", func(t *testing.T) {
		tree, err := artifact.Read(bytes.NewReader(bomb), artifact.Limits{Bytes: -1, FileBytes: -1, Entries: -1, NameBytes: -1, Ratio: -1})
		if err != nil {
			t.Fatal(err)
		}
		tree.Close()
	})
}

// TestReadKeepsNamesOnly has headers of 1 MiB with short names in them: only
// the names may stay in memory.
func TestReadKeepsNamesOnly(t *testing.T) {
	comment := strings.Repeat("c", 1<<20-100)
	var entries []tar.Header
	for i := range 40 {
		name := fmt.Sprintf("ü%d", i) // no header but PAX can hold it
		entries = append(entries, tar.Header{Typeflag: tar.TypeReg, Name: name, PAXRecords: map[string]string{"comment": comment}})
	}
	archive := archived(t, entries...)
	before := liveBytes()
	tree := opened(t, archive)
	if grown := liveBytes() - before; grown > 8<<20 {
		t.Errorf("the tree holds %d bytes", grown)
	}
	runtime.KeepAlive(archive)
	if got := tree.Report().Files; got != len(entries) {
		t.Errorf("%d files", got)
	}
}

func TestReadPassesErrorsOn(t *testing.T) {
	broken := errors.New("connection reset")
	packed := compressed(t, tarOf(t, fstest.MapFS{"a": {Data: noise(1 << 20)}}))
	for _, n := range []int{0, 1, 100, 4000, 600 << 10, len(packed)} {
		r := io.MultiReader(bytes.NewReader(packed[:n]), failingReader{broken})
		if _, err := artifact.Read(r, artifact.Limits{}); !errors.Is(err, broken) || errors.Is(err, artifact.ErrFormat) {
			t.Errorf("failing after %d bytes: %v", n, err)
		}
	}
	digest := "sha256:" + strings.Repeat("0", 64)
	r, err := artifact.VerifyReader(bytes.NewReader(packed), digest)
	if err != nil {
		t.Fatal(err)
	}
	var mismatch *artifact.DigestError
	if _, err := artifact.Read(r, artifact.Limits{}); !errors.As(err, &mismatch) || mismatch.Want != digest {
		t.Errorf("wrong digest: %v", err)
	}
}

func TestSpool(t *testing.T) {
	archive := tarOf(t, fstest.MapFS{"a": {Data: noise(1 << 20)}})
	t.Run("cannot be created", func(t *testing.T) {
		full := errors.New("disk full")
		_, err := artifact.Read(bytes.NewReader(archive), artifact.Limits{Temp: func() (*os.File, error) { return nil, full }})
		if !errors.Is(err, full) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("cannot be written", func(t *testing.T) {
		_, err := artifact.Read(bytes.NewReader(archive), artifact.Limits{Temp: func() (*os.File, error) {
			f, err := os.CreateTemp(t.TempDir(), "")
			if err != nil {
				return nil, err
			}
			defer f.Close()
			return os.Open(f.Name())
		}})
		if err == nil || errors.Is(err, artifact.ErrFormat) || !strings.Contains(err.Error(), "write spool") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("leaves no file", func(t *testing.T) {
		dir := t.TempDir()
		t.Setenv("TMPDIR", dir)
		t.Setenv("TMP", dir)
		tree := opened(t, archive)
		if err := tree.Close(); err != nil {
			t.Fatal(err)
		}
		if list, err := os.ReadDir(dir); err != nil || len(list) > 0 {
			t.Errorf("left %v, %v", list, err)
		}
	})
	t.Run("no directory for it", func(t *testing.T) {
		t.Setenv("TMPDIR", t.TempDir()+"/nothing")
		t.Setenv("TMP", t.TempDir()+"/nothing")
		if _, err := artifact.Read(bytes.NewReader(archive), artifact.Limits{}); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("error %v", err)
		}
	})
}

// FuzzRead reads anything; what it accepts packs, and reads back the same.
func FuzzRead(f *testing.F) {
	plain := archived(f, dir("d"), file("d/a", "1"), file("b", "2"), tar.Header{Typeflag: tar.TypeSymlink, Name: "l", Linkname: "b"})
	f.Add(plain)
	f.Add(compressed(f, plain))
	f.Add(zstandard(f, plain))
	f.Add(append(skipped("size"), zstandard(f, plain, zstd.WithEncoderCRC(false), zstd.WithWindowSize(1<<10))...))
	f.Add(append(zstandard(f, plain[:512]), zstandard(f, plain[512:], zstd.WithSingleSegment(true))...))
	f.Add(plain[:1000])
	f.Add(archived(f))
	f.Add(archived(f, file(strings.Repeat("n/", 140)+"f", "1"), file("ü", "2")))
	f.Add(archived(f, file("../a", "")))
	f.Add(v7(archived(f, file("a", "1"))))
	limit := artifact.Limits{Bytes: 1 << 20, FileBytes: 1 << 18, Entries: 1000, NameBytes: 300}
	f.Fuzz(func(t *testing.T, data []byte) {
		tree, err := artifact.Read(bytes.NewReader(data), limit)
		if err != nil {
			return
		}
		defer tree.Close()
		var first, second bytes.Buffer
		if _, err := artifact.Tar(t.Context(), &first, tree); err != nil {
			t.Fatal(err)
		}
		again, err := artifact.Read(bytes.NewReader(first.Bytes()), artifact.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		defer again.Close()
		if _, err := artifact.Tar(t.Context(), &second, again); err != nil || !bytes.Equal(first.Bytes(), second.Bytes()) {
			t.Errorf("the second round differs: %v", err)
		}
	})
}
