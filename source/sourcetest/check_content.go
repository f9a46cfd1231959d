package sourcetest

import (
	"bytes"
	"cmp"
	"io"
	"io/fs"
	"path"
	"testing/fstest"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
)

func resolveIsStable(t TB, k Kind) {
	b := newBench(t, k)
	b.publish(sample())
	origin := b.up.Origin(b.up.Object())
	before := b.up.Traffic().Content
	var first source.Revision
	var state source.State
	for i := range 3 { // without state, with it, and again
		rev, next, err := origin.Resolve(t.Context(), state)
		switch {
		case err != nil:
			t.Fatalf("resolve: %v", err)
		case i == 0:
			first = rev
		case rev.ID != first.ID || rev.File != first.File:
			t.Errorf("resolved %s (%s), then %s (%s)", first.ID, first.File, rev.ID, rev.File)
		}
		state = next
	}
	if first.ID == "" || first.File == "" {
		t.Errorf("revision %+v lacks ID or File", first)
	}
	if read := b.up.Traffic().Content - before; read != 0 && !k.ReadsContent {
		t.Errorf("resolve read %d units of content", read)
	}
}

func newContentIsNewRevision(t TB, k Kind) {
	b := newBench(t, k)
	b.publish(tree("a", "one\n"))
	first := b.want(source.Stored).Artifact()
	b.publish(tree("a", "two\n"))
	obj := b.want(source.Stored)
	second := obj.Artifact()
	if first.Revision == second.Revision || first.Digest == second.Digest || first.Path == second.Path {
		t.Errorf("artifact of new content is %+v, that of the old one was %+v", second, first)
	}
	e, ok := b.event(cmp.Or(k.Said, "NewArtifact"))
	if !ok || e.Severity != "info" || e.Metadata["source.toolkit.fluxcd.io/revision"] != second.Revision ||
		e.Metadata["source.toolkit.fluxcd.io/digest"] != second.Digest {
		t.Errorf("event about the new artifact is %+v", e)
	}
	b.holds(second, tree("a", "two\n"))
}

func sameTreeSameBytes(t TB, k Kind) {
	var first []byte
	for i := range 2 {
		b := newBench(t, k)
		if i == 1 {
			b.publish(tree("other", "history\n"))
			b.want(source.Stored)
		}
		b.publish(sample())
		served := b.served(b.want(source.Stored).Artifact())
		if i == 1 && !bytes.Equal(first, served) {
			t.Errorf("two upstreams with one tree made artifacts of %d and %d bytes that differ", len(first), len(served))
		}
		first = served
	}
}

func readsBack(t TB, k Kind) {
	b := newBench(t, k)
	b.publish(sample())
	obj := b.want(source.Stored)
	b.holds(obj.Artifact(), sample())
	if a := obj.Artifact(); a.Size != int64(len(b.served(a))) || a.LastUpdateTime.IsZero() {
		t.Errorf("artifact of %d bytes is recorded as %+v", len(b.served(a)), a)
	}
}

func unchangedDoesNotFetch(t TB, k Kind) {
	b := newBench(t, k)
	b.publish(sample())
	first := b.want(source.Stored)
	before := b.up.Traffic().Content
	second := b.want(source.Unchanged)
	if read := b.up.Traffic().Content - before; read != 0 && !k.ReadsContent {
		t.Errorf("unchanged upstream served %d units of content", read)
	}
	if !sameArtifact(first.Artifact(), second.Artifact()) {
		t.Errorf("artifact changed from %+v to %+v", first.Artifact(), second.Artifact())
	}
	if e, ok := b.event("ArtifactUpToDate"); !ok || e.Severity != "trace" {
		t.Errorf("event ArtifactUpToDate is %+v", e)
	}
	if before, now := b.json(first), b.json(second); !bytes.Equal(before, now) {
		t.Errorf("document changed from %s to %s", before, now)
	}
}

func driftFetches(t TB, k Kind) {
	b := newBench(t, k)
	b.publish(sample())
	first := b.want(source.Stored)
	obj := b.up.Object()
	k.Drift(obj)
	b.wantOf(obj, source.Stored)
	if obj.Head().Metadata.Generation != first.Head().Metadata.Generation+1 {
		t.Errorf("generation %d, after a change of the spec %d", first.Head().Metadata.Generation, obj.Head().Metadata.Generation)
	}
	again := b.up.Object()
	k.Drift(again)
	b.wantOf(again, source.Unchanged)
	b.want(source.Stored) // drift back
}

func ignoreFiles(t TB, k Kind) {
	b := newBench(t, k)
	published := tree(
		"a.tmp", "", "keep.tmp", "", "a.log", "", "sub/x.tmp", "", "sub/a.log", "", "sub/deep/b.log", "",
		k.IgnoreFile, "*.tmp\n!keep.tmp\n",
	)
	want := tree("keep.tmp", "", "a.log", "", "sub/a.log", "", "sub/deep/b.log", "")
	if k.IgnoreNested {
		published["sub/"+k.IgnoreFile] = &fstest.MapFile{Data: []byte("*.log\n"), Mode: 0o644}
		delete(want, "sub/a.log")
		delete(want, "sub/deep/b.log")
	}
	b.publish(published)
	b.holds(b.want(source.Stored).Artifact(), want)
}

// holds checks that the artifact holds the files of want and no others, ignore files aside.
func (b *bench) holds(a *artifact.Artifact, want fstest.MapFS) {
	b.Helper()
	r, err := b.store.Open(*a)
	if err != nil {
		b.Fatalf("open artifact: %v", err)
	}
	defer r.Close()
	got, err := b.read(r)
	if err != nil {
		b.Fatalf("read artifact: %v", err)
	}
	under, err := fs.Sub(got, path.Join(".", b.kind.Under))
	if err != nil {
		b.Fatalf("read artifact: %v", err)
	}
	seen := 0
	err = fs.WalkDir(under, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == b.kind.IgnoreFile {
			return err
		}
		file := want[name]
		if file == nil {
			b.Errorf("artifact holds %s, which is not to be in it", name)
			return nil
		}
		seen++
		b.sameFile(under, name, file)
		return nil
	})
	if err != nil {
		b.Fatalf("read artifact: %v", err)
	}
	if seen != len(want) {
		b.Errorf("artifact holds %d of %d files", seen, len(want))
	}
}

// read returns the files of an artifact.
func (b *bench) read(r io.Reader) (fs.FS, error) {
	if b.kind.Read != nil {
		return b.kind.Read(r)
	}
	tree, err := artifact.Read(r, artifact.Limits{})
	if err == nil {
		b.Cleanup(func() { tree.Close() })
	}
	return tree, err
}

// sameFile compares one file of an artifact with what was published.
func (b *bench) sameFile(got fs.FS, name string, want *fstest.MapFile) {
	b.Helper()
	data, err := fs.ReadFile(got, name)
	if err != nil || !bytes.Equal(data, want.Data) {
		b.Errorf("%s has %d bytes (error %v), which are not the %d bytes published", name, len(data), err, len(want.Data))
	}
	info, err := fs.Stat(got, name)
	if err != nil {
		b.Errorf("stat: %v", err)
		return
	}
	if executable := info.Mode()&0o100 != 0; executable != (want.Mode&0o100 != 0) && !b.kind.LosesModes {
		b.Errorf("%s has mode %v, published was %v", name, info.Mode(), want.Mode)
	}
}
