package remote_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// S-12: nothing but a file of the directory of keys is read, whatever leads to it.
func TestKeys(t *testing.T) {
	_, s := world(t)
	keys, outside := s.Keys, t.TempDir()
	write(t, filepath.Join(outside, "token"), apiKey)
	write(t, filepath.Join(keys, "long"), strings.Repeat("k", 16<<10+1))
	write(t, filepath.Join(keys, "longest"), strings.Repeat("k", 16<<10))
	write(t, filepath.Join(keys, "lines"), apiKey+"\n"+apiKey)
	write(t, filepath.Join(keys, "control"), apiKey+"\x00")
	write(t, filepath.Join(keys, "empty"), " \n")
	for _, dir := range []string{"dir", "..2026"} {
		if err := os.Mkdir(filepath.Join(keys, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(keys, "..2026", "mounted"), apiKey+"\n")
	for name, to := range map[string]string{
		"link": "concord", "absolute": filepath.Join(keys, "concord"), "..data": "..2026", "mounted": "..data/mounted",
		"out": filepath.Join(outside, "token"), "up": "../" + filepath.Base(outside) + "/token", "loop": "loop", "nowhere": "nobody",
	} {
		if err := os.Symlink(to, filepath.Join(keys, name)); err != nil {
			t.Skip(err)
		}
	}
	other := filepath.Join(outside, "keys")
	if err := os.Symlink(keys, other); err != nil {
		t.Fatal(err)
	}
	const missing, form, name = "file doesn't exist", "the file of the key must hold one line", "it is neither the name of a file"
	for path, want := range map[string]string{
		"concord": "", "link": "", "mounted": "", "longest": "", " concord ": "",
		keys + "/concord": "", keys + "/link": "", keys + "/mounted": "", keys + "/absolute": "", keys + "/dir/../concord": "", other + "/concord": "", keys + "/..data/mounted": "",
		"nobody": missing, "dir": missing, "..data": missing, "out": missing, "up": missing, "loop": missing, "nowhere": missing,
		keys: missing, keys + "/out": missing, keys + "/up": missing, keys + "/../" + filepath.Base(outside) + "/token": missing,
		outside + "/token": missing, outside + "/nobody": missing, "/proc/self/environ": missing, "/dev/zero": missing,
		"long": form, "lines": form, "control": form, "empty": form,
		"..": name, ".": name, "../token": name, "dir/x": name, "./concord": name,
	} {
		_, _, err := s.Concord(with(plain, "apiKeyPath", path))
		if want == "" && err != nil || want != "" && !strings.Contains(text(err), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
		silent(t, fmt.Sprint(err))
	}
	s.Keys = other // itself a link
	if _, _, err := s.Concord(with(plain, "apiKeyPath", keys+"/mounted")); err != nil {
		t.Error(err)
	}
	s.Keys = filepath.Join(keys, "nobody")
	if _, _, err := s.Concord(plain); text(err) != "`apiKeyPath`: the directory of keys cannot be opened" {
		t.Error(err)
	}
}
