package main

import (
	"archive/tar"
	"io"
	"strings"

	"github.com/headgate-io/headgate/artifact"
)

// readTree reads the stored artifact a as a tree. An index of charts is no
// archive: it is the file index.yaml of one.
func readTree(r io.Reader, a artifact.Artifact, l artifact.Limits) (*artifact.Tree, error) {
	if !isIndex(a) {
		return artifact.Read(r, l)
	}
	archive, w := io.Pipe()
	defer archive.Close()
	go func() {
		t := tar.NewWriter(w)
		err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "index.yaml", Size: a.Size, Mode: 0o644})
		if err == nil {
			_, err = io.Copy(t, r)
		}
		if err == nil {
			err = t.Close()
		}
		w.CloseWithError(err)
	}()
	return artifact.Read(archive, l)
}

// isIndex reports whether a is the artifact of a PkgRepository.
func isIndex(a artifact.Artifact) bool { return strings.HasPrefix(a.Path, "pkgrepository/") }
