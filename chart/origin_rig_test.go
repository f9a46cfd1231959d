package chart_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/chart"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// A workshop reconciles charts, and has the sources that they are made of.
type workshop struct {
	*testing.T
	*sourcetest.Rig
	objects      []source.Object
	opened       int // how often an artifact was opened
	unread       int // artifacts that were opened and not closed
	secrets      sourcetest.Secrets
	technologies map[string]oci.Technology
	limits       artifact.Limits
}

func newWorkshop(t *testing.T, secrets ...string) *workshop {
	t.Helper()
	w := &workshop{T: t, secrets: sourcetest.Secrets{}}
	w.Rig = sourcetest.NewRig(t, func() []string { return secrets })
	var mu sync.Mutex // dependencies are fetched in parallel
	var spools []*os.File
	w.limits.Temp = func() (*os.File, error) {
		f, err := w.Store.Temp()
		mu.Lock()
		defer mu.Unlock()
		spools = append(spools, f)
		return f, err
	}
	t.Cleanup(func() {
		for _, f := range spools {
			if _, err := f.Stat(); !errors.Is(err, os.ErrClosed) {
				t.Errorf("a spool was not closed: %v", err)
				break
			}
		}
		if w.unread != 0 {
			t.Errorf("%d artifacts were not closed", w.unread)
		}
	})
	return w
}

func (w *workshop) inventory() *source.Inventory {
	return &source.Inventory{Objects: w.objects, Store: w.Store}
}

// Source implements [source.Sources].
func (w *workshop) Source(ctx context.Context, ref source.Reference) (source.Object, error) {
	return w.inventory().Source(ctx, ref)
}

// List implements [source.Sources].
func (w *workshop) List(ctx context.Context, kind, namespace string) ([]source.Object, error) {
	return w.inventory().List(ctx, kind, namespace)
}

// Open implements [source.Sources].
func (w *workshop) Open(ctx context.Context, a artifact.Artifact) (io.ReadCloser, error) {
	r, err := w.inventory().Open(ctx, a)
	if err != nil {
		return nil, err
	}
	w.opened++
	w.unread++
	return &watched{r, w, false}, nil
}

type watched struct {
	io.ReadCloser
	w      *workshop
	closed bool
}

func (r *watched) Close() error {
	if !r.closed {
		r.closed = true
		r.w.unread--
	}
	return r.ReadCloser.Close()
}

func (w *workshop) env() source.Env {
	return source.Env{Sources: w, Secrets: w.secrets, Limits: w.limits}
}

// add makes obj, called KIND/NAME, one of the sources, in place of one before it.
func (w *workshop) add(obj source.Object, name string) {
	m := &obj.Head().Metadata
	m.Name, m.Namespace = name, "apps"
	source.Default(obj)
	ref := source.ReferenceTo(obj)
	w.objects = slices.DeleteFunc(w.objects, func(o source.Object) bool { return source.ReferenceTo(o) == ref })
	w.objects = append(w.objects, obj)
}

// put makes what write writes the artifact of obj.
func (w *workshop) put(obj source.Object, name, revision string, write func(io.Writer) error) {
	w.Helper()
	w.add(obj, name)
	dir, err := source.Address(obj)
	if err != nil {
		w.Fatal(err)
	}
	a, err := w.Store.Put(w.Context(), dir, "source.tar.gz", write)
	if err != nil {
		w.Fatal(err)
	}
	a.Revision = revision
	obj.Common().Artifact = &a
}

// tree makes files, written NAME TEXT and so on, the artifact of obj.
func (w *workshop) tree(obj source.Object, name, revision string, files fstest.MapFS) {
	w.Helper()
	w.put(obj, name, revision, func(to io.Writer) error {
		_, err := artifact.Pack(w.Context(), to, files)
		return err
	})
}

// files returns a tree of NAME, TEXT, NAME, TEXT and so on.
func files(pairs ...string) fstest.MapFS {
	tree := fstest.MapFS{}
	for i := 0; i < len(pairs); i += 2 {
		tree[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1]), Mode: 0o644}
	}
	return tree
}

// simple returns the files of a chart in a directory, and further ones beside it.
func simple(dir, name, version string, further ...string) fstest.MapFS {
	tree := files(further...)
	for file, text := range map[string]string{
		"Chart.yaml":         fmt.Sprintf("apiVersion: v2\nname: %s\nversion: %s\n", name, version),
		"values.yaml":        "a: 1\nb: {c: 2, d: 3}\n",
		"templates/all.yaml": "kind: ConfigMap\n",
	} {
		tree[path.Join(dir, file)] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
	}
	return tree
}

// made returns a chart from KIND/NAME.
func made(from, in string, edit func(*source.PkgChartSpec)) *source.PkgChart {
	kind, name, _ := strings.Cut(from, "/")
	c := &source.PkgChart{
		Header: source.Header{APIVersion: "source.headgate.dev/v1", Kind: "PkgChart",
			Metadata: source.Metadata{Name: "app", Namespace: "apps", Generation: 3}},
		Spec: source.PkgChartSpec{Chart: in, Interval: source.Duration(time.Hour),
			SourceRef: source.LocalChartSourceReference{Kind: kind, Name: name}},
	}
	if edit != nil {
		edit(&c.Spec)
	}
	source.Default(c)
	return c
}

func (w *workshop) origin(c *source.PkgChart) *chart.Origin {
	return chart.New(c, w.env(), w.technologies)
}

// run reconciles c and demands the outcome.
func (w *workshop) run(c *source.PkgChart, want source.Outcome) source.Result {
	w.Helper()
	result, err := w.Reconcile(c, w.origin(c))
	if result.Outcome != want {
		w.Fatalf("outcome %q because %q, error %v; want %q", result.Outcome, result.Why, err, want)
	}
	return result
}

// fails reconciles c, which has no artifact or the one that goes by before, and
// demands a failure that leaves it alone.
func (w *workshop) fails(c *source.PkgChart, before *artifact.Artifact, outcome source.Outcome, reason string, says ...string) source.Result {
	w.Helper()
	result := w.Refused(c, w.origin(c), before, reason, says...)
	if result.Outcome != outcome {
		w.Errorf("outcome %q, want %q", result.Outcome, outcome)
	}
	return result
}

// conditions returns TYPE=STATUS/REASON of all conditions.
func conditionsOf(c *source.PkgChart) string {
	var list []string
	for _, c := range c.Status.Conditions {
		list = append(list, fmt.Sprintf("%s=%s/%s", c.Type, c.Status, c.Reason))
	}
	return strings.Join(list, " ")
}

const (
	rev1 = "main@sha1:0123456789abcdef0123456789abcdef01234567"
	rev2 = "main@sha1:89abcdef0123456789abcdef0123456789abcdef"
)

// bytes returns an artifact as it is.
func (w *workshop) bytes(a *artifact.Artifact) string {
	w.Helper()
	r, err := w.Store.Open(*a)
	if err != nil {
		w.Fatal(err)
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		w.Fatal(err)
	}
	return string(text)
}

// tgz returns an archive of files.
func tgz(t *testing.T, files map[string]string) []byte { return testenv.ChartArchive(t, files) }

func writes(text []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	}
}

// linked returns the archive of a chart whose Chart.lock is a link.
func linked(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	zw := gzip.NewWriter(&b)
	tw := tar.NewWriter(zw)
	text := "apiVersion: v2\nname: app\nversion: 1.0.0\n"
	err := tw.WriteHeader(&tar.Header{Name: "app/Chart.yaml", Mode: 0o644, Size: int64(len(text))})
	if err == nil {
		_, err = io.WriteString(tw, text)
	}
	if err == nil {
		err = tw.WriteHeader(&tar.Header{Name: "app/Chart.lock", Typeflag: tar.TypeSymlink, Linkname: "../../etc/passwd"})
	}
	if err = errors.Join(err, tw.Close(), zw.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
