package git_test

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
)

// A includedSources holds sources that can be included, with their artifacts in a store.
type includedSources struct {
	t       *testing.T
	dir     string
	objects []source.Object
	store   *artifact.Store
	opened  atomic.Int64 // how often an artifact was opened
}

func newIncludedSources(t *testing.T) *includedSources {
	p := &includedSources{t: t, dir: t.TempDir()}
	var err error
	if p.store, err = artifact.OpenStore(artifact.StoreConfig{Dir: p.dir}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.store.Close() })
	return p
}

// env returns an environment in which the sources of the includedSources exist.
func (p *includedSources) env() source.Env { return source.Env{Sources: p} }

func (p *includedSources) inventory() *source.Inventory {
	return &source.Inventory{Objects: p.objects, Store: p.store, Client: &artifact.Client{Attempts: 1}}
}

func (p *includedSources) Source(ctx context.Context, ref source.Reference) (source.Object, error) {
	return p.inventory().Source(ctx, ref)
}

func (p *includedSources) List(ctx context.Context, kind, namespace string) ([]source.Object, error) {
	return p.inventory().List(ctx, kind, namespace)
}

func (p *includedSources) Open(ctx context.Context, a artifact.Artifact) (io.ReadCloser, error) {
	p.opened.Add(1)
	return p.inventory().Open(ctx, a)
}

// put stores what write writes as the artifact of obj, which gets the name.
func (p *includedSources) put(obj source.Object, name string, write func(io.Writer) error) {
	p.t.Helper()
	obj.Head().Metadata.Name = name
	source.Default(obj)
	if write != nil {
		dir, err := source.Address(obj)
		if err != nil {
			p.t.Fatal(err)
		}
		a, err := p.store.Put(p.t.Context(), dir, name+".tar.gz", write)
		if err != nil {
			p.t.Fatal(err)
		}
		a.Revision = "main@sha1:" + name
		obj.Common().Artifact = &a
	}
	p.objects = append(p.objects, obj)
}

// tree stores a tree as the artifact of a GitRepository.
func (p *includedSources) tree(name string, tree fstest.MapFS) {
	p.t.Helper()
	p.put(new(source.GitRepository), name, pack(tree))
}

func pack(tree fstest.MapFS) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := artifact.Pack(context.Background(), w, tree)
		return err
	}
}

// including returns an object at the branch main that includes things, written
// KIND/NAME:FROM:TO.
func including(url string, includes ...string) *source.GitRepository {
	g := object(url, source.GitRepositoryRef{Branch: "main"})
	for _, text := range includes {
		part := strings.Split(text+"::", ":")
		i := source.GitRepositoryInclude{FromPath: part[1], ToPath: part[2]}
		i.Repository.Name = part[0]
		if kind, name, found := strings.Cut(part[0], "/"); found {
			i.Repository.Kind, i.Repository.Name = kind, name
		}
		g.Spec.Include = append(g.Spec.Include, i)
	}
	return g
}

// atURL is the URL of repositories and directories that stand in for it.
const atURL = "https://git.example.org/app"

// own is the tree of the repository that includes others.
func own() fstest.MapFS {
	return files("app.yaml", "own", "base/a.yaml", "own a", "base/deep/x.yaml", "own x", "logo.png", "png")
}

// library is a tree that others include.
func library() fstest.MapFS {
	tree := files("base/a.yaml", "lib a", "base/b.yaml", "lib b", "charts/web/Chart.yaml", "web", "docs/d.md", "d", "base/deep/y.yaml", "lib y")
	tree["charts/run.sh"] = &fstest.MapFile{Data: []byte("#!"), Mode: 0o755}
	return tree
}

// filled returns a includedSources of what the tests include.
func filled(t *testing.T) *includedSources {
	p := newIncludedSources(t)
	p.tree("lib", library())
	p.tree("other", files("base/a.yaml", "other a", "base/c.yaml", "other c"))
	p.tree("strict", files("keep.yaml", "k", "drop.tmp", "d", "sub/drop.log", "l", ".sourceignore", "*.tmp\n", "sub/.sourceignore", "*.log\n"))
	p.tree("blocks", files("base", "a file"))
	p.tree("folder", files("app.yaml/x", "a folder"))
	p.put(new(source.Bucket), "data", pack(files("data.csv", "1,2")))
	p.put(new(source.OCIRepository), "image", pack(files("manifest.yaml", "m")))
	p.put(new(source.PkgChart), "chart", tgz(map[string]string{"web/Chart.yaml": "name: web", "web/templates/x.yaml": "x"}))
	p.put(new(source.PkgRepository), "index", func(w io.Writer) error {
		_, err := io.WriteString(w, "apiVersion: v1\nentries: {}\n"+strings.Repeat("# index\n", 200))
		return err
	})
	p.put(new(source.GitRepository), "empty", nil)
	p.put(new(source.GitRepository), "damaged", pack(files("x", "x")))
	p.put(new(source.GitRepository), "gone", pack(files("y", "y")))
	p.put(new(source.GitRepository), "unchecked", pack(files("z", "z")))
	for _, obj := range p.objects {
		a := obj.Artifact()
		switch name := filepath.Join(p.dir, addressOf(a)); obj.Head().Metadata.Name {
		case "damaged":
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			data[len(data)/2] ^= 1
			if err := os.WriteFile(name, data, 0o600); err != nil {
				t.Fatal(err)
			}
		case "gone":
			if err := os.Remove(name); err != nil {
				t.Fatal(err)
			}
		case "unchecked":
			a.Digest = ""
		}
	}
	return p
}

func addressOf(a *artifact.Artifact) string {
	if a == nil {
		return ""
	}
	return filepath.FromSlash(a.Path)
}

// tgz writes an archive as other programs do, with the names as they are.
func tgz(names map[string]string) func(io.Writer) error {
	return func(w io.Writer) error {
		zw := gzip.NewWriter(w)
		tw := tar.NewWriter(zw)
		for _, name := range slices.Sorted(maps.Keys(names)) {
			h := &tar.Header{Name: name, Mode: 0o644, Size: int64(len(names[name])), Typeflag: tar.TypeReg}
			if target, link := strings.CutPrefix(names[name], "-> "); link {
				h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, target, 0
			}
			if err := tw.WriteHeader(h); err != nil {
				return err
			}
			if h.Size > 0 {
				if _, err := io.WriteString(tw, names[name]); err != nil {
					return err
				}
			}
		}
		return errors.Join(tw.Close(), zw.Close())
	}
}

// lines writes the files of an archive, one a line.
func lines(m map[string]string) string {
	var all []string
	for name, text := range m {
		all = append(all, name+"="+strings.TrimSpace(text))
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}
