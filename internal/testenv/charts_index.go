package testenv

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"testing"
	"time"

	"github.com/Masterminds/semver/v3"
	"sigs.k8s.io/yaml"
)

// A ChartVersion is one version of a chart, to be put into a repository.
type ChartVersion struct {
	Name, Version string
	Files         map[string]string // of the archive, by their path below the directory NAME; a Chart.yaml, values.yaml and a template are added where it has none
	Archive       []byte            // the archive itself, instead of Files

	File    string         // where the archive is, relative to the repository; "" is NAME-VERSION.tgz
	URLs    []string       // as the index tells them, nil is File alone
	Digest  string         // as the index tells it, "" is the right one in hex
	Created time.Time      // as the index tells it, the zero time is a moment that is later with each chart
	Entry   map[string]any // further fields of the entry in the index; nil takes a field away
}

type chartEntry struct {
	version string
	fields  map[string]any
}

// Put puts a version of a chart, in place of one of the same name and version,
// and returns its archive.
func (s *Charts) Put(v ChartVersion) []byte {
	s.t.Helper()
	archive, fields := s.prepare(v)
	file := cmp.Or(v.File, v.Name+"-"+v.Version+".tgz")
	if v.URLs == nil {
		v.URLs = []string{file}
	}
	fields["urls"] = v.URLs

	s.mu.Lock()
	defer s.mu.Unlock()
	s.touch()
	if v.Created.IsZero() {
		v.Created = s.modified
	}
	fields["created"] = v.Created.Format(time.RFC3339Nano)
	overlay(fields, v.Entry)
	s.drop(v.Name, v.Version)
	s.entries[v.Name] = append(s.entries[v.Name], chartEntry{v.Version, fields})
	s.files[s.place(file)] = chartFile{archive, s.modified}
	return archive
}

// Remove takes a version of a chart off the index. Its archive stays.
func (s *Charts) Remove(name, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.touch()
	s.drop(name, version)
}

func (s *Charts) drop(name, version string) {
	s.entries[name] = slices.DeleteFunc(s.entries[name], func(e chartEntry) bool { return e.version == version })
	if len(s.entries[name]) == 0 {
		delete(s.entries, name)
	}
}

// prepare returns the archive of v and what Chart.yaml makes of its entry.
func (s *Charts) prepare(v ChartVersion) (archive []byte, fields map[string]any) {
	s.t.Helper()
	meta := fmt.Sprintf("apiVersion: v2\nname: %s\nversion: %s\ndescription: A chart for tests\ntype: application\nappVersion: \"1.0\"\n", v.Name, v.Version)
	files := map[string]string{
		"Chart.yaml":               meta,
		"values.yaml":              "replicas: 1\nimage: web:1.0\n",
		"templates/configmap.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}\ndata:\n  replicas: {{ .Values.replicas | quote }}\n",
	}
	maps.Copy(files, v.Files)
	if archive = v.Archive; archive == nil {
		within := make(map[string]string, len(files))
		for name, data := range files {
			within[path.Join(v.Name, name)] = data
		}
		archive = ChartArchive(s.t, within)
	}
	check(s.t, yaml.Unmarshal([]byte(files["Chart.yaml"]), &fields))
	fields["name"], fields["version"] = v.Name, v.Version
	sum := sha256.Sum256(archive)
	fields["digest"] = cmp.Or(v.Digest, hex.EncodeToString(sum[:]))
	return archive, fields
}

func overlay(fields, over map[string]any) {
	for name, value := range over {
		if value == nil {
			delete(fields, name)
			continue
		}
		fields[name] = value
	}
}

// ChartArchive returns a .tgz of files by their paths. The same files make the
// same bytes.
func ChartArchive(t testing.TB, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		check(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(files[name])), ModTime: chartsEpoch, Format: tar.FormatPAX}))
		_, err := w.Write([]byte(files[name]))
		check(t, err)
	}
	check(t, w.Close())
	check(t, z.Close())
	return b.Bytes()
}

// writeIndex writes the index of what the server has: names sorted, of each the
// highest version first, as the package manager writes it.
func (s *Charts) writeIndex(generated time.Time) []byte {
	entries := map[string]any{}
	for name, versions := range s.entries {
		all := slices.Clone(versions)
		slices.SortStableFunc(all, byVersion)
		fields := make([]any, len(all))
		for i, e := range all {
			fields[i] = e.fields
		}
		entries[name] = fields
	}
	doc := map[string]any{"apiVersion": "v1", "entries": entries, "generated": generated.Format(time.RFC3339Nano)}
	write := yaml.Marshal
	if s.config.JSON {
		write = func(v any) ([]byte, error) { return json.MarshalIndent(v, "", "  ") }
	}
	data, err := write(doc)
	if err != nil {
		panic(err) // maps of strings
	}
	return data
}

// byVersion puts higher versions first, and what is none last.
func byVersion(a, b chartEntry) int {
	va, erra := semver.NewVersion(a.version)
	vb, errb := semver.NewVersion(b.version)
	switch {
	case erra != nil && errb != nil:
		return 0
	case erra != nil:
		return 1
	case errb != nil:
		return -1
	}
	return vb.Compare(va)
}
