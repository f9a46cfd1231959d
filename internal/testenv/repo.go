package testenv

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

// Epoch is when the first commit of every repository is made; each further one is a minute later.
var Epoch = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

// A Repo is a bare Git repository on disk.
type Repo struct {
	Dir   string
	t     testing.TB
	env   []string
	ticks int
}

// NewRepo makes an empty repository whose HEAD is refs/heads/main.
func NewRepo(t testing.TB) *Repo {
	t.Helper()
	return NewRepoIn(t, "sha1")
}

// NewRepoIn is [NewRepo] in an object format, sha1 or sha256. It is written
// without git, which takes its time.
func NewRepoIn(t testing.TB, format string) *Repo {
	t.Helper()
	r := &Repo{Dir: filepath.Join(t.TempDir(), "repo.git"), t: t, env: GitEnv(t)}
	config := "[core]\n\trepositoryformatversion = 1\n\tbare = true\n[extensions]\n\tobjectformat = " + format + "\n"
	if format == "sha1" {
		config = "[core]\n\trepositoryformatversion = 0\n\tbare = true\n"
	}
	for _, dir := range []string{"objects/info", "objects/pack", "refs/heads", "refs/tags"} {
		check(t, os.MkdirAll(filepath.Join(r.Dir, dir), 0o755))
	}
	r.write("config", config)
	r.write("HEAD", "ref: refs/heads/main\n")
	return r
}

// write writes a file of the repository.
func (r *Repo) write(name, content string) {
	r.t.Helper()
	name = filepath.Join(r.Dir, filepath.FromSlash(name))
	check(r.t, os.MkdirAll(filepath.Dir(name), 0o755))
	check(r.t, os.WriteFile(name, []byte(content), 0o644))
}

// GitEnv returns an environment in which git reads no configuration of the machine.
func GitEnv(t testing.TB) []string {
	t.Helper()
	env := []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(),
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull,
		"GIT_TERMINAL_PROMPT=0", "LC_ALL=C", "TZ=UTC",
		"GIT_AUTHOR_NAME=tester", "GIT_AUTHOR_EMAIL=tester@example.com",
		"GIT_COMMITTER_NAME=tester", "GIT_COMMITTER_EMAIL=tester@example.com",
	}
	if runtime.GOOS == "windows" {
		env = append(env, "SystemRoot="+os.Getenv("SystemRoot"), "TEMP="+os.Getenv("TEMP"))
	}
	return env
}

// A Commit describes a commit to make.
type Commit struct {
	Branch  string       // moved to the commit; "" leaves it without a ref
	Message string       // default "commit"
	Files   fstest.MapFS // the whole tree; see [Gitlink] for entries that are submodules
	Tree    string       // id of a tree, instead of Files
	Parents []string     // default the commit that Branch is at; []string{} for a root
	Time    time.Time    // default a minute after the previous
}

// Gitlink returns the entry of a submodule at a commit.
func Gitlink(id string) *fstest.MapFile {
	return &fstest.MapFile{Mode: fs.ModeIrregular, Data: []byte(id)}
}

// Commit makes a commit and returns its id.
func (r *Repo) Commit(c Commit) string {
	r.t.Helper()
	if c.Message == "" {
		c.Message = "commit"
	}
	if c.Parents == nil && c.Branch != "" && r.has("refs/heads/"+c.Branch) {
		c.Parents = []string{"refs/heads/" + c.Branch + "^0"}
	}
	if c.Tree == "" && c.Branch != "" {
		return r.importCommit(c)
	}
	if c.Tree == "" {
		c.Tree = r.Tree(c.Files)
	}
	args := []string{"commit-tree", c.Tree}
	for _, p := range c.Parents {
		args = append(args, "-p", p)
	}
	date := r.date(c.Time)
	id := r.run(strings.NewReader(c.Message), []string{"GIT_AUTHOR_DATE=" + date, "GIT_COMMITTER_DATE=" + date}, args...)
	if c.Branch != "" {
		r.Ref("refs/heads/"+c.Branch, id)
	}
	return id
}

// has reports whether there is a ref.
func (r *Repo) has(ref string) bool {
	if _, err := os.Stat(filepath.Join(r.Dir, filepath.FromSlash(ref))); err == nil {
		return true
	}
	packed, _ := os.ReadFile(filepath.Join(r.Dir, "packed-refs"))
	return strings.Contains(string(packed), " "+ref+"\n")
}

// importCommit makes tree, commit and branch by one process: a commit costs
// little time that way.
func (r *Repo) importCommit(c Commit) string {
	var in bytes.Buffer
	date := r.date(c.Time)
	fmt.Fprintf(&in, "commit refs/heads/%s\nmark :1\n", c.Branch)
	for _, who := range []string{"author", "committer"} {
		fmt.Fprintf(&in, "%s tester <tester@example.com> %s\n", who, date)
	}
	fmt.Fprintf(&in, "data %d\n%s\n", len(c.Message), c.Message)
	for i, p := range c.Parents {
		fmt.Fprintf(&in, "%s %s\n", []string{"from", "merge"}[min(i, 1)], p)
	}
	writeTree(&in, c.Files)
	fmt.Fprintf(&in, "get-mark :1\n")
	return r.run(&in, nil, "fast-import", "--quiet", "--force")
}

// Tree stores a tree and returns its id. Executable files, symbolic links
// (Data is the target) and gitlinks keep their kind; empty folders do not exist in Git.
func (r *Repo) Tree(files fstest.MapFS) string {
	r.t.Helper()
	var in bytes.Buffer
	fmt.Fprintf(&in, "commit refs/testenv/tree\ncommitter tester <tester@example.com> 0 +0000\ndata 0\n")
	writeTree(&in, files)
	r.run(&in, nil, "fast-import", "--quiet", "--force")
	tree := r.ID("refs/testenv/tree^{tree}")
	r.Git("update-ref", "-d", "refs/testenv/tree")
	return tree
}

// writeTree writes the commands of git fast-import that make a tree.
func writeTree(in *bytes.Buffer, files fstest.MapFS) {
	fmt.Fprintf(in, "deleteall\n")
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f := files[name]
		kind := "100644"
		switch mode := f.Mode; {
		case mode.IsDir():
			continue
		case mode&fs.ModeIrregular != 0:
			fmt.Fprintf(in, "M 160000 %s %q\n", f.Data, name)
			continue
		case mode&fs.ModeSymlink != 0:
			kind = "120000"
		case mode&0o100 != 0:
			kind = "100755"
		}
		fmt.Fprintf(in, "M %s inline %q\ndata %d\n%s\n", kind, name, len(f.Data), f.Data)
	}
}

// Object stores raw bytes as an object of a kind (blob, tree, commit, tag)
// without any check, and returns its id.
func (r *Repo) Object(kind string, raw []byte) string {
	r.t.Helper()
	return r.run(bytes.NewReader(raw), nil, "hash-object", "-t", kind, "--literally", "-w", "--stdin")
}

// Ref makes a ref of any full name point at an object.
func (r *Repo) Ref(name, id string) { r.t.Helper(); r.write(name, id+"\n") }

// Tag makes a lightweight tag.
func (r *Repo) Tag(name, id string) { r.t.Helper(); r.Ref("refs/tags/"+name, id) }

// AnnotatedTag makes an annotated tag and returns the id of the tag object.
func (r *Repo) AnnotatedTag(name, id, message string) string {
	r.t.Helper()
	r.run(nil, []string{"GIT_COMMITTER_DATE=" + r.date(time.Time{})}, "tag", "-a", "-m", message, name, id)
	return r.ID("refs/tags/" + name)
}

// ID returns the id that a revision expression stands for.
func (r *Repo) ID(rev string) string { r.t.Helper(); return r.Git("rev-parse", "--verify", "-q", rev) }

// Git runs git in the repository and returns its output without the final line break.
func (r *Repo) Git(args ...string) string { r.t.Helper(); return r.run(nil, nil, args...) }

// GitInput is [Repo.Git] with something on standard input.
func (r *Repo) GitInput(stdin string, args ...string) string {
	r.t.Helper()
	return r.run(strings.NewReader(stdin), nil, args...)
}

// date returns a time as git writes it; the zero time stands for the next tick.
func (r *Repo) date(at time.Time) string {
	if at.IsZero() {
		at = Epoch.Add(time.Duration(r.ticks) * time.Minute)
		r.ticks++
	}
	return fmt.Sprintf("%d +0000", at.Unix())
}

func (r *Repo) run(in io.Reader, env []string, args ...string) string {
	r.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = r.Dir
	cmd.Env = append(slices.Clone(r.env), env...)
	if in != nil {
		cmd.Stdin = in
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		r.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, errs.Bytes())
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// Raw returns the content of an object.
func (r *Repo) Raw(kind, id string) []byte {
	r.t.Helper()
	return []byte(r.run(nil, nil, "cat-file", kind, id) + "\n")
}
