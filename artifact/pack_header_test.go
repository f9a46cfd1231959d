package artifact

import (
	"archive/tar"
	"bytes"
	"strings"
	"testing"
)

// FuzzHeader compares our headers with those of archive/tar.
func FuzzHeader(f *testing.F) {
	f.Add("a.txt", int64(6), false)
	f.Add("日本語/ü", int64(0), true)
	f.Add("8 GiB less one", int64(1<<33-1), false)
	f.Add("8 GiB", int64(1<<33), true)
	f.Add("10 GB", int64(10e9), true)
	f.Add("", int64(0), false)
	f.Add("a\x00b", int64(0), false)
	f.Add("control\n\x7f", int64(1), false)
	f.Add("d/0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789", int64(1), false)
	f.Fuzz(func(t *testing.T, name string, size int64, exec bool) {
		mode := int64(modeFile)
		if exec {
			mode = modeExec
		}
		for _, header := range []tar.Header{
			{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: size},
			{Typeflag: tar.TypeDir, Name: name, Mode: modeDir},
		} {
			if header.Size < 0 || strings.HasSuffix(name, "/") {
				return // no walk gives these
			}
			var want bytes.Buffer
			wantErr := tar.NewWriter(&want).WriteHeader(&header)
			got, err := appendHeader(nil, name, header.Mode, header.Size)
			if (err == nil) != (wantErr == nil) || !bytes.Equal(got, want.Bytes()) {
				t.Errorf("%q of %d bytes: %q, %v; want %q, %v", name, header.Size, got, err, want.Bytes(), wantErr)
			}
		}
	})
}
