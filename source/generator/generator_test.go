package generator_test

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/generator"
)

// tree returns a tree of files NAME, CONTENT, …; a name that ends with a slash is an empty folder,
// and a name that begins with + is an executable.
func tree(parts ...string) fstest.MapFS {
	files := fstest.MapFS{}
	for i := 0; i < len(parts); i += 2 {
		name, executable := strings.CutPrefix(parts[i], "+")
		file := &fstest.MapFile{Data: []byte(parts[i+1]), Mode: 0o644}
		if executable {
			file.Mode = 0o755
		}
		if strings.HasSuffix(name, "/") {
			file.Mode = fs.ModeDir | 0o755
		}
		files[strings.TrimSuffix(name, "/")] = file
	}
	return files
}

var must = testenv.Must

// pack returns the archive of a tree.
func pack(t testing.TB, files fs.FS) string {
	t.Helper()
	var out bytes.Buffer
	_, err := artifact.Pack(t.Context(), &out, files)
	must(t, err)
	return out.String()
}

// says reports whether an error contains the parts of want, separated by .*, in order.
func says(err error, want string) bool {
	if err == nil {
		return false
	}
	text := err.Error()
	for piece := range strings.SplitSeq(want, ".*") {
		_, rest, found := strings.Cut(text, piece)
		if !found {
			return false
		}
		text = rest
	}
	return true
}

// A fixture has sources with artifacts in a store.
type fixture struct {
	testing.TB
	store *artifact.Store
	set   *source.Set
	env   source.Env
}

// newFixture returns a fixture with a Bucket for each archive and the outputs of a generator with
// these artifacts.
func newFixture(t testing.TB, archives map[string]string, artifacts string) *fixture {
	t.Helper()
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: t.TempDir()})
	must(t, err)
	t.Cleanup(func() { store.Close() })
	r := &fixture{TB: t, store: store, set: new(source.Set)}
	text := "apiVersion: source.extensions.fluxcd.io/v1beta1\nkind: ArtifactGenerator\nmetadata: {name: app, namespace: apps}\nspec:\n  sources:\n"
	archives = maps.Clone(archives)
	maps.DeleteFunc(archives, func(name, _ string) bool { return !strings.Contains(artifacts, "@"+name+"/") })
	for _, name := range slices.Sorted(maps.Keys(archives)) {
		text += fmt.Sprintf("  - {alias: %s, kind: Bucket, name: %s}\n", name, name)
	}
	text += "  artifacts:\n" + artifacts
	for name := range archives {
		text += fmt.Sprintf("\n---\napiVersion: source.toolkit.fluxcd.io/v1\nkind: Bucket\nmetadata: {name: %s, namespace: apps}\nspec: {bucketName: b, endpoint: e, interval: 1h}", name)
	}
	must(t, r.set.Decode("", strings.NewReader(text)))
	r.env.Sources = &source.Inventory{Objects: r.set.Objects, Store: store}
	for name, archive := range archives {
		r.publish(name, archive)
	}
	return r
}

func (r *fixture) object(kind, name string) source.Object {
	r.Helper()
	obj, err := r.env.Sources.Source(r.Context(), source.Reference{Kind: kind, Namespace: "apps", Name: name})
	must(r, err)
	return obj
}

// publish makes archive the artifact of a Bucket.
func (r *fixture) publish(name, archive string) {
	r.Helper()
	r.object("Bucket", name).Common().Artifact = r.put(name, archive)
}

// put stores an archive as an artifact of a Bucket.
func (r *fixture) put(name, archive string) *artifact.Artifact {
	r.Helper()
	a, err := r.store.Put(r.Context(), "bucket/apps/"+name, "f.tar.gz", func(w io.Writer) error {
		_, err := io.WriteString(w, archive)
		return err
	})
	must(r, err)
	a.Revision = "rev-" + a.Digest[7:12]
	return &a
}

// originOf returns the origin of an output.
func (r *fixture) originOf(name string) source.Origin {
	r.Helper()
	return generator.New(r.object("ExternalArtifact", name).(*source.ExternalArtifact), r.env)
}

// open returns the content of an artifact.
func (r *fixture) open(name string) (source.Content, error) {
	from := r.originOf(name)
	rev, _, err := from.Resolve(r.Context(), nil)
	if err != nil {
		return nil, err
	}
	content, err := from.Open(r.Context(), rev)
	must(r, err)
	return content, nil
}

// explained returns the content of an artifact and its tree. The content is closed at the end of
// the test.
func (r *fixture) explained(name string) (source.Content, *generator.Tree) {
	r.Helper()
	content, err := r.open(name)
	must(r, err)
	r.Cleanup(func() { content.Close() })
	files, _, err := content.(source.Explainer).Explain(r.Context())
	must(r, err)
	return content, files.(*generator.Tree)
}

// build makes an artifact and returns its files by name, and the notes.
func (r *fixture) build(name string) (map[string]string, []string, error) {
	content, err := r.open(name)
	if err != nil {
		return nil, nil, err
	}
	defer content.Close()
	var out bytes.Buffer
	report, err := content.WriteTo(r.Context(), &out)
	must(r, err)
	archive, err := artifact.Read(&out, artifact.Limits{})
	must(r, err)
	defer archive.Close()
	files := map[string]string{}
	must(r, fs.WalkDir(archive, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if below, err := fs.ReadDir(archive, name); err != nil || len(below) > 0 {
				return err
			}
			files[name+"/"] = ""
			return nil
		}
		info, err := d.Info()
		must(r, err)
		if info.Mode()&0o111 != 0 {
			name = "+" + name
		}
		text, err := fs.ReadFile(archive, strings.TrimPrefix(name, "+"))
		files[name] = string(text)
		return err
	}))
	return files, report.Notes, nil
}

// operations returns the artifacts of a generator: one, out, with these operations, one per line.
func operations(lines string) string {
	out := "  - name: out\n    copy:\n"
	for line := range strings.Lines(lines) {
		out += "    - {" + strings.TrimSpace(line) + "}\n"
	}
	return out
}

// sampleArchives are the sources of most tests.
func sampleArchives(t testing.TB) map[string]string {
	chart := pack(t, tree("app/Chart.yaml", "name: app\n", "app/values.yaml", "size: 1\n", "+app/run", ""))
	return map[string]string{
		"a": pack(t, tree(
			"README.md", "a", "config.yaml", "# kept\nb: {c: 1, l: [1, 2]}\na: 1\n", "+bin/run.sh", "#!/bin/sh\n", "void/", "",
			"configs/one.yaml", "one", "configs/two.yaml", "two", "configs/notes.md", "notes",
			"configs/sub/three.yaml", "three", "configs/sub/deep/four.yaml", "four", "configs/sub/testdata/x.yaml", "x", "configs/sub/notes.md", "more",
		)),
		"b": pack(t, tree(
			"config.yaml", "b: {c: 2, l: [3]}\n---\nd: 1.50\ne: 12345678901234567890\n", "configs/one.yaml", "one of b", "config.txt", "- no mapping\n",
			"charts/app-1.0.0.tgz", chart, "charts/more/OLD.TAR.GZ", pack(t, tree("old", "old")), "charts/readme.txt", "text", "charts/x.tgz/file", "",
			"images/logo.png", "png", ".gitignore", "*", "sub/.gitattributes", "", ".sourceignore", "*.png\n",
		)),
	}
}

// The copied files, derived from the rules one by one.
func TestCopy(t *testing.T) {
	archives := sampleArchives(t)
	allFiles := "README.md config.yaml +bin/run.sh void/ configs/one.yaml configs/two.yaml configs/notes.md configs/sub/three.yaml configs/sub/deep/four.yaml configs/sub/testdata/x.yaml configs/sub/notes.md"
	configs := "configs/one.yaml configs/two.yaml configs/notes.md configs/sub/three.yaml configs/sub/deep/four.yaml configs/sub/testdata/x.yaml configs/sub/notes.md"
	below := func(dir, names string) string {
		var all []string
		for name := range strings.FieldsSeq(names) {
			fileName, executable := strings.CutPrefix(name, "+")
			if name = dir + "/" + fileName; executable {
				name = "+" + name
			}
			all = append(all, name)
		}
		return strings.Join(all, " ")
	}
	contents := strings.ReplaceAll(configs, "configs/", "")
	for name, c := range map[string]struct{ copy, want string }{
		"a file to a path":                   {`from: "@a/config.yaml", to: "@artifact/apps/app.yaml"`, "apps/app.yaml"},
		"a file to a folder":                 {`from: "@a/config.yaml", to: "@artifact/apps/"`, "apps/config.yaml"},
		"a file to the root":                 {`from: "@a/config.yaml", to: "@artifact/"`, "config.yaml"},
		"a file to what is a folder by then": {"from: \"@a/void\", to: \"@artifact/apps\"\nfrom: \"@a/README.md\", to: \"@artifact/apps/void\"", "apps/void/README.md"},
		"an executable":                      {`from: "@a/bin/run.sh", to: "@artifact/run"`, "+run"},
		"a folder":                           {`from: "@a/configs", to: "@artifact/out"`, below("out", configs)},
		"a folder with slashes":              {`from: "@a/configs/", to: "@artifact/out/"`, below("out", configs)},
		"a folder to the root":               {`from: "@a/configs", to: "@artifact/"`, configs},
		"an empty folder":                    {`from: "@a/void", to: "@artifact/out"`, "out/void/"},
		"what a folder holds":                {`from: "@a/configs/**", to: "@artifact/out"`, below("out", contents)},
		"what a folder below holds":          {`from: "@a/configs/sub/**", to: "@artifact/"`, "three.yaml deep/four.yaml testdata/x.yaml notes.md"},
		"a pattern keeps the path":           {`from: "@a/configs/*.yaml", to: "@artifact/out/"`, "out/configs/one.yaml out/configs/two.yaml"},
		"a pattern across folders":           {`from: "@a/configs/**/*.yaml", to: "@artifact/"`, "configs/one.yaml configs/two.yaml configs/sub/three.yaml configs/sub/deep/four.yaml configs/sub/testdata/x.yaml"},
		"across folders from the root":       {`from: "@a/**/t*.yaml", to: "@artifact/"`, "configs/two.yaml configs/sub/three.yaml"},
		"a folder that matches, with all":    {`from: "@a/con*/s*", to: "@artifact/out"`, below("out", "configs/sub/three.yaml configs/sub/deep/four.yaml configs/sub/testdata/x.yaml configs/sub/notes.md")},
		"a pattern before **":                {`from: "@a/con*/sub/**", to: "@artifact/out"`, below("out", "configs/sub/three.yaml configs/sub/deep/four.yaml configs/sub/testdata/x.yaml configs/sub/notes.md")},
		"a source":                           {`from: "@a/", to: "@artifact/"`, allFiles},
		"a source below":                     {`from: "@a/", to: "@artifact/out"`, below("out", allFiles)},
		"all of a source":                    {`from: "@a/**", to: "@artifact/out/"`, below("out", allFiles)},
		"the top of a source":                {`from: "@a/*", to: "@artifact/"`, allFiles},
		"braces":                             {`from: "@a/configs/{one,two}.y*", to: "@artifact/"`, "configs/one.yaml configs/two.yaml"},
		"classes":                            {`from: "@a/configs/[!o]?o.yaml", to: "@artifact/"`, "configs/two.yaml"},
		"dots and slashes":                   {`from: "@a/./configs//one.yaml", to: "@artifact/./x//one.yaml"`, "x/one.yaml"},
		"two sources":                        {"from: \"@a/configs/one.yaml\", to: \"@artifact/\"\nfrom: \"@b/config.yaml\", to: \"@artifact/b/\"", "one.yaml b/config.yaml"},
		"the later counts":                   {"from: \"@a/configs/*.yaml\", to: \"@artifact/\"\nfrom: \"@b/configs/one.yaml\", to: \"@artifact/configs/\"", "configs/one.yaml=one_of_b configs/two.yaml=two"},
		"excluded at any depth":              {`from: "@a/configs/**", to: "@artifact/", exclude: ["*.md"]`, "one.yaml two.yaml sub/three.yaml sub/deep/four.yaml sub/testdata/x.yaml"},
		"excluded below the beginning":       {`from: "@a/configs/**", to: "@artifact/", exclude: ["sub/*.yaml", "*.md", "sub/deep"]`, "one.yaml two.yaml sub/testdata/x.yaml"},
		"excluded by the whole path":         {`from: "@a/configs/**", to: "@artifact/", exclude: [configs/sub]`, "one.yaml two.yaml notes.md"},
		"excluded folders":                   {`from: "@a/configs", to: "@artifact/", exclude: ["**/testdata/**", deep, "*.md"]`, "configs/one.yaml configs/two.yaml configs/sub/three.yaml"},
		"excluded from a pattern":            {`from: "@a/configs/*/*.yaml", to: "@artifact/", exclude: [sub]`, "configs/sub/three.yaml"},
		"excluded folder of a pattern":       {`from: "@a/configs/*", to: "@artifact/", exclude: [sub]`, "configs/one.yaml configs/two.yaml configs/notes.md"},
		"optional":                           {"from: \"@a/none/**\", to: \"@artifact/\", optional: true\nfrom: \"@a/none\", to: \"@artifact/\", optional: true\nfrom: \"@a/*.md\", to: \"@artifact/\", optional: true, exclude: [\"*\"]\nfrom: \"@a/README.md\", to: \"@artifact/\"", "README.md"},
		"merge":                              {"from: \"@a/config.yaml\", to: \"@artifact/v.yaml\"\nfrom: \"@b/config.yaml\", to: \"@artifact/v.yaml\", strategy: Merge", "v.yaml=a:_1|b:|__c:_2|__l:|__-_3|d:_1.5|e:_12345678901234567890|"},
		"merge into nothing":                 {`from: "@a/config.yaml", to: "@artifact/v.yaml", strategy: Merge`, "v.yaml=#_kept|b:_{c:_1,_l:_[1,_2]}|a:_1|"},
		"merge once":                         {`from: "@a/**", to: "@artifact/", strategy: Merge, exclude: [configs, bin, void, "*.md"]`, "config.yaml=#_kept|b:_{c:_1,_l:_[1,_2]}|a:_1|"},
		"merge folders":                      {"from: \"@a/config*\", to: \"@artifact/\", exclude: [configs]\nfrom: \"@b/config.*\", to: \"@artifact/\", strategy: Merge", "config.txt=-_no_mapping| config.yaml=a:_1|b:|__c:_2|__l:|__-_3|d:_1.5|e:_12345678901234567890|"},
		"extract":                            {`from: "@b/charts/app-1.0.0.tgz", to: "@artifact/charts", strategy: Extract`, "charts/app/Chart.yaml charts/app/values.yaml +charts/app/run"},
		"extract what matches":               {`from: "@b/charts/**", to: "@artifact/", strategy: Extract`, "app/Chart.yaml app/values.yaml +app/run old"},
		"extract in a folder":                {`from: "@b/charts/*", to: "@artifact/", strategy: Extract`, "app/Chart.yaml app/values.yaml +app/run"},
		"extract nothing":                    {"from: \"@b/charts/*.txt\", to: \"@artifact/\", strategy: Extract\nfrom: \"@b/charts/readme.txt\", to: \"@artifact/\"", "readme.txt"},
		"version control files are left out": {`from: "@b/", to: "@artifact/", exclude: [charts, "config*"]`, "images/logo.png .sourceignore sub/"},
	} {
		t.Run(name, func(t *testing.T) {
			got, _, err := newFixture(t, archives, operations(c.copy)).build("out")
			must(t, err)
			want := map[string]string{}
			for field := range strings.FieldsSeq(c.want) {
				file, text, given := strings.Cut(field, "=")
				if want[file] = strings.NewReplacer("_", " ", "|", "\n").Replace(text); !given {
					want[file] = got[file]
				}
			}
			if !maps.Equal(got, want) {
				t.Errorf("%q\nwant %q", got, want)
			}
		})
	}
}

// Each failure of an operation names the generator, the operation and its field.
func TestCopyErrors(t *testing.T) {
	archives := sampleArchives(t)
	archives["odd"] = pack(t, tree("broken.tgz", "no archive", "list.yaml", "- 1\n", "bad.yaml", "a: [\n", "big.yaml", strings.Repeat("# big\n", 1<<20), "map.yaml", "a: 1\n",
		"alias.yaml", "a: &a "+strings.Repeat("a", 1<<20)+"\nb: ["+strings.Repeat("*a,", 1<<17)+"]\n", "deep.yaml", "a: "+strings.Repeat("{a: ", 9000)+"1"+strings.Repeat("}", 9000)+"\n", "keys.yaml", "1: a\n\"1\": b\n",
		"up.tgz", string(testenv.Gzip(t, testenv.Tar(t, testenv.TarEntry{Header: tar.Header{Typeflag: tar.TypeReg, Name: "../up", Mode: 0o644}, Data: []byte("x")})))))
	archives["raw"] = "no archive at all"
	for copy, want := range map[string]string{
		`from: "@a/none", to: "@artifact/"`:                                                                                       `ArtifactGenerator/apps/app: spec.artifacts[0].copy[0].from: nothing in Bucket/apps/a of revision rev-.* matches "none": correct it, or set optional`,
		"from: \"@a/configs\", to: \"@artifact/\"\nfrom: \"@a/*.json\", to: \"@artifact/\"":                                       `copy[1].from: nothing in Bucket/apps/a`,
		`from: "@a/{README}.md", to: "@artifact/"`:                                                                                `matches "{README}.md"`,
		`from: "@a/README.md/x", to: "@artifact/"`:                                                                                `matches "README.md/x"`,
		`from: "@a/README.md/**", to: "@artifact/"`:                                                                               `matches "README.md/**"`,
		`from: "@a/*.md", to: "@artifact/", exclude: ["*"]`:                                                                       `copy[0].exclude: all that "*.md" matches in Bucket/apps/a is excluded`,
		`from: "@a/README.md", to: "@artifact/", exclude: ["*.md"]`:                                                               `copy[0].exclude: all that "README.md" matches`,
		`from: "@a/configs", to: "@artifact/", strategy: Extract`:                                                                 `copy[0].from: configs is no archive`,
		`from: "@b/charts/readme.txt", to: "@artifact/", strategy: Extract`:                                                       `copy[0].from: charts/readme.txt is no archive`,
		`from: "@odd/broken.tgz", to: "@artifact/", strategy: Extract`:                                                            `copy[0].from: extract broken.tgz: `,
		`from: "@odd/up.tgz", to: "@artifact/", strategy: Extract`:                                                                `copy[0].from: extract up.tgz: .*../up`,
		`from: "@raw/x", to: "@artifact/"`:                                                                                        `copy[0].from: Bucket/apps/raw: .*only a source whose artifact is an archive of files`,
		"from: \"@a/README.md\", to: \"@artifact/x\"\nfrom: \"@a/README.md\", to: \"@artifact/x/\"":                               `copy[1].to: x is a file in the artifact by then`,
		"from: \"@a/README.md\", to: \"@artifact/configs\"\nfrom: \"@a/configs\", to: \"@artifact/\"":                             `copy[1].to: configs is a file in the artifact by then`,
		"from: \"@a/configs\", to: \"@artifact/README.md\"\nfrom: \"@a/*.md\", to: \"@artifact/\"":                                `copy[1].to: README.md is a folder in the artifact by then`,
		"from: \"@a/config.yaml\", to: \"@artifact/\"\nfrom: \"@odd/list.yaml\", to: \"@artifact/config.yaml\", strategy: Merge":  `copy[1].from: merge list.yaml: it is no YAML`,
		"from: \"@a/config.yaml\", to: \"@artifact/\"\nfrom: \"@odd/bad.yaml\", to: \"@artifact/config.yaml\", strategy: Merge":   `copy[1].from: merge bad.yaml: `,
		"from: \"@a/config.yaml\", to: \"@artifact/\"\nfrom: \"@odd/big.yaml\", to: \"@artifact/config.yaml\", strategy: Merge":   `copy[1].from: merge big.yaml: it has more than 4 MiB`,
		"from: \"@a/config.yaml\", to: \"@artifact/\"\nfrom: \"@odd/alias.yaml\", to: \"@artifact/config.yaml\", strategy: Merge": `copy[1].from: merge alias.yaml: .*its aliases stand for more than 4194304 bytes`,
		"from: \"@a/config.yaml\", to: \"@artifact/\"\nfrom: \"@odd/deep.yaml\", to: \"@artifact/config.yaml\", strategy: Merge":  `copy[1].from: merge deep.yaml: .*more than 100 levels`,
		"from: \"@a/config.yaml\", to: \"@artifact/\"\nfrom: \"@odd/keys.yaml\", to: \"@artifact/config.yaml\", strategy: Merge":  `copy[1].from: merge keys.yaml: .*two keys are "1"`,
		"from: \"@odd/list.yaml\", to: \"@artifact/\"\nfrom: \"@odd/map.yaml\", to: \"@artifact/list.yaml\", strategy: Merge":     `copy[1].from: merge into list.yaml of the artifact: `,
	} {
		r := newFixture(t, archives, operations(copy))
		_, _, err := r.build("out")
		step, ok := errors.AsType[*source.StepError](err)
		if !ok || step.Step != source.StepBuild || step.Reason != "BuildFailed" || !says(err, want) {
			t.Errorf("%s: %v, want %s", copy, err, want)
		}
	}
}

// The inputs of an artifact, and the artifact itself, are limited.
func TestLimits(t *testing.T) {
	archives := map[string]string{"a": pack(t, tree("a", strings.Repeat("a", 6000))), "b": pack(t, tree("b", strings.Repeat("b", 6000))),
		"bomb": pack(t, tree("zeros.tgz", pack(t, tree("zeros", strings.Repeat("\x00", 2<<20)))))}
	both := "from: \"@a/a\", to: \"@artifact/\"\nfrom: \"@b/b\", to: \"@artifact/\""
	for _, c := range []struct {
		limits     artifact.Limits
		copy, want string
	}{
		{artifact.Limits{Bytes: 40000, Entries: 10}, both, ""},
		{artifact.Limits{Bytes: -1, Entries: -1}, both, ""},
		{artifact.Limits{Bytes: 11000}, both, "copy[1].from: Bucket/apps/b: .*all that the artifact is made of"},
		{artifact.Limits{Bytes: 1 << 20}, `from: "@bomb/zeros.tgz", to: "@artifact/", strategy: Extract`, "copy[0].from: extract zeros.tgz: "},
		{artifact.Limits{Entries: 3}, both, "copy[1].from: Bucket/apps/b: "},
		{artifact.Limits{Bytes: 13000}, "from: \"@a/a\", to: \"@artifact/\"\nfrom: \"@a/a\", to: \"@artifact/x\"\nfrom: \"@a/a\", to: \"@artifact/y\"", "copy[2].to: "},
		{artifact.Limits{Entries: 4}, "from: \"@a/a\", to: \"@artifact/1/2/3/4/\"", "copy[0].to: "},
	} {
		r := newFixture(t, archives, operations(c.copy))
		r.env.Limits = c.limits
		_, _, err := r.build("out")
		if (err == nil) != (c.want == "") || c.want != "" && !says(err, c.want) {
			t.Errorf("%+v: %v, want %s", c.limits, err, c.want)
		}
	}
}

// The number of open files does not depend on the number of extracted archives.
func TestExtractMany(t *testing.T) {
	archives := fstest.MapFS{}
	for i := range 20 {
		archives[fmt.Sprintf("%d.tgz", i)] = &fstest.MapFile{Data: []byte(pack(t, tree(fmt.Sprint(i), fmt.Sprint("text ", i))))}
	}
	r := newFixture(t, map[string]string{"a": pack(t, archives)}, operations(`from: "@a/**", to: "@artifact/", strategy: Extract`))
	var spools []*os.File
	r.env.Limits.Temp = func() (*os.File, error) {
		f, err := r.store.Temp()
		spools = append(spools, f)
		return f, err
	}
	open := func() (n int) {
		for _, f := range spools {
			if _, err := f.Stat(); err == nil {
				n++
			}
		}
		return n
	}
	content, err := r.open("out")
	must(t, err)
	files, _, err := content.(source.Explainer).Explain(t.Context())
	must(t, err)
	for i := range 20 {
		if text, err := fs.ReadFile(files, fmt.Sprint(i)); err != nil || string(text) != fmt.Sprint("text ", i) {
			t.Errorf("%d: %q, %v", i, text, err)
		}
	}
	before := open()
	must(t, content.Close())
	if after := open(); before-after != 1 || before > 3 {
		t.Errorf("%d of %d spools are open, then %d", before, len(spools), after)
	}
}

// An operation that overwrites files of another is reported, and so are the steps of each file.
func TestTrace(t *testing.T) {
	r := newFixture(t, sampleArchives(t), operations(`from: "@a/config*", to: "@artifact/"
from: "@b/configs/**", to: "@artifact/configs"
from: "@b/config.yaml", to: "@artifact/", strategy: Merge
from: "@b/charts/*.tgz", to: "@artifact/charts/", strategy: Extract`))
	_, notes, err := r.build("out")
	must(t, err)
	if want := []string{"spec.artifacts[0].copy[1] overwrites files of earlier operations, 1 in all: configs/one.yaml"}; !slices.Equal(notes, want) {
		t.Errorf("%q, want %q", notes, want)
	}
	_, files := r.explained("out")
	for name, want := range map[string]string{
		"configs/one.yaml":      "copy[0] Bucket/apps/a configs/one.yaml overwritten + copy[1] Bucket/apps/b configs/one.yaml",
		"configs/two.yaml":      "copy[0] Bucket/apps/a configs/two.yaml",
		"config.yaml":           "copy[0] Bucket/apps/a config.yaml + copy[2] Bucket/apps/b config.yaml",
		"charts/app/Chart.yaml": "copy[3] Bucket/apps/b charts/app-1.0.0.tgz:app/Chart.yaml",
		"configs":               "",
		"none":                  "",
	} {
		var all []string
		for _, s := range files.Steps(name) {
			text := strings.TrimPrefix(s.Operation, "spec.artifacts[0].") + " " + s.Source + " " + s.Path
			if s.Overwritten {
				text += " overwritten"
			}
			if all = append(all, text); s.Revision == "" {
				t.Errorf("%+v", s)
			}
		}
		testenv.Equal(t, strings.Join(all, " + "), want, name)
	}
	many := fstest.MapFS{}
	for i := range 12 {
		many[fmt.Sprint(i)] = &fstest.MapFile{}
	}
	r = newFixture(t, map[string]string{"a": pack(t, many)}, operations("from: \"@a/**\", to: \"@artifact/\"\nfrom: \"@a/**\", to: \"@artifact/\""))
	if _, notes, err = r.build("out"); err != nil || len(notes) != 1 || !strings.HasSuffix(notes[0], "12 in all: 0, 1, 10, 11, 2") {
		t.Errorf("%q %v", notes, err)
	}
}

// split defines two artifacts from one source.
const split = `  - {name: web, originRevision: "@repo", copy: [{from: "@repo/web/**", to: "@artifact/"}]}
  - {name: api, revision: "@repo", copy: [{from: "@repo/api/**", to: "@artifact/"}]}
`

// reconcile brings an object up to date, using and updating its state.
func (r *fixture) reconcile(obj source.Object, from source.Origin, state *source.State) source.Outcome {
	r.Helper()
	reconciler := source.Reconciler{Store: r.store,
		Load: func(context.Context, source.Object) (source.State, error) { return *state, nil },
		Save: func(_ context.Context, _ source.Object, s source.State) error { *state = s; return nil }}
	result, err := reconciler.Reconcile(r.Context(), obj, from)
	if result.Outcome == source.Stored || result.Outcome == source.Unchanged {
		must(r, err)
	}
	return result.Outcome
}

// An artifact is made again if its own content or its revision has changed.
func TestRevision(t *testing.T) {
	r := newFixture(t, map[string]string{"repo": pack(t, tree("web/a", "1", "api/a", "1", "c", "1"))}, split)
	states := map[string]*source.State{"web": new(source.State), "api": new(source.State)}
	run := func(step string, want ...source.Outcome) {
		t.Helper()
		for i, name := range []string{"web", "api"} {
			testenv.Equal(t, r.reconcile(r.object("ExternalArtifact", name), r.originOf(name), states[name]), want[i], "%s: %s", step, name)
		}
	}
	run("first", source.Stored, source.Stored)
	repo := func() *artifact.Artifact { return r.object("Bucket", "repo").Artifact() }
	web, api := r.object("ExternalArtifact", "web").Artifact(), r.object("ExternalArtifact", "api").Artifact()
	if web.Revision != "latest@"+web.Digest || web.Metadata["org.opencontainers.image.revision"] != repo().Revision || !strings.HasSuffix(web.Path, "/web.tar.gz") {
		t.Errorf("%+v", web)
	}
	if api.Revision != repo().Revision || api.Metadata != nil {
		t.Errorf("%+v", api)
	}
	run("again", source.Unchanged, source.Unchanged)
	r.publish("repo", pack(t, tree("web/a", "1", "api/a", "1", "c", "2")))
	run("neither half", source.Unchanged, source.Stored) // its revision is that of the source
	if now := r.object("ExternalArtifact", "web").Artifact(); now.Digest != web.Digest || now.Metadata["org.opencontainers.image.revision"] != repo().Revision {
		t.Errorf("%+v", now)
	}
	if now := r.object("ExternalArtifact", "api").Artifact(); now.Digest != api.Digest || now.Revision != repo().Revision {
		t.Errorf("%+v", now)
	}
	r.publish("repo", pack(t, tree("web/a", "2", "api/a", "1", "c", "2")))
	run("one half", source.Stored, source.Stored)
	if now := r.object("ExternalArtifact", "web").Artifact(); now.Revision == web.Revision || now.Metadata["org.opencontainers.image.revision"] != repo().Revision {
		t.Errorf("%+v", now)
	}
	e := r.object("ExternalArtifact", "api").(*source.ExternalArtifact)
	e.Composed.Artifact.Copy[0].To = "@artifact/moved"
	run("another composition of the same revision", source.Unchanged, source.Stored)
	*states["api"] = nil
	run("a state that was lost", source.Unchanged, source.Unchanged)
	api = r.object("ExternalArtifact", "api").Artifact()
	a, err := r.store.Put(t.Context(), "externalartifact/apps/api", "api.tar.gz", func(w io.Writer) error { _, err := io.WriteString(w, "locked"); return err })
	must(t, err)
	a.Revision = api.Revision
	e.Status.Artifact = &a
	run("an artifact of another run", source.Unchanged, source.Stored)
	testenv.Equal(t, r.object("ExternalArtifact", "api").Artifact().Digest, api.Digest)
	r.object("Bucket", "repo").Artifact().Metadata = map[string]string{"org.opencontainers.image.revision": "main@sha1:1234"}
	rev, _, err := r.originOf("web").Resolve(t.Context(), nil)
	if err != nil || rev.Metadata["org.opencontainers.image.revision"] != "main@sha1:1234" {
		t.Errorf("%+v %v", rev, err)
	}
	r.env.Pin = &source.Pin{Revision: "latest@sha256:locked"}
	if rev, _, err = r.originOf("web").Resolve(t.Context(), nil); err != nil || rev.ID != "latest@sha256:locked" {
		t.Errorf("%+v %v", rev, err)
	}
	_, err = r.originOf("web").Open(t.Context(), source.Revision{})
	testenv.ErrorSays(t, err, "resolve it again")
}

// An artifact waits for a source that is not ready, and the last artifact stays.
func TestWaiting(t *testing.T) {
	r := newFixture(t, map[string]string{"repo": pack(t, tree("web/a", "1", "api/a", "1"))}, split)
	web, g := r.object("ExternalArtifact", "web"), r.object("ArtifactGenerator", "app").(*source.ArtifactGenerator)
	summary := generator.NewSummary(g, r.env)
	condition := func(outcome source.Outcome, status, reason, message string) {
		t.Helper()
		got := r.reconcile(g, summary, new(source.State))
		c := g.Common().Condition(source.ReadyCondition)
		if got != outcome || c.Status != status || c.Reason != reason || !strings.Contains(c.Message, message) {
			t.Errorf("%s, %+v", got, c)
		}
	}
	condition(source.Waiting, "False", "Progressing", "ExternalArtifact/apps/web is not ready: it was not made yet")
	for _, name := range []string{"web", "api"} {
		r.reconcile(r.object("ExternalArtifact", name), r.originOf(name), new(source.State))
	}
	condition(source.Unchanged, "True", "Succeeded", "generated 2 artifact(s)")
	inventory := g.Status.Inventory
	if len(inventory) != 2 || inventory[0] != (source.InventoryEntry{Name: "web", Namespace: "apps", Digest: web.Artifact().Digest, Filename: "web.tar.gz"}) {
		t.Errorf("%+v", inventory)
	}
	observed := g.Status.ObservedSourcesDigest
	if !strings.HasPrefix(observed, "sha256:") {
		t.Error(observed)
	}
	before := web.Artifact()
	r.object("Bucket", "repo").Common().Artifact = nil
	if got := r.reconcile(web, r.originOf("web"), new(source.State)); got != source.Waiting || web.Artifact().Digest != before.Digest {
		t.Errorf("%s", got)
	}
	if c := web.Common().Condition(source.ReadyCondition); c.Reason != "SourceFetchFailed" || !strings.Contains(c.Message, "ArtifactGenerator/apps/app: spec.sources: waiting for a dependency: Bucket/apps/repo has no artifact yet") {
		t.Errorf("%+v", c)
	}
	condition(source.Waiting, "False", "SourceFetchFailed", "ExternalArtifact/apps/web is not ready: ArtifactGenerator/apps/app: spec.sources")
	if len(g.Status.Inventory) != 2 || g.Status.ObservedSourcesDigest == observed {
		t.Errorf("%+v", g.Status)
	}
	r.publish("repo", pack(t, tree("web/a", "2")))
	must(t, r.store.Withdraw(*r.object("Bucket", "repo").Artifact()))
	if got := r.reconcile(web, r.originOf("web"), new(source.State)); got != source.Waiting {
		t.Errorf("%s, %+v", got, web.Common().Conditions)
	}
	web.(*source.ExternalArtifact).Composed.Sources[0] = source.GeneratorSource{Alias: "repo", Kind: "ExternalArtifact", Namespace: "apps", Name: "web"}
	if got := r.reconcile(web, r.originOf("web"), new(source.State)); got != source.Stalled || web.Common().Condition(source.ReadyCondition).Reason != "ValidationFailed" {
		t.Errorf("%s, %+v", got, web.Common().Conditions)
	}
	condition(source.Stalled, "False", "ValidationFailed", "made of itself")
	r.env.Sources = &source.Inventory{Objects: []source.Object{g}}
	summary = generator.NewSummary(g, r.env)
	condition(source.Waiting, "False", "ReconciliationFailed", "spec.artifacts: waiting for a dependency: ExternalArtifact/apps/web")
	_, err := summary.Open(t.Context(), source.Revision{})
	testenv.ErrorIs(t, err, errors.ErrUnsupported)
}

// The tree of an artifact is a file system, except that folders can only be listed.
func TestTree(t *testing.T) {
	r := newFixture(t, sampleArchives(t), operations("from: \"@a/configs/sub\", to: \"@artifact/\"\nfrom: \"@a/config.yaml\", to: \"@artifact/\"\nfrom: \"@b/config.yaml\", to: \"@artifact/\", strategy: Merge"))
	content, files := r.explained("out")
	for _, name := range []string{"config.yaml", "sub/three.yaml"} {
		f, err := files.Open(name)
		must(t, err)
		info, err := f.Stat()
		must(t, err)
		text, err := io.ReadAll(f)
		if must(t, err); info.Name() != name[strings.LastIndex(name, "/")+1:] || info.Size() != int64(len(text)) || info.Sys() != nil || info.ModTime().Unix() != 0 {
			t.Errorf("%v, %d bytes", info, len(text))
		}
		must(t, f.Close())
	}
	if _, err := files.Open("sub"); err == nil {
		t.Error("a folder was opened")
	}
	_, err := fs.ReadDir(files, "none")
	testenv.ErrorIs(t, err, fs.ErrNotExist)
	_, err = files.Open("none")
	testenv.ErrorIs(t, err, fs.ErrNotExist)
	if v, err := content.Verify(t.Context()); err != nil || cmp.Or(v.Message, v.Mode) != "" {
		t.Error(err)
	}
}

// countingSources counts how often artifacts are opened.
type countingSources struct {
	source.Sources
	opened *atomic.Int32
}

func (c countingSources) Open(ctx context.Context, a artifact.Artifact) (io.ReadCloser, error) {
	c.opened.Add(1)
	return c.Sources.Open(ctx, a)
}

// An artifact that several artifacts are made from is read once.
func TestArchives(t *testing.T) {
	r := newFixture(t, map[string]string{"repo": pack(t, tree("web/a", "1", "api/a", "2"))}, split)
	archives, opened := new(source.Archives), new(atomic.Int32)
	defer archives.Close()
	fullEnv := r.env
	r.env.Archives, r.env.Sources = archives, countingSources{r.env.Sources, opened}
	var all sync.WaitGroup
	for _, name := range []string{"web", "api", "web"} {
		all.Go(func() {
			if _, _, err := r.build(name); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	testenv.Equal(t, opened.Load(), 1, "times it was opened")
	archives.Close()
	must(t, r.store.Withdraw(*r.object("Bucket", "repo").Artifact()))
	_, _, err := r.build("web")
	testenv.ErrorIs(t, err, source.ErrWaiting)
	r.publish("repo", pack(t, tree("web/a", "1", "api/a", "2"))) // a failed read is repeated
	if _, _, err := r.build("web"); err != nil || opened.Load() != 3 {
		t.Errorf("%v, opened %d times", err, opened.Load())
	}
	tree, release, err := archives.Open(t.Context(), fullEnv.Sources, *r.object("Bucket", "repo").Artifact(), artifact.Limits{})
	must(t, err)
	archives.Close() // the archive still has a user
	if _, err := fs.ReadFile(tree, "web/a"); err != nil {
		t.Error(err)
	}
	release()
	archives.Close()
	if _, err := fs.ReadFile(tree, "web/a"); err == nil {
		t.Error("an archive without users is open")
	}
}

// A generator may make as many artifacts as the specification allows.
func TestManyArtifacts(t *testing.T) {
	var artifacts strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&artifacts, "  - {name: a%d, copy: [{from: \"@repo/a\", to: \"@artifact/\"}]}\n", i)
	}
	r := newFixture(t, map[string]string{"repo": pack(t, tree("a", "1"))}, artifacts.String())
	for _, obj := range r.set.Objects {
		if e, ok := obj.(*source.ExternalArtifact); ok {
			e.Status.Artifact = &artifact.Artifact{Digest: "sha256:1"}
			e.Status.Conditions = []source.Condition{{Type: source.ReadyCondition, Status: "True"}}
		}
	}
	rev, _, err := generator.NewSummary(r.object("ArtifactGenerator", "app").(*source.ArtifactGenerator), r.env).Resolve(t.Context(), nil)
	if err != nil || rev.Ready != "reconciliation succeeded, generated 1000 artifact(s)" || len(rev.Inputs) != 1001 {
		t.Errorf("%q, %d inputs, %v", rev.Ready, len(rev.Inputs), err)
	}
}
