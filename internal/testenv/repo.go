package testenv

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"
)

// Epoch is the time of the first commit of every repository; each further one is a minute later.
var Epoch = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

// A Repo is a bare Git repository on disk.
type Repo struct {
	Dir    string
	t      testing.TB
	env    []string
	ticks  int
	sha256 bool
}

// NewRepo makes an empty repository whose HEAD is refs/heads/main.
func NewRepo(t testing.TB) *Repo {
	t.Helper()
	return NewRepoIn(t, "sha1")
}

// NewRepoIn is [NewRepo] in an object format, sha1 or sha256. Repositories and their
// objects are written without running git, which would be slow.
func NewRepoIn(t testing.TB, format string) *Repo {
	t.Helper()
	r := &Repo{Dir: filepath.Join(t.TempDir(), "repo.git"), t: t, env: GitEnv(t), sha256: format == "sha256"}
	config := "[core]\n\trepositoryformatversion = 1\n\tbare = true\n[extensions]\n\tobjectformat = " + format + "\n"
	if format == "sha1" {
		config = "[core]\n\trepositoryformatversion = 0\n\tbare = true\n"
	}
	for _, dir := range []string{"objects/info", "objects/pack", "refs/heads", "refs/tags"} {
		Must(t, os.MkdirAll(filepath.Join(r.Dir, dir), 0o755))
	}
	r.write("config", config)
	r.write("HEAD", "ref: refs/heads/main\n")
	return r
}

// write writes a file of the repository atomically, because git may be reading refs.
// Git ignores the .lock file.
func (r *Repo) write(name, content string) {
	r.t.Helper()
	name = filepath.Join(r.Dir, filepath.FromSlash(name))
	Must(r.t, os.MkdirAll(filepath.Dir(name), 0o755))
	Must(r.t, os.WriteFile(name+".lock", []byte(content), 0o644))
	Must(r.t, os.Rename(name+".lock", name))
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
	branch := "refs/heads/" + c.Branch
	if c.Parents == nil && c.Branch != "" && r.has(branch) {
		c.Parents = []string{branch}
	}
	if c.Tree == "" {
		c.Tree = r.Tree(c.Files)
	}
	text := "tree " + c.Tree + "\n"
	for _, p := range c.Parents {
		text += "parent " + r.ID(p) + "\n"
	}
	by := "tester <tester@example.com> " + r.date(c.Time)
	id := r.Object("commit", fmt.Appendf(nil, "%sauthor %s\ncommitter %s\n\n%s", text, by, by, c.Message))
	if c.Branch != "" {
		r.Ref(branch, id)
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

// Tree stores a tree and returns its id. Executable files, symbolic links
// (Data is the target) and gitlinks keep their kind; empty folders do not exist in Git.
func (r *Repo) Tree(files fstest.MapFS) string {
	r.t.Helper()
	entries, folders := map[string]string{}, map[string]fstest.MapFS{} // entries by the name that git sorts them by
	for name, f := range files {
		if f.Mode.IsDir() {
			continue
		}
		if folder, below, ok := strings.Cut(name, "/"); ok {
			if folders[folder] == nil {
				folders[folder] = fstest.MapFS{}
			}
			folders[folder][below] = f
			continue
		}
		switch {
		case f.Mode&fs.ModeIrregular != 0:
			entries[name] = entry("160000", name, string(f.Data))
		case f.Mode&fs.ModeSymlink != 0:
			entries[name] = entry("120000", name, r.Object("blob", f.Data))
		case f.Mode&0o100 != 0:
			entries[name] = entry("100755", name, r.Object("blob", f.Data))
		default:
			entries[name] = entry("100644", name, r.Object("blob", f.Data))
		}
	}
	for name, folder := range folders {
		entries[name+"/"] = entry("40000", name, r.Tree(folder))
	}
	var tree strings.Builder
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		tree.WriteString(entries[name])
	}
	return r.Object("tree", []byte(tree.String()))
}

// entry returns an entry of a tree.
func entry(mode, name, id string) string {
	raw, _ := hex.DecodeString(id)
	return mode + " " + name + "\x00" + string(raw)
}

// Object stores raw bytes as an object of a kind (blob, tree, commit, tag)
// without any check, and returns its id.
func (r *Repo) Object(kind string, raw []byte) string {
	r.t.Helper()
	encoded := fmt.Appendf(nil, "%s %d\x00%s", kind, len(raw), raw)
	id := fmt.Sprintf("%x", sha1.Sum(encoded))
	if r.sha256 {
		id = fmt.Sprintf("%x", sha256.Sum256(encoded))
	}
	name := "objects/" + id[:2] + "/" + id[2:]
	if _, err := os.Stat(filepath.Join(r.Dir, name)); err != nil {
		var packed bytes.Buffer
		w := deflaters.Get().(*zlib.Writer)
		defer deflaters.Put(w)
		w.Reset(&packed)
		w.Write(encoded)
		w.Close()
		name = filepath.Join(r.Dir, name) // written in place: nothing reads it before a ref leads to it
		err := os.WriteFile(name, packed.Bytes(), 0o644)
		if errors.Is(err, fs.ErrNotExist) {
			Must(r.t, os.MkdirAll(filepath.Dir(name), 0o755))
			err = os.WriteFile(name, packed.Bytes(), 0o644)
		}
		Must(r.t, err)
	}
	return id
}

// state returns a digest of the repository: the names of its object files, which
// identify their content, and the names and content of all other files.
func (r *Repo) state() []byte {
	sum := sha256.New()
	files := os.DirFS(r.Dir)
	fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() { // a file that has vanished is one that git ignores
			fmt.Fprintf(sum, "%q ", name)
			if !strings.HasPrefix(name, "objects/") {
				content, _ := fs.ReadFile(files, name)
				fmt.Fprintf(sum, "%q\n", content)
			}
		}
		return nil
	})
	return sum.Sum(nil)
}

// deflaters are reused, because creating one costs more than compressing an object.
var deflaters = sync.Pool{New: func() any {
	w, _ := zlib.NewWriterLevel(nil, zlib.BestSpeed)
	return w
}}

// Ref makes a ref of any full name point at an object.
func (r *Repo) Ref(name, id string) { r.t.Helper(); r.write(name, id+"\n") }

// Tag makes a lightweight tag.
func (r *Repo) Tag(name, id string) { r.t.Helper(); r.Ref("refs/tags/"+name, id) }

// AnnotatedTag makes an annotated tag and returns the id of the tag object.
func (r *Repo) AnnotatedTag(name, id, message string) string {
	r.t.Helper()
	id = r.ID(id)
	kind, _ := r.object(id)
	tag := r.Object("tag", fmt.Appendf(nil, "object %s\ntype %s\ntag %s\ntagger tester <tester@example.com> %s\n\n%s\n", id, kind, name, r.date(time.Time{}), message))
	r.Tag(name, tag)
	return tag
}

// ID returns the id that a revision expression stands for.
func (r *Repo) ID(rev string) string {
	r.t.Helper()
	if fullID.MatchString(rev) {
		return rev
	}
	for _, folder := range []string{"", "refs/tags", "refs/heads"} { // running git would be slow
		if text, err := os.ReadFile(filepath.Join(r.Dir, folder, filepath.FromSlash(rev))); err == nil && fullID.Match(bytes.TrimSpace(text)) {
			return strings.TrimSpace(string(text))
		}
	}
	return r.Git("rev-parse", "--verify", "-q", rev)
}

var fullID = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

// Git runs git in the repository and returns its output without the final line break.
func (r *Repo) Git(args ...string) string { r.t.Helper(); return r.run(nil, args...) }

// GitInput is [Repo.Git] with stdin as the standard input.
func (r *Repo) GitInput(stdin string, args ...string) string {
	r.t.Helper()
	return r.run(strings.NewReader(stdin), args...)
}

// date returns a time as git writes it. The zero time stands for a minute after the previous one.
func (r *Repo) date(at time.Time) string {
	if at.IsZero() {
		at = Epoch.Add(time.Duration(r.ticks) * time.Minute)
		r.ticks++
	}
	return fmt.Sprintf("%d +0000", at.Unix())
}

func (r *Repo) run(in io.Reader, args ...string) string {
	r.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = r.Dir
	cmd.Env = r.env
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

// Raw returns the content of a loose object, which must be of the given kind.
func (r *Repo) Raw(kind, rev string) []byte {
	r.t.Helper()
	is, content := r.object(r.ID(rev))
	if is != kind {
		r.t.Fatalf("%s is a %s, no %s", rev, is, kind)
	}
	return content
}

// object returns a loose object.
func (r *Repo) object(id string) (kind string, content []byte) {
	r.t.Helper()
	packed, err := os.ReadFile(filepath.Join(r.Dir, "objects", id[:2], id[2:]))
	Must(r.t, err)
	z, err := zlib.NewReader(bytes.NewReader(packed))
	Must(r.t, err)
	encoded, err := io.ReadAll(z)
	Must(r.t, err)
	head, content, _ := bytes.Cut(encoded, []byte{0})
	kind, _, _ = strings.Cut(string(head), " ")
	return kind, content
}
