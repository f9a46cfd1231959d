package oci_test

import (
	"archive/tar"
	"slices"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// oddEntry is what a layer holds besides a good file.
type oddEntry struct {
	name   string
	header tar.Header
	data   string
	says   string // part of the error; "": the layer is taken without the entry
}

var oddEntries = []oddEntry{
	{name: "hard link to a file outside", header: tar.Header{Typeflag: tar.TypeLink, Name: "odd", Linkname: "/etc/passwd"}},
	{name: "hard link to a file inside", header: tar.Header{Typeflag: tar.TypeLink, Name: "odd", Linkname: "good"}},
	{name: "hard link that climbs", header: tar.Header{Typeflag: tar.TypeLink, Name: "odd", Linkname: "../../../etc/passwd"}},
	{name: "symbolic link outside", header: tar.Header{Typeflag: tar.TypeSymlink, Name: "odd", Linkname: "/etc"}},
	{name: "symbolic link that climbs", header: tar.Header{Typeflag: tar.TypeSymlink, Name: "odd", Linkname: "../.."}},
	{name: "character device", header: tar.Header{Typeflag: tar.TypeChar, Name: "odd", Devmajor: 1, Devminor: 3}},
	{name: "block device", header: tar.Header{Typeflag: tar.TypeBlock, Name: "odd", Devmajor: 8}},
	{name: "named pipe", header: tar.Header{Typeflag: tar.TypeFifo, Name: "odd"}},
	{name: "type that is none", header: tar.Header{Typeflag: 'Z', Name: "odd"}, says: "has type"},
	{name: "name that climbs", header: tar.Header{Typeflag: tar.TypeReg, Name: "../odd"}, data: "odd", says: "../odd"},
	{name: "name that climbs from inside", header: tar.Header{Typeflag: tar.TypeReg, Name: "a/../../odd"}, data: "odd", says: "a/../../odd"},
	{name: "absolute name", header: tar.Header{Typeflag: tar.TypeReg, Name: "/etc/odd"}, data: "odd", says: "/etc/odd"},
	{name: "name of another system", header: tar.Header{Typeflag: tar.TypeReg, Name: `..\odd`}, data: "odd", says: "odd"},
	{name: "symbolic link with a climbing name", header: tar.Header{Typeflag: tar.TypeSymlink, Name: "../odd", Linkname: "x"}, says: "../odd"},
}

// No entry of a layer leads out of the artifact, and none is anything but a
// file or a directory: others are left out, and told of.
func TestOddEntries(t *testing.T) {
	for _, e := range oddEntries {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, testenv.RegistryConfig{})
			good := testenv.Entry{Header: tar.Header{Typeflag: tar.TypeReg, Name: "good", Mode: 0o644}, Data: []byte("good\n")}
			through := testenv.Entry{Header: tar.Header{Typeflag: tar.TypeReg, Name: "after", Mode: 0o644}, Data: []byte("after\n")}
			r.push(testenv.Blob{MediaType: testenv.LayerTar, Data: testenv.Tar(t, good, testenv.Entry{Header: e.header, Data: []byte(e.data)}, through)})
			obj := r.object("app", nil)
			if e.says != "" {
				r.refused(obj, nil, layerFailed, e.says)
				return
			}
			result, err := r.reconcile(obj)
			if err != nil || result.Outcome != source.Stored {
				t.Fatalf("outcome %q, error %v", result.Outcome, err)
			}
			if names := r.Names(obj.Artifact()); !slices.Equal(names, []string{"after", "good"}) {
				t.Errorf("the artifact holds %q", names)
			}
			if left := result.Report.LeftOut; len(left) != 1 || left[0].Name != "odd" || result.Report.LeftOutTotal != 1 {
				t.Errorf("left out %+v", left)
			}
		})
	}
}

// A link that is left out leads nowhere: what is below its name is a file of its own.
func TestFileBehindALink(t *testing.T) {
	r := newRig(t, testenv.RegistryConfig{})
	r.push(testenv.Blob{MediaType: testenv.LayerTar, Data: testenv.Tar(t,
		testenv.Entry{Header: tar.Header{Typeflag: tar.TypeSymlink, Name: "out", Linkname: "/tmp"}},
		testenv.Entry{Header: tar.Header{Typeflag: tar.TypeReg, Name: "out/file", Mode: 0o644}, Data: []byte("x")})})
	obj := r.object("app", nil)
	r.stored(obj)
	if names := r.Names(obj.Artifact()); !slices.Equal(names, []string{"out/file"}) {
		t.Errorf("the artifact holds %q", names)
	}
}
