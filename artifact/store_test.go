package artifact_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-io/headgate/artifact"
)

const object = "gitrepository/default/app"

// A clock is a time that tests move by hand.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2026, 3, 1, 12, 0, 0, 500, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func openStore(t *testing.T, c artifact.StoreConfig) (*artifact.Store, string) {
	t.Helper()
	if c.Dir == "" {
		c.Dir = t.TempDir()
	}
	s, err := artifact.OpenStore(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, c.Dir
}

func text(content string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, content)
		return err
	}
}

func put(t *testing.T, s *artifact.Store, dir, file, content string) artifact.Artifact {
	t.Helper()
	a, err := s.Put(t.Context(), dir, file, text(content))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// files lists what lies in the directory of a store, without records, locks
// and empty directories.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var list []string
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			list = append(list, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestPutPublishes(t *testing.T) {
	c := newClock()
	s, dir := openStore(t, artifact.StoreConfig{BaseURL: "artifacts.example.org:9090/", Now: c.Now})
	a := put(t, s, object, "app-1.0.0+3.tgz", "content")
	sum := sha256.Sum256([]byte("content"))
	digest := hex.EncodeToString(sum[:])
	want := artifact.Artifact{
		Path:           object + "/" + digest + "/app-1.0.0+3.tgz",
		URL:            "http://artifacts.example.org:9090/" + object + "/" + digest + "/app-1.0.0+3.tgz",
		Digest:         "sha256:" + digest,
		LastUpdateTime: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
		Size:           7,
	}
	if a.Path != want.Path || a.URL != want.URL || a.Digest != want.Digest || a.LastUpdateTime != want.LastUpdateTime || a.Size != want.Size {
		t.Errorf("Put returned %+v, want %+v", a, want)
	}
	if err := s.Check(a); err != nil {
		t.Error(err)
	}
	if err := s.Verify(t.Context(), a); err != nil {
		t.Error(err)
	}
	if got := files(t, dir); !slices.Equal(got, []string{a.Path}) {
		t.Errorf("the store holds %v", got)
	}
	r, err := s.Open(a)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if b, err := io.ReadAll(r); err != nil || string(b) != "content" {
		t.Errorf("read %q, %v", b, err)
	}
	if runtime.GOOS == "windows" {
		return
	}
	if info, err := os.Stat(filepath.Join(dir, a.Path)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", info.Mode(), err)
	}
}

func TestPutKeepsWhatIsThere(t *testing.T) {
	c := newClock()
	s, _ := openStore(t, artifact.StoreConfig{Now: c.Now})
	first := put(t, s, object, "a.tar.gz", "one")
	c.advance(time.Hour)
	if again := put(t, s, object, "a.tar.gz", "one"); again.LastUpdateTime != first.LastUpdateTime {
		t.Errorf("time of update moved from %v to %v although nothing was written", first.LastUpdateTime, again.LastUpdateTime)
	}
	put(t, s, object, "b.tar.gz", "two")
	c.advance(time.Hour)
	if again := put(t, s, object, "a.tar.gz", "one"); again.LastUpdateTime != c.Now().Truncate(time.Second) {
		t.Errorf("time of update is %v after the artifact came back, want now", again.LastUpdateTime)
	} else if err := s.Check(again); err != nil {
		t.Error(err)
	}
}

func TestPutReplacesCorruptFile(t *testing.T) {
	s, dir := openStore(t, artifact.StoreConfig{})
	a := put(t, s, object, "a.tar.gz", "content")
	if err := os.WriteFile(filepath.Join(dir, a.Path), []byte("c0ntent"), 0o600); err != nil {
		t.Fatal(err)
	}
	if b := put(t, s, object, "a.tar.gz", "content"); b.Path != a.Path {
		t.Errorf("stored at %s, want %s", b.Path, a.Path)
	}
	if err := s.Verify(t.Context(), a); err != nil {
		t.Error(err)
	}
}

func TestPutAllOrNothing(t *testing.T) {
	full := &fs.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}
	tests := map[string]struct {
		write func(w io.Writer, cancel func()) error
		want  error
	}{
		"disk full":            {func(w io.Writer, _ func()) error { io.WriteString(w, "half"); return full }, syscall.ENOSPC},
		"error":                {func(io.Writer, func()) error { return io.ErrUnexpectedEOF }, io.ErrUnexpectedEOF},
		"cancelled":            {func(_ io.Writer, cancel func()) error { cancel(); return nil }, context.Canceled},
		"failed write ignored": {func(w io.Writer, cancel func()) error { cancel(); io.WriteString(w, "x"); return nil }, context.Canceled},
	}
	s, dir := openStore(t, artifact.StoreConfig{})
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			write := func(w io.Writer) error { return test.write(w, cancel) }
			if _, err := s.Put(ctx, object, "a.tar.gz", write); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic of write was swallowed")
			}
		}()
		s.Put(t.Context(), object, "a.tar.gz", func(w io.Writer) error { io.WriteString(w, "half"); panic("write") })
	}()
	if got := files(t, dir); len(got) > 0 {
		t.Errorf("the store holds %v", got)
	}
}

func TestStoreRefusesNames(t *testing.T) {
	s, dir := openStore(t, artifact.StoreConfig{})
	names := map[string]string{
		"empty": "", "dot": ".", "dots": "..", "hidden": ".tmp", "slash": "a/b", "backslash": `a\b`, "colon": "a:b", "stream": "a::$DATA",
		"control": "a\nb", "nul": "a\x00b", "escape": "a\x1b[31m", "not utf-8": "a\xff", "device": "con", "device with extension": "NUL.tar.gz",
		"numbered device": "Com1.x", "trailing dot": "a.", "trailing space": "a ", "wildcard": "a*", "long": strings.Repeat("a", 255), "bidi": "a\u202eb",
	}
	for defect, name := range names {
		t.Run(defect, func(t *testing.T) {
			for _, dir := range []string{name + "/ns/name", "kind/" + name + "/name", "kind/ns/" + name} {
				if _, err := s.Put(t.Context(), dir, "f", text("x")); !errors.Is(err, fs.ErrInvalid) {
					t.Errorf("Put in %q: %v", dir, err)
				}
				if _, err := s.Lock(t.Context(), dir); !errors.Is(err, fs.ErrInvalid) {
					t.Errorf("Lock of %q: %v", dir, err)
				}
				if err := errors.Join(s.Prune(dir), nil); !errors.Is(err, fs.ErrInvalid) {
					t.Errorf("Prune of %q: %v", dir, err)
				}
				if err := s.Remove(dir); !errors.Is(err, fs.ErrInvalid) {
					t.Errorf("Remove of %q: %v", dir, err)
				}
			}
			if _, err := s.Put(t.Context(), object, name, text("x")); !errors.Is(err, fs.ErrInvalid) {
				t.Errorf("Put of file %q: %v", name, err)
			}
			if _, err := s.Point(object, name, artifact.Artifact{}); !errors.Is(err, fs.ErrInvalid) {
				t.Errorf("Point of %q: %v", name, err)
			}
		})
	}
	for _, dir := range []string{"", "kind", "kind/ns", "kind/ns/name/more", "/kind/ns/name", "../../x"} {
		if _, err := s.Put(t.Context(), dir, "f", text("x")); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("Put in %q: %v", dir, err)
		}
	}
	if got := files(t, dir); len(got) > 0 {
		t.Errorf("the store holds %v", got)
	}
}

func TestCheckNotices(t *testing.T) {
	corrupt := func(err error) bool { var d *artifact.DigestError; return errors.As(err, &d) }
	missing := func(err error) bool { return errors.Is(err, fs.ErrNotExist) }
	fine := func(err error) bool { return err == nil }
	tests := map[string]struct {
		damage func(name string) error
		want   func(error) bool
	}{
		"truncation":   {func(name string) error { return os.Truncate(name, 3) }, corrupt},
		"emptied":      {func(name string) error { return os.Truncate(name, 0) }, corrupt},
		"growth":       {func(name string) error { return os.WriteFile(name, []byte("content+"), 0o600) }, corrupt},
		"modification": {func(name string) error { return os.WriteFile(name, []byte("c0ntent"), 0o600) }, corrupt},
		"removal":      {os.Remove, missing},
		"replacement with the old time": {func(name string) error {
			info, err := os.Stat(name)
			if err != nil {
				return err
			}
			other := name + "2"
			return errors.Join(os.WriteFile(other, []byte("c0ntent"), 0o600), os.Rename(other, name), os.Chtimes(name, info.ModTime(), info.ModTime()))
		}, corrupt},
		"replacement by a directory": {func(name string) error { return errors.Join(os.Remove(name), os.Mkdir(name, 0o700)) }, missing},
		"a touch":                    {func(name string) error { return os.Chtimes(name, time.Time{}, time.Unix(1, 0)) }, fine},
		"a copy": {func(name string) error {
			return errors.Join(os.WriteFile(name+"2", []byte("content"), 0o600), os.Rename(name+"2", name))
		}, fine},
		"a lost record": {func(name string) error { return os.Remove(record(name)) }, fine},
		"a torn record": {func(name string) error { return os.Truncate(record(name), 20) }, fine},
		"an empty record": {func(name string) error {
			return os.Truncate(record(name), 0)
		}, fine},
	}
	for name, test := range tests {
		for _, reopen := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/reopen=%v", name, reopen), func(t *testing.T) {
				s, dir := openStore(t, artifact.StoreConfig{})
				a := put(t, s, object, "a.tar.gz", "content")
				if reopen {
					s, _ = openStore(t, artifact.StoreConfig{Dir: dir})
				}
				if err := s.Check(a); err != nil {
					t.Fatal(err)
				}
				if err := test.damage(filepath.Join(dir, a.Path)); err != nil {
					t.Fatal(err)
				}
				for range 2 {
					if err := s.Check(a); !test.want(err) {
						t.Errorf("Check: %v", err)
					}
					if err := s.Verify(t.Context(), a); !test.want(err) {
						t.Errorf("Verify: %v", err)
					}
				}
			})
		}
	}
}

func record(name string) string { return filepath.Join(filepath.Dir(name), "."+filepath.Base(name)) }

// Damage that leaves size, time and inode as they were is found by Verify,
// and from then on by Check.
func TestVerifyFindsSilentDamage(t *testing.T) {
	s, dir := openStore(t, artifact.StoreConfig{})
	a := put(t, s, object, "a.tar.gz", "content")
	name := filepath.Join(dir, a.Path)
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(name, []byte("c0ntent"), 0o600), os.Chtimes(name, info.ModTime(), info.ModTime())); err != nil {
		t.Fatal(err)
	}
	if err := s.Check(a); err != nil {
		t.Errorf("Check hashed a file that looks as recorded: %v", err)
	}
	var corrupt *artifact.DigestError
	if err := s.Verify(t.Context(), a); !errors.As(err, &corrupt) || corrupt.Want != a.Digest {
		t.Errorf("Verify: %v", err)
	}
	if err := s.Check(a); !errors.As(err, &corrupt) {
		t.Errorf("Check after Verify: %v", err)
	}
	r, err := s.Open(a)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := io.ReadAll(r); !errors.As(err, &corrupt) {
		t.Errorf("reading a corrupt artifact: %v", err)
	}
}

func TestVerifyObeysContext(t *testing.T) {
	s, _ := openStore(t, artifact.StoreConfig{})
	a := put(t, s, object, "a.tar.gz", "content")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Verify(ctx, a); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Artifacts that the store cannot hold, such as those of another
// implementation, do not exist in it.
func TestForeignArtifactsDoNotExist(t *testing.T) {
	s, dir := openStore(t, artifact.StoreConfig{})
	a := put(t, s, object, "a.tar.gz", "content")
	if err := os.Symlink(filepath.Base(a.Path), filepath.Join(dir, filepath.Dir(a.Path), "link")); err != nil && runtime.GOOS != "windows" {
		t.Fatal(err)
	}
	sum := strings.TrimPrefix(a.Digest, "sha256:")
	foreign := map[string]artifact.Artifact{
		"zero":              {},
		"no digest":         {Path: a.Path},
		"other digest":      {Path: a.Path, Digest: "sha256:" + strings.Repeat("0", 64)},
		"reference's path":  {Path: "gitrepository/default/app/0123456789abcdef0123456789abcdef01234567.tar.gz", Digest: a.Digest},
		"colon":             {Path: "ocirepository/default/app/sha256:" + sum + ".tar.gz", Digest: a.Digest},
		"traversal":         {Path: "a/../" + a.Path, Digest: a.Digest},
		"record":            {Path: object + "/" + sum + "/.a.tar.gz", Digest: a.Digest},
		"link":              {Path: object + "/" + sum + "/link", Digest: a.Digest},
		"absolute":          {Path: "/" + a.Path, Digest: a.Digest},
		"private":           {Path: ".store/object/" + sum + "/x", Digest: a.Digest},
		"upper-case digest": {Path: strings.ToUpper(a.Path), Digest: strings.ToUpper(a.Digest)},
	}
	for name, a := range foreign {
		t.Run(name, func(t *testing.T) {
			if err := s.Check(a); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("Check: %v", err)
			}
			if _, err := s.Open(a); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("Open: %v", err)
			}
		})
	}
	a.Digest = sum // the legacy form of sha256
	if err := s.Check(a); err != nil {
		t.Error(err)
	}
}

func TestLock(t *testing.T) {
	s, dir := openStore(t, artifact.StoreConfig{})
	other, _ := openStore(t, artifact.StoreConfig{Dir: dir})
	unlock, err := s.Lock(t.Context(), object)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	waited := make(chan error, 2)
	for _, s := range []*artifact.Store{s, other} {
		go func() {
			_, err := s.Lock(ctx, object)
			waited <- err
		}()
	}
	free, err := other.Lock(t.Context(), "gitrepository/default/other")
	if err != nil {
		t.Fatal(err)
	}
	free()
	for range 2 {
		if err := <-waited; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("waiting for a held lock: %v", err)
		}
	}
	unlock()
	unlock()
	unlock, err = other.Lock(t.Context(), object)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}

func TestLockExcludesGoroutines(t *testing.T) {
	s, _ := openStore(t, artifact.StoreConfig{})
	var wg sync.WaitGroup
	var inside, total int
	for range 4 {
		wg.Go(func() {
			for range 25 {
				unlock, err := s.Lock(t.Context(), object)
				if err != nil {
					t.Error(err)
					return
				}
				if inside++; inside != 1 {
					t.Errorf("%d writers hold the lock", inside)
				}
				runtime.Gosched()
				inside--
				total++
				unlock()
				if _, err := s.Sweep(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if total != 100 {
		t.Errorf("%d turns, want 100", total)
	}
}

func TestPrune(t *testing.T) {
	tests := map[string]struct {
		config  artifact.StoreConfig
		step    time.Duration // between two artifacts
		idle    time.Duration // after the last
		current int           // index of the artifact in keep
		want    []int
	}{
		"by count":                        {artifact.StoreConfig{}, time.Second, 0, 4, []int{2, 3, 4}},
		"by age":                          {artifact.StoreConfig{Keep: -1}, 40 * time.Second, 0, 4, []int{2, 3, 4}},
		"age counts from the successor":   {artifact.StoreConfig{}, time.Hour, 0, 4, []int{3, 4}},
		"all superseded long ago":         {artifact.StoreConfig{}, time.Second, time.Hour, 4, []int{4}},
		"keep forever":                    {artifact.StoreConfig{Keep: -1, KeepFor: -1}, time.Hour, time.Hour, 4, []int{0, 1, 2, 3, 4}},
		"count without age":               {artifact.StoreConfig{Keep: 1, KeepFor: -1}, time.Hour, time.Hour, 4, []int{3, 4}},
		"the current one is not the last": {artifact.StoreConfig{Keep: 1}, time.Second, time.Hour, 0, []int{0, 4}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := newClock()
			test.config.Now = c.Now
			s, dir := openStore(t, test.config)
			var list []artifact.Artifact
			for i := range 5 {
				c.advance(test.step)
				list = append(list, put(t, s, object, "a.tar.gz", fmt.Sprint(i)))
			}
			other := put(t, s, "gitrepository/default/app2", "a.tar.gz", "other")
			c.advance(test.idle)
			if err := s.Prune(object, list[test.current]); err != nil {
				t.Fatal(err)
			}
			want := []string{other.Path}
			for _, i := range test.want {
				want = append(want, list[i].Path)
			}
			slices.Sort(want)
			if got := files(t, dir); !slices.Equal(got, want) {
				t.Errorf("left\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

func TestRemove(t *testing.T) {
	s, dir := openStore(t, artifact.StoreConfig{})
	a := put(t, s, object, "a.tar.gz", "a")
	b := put(t, s, "gitrepository/default/app2", "a.tar.gz", "b")
	if _, err := s.Point(object, "latest.tar.gz", a); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(object); err != nil {
		t.Fatal(err)
	}
	if err := s.Check(a); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if got := files(t, dir); !slices.Equal(got, []string{b.Path}) {
		t.Errorf("left %v", got)
	}
	if err := s.Remove(object); err != nil {
		t.Errorf("removing what is not there: %v", err)
	}
}

func TestSweep(t *testing.T) {
	s, dir := openStore(t, artifact.StoreConfig{})
	a := put(t, s, object, "a.tar.gz", "a")
	gone := put(t, s, "bucket/default/gone", "a.tar.gz", "b")
	if _, err := s.Point("bucket/default/gone", "latest.tar.gz", gone); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, gone.Path)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".store/tmp/dead"), make([]byte, 123), 0o600); err != nil {
		t.Fatal(err)
	}
	temp, err := s.Temp()
	if err != nil {
		t.Fatal(err)
	}
	defer temp.Close()
	// A live writer keeps its file, another process's sweep included.
	other, _ := openStore(t, artifact.StoreConfig{Dir: dir})
	b, err := s.Put(t.Context(), object, "b.tar.gz", func(w io.Writer) error {
		swept, err := other.Sweep(t.Context())
		if swept != (artifact.Swept{Files: 1, Bytes: 123}) {
			t.Errorf("swept %+v", swept)
		}
		io.WriteString(w, "b")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{a.Path, b.Path}
	slices.Sort(want)
	if got := files(t, dir); !slices.Equal(got, want) {
		t.Errorf("left %v, want %v", got, want)
	}
	for _, name := range []string{"bucket", ".store/object/bucket"} {
		if _, err := os.Stat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is still there: %v", name, err)
		}
	}
	if _, err := temp.WriteString("still mine"); err != nil {
		t.Error(err)
	}
	if swept, err := s.Sweep(t.Context()); err != nil || swept != (artifact.Swept{}) {
		t.Errorf("second sweep: %+v, %v", swept, err)
	}
}

// Put and Sweep of the same empty directories do not disturb each other.
func TestSweepDuringPut(t *testing.T) {
	s, _ := openStore(t, artifact.StoreConfig{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 50 {
			dir := fmt.Sprintf("kind/ns%d/name", i%2)
			a, err := s.Put(t.Context(), dir, "f", text(fmt.Sprint(i)))
			if err = errors.Join(err, s.Check(a), s.Remove(dir)); err != nil {
				t.Error(err)
			}
		}
	}()
	for {
		if _, err := s.Sweep(t.Context()); err != nil {
			t.Error(err)
		}
		select {
		case <-done:
			return
		default:
		}
	}
}

func TestTempHasNoName(t *testing.T) {
	s, dir := openStore(t, artifact.StoreConfig{})
	f, err := s.Temp()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got := files(t, dir); len(got) > 0 {
		t.Errorf("the store holds %v", got)
	}
	if _, err := f.WriteString("spool"); err != nil {
		t.Error(err)
	}
	b := make([]byte, 5)
	if _, err := f.ReadAt(b, 0); err != nil || string(b) != "spool" {
		t.Errorf("read %q, %v", b, err)
	}
}

func TestAllAndGC(t *testing.T) {
	c := newClock()
	s, dir := openStore(t, artifact.StoreConfig{Now: c.Now})
	a := put(t, s, object, "a.tar.gz", "a")
	b := put(t, s, "bucket/default/b", "b.tar.gz", "b")
	if err := os.Remove(record(filepath.Join(dir, b.Path))); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "lost+found/a/b/c"), 0o700); err != nil {
		t.Fatal(err)
	}
	var got []artifact.Artifact
	for x, err := range s.All() {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, x)
	}
	same := func(a, b artifact.Artifact) bool {
		return a.Path == b.Path && a.Digest == b.Digest && a.Size == b.Size && a.URL == b.URL && a.LastUpdateTime.Equal(b.LastUpdateTime)
	}
	if want := []artifact.Artifact{b, a}; !slices.EqualFunc(got, want, same) {
		t.Errorf("All lists %+v, want %+v", got, want)
	}
	for range s.All() {
		break
	}
	if _, err := s.GC(t.Context(), artifact.GCConfig{}); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("GC without Keep: %v", err)
	}
	keep := artifact.GCConfig{Keep: func(x artifact.Artifact) bool { return x.Path == a.Path }}
	if removed, err := s.GC(t.Context(), keep); err != nil || len(removed) > 0 {
		t.Errorf("GC removed young artifacts: %v, %v", removed, err)
	}
	c.advance(time.Hour)
	for _, keep.DryRun = range []bool{true, false} {
		if removed, err := s.GC(t.Context(), keep); err != nil || !slices.EqualFunc(removed, []artifact.Artifact{b}, same) {
			t.Errorf("dry=%v: GC removed %v, %v", keep.DryRun, removed, err)
		}
		if err := s.Check(b); errors.Is(err, fs.ErrNotExist) == keep.DryRun {
			t.Errorf("dry=%v: %v", keep.DryRun, err)
		}
	}
	if err := s.Check(a); err != nil {
		t.Error(err)
	}
}

func TestBaseURL(t *testing.T) {
	dir := t.TempDir()
	good := map[string]string{
		"example.org":             "http://example.org/p",
		"example.org:9090":        "http://example.org:9090/p",
		"http://example.org/":     "http://example.org/p",
		"https://example.org/a/b": "https://example.org/a/b/p",
	}
	for base, want := range good {
		s, _ := openStore(t, artifact.StoreConfig{Dir: dir, BaseURL: base})
		if got := s.URL("p"); got != want {
			t.Errorf("%s: URL %s, want %s", base, got, want)
		}
	}
	for _, base := range []string{"ftp://example.org", "http://", "http://u:secret@example.org", "http://example.org/?token=secret", "http://ex ample", "file:///tmp"} {
		_, err := artifact.OpenStore(artifact.StoreConfig{Dir: dir, BaseURL: base})
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", base, err)
		}
	}
	s, _ := openStore(t, artifact.StoreConfig{Dir: dir})
	u, err := url.Parse(s.URL("a b/c%d"))
	if err != nil || u.Scheme != "file" || u.Host != "" || filepath.Clean(filepath.FromSlash(strings.TrimPrefix(u.Path, volumeSlash))) != filepath.Join(dir, "a b", "c%d") {
		t.Errorf("file URL %v, %v", u, err)
	}
}

var volumeSlash = map[string]string{"windows": "/"}[runtime.GOOS]

func TestOpenStoreRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]artifact.StoreConfig{"no directory": {}, "a file": {Dir: file}} {
		if _, err := artifact.OpenStore(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// Whatever the record says, content that is not the artifact's is not taken
// for it.
func FuzzRecord(f *testing.F) {
	dir := f.TempDir()
	s, err := artifact.OpenStore(artifact.StoreConfig{Dir: dir})
	if err != nil {
		f.Fatal(err)
	}
	a, err := s.Put(f.Context(), object, "a.tar.gz", text("content"))
	if err != nil {
		f.Fatal(err)
	}
	name := filepath.Join(dir, a.Path)
	good, err := os.ReadFile(record(name))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(a.Digest + " 7 0 0\n"))
	f.Add([]byte(a.Digest + " 99999999999999999999 -1 x"))
	f.Fuzz(func(t *testing.T, line []byte) {
		if err := errors.Join(os.WriteFile(name, []byte("c0ntent"), 0o600), os.WriteFile(record(name), line, 0o600)); err != nil {
			t.Fatal(err)
		}
		var corrupt *artifact.DigestError
		if err := s.Check(a); !errors.As(err, &corrupt) {
			t.Errorf("with record %q: %v", line, err)
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	s, err := artifact.OpenStore(artifact.StoreConfig{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	a, err := s.Put(b.Context(), object, "a.tar.gz", func(w io.Writer) error {
		_, err := w.Write(make([]byte, 32<<20))
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("recorded", func(b *testing.B) {
		for b.Loop() {
			if err := s.Check(a); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("hashed", func(b *testing.B) {
		b.SetBytes(a.Size)
		for b.Loop() {
			if err := s.Verify(b.Context(), a); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkPut(b *testing.B) {
	s, err := artifact.OpenStore(artifact.StoreConfig{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		if _, err := s.Put(b.Context(), object, "a.tar.gz", text(fmt.Sprint(i))); err != nil {
			b.Fatal(err)
		}
	}
}
