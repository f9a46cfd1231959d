package local_test

import (
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/git/internal/local"
	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/git/internal/objecttest"
	"github.com/headgate-io/headgate/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestOpenRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		file, content string
		want          string
	}{
		"no repository":          {"README", "", "not a git repository"},
		"git file without dir":   {".git", "nonsense", "names no gitdir"},
		"gitdir that is gone":    {".git", "gitdir: ../gone", "not a git repository"},
		"format 2":               {".git/config", "[core]\n\trepositoryformatversion = 2\n", `format "2" is not supported`},
		"unknown extension":      {".git/config", "[core]\nrepositoryformatversion = 1\n[extensions]\nmagic = yes\n", `extension "magic" is not supported`},
		"reftable":               {".git/config", "[core]\nrepositoryformatversion = 1\n[Extensions]\nRefStorage = reftable ; new\n", "git refs migrate"},
		"sha256":                 {".git/config", "[core]\nrepositoryformatversion = 1\n[extensions]\nobjectformat = sha256\n", `object format "sha256" is not supported in local repositories`},
		"unknown object format":  {".git/config", "[core]\nrepositoryformatversion = 1\n[extensions] objectformat = \"md5\"\n", `object format "md5"`},
		"huge config":            {".git/config", strings.Repeat("#", 1<<20+1), "more than 1048576 bytes"},
		"quoted alternate":       {".git/objects/info/alternates", "\"a\\nb\"\n", "quoted paths"},
		"alternates in a circle": {".git/objects/info/alternates", ".\n", "more alternates"},
		"index of version 1":     {".git/objects/pack/x.idx", strings.Repeat("\x00", 2000), "malformed IDX file: make the index anew with git index-pack"},
		"index out of order":     {".git/objects/pack/x.idx", "\xfftOc\x00\x00\x00\x02\x00\x00\x00\x01" + strings.Repeat("\x00", 2000), "not monotonically"},
		"truncated index":        {".git/objects/pack/x.idx", "\xfftOc\x00\x00\x00\x02" + strings.Repeat("\x00\x00\x00\x09", 256), "inconsistent with object count 9"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if strings.HasPrefix(test.file, ".git/") {
				initialize(t, dir)
			}
			write(t, filepath.Join(dir, test.file), test.content)
			if strings.HasPrefix(test.file, ".git/") {
				write(t, filepath.Join(dir, ".git/objects/pack/x.pack"), "PACK")
			}
			_, err := local.Open(dir, 0)
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), dir) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			if strings.Contains(name, "dir") != errors.Is(err, local.ErrNotRepository) && name != "no repository" {
				t.Errorf("%v is ErrNotRepository: %v", err, errors.Is(err, local.ErrNotRepository))
			}
		})
	}
}

// TestLimit reads objects larger than the limit, in every way that objects are
// stored.
func TestLimit(t *testing.T) {
	dir := repository(t)
	id, _ := object.ParseID(strings.TrimSpace(git(t, dir, "rev-parse", "HEAD~1:noise")))
	for _, packed := range []bool{false, true} {
		if packed {
			git(t, dir, "repack", "-adfq")
		}
		for limit, want := range map[int64]bool{1000: false, 200_000: true, -1: true} {
			r, err := local.Open(dir, limit)
			must(t, err)
			_, err = object.Read(r, id, object.Blob, 1<<20)
			if (err == nil) != want || err != nil && !strings.Contains(err.Error(), "more than the limit of 1000") {
				t.Errorf("packed %v, limit %d: %v", packed, limit, err)
			}
			r.Close()
		}
	}
}

// TestDamaged flips bytes in all files of a repository: no object may be returned
// with other content, and nothing may panic.
func TestDamaged(t *testing.T) {
	t.Parallel()
	for _, packed := range []bool{false, true} {
		dir := repository(t)
		if packed {
			git(t, dir, "repack", "-adfq")
			git(t, dir, "prune-packed")
		}
		names := strings.Fields(git(t, dir, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)"))
		var files []string
		filepath.WalkDir(filepath.Join(dir, ".git/objects"), func(name string, e fs.DirEntry, err error) error {
			if !e.IsDir() {
				files = append(files, name)
			}
			return err
		})
		random := rand.New(rand.NewPCG(1, 2))
		for range 80 {
			file := files[random.IntN(len(files))]
			original, err := os.ReadFile(file)
			must(t, err)
			damaged := bytes.Clone(original)
			damaged[random.IntN(min(len(damaged), 5000))] ^= 1 << random.IntN(8)
			if random.IntN(4) == 0 {
				damaged = damaged[:random.IntN(len(damaged))]
			}
			must(t, errors.Join(os.Remove(file), os.WriteFile(file, damaged, 0o666)))
			readAll(t, dir, names)
			must(t, os.WriteFile(file, original, 0o666))
		}
	}
}

// readAll reads all objects that are readable and checks them.
func readAll(t *testing.T, dir string, names []string) {
	t.Helper()
	r, err := local.Open(dir, 1<<20)
	if err != nil {
		return
	}
	defer r.Close()
	for _, name := range names {
		id, _ := object.ParseID(name)
		typ, _, err := r.Stat(id)
		if err != nil {
			continue
		}
		content, err := object.Read(r, id, typ, 1<<20)
		if err != nil {
			continue
		}
		if got := objecttest.ID(object.SHA1, typ, string(content)); got != id {
			t.Fatalf("%v came out as %v", id, got)
		}
	}
}

// TestWrongContent stores objects under the names of other objects.
func TestWrongContent(t *testing.T) {
	dir := repository(t)
	path := func(rev string) (object.ID, string) {
		name := strings.TrimSpace(git(t, dir, "rev-parse", rev))
		id, _ := object.ParseID(name)
		return id, filepath.Join(dir, ".git/objects", name[:2], name[2:])
	}
	id, file := path("HEAD:a")
	empty, emptyFile := path("HEAD:empty")
	_, other := path("HEAD:b/c")
	swap := func(to, from string) {
		data, err := os.ReadFile(from)
		must(t, err)
		must(t, errors.Join(os.Remove(to), os.WriteFile(to, data, 0o666)))
	}
	swap(emptyFile, other)
	swap(file, other)
	r := open(t, dir)
	for _, id := range []object.ID{id, empty} {
		if _, err := object.Read(r, id, object.Blob, 1<<20); !errors.Is(err, object.ErrCorrupt) || !strings.Contains(err.Error(), id.String()) {
			t.Errorf("%v: %v", id, err)
		}
	}
}

// TestDeltaCycle reads a delta that is based on itself.
func TestDeltaCycle(t *testing.T) {
	id := bytes.Repeat([]byte{0x11}, 20)
	b := objecttest.NewPack(2, 1)
	b.Add(7, "\x01\x01\x01x", id...) // a delta based on the object with this ID
	pack := b.Sum()
	index := []byte("\xfftOc\x00\x00\x00\x02")
	for i := range 256 {
		index = binary.BigEndian.AppendUint32(index, uint32(min(1, i/0x11)))
	}
	index = append(append(index, id...), "\x00\x00\x00\x00\x00\x00\x00\x0c"...)
	index = append(index, pack[len(pack)-20:]...)
	sum := sha1.Sum(index)
	dir := repository(t)
	write(t, filepath.Join(dir, ".git/objects/pack/x.pack"), string(pack))
	write(t, filepath.Join(dir, ".git/objects/pack/x.idx"), string(append(index, sum[:]...)))
	r := open(t, dir)
	name, _ := object.IDFromBytes(id)
	_, _, err := r.Stat(name)
	if !errors.Is(err, object.ErrCorrupt) || !strings.Contains(err.Error(), "more than 4096 deltas") {
		t.Errorf("stat: %v", err)
	}
	_, _, _, err = r.Open(name)
	if !errors.Is(err, object.ErrCorrupt) || !strings.Contains(err.Error(), "more than 4096 deltas") {
		t.Errorf("open: %v", err)
	}
}
