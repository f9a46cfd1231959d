package artifact

import (
	"net/url"
	"path/filepath"
	"runtime"
	"testing"
)

// The form of a file URL does not depend on the system; whether it can be read
// does.
func TestFileURL(t *testing.T) {
	for path, want := range map[string]string{
		"/srv/store":          "file:///srv/store",
		"/srv/a b%c#d?e":      "file:///srv/a%20b%25c%23d%3Fe",
		"C:/store":            "file:///C:/store",
		"//host/share/store":  "file://host/share/store",
		"//host/share/a b%20": "file://host/share/a%20b%2520",
	} {
		got := fileURL(path)
		if got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
		if !filepath.IsAbs(filepath.FromSlash(path)) || filepath.Clean(path) != path && runtime.GOOS != "windows" {
			continue // no path of this system
		}
		u, err := url.Parse(got)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := filePath(u); err != nil || back != filepath.FromSlash(path) {
			t.Errorf("%s: read as %q, %v; want %q", got, back, err, path)
		}
	}
}
