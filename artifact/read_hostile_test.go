package artifact_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/klauspost/compress/zstd"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
)

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
			_, err := artifact.Read(bytes.NewReader(test.archive), artifact.Limits{Temp: testenv.NewTempFiles(t).Create})
			if !errors.Is(err, artifact.ErrFormat) || !strings.Contains(fmt.Sprint(err), test.want) {
				t.Errorf("error %v, want ErrFormat and %q", err, test.want)
			}
		})
	}
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
		must(t, err)
		tree.Close()
	})
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
	must(t, err)
	var mismatch *artifact.DigestError
	if _, err := artifact.Read(r, artifact.Limits{}); !errors.As(err, &mismatch) || mismatch.Want != digest {
		t.Errorf("wrong digest: %v", err)
	}
}

// FuzzRead reads arbitrary input; accepted input can be packed and reads back the same.
func FuzzRead(f *testing.F) {
	plain := archived(f, dir("d"), file("d/a", "1"), file("b", "2"), tar.Header{Typeflag: tar.TypeSymlink, Name: "l", Linkname: "b"})
	f.Add(plain)
	f.Add(compressed(f, plain))
	f.Add(zstandard(f, plain))
	f.Add(append(skippableFrame("size"), zstandard(f, plain, zstd.WithEncoderCRC(false), zstd.WithWindowSize(1<<10))...))
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
		var once, twice bytes.Buffer
		must(t, second(artifact.Tar(t.Context(), &once, tree)))
		again, err := artifact.Read(bytes.NewReader(once.Bytes()), artifact.Limits{})
		must(t, err)
		defer again.Close()
		if _, err := artifact.Tar(t.Context(), &twice, again); err != nil || !bytes.Equal(once.Bytes(), twice.Bytes()) {
			t.Errorf("the second round differs: %v", err)
		}
	})
}
