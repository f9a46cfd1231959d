package drive_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/drive"
)

var app = rollout.Metadata{Name: "app", Namespace: "prod"}

func open(t *testing.T, path string) *drive.File {
	t.Helper()
	f, err := drive.Open(path, app)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func TestSaveAndLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "app.json")
	f := open(t, path)
	if s, err := f.Load(); err != nil || !reflect.DeepEqual(s, rollout.Status{}) {
		t.Errorf("before the first save: %+v, %v", s, err)
	}
	want := rollout.Status{
		Phase: rollout.Waiting, CanaryWeight: 20, FailedChecks: 1, AppliedSpec: "v2", PromotedSpec: "v1", Sequence: 7,
		Gate: &rollout.Gate{Type: rollout.HookConfirmRollout, Name: "approve", Since: time.Unix(1, 0).UTC()},
	}
	for range 2 {
		must(t, f.Save(want))
	}
	f.Close()
	if got, err := open(t, path).Load(); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if info, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
	hidden, err1 := filepath.Glob(filepath.Join(filepath.Dir(path), ".*"))
	if err != nil || err1 != nil || len(left) != 2 || len(hidden) != 0 {
		t.Errorf("left: %q, %q", left, hidden)
	}
}

func TestInUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.json")
	f := open(t, path)
	if _, err := drive.Open(path, app); !errors.Is(err, drive.ErrInUse) || !strings.Contains(err.Error(), path) {
		t.Errorf("a second owner: %v", err)
	}
	f.Close()
	open(t, path)
}

func TestDefects(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"empty":            {"", "is damaged, delete or mend it"},
		"torn":             {`{"name": "app", "names`, "is damaged, delete or mend it"},
		"of another":       {`{"name": "app", "namespace": "test", "status": {}}`, "belongs to canary test/app, not to prod/app"},
		"without a canary": {`{"phase": "Progressing"}`, "belongs to canary"},
		"no status":        {`{"name": "app", "namespace": "prod", "status": {"phase": "Progressing", "canaryWeight": 400}}`, "canaryWeight 400: want 0 to 100"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "app.json")
			must(t, os.WriteFile(path, []byte(c.text), 0o600))
			if s, err := open(t, path).Load(); err == nil || !strings.Contains(err.Error(), c.want) || s.Phase != "" {
				t.Errorf("%+v, %v", s, err)
			}
		})
	}
}

// Leftovers of a killed process beside the file do not prevent a save, and a symbolic link is not followed.
func TestLeftovers(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "other")
	must(t, os.WriteFile(other, []byte("precious"), 0o600))
	if err := os.Symlink(other, filepath.Join(dir, ".app.json.new")); err != nil {
		t.Skip(err)
	}
	must(t, open(t, filepath.Join(dir, "app.json")).Save(rollout.Status{Phase: rollout.Failed}))
	if text, err := os.ReadFile(other); err != nil || string(text) != "precious" {
		t.Errorf("%q, %v", text, err)
	}
}
