package feed_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
	"github.com/headgate-io/headgate/source/serve/feed"
)

// state returns all that a feed says, in words.
func (r *rig) state(d serve.Desired) string {
	var out strings.Builder
	for _, obj := range d.Objects {
		text, err := source.EncodeJSON(obj)
		fmt.Fprintln(&out, string(text), err)
	}
	for _, err := range d.Defects {
		fmt.Fprintln(&out, err)
	}
	for _, name := range []string{"s0", "s1", "s2"} {
		secret, err := d.Secrets.Secret(r.Context(), "apps", name)
		fmt.Fprintln(&out, string(secret.Data["key"]), err)
	}
	return out.String()
}

// fresh returns what a new feed reads.
func (r *rig) fresh(paths []string) string {
	r.Helper()
	var state string
	f := feed.Files{Paths: paths, Secrets: filepath.Join(r.dir, "keys")}
	stop := errors.New("enough")
	func() {
		defer func() {
			if v := recover(); v != nil && v != stop {
				panic(v)
			}
		}()
		r.do(f.Follow(r.Context(), func(d serve.Desired) {
			state = r.state(d)
			panic(stop)
		}))
	}()
	return state
}

// edit changes a file or directory as the operation says. Each content is
// longer than those before, so that no two look alike.
func (r *rig) edit(op, which byte, turn int) {
	file := filepath.Join(r.dir, []string{"docs/a.yaml", "docs/b.yaml", "docs/sub/a.yaml", "docs/sub/c.json"}[which%4])
	text := document(fmt.Sprintf("o%d", which/4%4), fmt.Sprintf("%dm", turn+1)) + strings.Repeat("#", turn) + "\n"
	key := filepath.Join(r.dir, fmt.Sprintf("keys/apps/s%d/key", which%3))
	os.MkdirAll(filepath.Dir(file), 0o700)
	switch op % 11 {
	case 0, 1:
		r.do(os.WriteFile(file, []byte(text), 0o600))
	case 2:
		r.do(os.WriteFile(file+".new", []byte(text+secret(fmt.Sprintf("s%d", which%3), "document")), 0o600))
		r.do(os.Rename(file+".new", file))
	case 3:
		r.do(os.WriteFile(file, []byte(text[:len(text)/2]), 0o600))
	case 4:
		os.Remove(file)
	case 5:
		r.do(os.RemoveAll(filepath.Join(r.dir, "docs/sub")))
	case 6:
		os.Rename(file, filepath.Join(r.dir, "docs/moved.yaml"))
	case 7:
		os.Rename(filepath.Join(r.dir, "docs/sub"), filepath.Join(r.dir, fmt.Sprintf("docs/.away%d", turn)))
	case 8:
		r.do(errors.Join(os.MkdirAll(filepath.Dir(key), 0o700), os.WriteFile(key, []byte(strings.Repeat("k", turn+1)), 0o600)))
	case 9:
		os.RemoveAll(filepath.Dir(key))
	case 10:
		os.Remove(file)
		r.do(os.Symlink("../elsewhere.yaml", file))
		r.do(os.WriteFile(filepath.Join(r.dir, "elsewhere.yaml"), []byte(text), 0o600))
	}
}

// However files change, once they rest the feed says what a new one would.
func TestFollowSaysWhatANewFeedSays(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1))
		files := map[string]string{"docs/a.yaml": document("first", "1m"), "keys/apps/s0/key": "k", "single.yaml": document("single", "1m")}
		wait := time.Duration(0)
		if seed%2 == 1 && precise(t) {
			wait = decades
		}
		watchedAfter(t, wait, feed.Files{Paths: []string{"docs", "single.yaml"}, Secrets: "keys"}, files, func(r *rig) {
			for i := range 60 {
				op := byte(random.IntN(11))
				r.edit(op, byte(random.IntN(256)), 2*i)
				if random.IntN(2) == 0 {
					r.look()
				}
				if random.IntN(4) > 0 {
					continue
				}
				r.rest()
				paths := []string{filepath.Join(r.dir, "docs"), filepath.Join(r.dir, "single.yaml")}
				if got, want := r.state(r.last), r.fresh(paths); got != want {
					t.Fatalf("seed %d, after operation %d, %d, the feed says\n%s\nand a new one\n%s", seed, i, op, got, want)
				}
			}
		})
	}
}

// precise reports whether the file system tells changes apart that follow each
// other at once.
func precise(t *testing.T) bool {
	dir := t.TempDir()
	var last time.Time
	for i := range 20 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		if info.ModTime().Equal(last) {
			return false
		}
		last = info.ModTime()
	}
	return true
}
