package chart_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"path"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/chart"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/oci/cosign"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// chartCanary is a password that may show nowhere.
const chartCanary = "cAnArY-passw0rd/+="

// under is where the trees that the suite publishes lie in a chart.
const under = "app/files"

// wrapped returns the files of version of a chart that holds tree. Names of tree
// stay as they are, so that they may lead out of the chart.
func wrapped(dir, version string, tree fstest.MapFS) fstest.MapFS {
	all := files(dir+"/Chart.yaml", "apiVersion: v2\nname: app\nversion: "+version+"\n", dir+"/values.yaml", "a: 1\n")
	for name, file := range tree {
		if !path.IsAbs(name) {
			name = dir + "/files/" + name
		}
		all[name] = file
	}
	return all
}

// A depot is a source of charts, for the conformance suite.
type depot struct {
	t         *testing.T
	store     *artifact.Store
	inventory *source.Inventory
	secrets   sourcetest.Secrets
	version   string // that is published
	defect    sourcetest.Defect
	opened    int64         // how often an artifact was opened
	met       chan struct{} // closed once reading an artifact stalls

	publish func(d *depot, before string, tree fstest.MapFS) error // d.version, in place of the version before
	spoil   func(defect sourcetest.Defect) <-chan struct{}
	traffic func() sourcetest.Traffic
	object  func(s *source.PkgChartSpec, defect sourcetest.Defect)
	source  source.Object
}

func newDepot(t *testing.T, obj source.Object) *depot {
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	obj.Head().Metadata = source.Metadata{Name: "src", Namespace: "apps"}
	source.Default(obj)
	return &depot{t: t, store: store, secrets: sourcetest.Secrets{}, source: obj, inventory: &source.Inventory{Objects: []source.Object{obj}, Store: store}}
}

func (d *depot) Publish(tree fstest.MapFS) error {
	before := d.version
	d.version = versionOf(tree)
	return d.publish(d, before, tree)
}

// versionOf returns a version that tells tree from others.
func versionOf(tree fstest.MapFS) string {
	sum := crc32.NewIEEE()
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		fmt.Fprintf(sum, "%q %q %v\n", name, tree[name].Data, tree[name].Mode)
	}
	return fmt.Sprintf("1.0.%d", sum.Sum32())
}

func (d *depot) Break(defect sourcetest.Defect) <-chan struct{} {
	d.defect = defect
	d.timeout(time.Minute)
	if d.spoil != nil {
		return d.spoil(defect)
	}
	d.met = make(chan struct{})
	return d.met
}

// timeout sets that of the source.
func (d *depot) timeout(to time.Duration) {
	switch obj := d.source.(type) {
	case *source.PkgRepository:
		obj.Spec.Timeout = source.Duration(to)
	case *source.GitRepository:
		obj.Spec.Timeout = source.Duration(to)
	case *source.OCIRepository:
		obj.Spec.Timeout = source.Duration(to)
	}
}

func (d *depot) Object() source.Object {
	ref := source.ReferenceTo(d.source)
	c := made(ref.Kind+"/"+ref.Name, "app", func(s *source.PkgChartSpec) {
		if d.object != nil {
			d.object(s, d.defect)
		}
	})
	c.Metadata.Generation = 0 // the ledger assigns it
	return c
}

func (d *depot) Origin(obj source.Object) source.Origin {
	return chart.New(obj.(*source.PkgChart), source.Env{Sources: d, Secrets: d.secrets}, map[string]oci.Technology{"cosign": cosign.New(cosign.Config{})})
}

func (d *depot) Traffic() sourcetest.Traffic {
	if d.traffic != nil {
		return d.traffic()
	}
	return sourcetest.Traffic{Requests: int(d.opened), Content: d.opened}
}

func (d *depot) Secrets() []string {
	return []string{chartCanary, base64.StdEncoding.EncodeToString([]byte("user:" + chartCanary))}
}

// Source implements [source.Sources].
func (d *depot) Source(ctx context.Context, ref source.Reference) (source.Object, error) {
	return d.inventory.Source(ctx, ref)
}

// List implements [source.Sources].
func (d *depot) List(ctx context.Context, kind, namespace string) ([]source.Object, error) {
	return d.inventory.List(ctx, kind, namespace)
}

// Open implements [source.Sources].
func (d *depot) Open(ctx context.Context, a artifact.Artifact) (io.ReadCloser, error) {
	d.opened++
	r, err := d.inventory.Open(ctx, a)
	if err == nil && d.spoil == nil && (d.defect == sourcetest.StallFetch || d.defect == sourcetest.Truncated) {
		r = &spoiled{ReadCloser: r, d: d, ctx: ctx}
	}
	return r, err
}

// A spoiled artifact stalls or ends after a few bytes.
type spoiled struct {
	io.ReadCloser
	d    *depot
	ctx  context.Context
	read bool
}

func (s *spoiled) Read(p []byte) (int, error) {
	if !s.read {
		s.read = true
		return s.ReadCloser.Read(p[:10])
	}
	if s.d.defect == sourcetest.Truncated {
		return 0, io.ErrUnexpectedEOF
	}
	close(s.d.met)
	<-s.ctx.Done()
	return 0, context.Cause(s.ctx)
}

// put stores what write writes as the artifact of the source.
func (d *depot) put(file, revision string, write func(io.Writer) error) error {
	dir, err := source.Address(d.source)
	if err != nil {
		return err
	}
	a, err := d.store.Put(d.t.Context(), dir, file, write)
	if err == nil {
		a.Revision = revision
		d.source.Common().Artifact = &a
	}
	return err
}

// inTree publishes charts in the artifact of a source: a directory, or an archive
// as it comes out of a registry.
func inTree(t *testing.T, obj source.Object, whole bool) *depot {
	d := newDepot(t, obj)
	d.publish = func(d *depot, _ string, tree fstest.MapFS) error {
		version := d.version
		all := wrapped("app", version, tree)
		if !whole {
			all["README.md"] = &fstest.MapFile{}
		}
		return d.put("source.tar.gz", "main@sha1:0123456789abcdef"+version, func(w io.Writer) error {
			if whole {
				_, err := w.Write(testenv.TarGzip(t, all).Data)
				return err
			}
			_, err := artifact.Pack(t.Context(), w, all)
			return err
		})
	}
	d.object = func(s *source.PkgChartSpec, defect sourcetest.Defect) {
		switch defect {
		case sourcetest.Gone:
			s.Chart = "elsewhere"
		case sourcetest.Invalid:
			s.ValuesFiles = []string{"../x"}
		case sourcetest.Waits:
			s.ValuesFiles = []string{"source:absent/x"}
		case noValues:
			s.ValuesFiles = []string{"absent.yaml"}
		}
	}
	return d
}

const (
	noValues   sourcetest.Defect = "no values"
	noVersion  sourcetest.Defect = "no version"
	flipped    sourcetest.Defect = "flipped"
	cut        sourcetest.Defect = "cut"
	misnamed   sourcetest.Defect = "misnamed"
	unsigned   sourcetest.Defect = "unsigned"
	noKeys     sourcetest.Defect = "no keys"
	badName    sourcetest.Defect = "bad name"
	wrongLogin sourcetest.Defect = "wrong login"
)
