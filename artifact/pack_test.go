package artifact_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/artifact"
)

// golden is the tree of reference A6's vector.
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

func TestGoldenVector(t *testing.T) {
	var out bytes.Buffer
	report, err := artifact.Tar(t.Context(), &out, golden())
	if err != nil {
		t.Fatal(err)
	}
	if got := sum(out.Bytes()); out.Len() != 4608 || got != goldenTar {
		t.Errorf("%d bytes with digest %s, want 4608 and %s", out.Len(), got, goldenTar)
	}
	if report.Files != 2 || report.Dirs != 3 || report.Bytes != 16 || report.LeftOutTotal != 1 {
		t.Errorf("report %+v", report)
	}
	if want := []artifact.LeftOut{{Name: "link", Mode: fs.ModeSymlink | 0o777}}; !slices.Equal(report.LeftOut, want) {
		t.Errorf("left out %v, want %v", report.LeftOut, want)
	}
}
