package bundle_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"helm.sh/helm/v3/pkg/chart/loader"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/chart/internal/bundle"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/testenv/measure"
)

func TestAnArchiveIsKeptAsItCame(t *testing.T) {
	data := plain.inDir("another-name").tgz(t)
	a, err := bundle.ReadArchive(iotest.OneByteReader(bytes.NewReader(data)), spools(t))
	must(t, err)
	for range 2 {
		var out bytes.Buffer
		n, err := a.WriteTo(&out)
		must(t, err)
		if !bytes.Equal(out.Bytes(), data) || n != int64(len(data)) {
			t.Errorf("%d bytes, which differ", n)
		}
	}
	if want := fmt.Sprintf("sha256:%x", sha256.Sum256(data)); a.Digest != want || a.Size != int64(len(data)) {
		t.Errorf("%s, %d bytes, want %s, %d", a.Digest, a.Size, want, len(data))
	}
	if a.Metadata.Name != "plain" || a.Metadata.Version != "1.2.3" || a.Lock != nil {
		t.Errorf("%+v", a.Metadata)
	}
	testenv.Equal(t, readFiles(t, a.Files), plain, "files")
	values, err := a.Values()
	must(t, err)
	testenv.Equal(t, string(values), plain["values.yaml"], "values")
	must(t, a.Close())
	if _, err := a.WriteTo(io.Discard); err == nil {
		t.Error("the file is still there")
	}
}

func TestMissingValues(t *testing.T) {
	values, err := files{"Chart.yaml": plain["Chart.yaml"]}.open(t).Values()
	if values != nil || err != nil {
		t.Errorf("%q, %v", values, err)
	}
	values, err = plain.with(files{"values.yaml": ""}).open(t).Values()
	if values == nil || err != nil {
		t.Errorf("an empty file is none: %v", err)
	}
}

func TestReaderErrorsAreKept(t *testing.T) {
	data := plain.inDir("plain").tgz(t)
	broken := errors.New("connection lost")
	for _, n := range []int{0, 1, 100, len(data)} {
		_, err := bundle.ReadArchive(io.MultiReader(bytes.NewReader(data[:n]), iotest.ErrReader(broken)), spools(t))
		if !errors.Is(err, broken) || errors.Is(err, bundle.ErrChart) {
			t.Errorf("after %d bytes: %v", n, err)
		}
	}
	var limit error = &artifact.LimitError{What: "bytes in the response", Limit: 1}
	_, err := bundle.ReadArchive(io.MultiReader(bytes.NewReader(data[:100]), iotest.ErrReader(limit)), spools(t))
	if !errors.Is(err, limit) || errors.Is(err, bundle.ErrChart) {
		t.Errorf("a limit of the reader: %v", err)
	}
	full := errors.New("disk full")
	_, err = bundle.ReadArchive(bytes.NewReader(data), artifact.Limits{Temp: func() (*os.File, error) { return nil, full }})
	if !errors.Is(err, full) || errors.Is(err, bundle.ErrChart) {
		t.Errorf("no spool: %v", err)
	}
}

// big returns n MiB that compress a little.
func big(n int) string {
	block := make([]byte, 16<<10)
	x := uint32(1)
	for i := range block {
		x = x*1664525 + 1013904223
		block[i] = byte(x >> 24)
	}
	return strings.Repeat(string(block), n<<6)
}

// A badArchive is an archive with text that its error contains.
type badArchive struct {
	data    []byte
	says    string
	limits  artifact.Limits
	lenient bool // the package manager accepts it
}

func badArchives(t *testing.T) map[string]badArchive {
	ok := plain.inDir("plain")
	chart := func(text string) []byte { return ok.with(files{"plain/Chart.yaml": text}).tgz(t) }
	link := func(name, to string) []byte {
		return tgz(t, append(ok.entries(), entry{name: name, text: to, kind: tar.TypeSymlink})...)
	}
	many := files{}
	for i := range 10_000 {
		many[fmt.Sprintf("plain/files/%d", i)] = ""
	}
	total, large := files{}, big(5)
	for i := range 21 {
		total[fmt.Sprintf("plain/files/%d", i)] = large
	}
	zeros := gzipped(t, make([]byte, 40<<20))
	good := ok.tgz(t)
	return map[string]badArchive{
		"empty":                         {data: nil, says: "empty"},
		"not compressed":                {data: ungzip(t, good), says: "gzip"},
		"JSON":                          {data: []byte(`{"message": "not found"}`), says: "JSON"},
		"a page":                        {data: []byte("<html>" + strings.Repeat(" ", 600)), says: "HTML"},
		"truncated":                     {data: good[:len(good)-20], says: "EOF"},
		"truncated within the archive":  {data: gzipped(t, ungzip(t, good)[:2048]), says: "truncated", lenient: true},
		"trailing garbage":              {data: append(bytes.Clone(good), "garbage"...), says: "gzip", lenient: true},
		"trailing garbage inside":       {data: gzipped(t, append(ungzip(t, good), "garbage"...)), says: "follows its end", lenient: true},
		"a bomb":                        {data: zeros, says: "bytes"},
		"a bomb in a file":              {data: ok.with(files{"plain/files/bomb": strings.Repeat("\x00", 6<<20)}).tgz(t), says: "5242880 bytes"},
		"too many entries":              {data: ok.with(many).tgz(t), says: "10000 entries", lenient: true},
		"too many bytes in all":         {data: ok.with(total).tgz(t), says: "104857600 bytes"},
		"bytes above a given limit":     {data: good, says: "1000 bytes", limits: artifact.Limits{Bytes: 1000}, lenient: true},
		"a file above a given limit":    {data: good, says: "40 bytes", limits: artifact.Limits{FileBytes: 40}, lenient: true},
		"entries above a given limit":   {data: good, says: "3 entries", limits: artifact.Limits{Entries: 3}, lenient: true},
		"two directories at the top":    {data: ok.with(plain.inDir("other")).tgz(t), says: "one directory at the top", lenient: true},
		"a file beside the directory":   {data: ok.with(files{"README": "x"}).tgz(t), says: "one directory at the top"},
		"no directory":                  {data: plain.tgz(t), says: "one directory at the top"},
		"one file":                      {data: tgz(t, entry{name: "Chart.yaml", text: plain["Chart.yaml"]}), says: "one directory at the top"},
		"a directory named Chart.yaml":  {data: plain.inDir("Chart.yaml").tgz(t), says: "Chart.yaml"},
		"no Chart.yaml":                 {data: files{"plain/values.yaml": "a: 1"}.tgz(t), says: "Chart.yaml"},
		"an empty directory":            {data: tgz(t, entry{name: "plain/", kind: tar.TypeDir}), says: "Chart.yaml"},
		"Chart.yaml further down":       {data: plain.inDir("a/b").tgz(t), says: "Chart.yaml"},
		"Chart.yaml is a directory":     {data: files{"plain/Chart.yaml/x": "x"}.tgz(t), says: "no file"},
		"Chart.yaml twice":              {data: tgz(t, append(ok.entries(), entry{name: "plain/Chart.yaml", text: "name: other"})...), says: "more than once", lenient: true},
		"a dot before all names":        {data: tgz(t, entry{name: "./plain/Chart.yaml", text: "apiVersion: v2\nname: plain\nversion: 1.0.0\n"}), says: "with empty parts or dots"},
		"an empty part in a name":       {data: tgz(t, append(ok.entries(), entry{name: "plain//NOTES.txt", text: "x"})...), says: "with empty parts or dots"},
		"a template twice":              {data: tgz(t, append(ok.entries(), entry{name: "plain/./templates/config.yaml", text: "kind: Secret"})...), says: "more than once", lenient: true},
		"a name that leads out":         {data: ok.with(files{"plain/../../etc/passwd": "x"}).tgz(t), says: "leads out"},
		"an absolute name":              {data: ok.with(files{"/etc/passwd": "x"}).tgz(t), says: "absolute", lenient: true},
		"a backslash":                   {data: ok.with(files{`plain\..\..\x`: "x"}).tgz(t), says: "backslash"},
		"a name that begins with ..":    {data: ok.with(files{"plain/..x": "x"}).tgz(t), says: "begins with .."},
		"a drive":                       {data: ok.with(files{"plain/c:/x": "x"}).tgz(t), says: "drive"},
		"Chart.lock is a link":          {data: link("plain/Chart.lock", "/etc/cron.d/x"), says: `"plain/Chart.lock" is a link: charts hold none`, lenient: true},
		"a template is a link":          {data: link("plain/templates/x", "../../../etc/passwd"), says: "is a link", lenient: true},
		"the directory is a link":       {data: link("other", "plain"), says: "is a link"},
		"a device":                      {data: tgz(t, append(ok.entries(), entry{name: "plain/files/x", kind: tar.TypeChar})...), says: "device", lenient: true},
		"no YAML":                       {data: chart("a: [secret"), says: "Chart.yaml: line 1"},
		"Chart.yaml is a list":          {data: chart("[secret]"), says: "Chart.yaml"},
		"Chart.yaml is empty":           {data: chart(""), says: "field name"},
		"Chart.yaml is null":            {data: chart("null"), says: "field name"},
		"Chart.yaml of 2 MiB":           {data: chart(plain["Chart.yaml"] + strings.Repeat("# comment\n", 210_000)), says: "1048576 bytes", lenient: true},
		"Chart.yaml is deep":            {data: chart(plain["Chart.yaml"] + "x: " + strings.Repeat("[", 200) + strings.Repeat("]", 200)), says: "levels", lenient: true},
		"Chart.yaml is a bomb":          {data: chart(plain["Chart.yaml"] + bomb()), says: "aliases"},
		"no name":                       {data: chart("apiVersion: v2\nversion: 1.0.0"), says: "field name"},
		"a name that is a list":         {data: chart("apiVersion: v2\nversion: 1.0.0\nname: [a]"), says: "field name: it must not be of type array"},
		"a name with ..":                {data: chart("apiVersion: v2\nversion: 1.0.0\nname: ../x"), says: "field name"},
		"a name with a slash":           {data: chart("apiVersion: v2\nversion: 1.0.0\nname: a/b"), says: "field name"},
		"a name with a backslash":       {data: chart("apiVersion: v2\nversion: 1.0.0\nname: a\\b"), says: "field name", lenient: true},
		"a name that is .":              {data: chart("apiVersion: v2\nversion: 1.0.0\nname: ."), says: "field name"},
		"a name that is ..":             {data: chart("apiVersion: v2\nversion: 1.0.0\nname: .."), says: "field name"},
		"a name with a line end":        {data: chart("apiVersion: v2\nversion: 1.0.0\nname: \"a\\nb\""), says: `"a\nb"`, lenient: true},
		"a name with a hidden mark":     {data: chart("apiVersion: v2\nversion: 1.0.0\nname: \"a\\u202eb\""), says: "field name", lenient: true},
		"a long name":                   {data: chart("apiVersion: v2\nversion: 1.0.0\nname: " + strings.Repeat("a", 251)), says: "250 bytes", lenient: true},
		"no version":                    {data: chart("apiVersion: v2\nname: a"), says: "field version"},
		"a version that leads out":      {data: chart("apiVersion: v2\nname: a\nversion: 1.0.0/../../x"), says: "version"},
		"a version with a line end":     {data: chart("apiVersion: v2\nname: a\nversion: \"1.0.0\\n\""), says: "field version"},
		"a version that is none":        {data: chart("apiVersion: v2\nname: a\nversion: latest"), says: "version"},
		"an unknown type":               {data: chart(plain["Chart.yaml"] + "type: plugin"), says: "type"},
		"a null dependency":             {data: chart(plain["Chart.yaml"] + "dependencies: [null]"), says: "null"},
		"a null maintainer":             {data: chart(plain["Chart.yaml"] + "maintainers: [null]"), says: "null"},
		"two dependencies of one alias": {data: chart(plain["Chart.yaml"] + "dependencies: [{name: a, version: 1, alias: b}, {name: b, version: 1}]"), says: "more than one dependency"},
		"an alias that leads out":       {data: chart(plain["Chart.yaml"] + "dependencies: [{name: a, version: 1, alias: ../b}]"), says: "alias"},
		"a dependency that leads out":   {data: chart(plain["Chart.yaml"] + "dependencies: [{name: ../a, version: 1}]"), says: "element 0", lenient: true},
		"dependencies are a map":        {data: chart(plain["Chart.yaml"] + "dependencies: {a: 1}"), says: "field dependencies"},
		"requirements with a name":      {data: ok.with(files{"plain/requirements.yaml": "name: other"}).tgz(t), says: "requirements.yaml", lenient: true},
		"requirements with null":        {data: ok.with(files{"plain/requirements.yaml": "dependencies: [null]"}).tgz(t), says: "requirements.yaml"},
		"a lock that is a list":         {data: ok.with(files{"plain/Chart.lock": "[1]"}).tgz(t), says: "Chart.lock"},
		"a lock with null":              {data: ok.with(files{"plain/Chart.lock": "dependencies: [~]"}).tgz(t), says: "Chart.lock", lenient: true},
		"a lock with a bad time":        {data: ok.with(files{"plain/Chart.lock": "generated: secret"}).tgz(t), says: "Chart.lock: a time"},
	}
}

func TestArchivesThatAreNoCharts(t *testing.T) {
	measure.WithoutRace(t)
	for name, c := range badArchives(t) {
		t.Run(name, func(t *testing.T) {
			c.limits.Temp = spools(t).Temp
			a, err := bundle.ReadArchive(bytes.NewReader(c.data), c.limits)
			if a != nil || !errors.Is(err, bundle.ErrChart) {
				t.Fatalf("%v, error %v, want one that is ErrChart", a, err)
			}
			if msg := err.Error(); !strings.Contains(msg, c.says) || strings.ContainsAny(msg, "\n\r\x00") || len(msg) > 400 || strings.Contains(msg, "secret") {
				t.Errorf("error %q, want one line with %q", msg, c.says)
			}
			if _, err := loader.LoadArchive(bytes.NewReader(c.data)); (err == nil) != c.lenient {
				t.Errorf("the package manager: %v", err)
			}
		})
	}
}

func ungzip(t testing.TB, data []byte) []byte {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(data))
	must(t, err)
	out, err := io.ReadAll(zip)
	must(t, err)
	return out
}

func FuzzReadArchive(f *testing.F) {
	f.Add(plain.inDir("plain").tgz(f))
	f.Add(files{"a/Chart.yaml": "name: a\nversion: 1.0.0\n", "a/requirements.yaml": "dependencies:\n- name: b\n", "a/requirements.lock": "{}"}.tgz(f))
	f.Add(plain.inDir("plain").with(files{"plain/charts/b.tgz": string(plain.inDir("b").tgz(f))}).tgz(f))
	f.Add([]byte("\x1f\x8b\x08"))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := bundle.ReadArchive(bytes.NewReader(data), artifact.Limits{Bytes: 1 << 20, FileBytes: 1 << 18, Entries: 100})
		if err != nil {
			return
		}
		defer a.Close()
		var out bytes.Buffer
		if _, err := a.WriteTo(&out); err != nil || !bytes.Equal(out.Bytes(), data) {
			t.Fatalf("the file is another (%v)", err)
		}
		if _, err := a.Vendored(artifact.Limits{Bytes: 1 << 20}); err != nil {
			return
		}
		out.Reset()
		if _, err := a.Pack(context.Background(), &out, bundle.Edit{Version: "1.2.3"}); err != nil {
			return
		}
		b, err := bundle.ReadArchive(&out, artifact.Limits{})
		must(t, err)
		defer b.Close()
		if b.Metadata.Name != a.Metadata.Name || b.Metadata.Version != "1.2.3" {
			t.Fatalf("%+v became %+v", a.Metadata, b.Metadata)
		}
	})
}
