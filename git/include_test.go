package git_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// mixes are includes and what comes of them.
var mixes = []struct {
	name     string
	includes []string
	ignore   string
	want     string
}{
	{"default path", []string{"lib:charts"}, "", "app.yaml=own base/a.yaml=own~a base/deep/x.yaml=own~x lib/run.sh=#! lib/web/Chart.yaml=web"},
	{"merged into folders that are there", []string{"lib:base:base"}, "", "app.yaml=own base/a.yaml=lib~a base/b.yaml=lib~b base/deep/x.yaml=own~x base/deep/y.yaml=lib~y"},
	{"the later wins", []string{"lib:base:base", "other:base:base"}, "", "app.yaml=own base/a.yaml=other~a base/b.yaml=lib~b base/c.yaml=other~c base/deep/x.yaml=own~x base/deep/y.yaml=lib~y"},
	{"the later wins, the other way round", []string{"other:base:base", "lib:base:base"}, "", "app.yaml=own base/a.yaml=lib~a base/b.yaml=lib~b base/c.yaml=other~c base/deep/x.yaml=own~x base/deep/y.yaml=lib~y"},
	{"at the root", []string{"other:.:."}, "", "app.yaml=own base/a.yaml=other~a base/c.yaml=other~c base/deep/x.yaml=own~x"},
	{"at the root, with slashes", []string{"other:/:/"}, "", "app.yaml=own base/a.yaml=other~a base/c.yaml=other~c base/deep/x.yaml=own~x"},
	{"new parents", []string{"lib:charts/web:vendor/a/b"}, "", "app.yaml=own base/a.yaml=own~a base/deep/x.yaml=own~x vendor/a/b/Chart.yaml=web"},
	{"in what was included before", []string{"lib:charts:c", "Bucket/data:.:c/web"}, "", "app.yaml=own base/a.yaml=own~a base/deep/x.yaml=own~x c/run.sh=#! c/web/Chart.yaml=web c/web/data.csv=1,2"},
	{"ignore files of what is included", []string{"strict::s"}, "", "app.yaml=own base/a.yaml=own~a base/deep/x.yaml=own~x logo.png=png s/.sourceignore=*.tmp s/keep.yaml=k s/sub/.sourceignore=*.log"},
	{"spec.ignore rules what is included", []string{"strict::s"}, "!drop.tmp\n/s/sub\n.sourceignore\n*.png", "app.yaml=own base/a.yaml=own~a base/deep/x.yaml=own~x s/drop.tmp=d s/keep.yaml=k"},
	{"all of it ignored", []string{"lib"}, "/lib", "app.yaml=own base/a.yaml=own~a base/deep/x.yaml=own~x logo.png=png"},
	{"other kinds", []string{"OCIRepository/image", "PkgChart/chart:web:charts/web", "Bucket/data::base"}, "",
		"app.yaml=own base/a.yaml=own~a base/data.csv=1,2 base/deep/x.yaml=own~x charts/web/Chart.yaml=name:~web charts/web/templates/x.yaml=x image/manifest.yaml=m"},
}

func TestInclude(t *testing.T) {
	repo := testenv.NewRepo(t)
	commit := repo.Commit(testenv.Commit{Branch: "main", Files: own()})
	dir := t.TempDir()
	if err := os.CopyFS(dir, own()); err != nil {
		t.Fatal(err)
	}
	p := filled(t)
	for _, row := range mixes {
		var archives [][]byte
		for at, path := range map[string]string{"main@sha1:" + commit: repo.Dir, "local@sha256:": dir} {
			env := p.env()
			env.Local = map[string]string{atURL: path}
			g := including(atURL, row.includes...)
			if row.ignore != "" {
				g.Spec.Ignore = &row.ignore
			}
			p.opened.Store(0)
			rev, data, report := fetch(t, g, env)
			archives = append(archives, data)
			want := strings.ReplaceAll(strings.ReplaceAll(row.want, " ", "\n"), "~", " ")
			if got := lines(contents(t, data)); got != want {
				t.Errorf("%s: content\n%s\nwant\n%s", row.name, got, want)
			}
			if !strings.HasPrefix(rev.ID, at) || len(rev.Inputs) != len(row.includes) || int(p.opened.Load()) != len(row.includes) || report.Files == 0 {
				t.Errorf("%s: revision %s with %d inputs, %d artifacts opened", row.name, rev.ID, len(rev.Inputs), p.opened.Load())
			}
		}
		if !bytes.Equal(archives[0], archives[1]) {
			t.Errorf("%s: a repository and a directory make different archives", row.name)
		}
	}
}

// What cannot be included, and what comes of it.
func TestIncludeErrors(t *testing.T) {
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Files: own()})
	dir := t.TempDir()
	if err := os.CopyFS(dir, own()); err != nil {
		t.Fatal(err)
	}
	p := filled(t)
	for _, row := range []struct {
		name, include string
		step          source.Step
		reason        string
		is            error
		text          string
	}{
		{"missing", "none", source.StepInclude, "NotFound", source.ErrWaiting, "GitRepository/default/none: no such object"},
		{"missing as that kind", "Bucket/lib", source.StepInclude, "NotFound", fs.ErrNotExist, "Bucket/default/lib: no such object"},
		{"no artifact", "empty", source.StepInclude, "NoArtifact", source.ErrWaiting, "GitRepository/default/empty has no artifact yet"},
		{"gone", "gone", source.StepInclude, "NoArtifact", source.ErrWaiting, "spec.include[0]: GitRepository/default/gone: waiting for a dependency: the artifact is gone"},
		{"damaged", "damaged", source.StepStore, "CopyFailure", nil, "spec.include[0]: GitRepository/default/damaged: "},
		{"no digest", "unchecked", source.StepStore, "CopyFailure", nil, "no digest"},
		{"an index", "PkgRepository/index", source.StepStore, "CopyFailure", artifact.ErrFormat, "only sources whose artifact is an archive of files can be included"},
		{"no such fromPath", "lib:nowhere", source.StepStore, "CopyFailure", nil, `fromPath "nowhere" does not exist in revision main@sha1:lib`},
		{"fromPath is a file", "lib:base/a.yaml", source.StepStore, "CopyFailure", nil, "is a file"},
		{"fromPath below a file", "lib:base/a.yaml/x", source.StepStore, "CopyFailure", nil, "does not exist"},
		{"folder on a file", "lib:base:app.yaml", source.StepStore, "CopyFailure", fs.ErrExist, "app.yaml"},
		{"folder below a file", "lib:base:app.yaml/x/y", source.StepStore, "CopyFailure", fs.ErrExist, "app.yaml"},
		{"file on a folder", "blocks:.:.", source.StepStore, "CopyFailure", fs.ErrExist, "base"},
		{"folder on a file, deeper", "folder:.:.", source.StepStore, "CopyFailure", fs.ErrExist, "app.yaml"},
		{"out of the artifact", "lib:../x", source.StepStore, "IllegalPath", source.ErrInvalid, "spec.include[0]: fromPath must not lead out of the source"},
		{"out of the tree", "lib:.:base/../../x", source.StepStore, "IllegalPath", source.ErrInvalid, "spec.include[0]: toPath must not lead out of the source"},
		{"backslash", `lib:.:base\x`, source.StepStore, "IllegalPath", source.ErrInvalid, "toPath must use '/'"},
		{"control character", "lib:.:base\x1b", source.StepStore, "IllegalPath", source.ErrInvalid, "toPath must not hold control characters"},
		{".git", "lib:.:.git/hooks", source.StepStore, "IllegalPath", source.ErrInvalid, "take for .git"},
		{".git of another spelling", "lib:.:a/.GIT ./x", source.StepStore, "IllegalPath", source.ErrInvalid, "take for .git"},
		{".git by its short name", "lib:.:git~1", source.StepStore, "IllegalPath", source.ErrInvalid, "take for .git"},
		{"a name that leads out", "../../x", source.StepStore, "IllegalPath", source.ErrInvalid, "toPath must not lead out"},
	} {
		for _, path := range []string{repo.Dir, dir} {
			env := p.env()
			env.Local = map[string]string{atURL: path}
			_, _, _, err := try(t.Context(), including(atURL, row.include), env)
			var step *source.StepError
			if !errors.As(err, &step) || step.Step != row.step || step.Reason != row.reason || !strings.Contains(err.Error(), row.text) {
				t.Errorf("%s: %v (%+v)", row.name, err, step)
			}
			if row.is != nil && !errors.Is(err, row.is) {
				t.Errorf("%s: %v is no %v", row.name, err, row.is)
			}
		}
	}
	env := source.Env{Local: map[string]string{atURL: repo.Dir}}
	if _, _, _, err := try(t.Context(), including(atURL, "lib"), env); !errors.Is(err, source.ErrWaiting) {
		t.Errorf("no sources at all: %v", err)
	}
	var wrong *artifact.DigestError
	env.Sources = p
	if _, _, _, err := try(t.Context(), including(atURL, "damaged"), env); !errors.As(err, &wrong) && !errors.Is(err, artifact.ErrFormat) {
		t.Errorf("damaged: %v", err)
	}
}
