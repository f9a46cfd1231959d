package source_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// signed is the defect of a directory whose spec requires a signature.
const signed sourcetest.Defect = "signed directory"

func TestDirConforms(t *testing.T) {
	kind := sourcetest.Kind{
		Name:  "directory",
		Open:  func(t sourcetest.TB) sourcetest.Upstream { return &directory{top: t.TempDir()} },
		Drift: func(obj source.Object) { obj.(*source.GitRepository).Spec.Ignore = new("*.md\n") },
		Failures: []sourcetest.Failure{
			{Defect: sourcetest.Gone, Outcome: source.Failed, Condition: source.FetchFailedCondition, Reason: "GitOperationFailed", Message: "local directory"},
			{Defect: signed, Outcome: source.Failed, Condition: source.SourceVerifiedCondition, Reason: "VerificationError", Message: "it has no signature"},
		},
		IgnoreFile:   ".sourceignore",
		IgnoreNested: true,
		LosesModes:   filepath.Separator == '\\',
		ReadsContent: true,
	}
	if !kind.LosesModes {
		kind.Hostile = []string{`a\b`}
	}
	sourcetest.Run(t, kind)
}

// A directory is an upstream with a directory as content.
type directory struct {
	top    string
	defect sourcetest.Defect
}

func (d *directory) path() string {
	if d.defect == sourcetest.Gone {
		return filepath.Join(d.top, "gone")
	}
	return filepath.Join(d.top, "tree")
}

func (d *directory) Publish(tree fstest.MapFS) error {
	if err := os.RemoveAll(filepath.Join(d.top, "tree")); err != nil {
		return err
	}
	for name, file := range tree {
		name = filepath.Join(d.top, "tree", filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, file.Data, file.Mode); err != nil {
			return err
		}
	}
	return nil
}

func (d *directory) Break(defect sourcetest.Defect) <-chan struct{} {
	d.defect = defect
	return nil
}

func (d *directory) Object() source.Object {
	g := repository()
	if d.defect == signed {
		g.Spec.Verify = &source.GitRepositoryVerification{Mode: source.VerifyHEAD}
	}
	return g
}

func (d *directory) Origin(obj source.Object) source.Origin {
	ignore := artifact.DefaultIgnore()
	if extra := obj.(*source.GitRepository).Spec.Ignore; extra != nil {
		ignore.Extra = *extra
	}
	return source.Dir(obj, d.path(), source.DirView{Ignore: ignore})
}

func (d *directory) Traffic() sourcetest.Traffic { return sourcetest.Traffic{} }
func (d *directory) Secrets() []string           { return []string{"canary-in-url"} }

// repository returns an object that a document could have described.
func repository() *source.GitRepository {
	g := new(source.GitRepository)
	g.APIVersion, g.Kind = "source.headgate.dev/v1", "GitRepository"
	g.Metadata.Namespace, g.Metadata.Name = "apps", "sample"
	g.Spec.URL = "https://user:canary-in-url@git.example.org/sample"
	g.Spec.Interval, g.Spec.Timeout = source.Duration(time.Hour), source.Duration(time.Minute)
	return g
}

// The golden vector of reference A6: the revision is the digest of the tar stream.
func TestDirRevision(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(
		os.WriteFile(filepath.Join(dir, "a.txt"), []byte("hello\n"), 0o644),
		os.Mkdir(filepath.Join(dir, "bin"), 0o755),
		os.WriteFile(filepath.Join(dir, "bin", "run.sh"), []byte("#!/bin/sh\n"), 0o755),
		os.Mkdir(filepath.Join(dir, "empty"), 0o755),
	); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("a.txt", filepath.Join(dir, "link")); err != nil && filepath.Separator == '/' {
		t.Fatal(err)
	}
	const sum = "5863177f1fb932dabc3b34d84857abd231a0b3202f7a60a94502c1def7d1b194"
	rev, _, err := source.Dir(repository(), dir, source.DirView{}).Resolve(t.Context(), nil)
	must(t, err)
	if filepath.Separator == '/' && (rev.ID != "local@sha256:"+sum || rev.File != sum+".tar.gz") {
		t.Errorf("revision %+v", rev)
	}
}

func TestDirStaysInside(t *testing.T) {
	if filepath.Separator != '/' {
		t.Log("symbolic links need a privilege here")
		return
	}
	top := t.TempDir()
	dir := filepath.Join(top, "tree")
	if err := errors.Join(
		os.Mkdir(dir, 0o755),
		os.WriteFile(filepath.Join(top, "outside"), []byte("*\n"), 0o644),
		os.Symlink("../outside", filepath.Join(dir, ".sourceignore")),
		os.Symlink("..", filepath.Join(dir, "up")),
		os.WriteFile(filepath.Join(dir, "file"), []byte("content\n"), 0o644),
	); err != nil {
		t.Fatal(err)
	}
	report, archive, err := fetch(t.Context(), source.Dir(repository(), dir, source.DirView{Ignore: artifact.DefaultIgnore()}))
	must(t, err)
	if report.Files != 1 || report.LeftOutTotal != 2 {
		t.Errorf("report %+v", report)
	}
	tree, err := artifact.Read(bytes.NewReader(archive), artifact.Limits{})
	must(t, err)
	defer tree.Close()
	if data, err := fs.ReadFile(tree, "file"); string(data) != "content\n" {
		t.Errorf("file holds %q, error %v", data, err)
	}
}

// fetch runs an origin without a reconciler.
func fetch(ctx context.Context, o source.Origin) (source.Report, []byte, error) {
	rev, _, err := o.Resolve(ctx, nil)
	if err != nil {
		return source.Report{}, nil, err
	}
	c, err := o.Open(ctx, rev)
	if err != nil {
		return source.Report{}, nil, err
	}
	defer c.Close()
	var out bytes.Buffer
	report, err := c.WriteTo(ctx, &out)
	return report, out.Bytes(), err
}

func TestDirErrors(t *testing.T) {
	top := t.TempDir()
	file := filepath.Join(top, "file")
	must(t, os.WriteFile(file, nil, 0o644))
	_, _, err := fetch(t.Context(), source.Dir(repository(), filepath.Join(top, "none"), source.DirView{}))
	testenv.ErrorIs(t, err, fs.ErrNotExist, "no such directory")
	_, _, err = fetch(t.Context(), source.Dir(repository(), file, source.DirView{}))
	testenv.ErrorSays(t, err, file, "a file")
	long := artifact.Ignore{Extra: strings.Repeat("a", 1<<16)}
	_, _, err = fetch(t.Context(), source.Dir(repository(), top, source.DirView{Ignore: long}))
	testenv.ErrorSays(t, err, top, "bad pattern")

	o := source.Dir(repository(), top, source.DirView{})
	rev, _, err := o.Resolve(t.Context(), nil)
	must(t, err)
	c, err := o.Open(t.Context(), rev)
	must(t, err)
	defer c.Close()
	must(t, os.WriteFile(file, []byte("changed\n"), 0o644))
	var step *source.StepError
	if _, err := c.WriteTo(t.Context(), io.Discard); !errors.As(err, &step) || step.Step != source.StepFetch || !strings.Contains(err.Error(), "changed while") {
		t.Errorf("changed directory: %v", err)
	}
	_, err = c.WriteTo(t.Context(), failingWriter{})
	testenv.ErrorIs(t, err, io.ErrClosedPipe, "broken writer")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.WriteTo(ctx, io.Discard)
	testenv.ErrorIs(t, err, context.Canceled, "cancelled")
}

// failingWriter is a writer that fails.
type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
