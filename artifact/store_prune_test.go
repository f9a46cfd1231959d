package artifact_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
)

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
			must(t, s.Prune(object, list[test.current]))
			want := []string{other.Path}
			for _, i := range test.want {
				want = append(want, list[i].Path)
			}
			slices.Sort(want)
			testenv.Equal(t, files(t, dir), want, "left")
		})
	}
}

func TestRemove(t *testing.T) {
	s, dir := openStore(t, artifact.StoreConfig{})
	a := put(t, s, object, "a.tar.gz", "a")
	b := put(t, s, "gitrepository/default/app2", "a.tar.gz", "b")
	must(t, second(s.Point(object, "latest.tar.gz", a)))
	must(t, s.Remove(object))
	if err := s.Check(a); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	testenv.Equal(t, files(t, dir), []string{b.Path}, "left")
	if err := s.Remove(object); err != nil {
		t.Errorf("removing what is not there: %v", err)
	}
}

func TestSweep(t *testing.T) {
	s, dir := openStore(t, artifact.StoreConfig{})
	a := put(t, s, object, "a.tar.gz", "a")
	missing := put(t, s, "bucket/default/gone", "a.tar.gz", "b")
	must(t, second(s.Point("bucket/default/gone", "latest.tar.gz", missing)))
	must(t, os.Remove(filepath.Join(dir, missing.Path)))
	must(t, os.WriteFile(filepath.Join(dir, ".store/tmp/dead"), make([]byte, 123), 0o600))
	temp, err := s.Temp()
	must(t, err)
	defer temp.Close()
	// A live writer keeps its file even if another process sweeps.
	other, _ := openStore(t, artifact.StoreConfig{Dir: dir})
	b, err := s.Put(t.Context(), object, "b.tar.gz", func(w io.Writer) error {
		swept, err := other.Sweep(t.Context())
		if swept != (artifact.Swept{Files: 1, Bytes: 123}) {
			t.Errorf("swept %+v", swept)
		}
		io.WriteString(w, "b")
		return err
	})
	must(t, err)
	must(t, second(s.GC(t.Context(), keepAll)))
	want := []string{a.Path, b.Path}
	slices.Sort(want)
	testenv.Equal(t, files(t, dir), want, "left")
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

// keepAll makes GC only tidy.
var keepAll = artifact.GCConfig{Keep: func(artifact.Artifact) bool { return true }}

// Put and GC of the same empty directories do not disturb each other.
func TestGCDuringPut(t *testing.T) {
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
		if _, err := s.GC(t.Context(), keepAll); err != nil {
			t.Error(err)
		}
		select {
		case <-done:
			return
		default:
		}
	}
}

func TestAllAndGC(t *testing.T) {
	c := newClock()
	s, dir := openStore(t, artifact.StoreConfig{Now: c.Now})
	a := put(t, s, object, "a.tar.gz", "a")
	b := put(t, s, "bucket/default/b", "b.tar.gz", "b")
	must(t, os.Remove(record(filepath.Join(dir, b.Path))))
	must(t, os.MkdirAll(filepath.Join(dir, "lost+found/a/b/c"), 0o700))
	var got []artifact.Artifact
	for x, err := range s.All() {
		must(t, err)
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
