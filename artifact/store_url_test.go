package artifact

import "testing"

// The form of a file URL is the same on every operating system.
func TestFileURL(t *testing.T) {
	for path, want := range map[string]string{
		"/srv/store":          "file:///srv/store",
		"/srv/a b%c#d?e":      "file:///srv/a%20b%25c%23d%3Fe",
		"C:/store":            "file:///C:/store",
		"//host/share/store":  "file://host/share/store",
		"//host/share/a b%20": "file://host/share/a%20b%2520",
	} {
		if got := fileURL(path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}
