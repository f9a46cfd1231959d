package headgate_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/lock"
)

var update = flag.Bool("update", false, "write the golden lock anew")

// memoryBucket is a bucket whose objects have their text as ETag.
type memoryBucket []bucket.Object

func (m memoryBucket) List(context.Context, string) iter.Seq2[bucket.Object, error] {
	return func(yield func(bucket.Object, error) bool) {
		for _, o := range m {
			if !yield(o, nil) {
				return
			}
		}
	}
}

func (m memoryBucket) Open(_ context.Context, o bucket.Object, offset int64) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader(o.ETag[offset:])), nil
}

// archive returns files in a tar.gz whose bytes do not depend on a compressor.
func archive(t *testing.T, names ...string) []byte {
	var entries []testenv.TarEntry
	for i := 0; i < len(names); i += 2 {
		entries = append(entries, testenv.TarEntry{Header: tar.Header{Typeflag: tar.TypeReg, Name: names[i], Mode: 0o644}, Data: []byte(names[i+1])})
	}
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.NoCompression)
	must(t, err)
	_, err = z.Write(testenv.Tar(t, entries...))
	must(t, err)
	must(t, z.Close())
	return out.Bytes()
}

// A lock of all kinds, and all its digests, are the same on every operating system.
func TestLockGolden(t *testing.T) {
	app, lib := testenv.NewRepo(t), testenv.NewRepo(t)
	app.AnnotatedTag("v1.0.0", app.Commit(testenv.Commit{Branch: "master", Message: "first", Files: files("app.yaml", "kind: App\n", "values.yaml", "size: 2\n")}), "first release")
	lib.Commit(testenv.Commit{Branch: "master", Message: "first", Files: files("lib.yaml", "kind: Lib\n", "charts/umbrella/values.yaml", "size: 1\n",
		"charts/umbrella/Chart.yaml", "apiVersion: v2\nname: umbrella\nversion: 0.1.0\ndependencies: [{name: web, version: 1.x, repository: https://charts.example.org}]\n")})
	charts, layout := t.TempDir(), t.TempDir()
	index := "apiVersion: v1\nentries:\n  web:\n"
	for _, version := range []string{"1.1.0", "1.0.0"} {
		chart := archive(t, "web/Chart.yaml", "apiVersion: v2\nname: web\nversion: "+version+"\n", "web/values.yaml", "")
		must(t, os.WriteFile(filepath.Join(charts, "web-"+version+".tgz"), chart, 0o600))
		index += fmt.Sprintf("  - {name: web, version: %s, digest: %x, urls: [web-%s.tgz]}\n", version, sha256.Sum256(chart), version)
	}
	must(t, os.WriteFile(filepath.Join(charts, "index.yaml"), []byte(index), 0o600))
	must(t, os.MkdirAll(filepath.Join(layout, "blobs", "sha256"), 0o700))
	blob := func(text []byte) string {
		sum := fmt.Sprintf("%x", sha256.Sum256(text))
		must(t, os.WriteFile(filepath.Join(layout, "blobs", "sha256", sum), text, 0o600))
		return fmt.Sprintf(`"digest":"sha256:%s","size":%d`, sum, len(text))
	}
	config, layer := blob([]byte("{}")), blob(archive(t, "platform.yaml", "kind: Platform\n"))
	manifest := blob(fmt.Appendf(nil, `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.empty.v1+json",%s},"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip",%s}]}`, config, layer))
	must(t, os.WriteFile(filepath.Join(layout, "oci-layout"), []byte(`{"imageLayoutVersion":"1.0.0"}`), 0o600))
	must(t, os.WriteFile(filepath.Join(layout, "index.json"), fmt.Appendf(nil, `{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json",%s,"annotations":{"org.opencontainers.image.ref.name":"v1"}}]}`, manifest), 0o600))
	objects := memoryBucket{{Key: "a/logo", ETag: "picture", Size: 7}, {Key: "b", ETag: "text", Size: 4}}
	options := headgate.Options{
		Origins: headgate.Origins{Buckets: map[string]bucket.Provider{"generic": func(context.Context, *bucket.Access) (bucket.Driver, error) { return objects, nil }}},
		Env: source.Env{Local: map[string]string{
			"https://git.example.org/team/app.git": app.Dir, "https://git.example.org/team/lib.git": lib.Dir,
			"https://charts.example.org": charts, "oci://registry.example.org/team/platform": layout,
		}},
	}
	fetch := func(entries lock.Entries, locked bool) lock.Entries {
		set := new(source.Set)
		must(t, set.DecodeFS(os.DirFS("testdata/lock"), "sources.yaml"))
		options.Store, options.Lock, options.Locked = openStore(t), entries, locked
		all := lock.Entries{}
		for r, err := range headgate.Fetch(t.Context(), set, options) {
			must(t, err)
			all[source.ReferenceTo(r.Object)] = r.Entry
		}
		return all
	}
	const file = "testdata/lock/headgate.lock"
	entries := fetch(lock.Entries{}, false)
	text, err := entries.Encode()
	must(t, err)
	if *update {
		must(t, os.WriteFile(file, text, 0o644))
	}
	want, err := os.ReadFile(file)
	must(t, err)
	if !slices.Equal(text, want) {
		t.Errorf("the lock is\n%s\nwant\n%s", text, want)
	}
	golden, err := lock.Read(bytes.NewReader(want))
	must(t, err)
	fetch(golden, true)
	objects[1].ETag = "more"
	fetchFails := func() (failed bool) {
		set := new(source.Set)
		must(t, set.DecodeFS(os.DirFS("testdata/lock"), "sources.yaml"))
		options.Store = openStore(t)
		for _, err := range headgate.Fetch(t.Context(), set, options) {
			failed = failed || err != nil
		}
		requireEmpty(t, options.Store)
		return failed
	}
	if !fetchFails() {
		t.Error("an object that was overwritten was fetched")
	}
}
