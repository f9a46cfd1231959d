package tester_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

// fillDisk makes every write to a file that this process has open fail, as on a
// disk that is full.
func fillDisk(t *testing.T, path string) {
	t.Helper()
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	for _, fd := range open {
		if to, _ := os.Readlink("/proc/self/fd/" + fd.Name()); to != path {
			continue
		}
		n, err := strconv.Atoi(fd.Name())
		if err == nil {
			err = syscall.Dup3(int(full.Fd()), n, syscall.O_CLOEXEC)
		}
		must(t, err)
		return
	}
	t.Fatalf("%s is not open", path)
}

// TestGFull: internal errors are logged without a working link, and answered without
// names of files.
func TestGFull(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	d := startServer(t, func(w *serverSetup) { w.Runs.Dir = dir })
	d.post("/gate/check", namespacePayload("shop", `{}`)).expect(t, "a check", 403, "")
	var link api.Link
	must(t, json.Unmarshal([]byte(d.post(gatePath+"/link", "{}").body), &link))
	d.call("GET", "/readyz", "").expect(t, "ready", 200, "OK")
	fillDisk(t, filepath.Join(dir, "gates.db"))
	approve := strings.TrimPrefix(link.Approve, d.url)
	for path, body := range map[string]string{
		approve: "", "/gate/open": namespacePayload("shop", `{}`), "/rollback/open": namespacePayload("shop", `{}`), gatePath + "/open": "", gatePath + "/reject": "", gatePath + "/link": "",
	} {
		got := d.post(path, body)
		if got.expect(t, path, 500, "see its log"); strings.Contains(got.body, dir) || strings.Contains(got.body, "gates.db") {
			t.Errorf("%s: it shows a path: %s", path, got.body)
		}
	}
	d.log.wait(t, `"path":"/link/***"`, filepath.Join(dir, "gates.db"), "no space left")
	if strings.Contains(d.log.String(), approve) {
		t.Error("the log has a link that works")
	}
	if d.state(api.KindGate).Open || d.state(api.KindRollback).Open {
		t.Error("something is open")
	}
	d.post("/gate/check", namespacePayload("shop", `{}`)).expect(t, "a check of what could not be opened", 403, "")
	d.call("GET", "/readyz", "").expect(t, "ready", 503, "the store of gates cannot be used")
	if err := d.Gates.Close(); err == nil {
		t.Error("who waits was written")
	}
}
