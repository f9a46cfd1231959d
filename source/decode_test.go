package source_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"testing/iotest"
	"unicode/utf8"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/testenv/measure"
	"github.com/headgate-io/headgate/source"
)

const validDocument = `apiVersion: source.headgate.dev/v1
kind: Bucket
metadata: {name: NAME, namespace: SPACE}
spec: {bucketName: b, endpoint: h, interval: 1m}
`

func bucketDocument(namespace, name string) string {
	return strings.NewReplacer("NAME", name, "SPACE", namespace).Replace(validDocument)
}

// TestHostileDocuments has input that must be refused quickly, without affecting the documents
// around it.
func TestHostileDocuments(t *testing.T) {
	measure.WithoutRace(t)
	bomb := "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
	for c := 'b'; c < 'k'; c++ {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c, ", c-1), 10), ", "))
	}
	merges := "m: &m {" + strings.Repeat("k: v, ", 1000) + "k: v}\n<<: [" + strings.TrimSuffix(strings.Repeat("*m, ", 2000), ", ") + "]\n"
	tests := []struct{ name, file, text, want string }{
		{"alias bomb", "t.yaml", bomb, "holds more than 524288 values"},
		{"merge bomb", "t.yaml", merges, "holds more than 524288 values"},
		{"alias to itself", "t.yaml", "a: &a [*a]\n", "nested deeper than 200 levels"},
		{"aliases stacked", "t.yaml", "a: &a " + strings.Repeat("[", 90) + strings.Repeat("]", 90) + "\nb: &b " + strings.Repeat("[", 90) + "*a" + strings.Repeat("]", 90) +
			"\nc: [*b, *a, *b]\nd: " + strings.Repeat("[", 90) + "*b" + strings.Repeat("]", 90) + "\n", "nested deeper than 200 levels"},
		{"deep YAML", "t.yaml", "a: " + strings.Repeat("[", 5000) + strings.Repeat("]", 5000), "nested deeper than 200 levels"},
		{"very deep YAML", "t.yaml", "a: " + strings.Repeat("[", 1<<20), "not YAML"},
		{"deep JSON", "t.json", strings.Repeat(`[`, 5000) + strings.Repeat(`]`, 5000), "nested deeper than 200 levels"},
		{"very deep JSON", "t.json", strings.Repeat(`{"a":`, 1<<20), "exceeded max depth"},
		{"many values in JSON", "t.json", "[" + strings.Repeat("0,", 1<<19) + "0]", "holds more than 524288 values"},
		{"large YAML", "t.yaml", "a: |\n" + strings.Repeat("  "+strings.Repeat("x", 1021)+"\n", 3100), "larger than 3 MiB"},
		{"large JSON", "t.json", `{"a": "` + strings.Repeat("x", 3<<20) + `"}`, "larger than 3 MiB"},
		{"NUL", "t.yaml", "a: \x00\n", "not YAML"},
		{"not UTF-8", "t.yaml", "a: \xff\n", "not YAML"},
		{"unknown anchor", "t.yaml", "a: *b\n", "not YAML"},
		{"tab", "t.yaml", "a:\n\t- b\n", "not YAML"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var s source.Set
			text := bucketDocument("a", "before") + "---\n" + test.text + "\n---\n" + bucketDocument("a", "after")
			want := 2
			if strings.HasSuffix(test.file, ".json") {
				text, want = test.text, 0
			}
			errs := split(s.Decode(test.file, strings.NewReader(text)))
			if len(errs) != 1 || !strings.Contains(errs[0].Error(), test.want) || len(errs[0].Error()) > 200 {
				t.Errorf("%.300v", errs)
			}
			testenv.Equal(t, len(s.Objects), want, "objects")
		})
	}
}

// TestManyDefects checks that the number of collected defects is limited.
func TestManyDefects(t *testing.T) {
	header := "apiVersion: source.headgate.dev/v1\nkind: GitRepository\nmetadata:\n  name: x\n"
	spec := "spec: {url: \"https://h\", interval: 1m}\n"
	tests := []struct {
		name, text, want string
		count            int
	}{
		{"unknown fields", header + numbered(5000, "  f%d: x\n") + spec, "has more than 100 defects", 101},
		{"bad labels", header + "  labels:\n" + numbered(5000, "    -%d: x\n") + spec, "has more than 100 defects", 101},
		{"bad labels given twice", header + "  labels:\n" + strings.Repeat(numbered(2000, "    -%d: x\n"), 2) + spec, "has more than 100 defects", 101},
		{"bad includes", header + strings.TrimSuffix(spec, "}\n") + ", include: [" + numbered(5000, "{repository: {name: A}, toPath: .., fromPath: ..},") + "]}", "has more than 100 defects", 101},
		{"texts", strings.Repeat("x\n---\n", 5000), "more than 1000 defects: the rest was not read", 1001},
		{"numbers in JSON", "[]" + strings.Repeat(" 1", 5000), "more than 1000 defects", 1001},
		{"texts in a list", "apiVersion: v1\nkind: List\nitems:\n" + strings.Repeat("- x\n", 5000), "more than 1000 defects", 1001},
	}
	for _, test := range tests {
		var s source.Set
		errs := split(s.Decode("-", strings.NewReader(test.text)))
		if all := lines(errs); len(errs) != test.count || !strings.Contains(all, test.want) {
			t.Errorf("%s: %d defects, no %q in %.500s", test.name, len(errs), test.want, all)
		}
	}
}

func numbered(n int, format string) string {
	var b strings.Builder
	for i := range n {
		if strings.Contains(format, "%") {
			fmt.Fprintf(&b, format, i)
		} else {
			b.WriteString(format)
		}
	}
	return b.String()
}

func TestLargeStream(t *testing.T) {
	measure.WithoutRace(t)
	var s source.Set
	err := s.Decode("-", io.MultiReader(strings.NewReader(validDocument), io.LimitReader(endlessReader{}, 1<<30)))
	if at := (*source.DocumentError)(nil); !errors.As(err, &at) || at.File != "-" || !strings.Contains(err.Error(), "larger than 64 MiB") {
		t.Error(err)
	}
	if err = s.Decode("-", iotest.ErrReader(fs.ErrPermission)); !errors.Is(err, fs.ErrPermission) {
		t.Error(err)
	}
}

// endlessReader is a reader of spaces.
type endlessReader struct{}

func (endlessReader) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

func TestDecodeFS(t *testing.T) {
	files := fstest.MapFS{
		"b.yaml":             {Data: []byte(bucketDocument("a", "two"))},
		"a/z.yml":            {Data: []byte(bucketDocument("a", "one"))},
		"c.json":             {Data: []byte("\xef\xbb\xbf" + `{"apiVersion": "source.headgate.dev/v1", "kind": "Bucket"}`)},
		"README.md":          {Data: []byte(bucketDocument("a", "three"))},
		".git/x.yaml":        {Data: []byte(bucketDocument("a", "four"))},
		"d/Upper.YAML":       {Data: []byte(bucketDocument("a", "five"))},
		"e/kustomize.yaml":   {Data: []byte("resources: []\n")},
		"e/dir.yaml/x.yaml":  {Data: []byte(bucketDocument("a", "six"))},
		"e/broken-link.yaml": {Data: []byte("nowhere"), Mode: fs.ModeSymlink},
		"e/device.yaml":      {Mode: fs.ModeDevice},
	}
	var s source.Set
	errs := split(s.DecodeFS(files, "."))
	var names []string
	for _, obj := range s.Objects {
		names = append(names, obj.Head().Metadata.Name)
	}
	if got := strings.Join(names, " "); got != "one two five six" || s.Skipped != 1 {
		t.Errorf("%s, %d skipped", got, s.Skipped)
	}
	var all []string
	for _, err := range errs {
		at := (*source.DocumentError)(nil)
		if !errors.As(err, &at) {
			t.Fatalf("%T: %v", err, err)
		}
		all = append(all, at.File+" "+at.Field)
	}
	testenv.Equal(t, strings.Join(all, ","), "c.json metadata,c.json spec,e/broken-link.yaml ")
	s = source.Set{}
	if err := s.DecodeFS(files, "README.md"); err != nil || len(s.Objects) != 1 {
		t.Error(err, len(s.Objects))
	}
	testenv.ErrorIs(t, s.DecodeFS(files, "none"), fs.ErrNotExist)
}

// TestDecodeMounted reads a directory in the form in which Kubernetes mounts a ConfigMap.
func TestDecodeMounted(t *testing.T) {
	dir := mounted(t, map[string]string{"objects.yaml": bucketDocument("a", "x")})
	root, err := os.OpenRoot(dir)
	must(t, err)
	defer root.Close()
	var s source.Set
	if err := s.DecodeFS(root.FS(), "."); err != nil || len(s.Objects) != 1 {
		t.Error(err, len(s.Objects))
	}
}

// mounted writes files in the form in which Kubernetes mounts them: as links through ..data.
func mounted(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "..2026_01"), 0o700))
	link(t, "..2026_01", filepath.Join(dir, "..data"))
	for name, text := range files {
		must(t, os.WriteFile(filepath.Join(dir, "..2026_01", name), []byte(text), 0o600))
		link(t, "..data/"+name, filepath.Join(dir, name))
	}
	return dir
}

func link(t *testing.T, target, name string) {
	t.Helper()
	must(t, os.Symlink(target, name))
}

func TestFind(t *testing.T) {
	var s source.Set
	text := bucketDocument("default", "x") + "---\n" + bucketDocument("apps", "x") + "---\n" + bucketDocument("apps", "yy") + `---
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmRepository
metadata: {name: x}
spec: {url: "https://h"}
`
	must(t, s.Decode("-", strings.NewReader(text)))
	for ref, want := range map[string]string{
		"bucket/x":                "Bucket/default/x Bucket/apps/x",
		"Buckets/apps/x":          "Bucket/apps/x",
		"BUCKET/yy":               "Bucket/apps/yy",
		"helmrepo/x":              "HelmRepository/default/x",
		"HelmRepositories/x":      "HelmRepository/default/x",
		"pkgrepository/default/x": "HelmRepository/default/x",
	} {
		found, err := s.Find(ref)
		var names []string
		for _, obj := range found {
			names = append(names, obj.Head().String())
		}
		if got := strings.Join(names, " "); err != nil || got != want {
			t.Errorf("%s: %s, %v", ref, got, err)
		}
	}
	if _, err := s.Find("hc/x"); !errors.Is(err, fs.ErrNotExist) || !strings.HasSuffix(err.Error(), "no such object, nor any other of its kind") {
		t.Error(err)
	}
	for ref, want := range map[string]string{
		"bucket":         "write KIND/NAME or KIND/NAMESPACE/NAME",
		"deployment/x":   "unknown kind \"deployment\": use one of Bucket, GitRepository",
		"bucket/z":       "no such object among Bucket/default/x, Bucket/apps/x, Bucket/apps/yy",
		"bucket/other/x": "no such object",
	} {
		_, err := s.Find(ref)
		testenv.ErrorSays(t, err, want, ref)
	}
	for i := range 9 {
		text := bucketDocument("many", fmt.Sprintf("n%d", i))
		must(t, s.Decode(fmt.Sprint(i), strings.NewReader(text)))
	}
	_, err := s.Find("bucket/z")
	testenv.ErrorSays(t, err, ", ...")
}

// TestErrorParts checks the fields of an error.
func TestErrorParts(t *testing.T) {
	var s source.Set
	err := s.Decode("f.yaml", strings.NewReader("---\n"+bucketDocument("a", "x")+"---\n# two\n"+strings.Replace(bucketDocument("a", "yy"), "1m", "soon", 1)))
	at := (*source.DocumentError)(nil)
	if !errors.As(err, &at) {
		t.Fatal(err)
	}
	want := source.DocumentError{File: "f.yaml", Document: 2, Line: 11, Object: "Bucket/a/yy", Field: "spec.interval", Err: at.Err}
	if *at != want || at.Unwrap() == nil {
		t.Errorf("%+v", *at)
	}
}

// TestAddSpellings adds an object that the set already has with the other spelling of its kind.
func TestAddSpellings(t *testing.T) {
	const document = "apiVersion: %s/v1\nkind: %s\nmetadata: {name: charts}\nspec: {url: https://charts.example.org, interval: 1m}\n"
	var set, added source.Set
	if err := errors.Join(
		set.Decode("ours.yaml", strings.NewReader(fmt.Sprintf(document, source.Group, "PkgRepository"))),
		added.Decode("theirs.yaml", strings.NewReader(fmt.Sprintf(document, source.ReferenceGroup, "HelmRepository"))),
	); err != nil {
		t.Fatal(err)
	}
	err := set.Add(&added)
	want := "theirs.yaml:1: document 1: HelmRepository/default/charts: is in ours.yaml:1 (document 1) already: remove one of the two"
	if err == nil || err.Error() != want || len(set.Objects) != 1 {
		t.Errorf("%v, %d objects", err, len(set.Objects))
	}
}

// FuzzDecode decodes arbitrary input; decoded objects must read back equal from YAML and from JSON.
func FuzzDecode(f *testing.F) {
	archives, _ := filepath.Glob("testdata/documents/*.txtar")
	manifests, _ := filepath.Glob("../testdata/sources/*/*.yaml")
	for _, name := range slices.Concat(archives, manifests) {
		text, err := os.ReadFile(name)
		must(f, err)
		for _, doc := range bytes.Split(text, []byte("---\n")) {
			f.Add(doc)
		}
	}
	for _, spec := range base {
		f.Add([]byte("apiVersion: source.headgate.dev/v1\nkind: GitRepository\nmetadata: {name: x}\nspec: {" + spec + "}"))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var s source.Set
		for _, err := range split(s.Decode("f", bytes.NewReader(text))) {
			if at := (*source.DocumentError)(nil); !errors.As(err, &at) || strings.ContainsAny(err.Error(), "\n\x1b\x00") {
				t.Errorf("%T: %q", err, err)
			}
		}
		for _, obj := range s.Objects {
			outputs := 0
			switch obj := obj.(type) {
			case *source.ArtifactGenerator:
				outputs = len(obj.Spec.Artifacts)
			case *source.ExternalArtifact:
				if obj.Composed != nil {
					continue // it is in the document of the generator
				}
			}
			for _, encode := range []func(source.Object) ([]byte, error){source.EncodeYAML, source.EncodeJSON} {
				out, err := encode(obj)
				must(t, err)
				var again source.Set
				if err := again.Decode("f", bytes.NewReader(out)); err != nil || len(again.Objects) != 1+outputs {
					t.Fatalf("%v\n%s", err, out)
				}
				if !reflect.DeepEqual(obj, again.Objects[0]) {
					t.Fatalf("%+v\nis not\n%+v\n%s", obj, again.Objects[0], out)
				}
			}
		}
	})
}

// FuzzText writes any text into an object and reads it back.
func FuzzText(f *testing.F) {
	for _, s := range []string{
		"", " ", "\n", "\t\n", "a\n", "\na", " a\n b", "a \n", "\ta", "yes", "y", "~", "null", "0x10", "1e3", "1:30", "2026-01-01", "- a", "a: b", "#", "a #b",
		"'", `"`, `\`, "%", "@", "`", "!a", "&a", "*a", "<<", "=", ".inf", "|", ">", "---", "...", "---\na", "\u0085", "\u2028", "\ufeff", "\u00a0", "\x7f", "\x00", "😀", "\r\n", "a\r",
		strings.Repeat("word ", 50), "ENC[x]", "<>&", "?", "? a", "{", "[", "]",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) {
			return
		}
		b := &source.Bucket{Spec: source.BucketSpec{BucketName: "b", Endpoint: "h", Interval: 1, Prefix: text, Ignore: &text}}
		b.Metadata.Name, b.Metadata.Annotations = "x", map[string]string{"a": text}
		source.Default(b)
		for _, encode := range []func(source.Object) ([]byte, error){source.EncodeYAML, source.EncodeJSON} {
			out, err := encode(b)
			must(t, err)
			again := decodeOne(t, string(out)).(*source.Bucket)
			if again.Spec.Prefix != text || *again.Spec.Ignore != text || again.Metadata.Annotations["a"] != text {
				t.Fatalf("%q became %q in\n%s", text, *again.Spec.Ignore, out)
			}
		}
	})
}

// TestDecodeObject requires one object whatever its status is, also with an error about its spec.
func TestDecodeObject(t *testing.T) {
	const head = `{"apiVersion":"source.toolkit.fluxcd.io/v1","kind":"HelmChart","metadata":{"name":"a","namespace":"b","generation":3},`
	const spec = `"spec":{"chart":"c","interval":"1m","sourceRef":{"kind":"HelmRepository","name":"r"}}`
	for name, c := range map[string]struct{ text, defect, status string }{
		"good": {head + spec + `,"status":{"observedGeneration":-1}}`, "", `{"observedGeneration":-1}`},
		"fields of others in the status": {
			head + spec + `,"status":{"other":1,"observedChartName":"c","conditions":[{"type":"Ready","status":"True","extra":[],"lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`, "",
			`{"conditions":[{"type":"Ready","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z","reason":"","message":""}],"observedChartName":"c"}`,
		},
		"a status of wrong types":          {head + spec + `,"status":{"observedGeneration":"x","artifact":[1],"conditions":7,"observedChartName":"c"}}`, "", `{"observedChartName":"c"}`},
		"a status that is none":            {head + spec + `,"status":[]}`, "", `{}`},
		"a spec with a field that is none": {head + strings.Replace(spec, `"chart"`, `"x":1,"chart"`, 1) + `}`, "spec.x", `{}`},
		"a spec of wrong types":            {head + strings.Replace(spec, `"c"`, `{}`, 1) + `,"status":{"observedChartName":"c"}}`, "spec.chart", `{"observedChartName":"c"}`},
		"a field of v1beta2":               {head + strings.Replace(spec, `"chart"`, `"valuesFile":"first.yaml","accessFrom":{"namespaceSelectors":[]},"chart"`, 1) + `}`, "", `{}`},
		"no spec":                          {head + `"spec":null}`, "spec: is required", `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			obj, err := source.DecodeObject([]byte(c.text))
			if obj == nil {
				t.Fatal(err)
			}
			if (err != nil) != (c.defect != "") || err != nil && !strings.Contains(err.Error(), c.defect) {
				t.Errorf("%v, want something about %q", err, c.defect)
			}
			if got := source.ReferenceTo(obj).String() + " " + source.Involved(obj).Kind; got != "PkgChart/b/a HelmChart" || obj.Head().Metadata.Generation != 3 {
				t.Errorf("it is %s: %+v", got, obj.Head())
			}
			if values := obj.(*source.PkgChart).Spec.ValuesFiles; strings.Contains(c.text, "valuesFile") != slices.Equal(values, []string{"first.yaml"}) {
				t.Errorf("values files %q", values)
			}
			text, err := source.EncodeStatus(obj)
			must(t, err)
			testenv.Equal(t, string(text), c.status, "status")
			again := source.New(source.ReferenceTo(obj))
			must(t, source.DecodeStatus(again, text))
			if text, err = source.EncodeStatus(again); err != nil || string(text) != c.status {
				t.Errorf("status %s, %v, want %s", text, err, c.status)
			}
		})
	}
	for _, text := range []string{``, `[]`, `{`, `null`, `{"apiVersion":"v1","kind":"Secret"}`, `{"apiVersion":"example.org/v1","kind":"GitRepository"}`} {
		if obj, err := source.DecodeObject([]byte(text)); obj != nil || err == nil {
			t.Errorf("%s is %v, %v", text, obj, err)
		}
	}
}
