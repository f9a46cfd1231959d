package packfile_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/git/internal/packfile"
)

// git runs git in dir, apart from the configuration of the machine.
func git(t testing.TB, dir, stdin string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Env = append(os.Environ(),
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull, "HOME="+t.TempDir(),
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_AUTHOR_DATE=1700000000 +0100",
		"GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@example.com", "GIT_COMMITTER_DATE=1700000000 +0100")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return out
}

// repository makes a repository of a few versions of similar files, so that its packs have deltas.
func repository(t testing.TB, format string) string {
	t.Helper()
	dir := t.TempDir()
	git(t, dir, "", "init", "-q", "-b", "main", "--object-format="+format)
	text := strings.Repeat("the quick brown fox jumps over the lazy dog, and so on and on\n", 200)
	for i, last := range []string{"one", "two", "three", "four"} {
		for j, name := range []string{"a", "b/c", "b/d/e", "empty"} {
			file := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
				t.Fatal(err)
			}
			content := strings.Repeat("x", 1000*j) + text[:len(text)-100*i] + last + name
			if name == "empty" {
				content = ""
			}
			if err := os.WriteFile(file, []byte(content), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		git(t, dir, "", "add", "-A")
		git(t, dir, "", "commit", "-q", "-m", last)
	}
	git(t, dir, "", "tag", "-a", "-m", "tagged", "v1")
	return dir
}

func revision(t testing.TB, dir, rev string) object.ID {
	t.Helper()
	id, err := object.ParseID(strings.TrimSpace(string(git(t, dir, "", "rev-parse", rev))))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// TestReadAgreesWithGit compares every object of packs of all shapes with what git says.
func TestReadAgreesWithGit(t *testing.T) {
	for _, format := range []string{"sha1", "sha256"} {
		dir := repository(t, format)
		for name, args := range map[string][]string{
			"offset deltas": {"--delta-base-offset", "--all"},
			"id deltas":     {"--all"},
			"no deltas":     {"--all", "--window=0"},
			"one commit":    {"--delta-base-offset"},
		} {
			t.Run(format+"/"+name, func(t *testing.T) {
				stdin := ""
				if name == "one commit" {
					stdin = "HEAD\n"
				}
				data := git(t, dir, stdin, append([]string{"pack-objects", "--revs", "--stdout", "-q"}, args...)...)
				f := object.SHA1
				if format == "sha256" {
					f = object.SHA256
				}
				p, err := packfile.Read(context.Background(), bytes.NewReader(data), packfile.Options{Format: f})
				if err != nil {
					t.Fatal(err)
				}
				defer p.Close()
				compare(t, dir, data, p)
			})
		}
	}
}

// compare checks that p holds exactly the objects that git finds in data.
func compare(t *testing.T, dir string, data []byte, p *packfile.Pack) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "x.pack")
	if err := os.WriteFile(file, data, 0o666); err != nil {
		t.Fatal(err)
	}
	git(t, dir, "", "index-pack", file)
	var names strings.Builder
	for line := range strings.Lines(string(git(t, dir, "", "verify-pack", "-v", file))) {
		name, _, _ := strings.Cut(line, " ")
		if _, err := object.ParseID(name); err == nil {
			names.WriteString(name + "\n")
		}
	}
	n := 0
	for all := git(t, dir, names.String(), "cat-file", "--batch"); len(all) > 0; n++ {
		head, rest, _ := bytes.Cut(all, []byte("\n"))
		fields := strings.Fields(string(head))
		size, _ := strconv.Atoi(fields[2])
		want := rest[:size]
		all = rest[size+1:]
		id, err := object.ParseID(fields[0])
		if err != nil {
			t.Fatal(err)
		}
		typ, _, err := p.Stat(id)
		if err != nil || typ.String() != fields[1] {
			t.Fatalf("%v: got type %v, want %s: %v", id, typ, fields[1], err)
		}
		if got, err := object.Read(p, id, typ, 1<<30); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%v: got %.80q, want %.80q: %v", id, got, want, err)
		}
	}
	if announced := binary.BigEndian.Uint32(data[8:]); n != int(announced) {
		t.Errorf("%d objects, want %d", announced, n)
	}
}

// TestReadLarge reads objects that do not fit into the buffers: stored,
// compressed, and as deltas on each other.
func TestReadLarge(t *testing.T) {
	for _, level := range []string{"0", "9"} {
		dir := t.TempDir()
		git(t, dir, "", "init", "-q", "-b", "main")
		git(t, dir, "", "config", "core.compression", level)
		random := rand.NewChaCha8([32]byte{1})
		noise := make([]byte, 600<<10)
		random.Read(noise)
		var text bytes.Buffer
		for i := range 20_000 {
			fmt.Fprintf(&text, "line %d has a random number: %d\n", i, random.Uint64()%1000)
		}
		for i, content := range [][]byte{
			slices.Concat(noise, text.Bytes(), noise),
			slices.Concat(noise[1000:], text.Bytes(), []byte("inserted"), noise),
			slices.Concat(text.Bytes(), make([]byte, 1<<20), noise[:77]),
		} {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("file%d", i)), content, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		git(t, dir, "", "add", "-A")
		git(t, dir, "", "commit", "-q", "-m", "large")
		data := git(t, dir, "", "pack-objects", "--revs", "--all", "--stdout", "-q")
		p, err := packfile.Read(context.Background(), bytes.NewReader(data), packfile.Options{})
		if err != nil {
			t.Fatal(err)
		}
		compare(t, dir, data, p)
		p.Close()
	}
}

// TestReadThin reads a pack whose deltas are based on objects that it does not hold.
func TestReadThin(t *testing.T) {
	dir := repository(t, "sha1")
	old := open(t, dir, "HEAD~1\n", packfile.Options{})
	thin := git(t, dir, "HEAD\n^HEAD~1\n", "pack-objects", "--revs", "--thin", "--stdout", "-q")
	p, err := packfile.Read(context.Background(), bytes.NewReader(thin), packfile.Options{External: old})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	blob := revision(t, dir, "HEAD:b/d/e")
	if got, err := object.Read(p, blob, object.Blob, 1<<20); err != nil || !bytes.Equal(got, git(t, dir, "", "show", "HEAD:b/d/e")) {
		t.Errorf("%q, %v", got, err)
	}
	if _, _, err := p.Stat(revision(t, dir, "HEAD~1")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the pack gives out an external object: %v", err)
	}
	empty, err := packfile.Read(context.Background(), bytes.NewReader(newBuilder(2, 0).sum()), packfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer empty.Close()
	for name, external := range map[string]object.Database{"none": nil, "empty": empty} {
		if err := read(t, bytes.NewReader(thin), packfile.Options{External: external}); !errors.Is(err, object.ErrCorrupt) || !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("external database %s: %v", name, err)
		}
	}
	old.Close()
	if err := read(t, bytes.NewReader(thin), packfile.Options{External: old}); !errors.Is(err, os.ErrClosed) || errors.Is(err, object.ErrCorrupt) {
		t.Errorf("external database that fails: %v", err)
	}
}

// open returns the pack of what is reachable from revs.
func open(t testing.TB, dir, revs string, o packfile.Options) *packfile.Pack {
	t.Helper()
	data := git(t, dir, revs, "pack-objects", "--revs", "--stdout", "-q", "--delta-base-offset")
	p, err := packfile.Read(context.Background(), bytes.NewReader(data), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// TestTreeFS reads the tree of a pack from several goroutines at once.
func TestTreeFS(t *testing.T) {
	dir := repository(t, "sha1")
	var done, total int
	p := open(t, dir, "HEAD\n", packfile.Options{Progress: func(d, n int) { done, total = d, n }})
	if done != total || done != 4*7+1 { // of each commit, with three trees and three files, and the empty one
		t.Errorf("the last progress was %d of %d objects", done, total)
	}
	fsys := object.TreeFS(p, revision(t, dir, "HEAD^{tree}"))
	var readers sync.WaitGroup
	for range 8 {
		readers.Go(func() {
			if err := fstest.TestFS(fsys, "a", "b/c", "b/d/e", "empty"); err != nil {
				t.Error(err)
			}
		})
	}
	readers.Wait()
	absent := idOf("absent")
	if _, _, _, err := p.Open(absent); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), absent.String()) {
		t.Errorf("absent object: %v", err)
	}
	_, _, content, err := p.Open(revision(t, dir, "HEAD:a"))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadAll(content); !errors.Is(err, os.ErrClosed) {
		t.Errorf("content of a closed pack: %v", err)
	}
}
