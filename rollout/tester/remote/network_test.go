package remote_test

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/headgate-io/headgate/internal/testenv"
)

// Only the server itself gets credentials, and even requests.
func TestRedirects(t *testing.T) {
	leading := func(to string, status int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to, status) }
	}
	for _, to := range []string{"http://other.example/x", "https://load.example:8080/x", "http://load.example:8081/x", "//other.example/x", "http://u:p@other.example/x?token=abc", "http://load.example:8080/elsewhere"} {
		for _, status := range []int{301, 302, 303, 307, 308} {
			synctest.Test(t, func(t *testing.T) {
				n, s := testServers(t)
				s.Hosts = append(s.Hosts, "other.example")
				requests := 0
				spy := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests++ })
				for _, address := range []string{otherIP + ":80", publicIP + ":443", publicIP + ":8081"} {
					n.serve(t, address, spy)
				}
				n.serve(t, publicIP+":8080", intercept(spy, "POST", "clone_and_start", leading(to, status)))
				_, err := runLoad(t, t.Context(), s, nGrinderMetadata)
				if !strings.Contains(text(err), "a redirect is not followed to ") || strings.Contains(text(err), "abc") || strings.Contains(text(err), "u:p") || requests != 0 {
					t.Errorf("%d to %s: %v, %d requests", status, to, err, requests)
				}
			})
		}
	}
	for to, want := range map[string]string{
		"http://other.example/x":             "a redirect is not followed to http://other.example/x",
		"http://load.example:8080/elsewhere": "",
		"status":                             "a redirect is not followed more than 5 times",
	} {
		synctest.Test(t, func(t *testing.T) {
			n, s := testServers(t)
			requests := 0
			n.serve(t, otherIP+":80", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests++ }))
			moved := intercept(newGrinder("x"), "GET", "/elsewhere", respond(200, "", `{"status": "FINISHED"}`))
			n.serve(t, publicIP+":8080", intercept(moved, "GET", "/status", leading(to, 307)))
			_, err := runLoad(t, t.Context(), s, nGrinderMetadata)
			if (err == nil) != (want == "") || !strings.Contains(text(err), want) || requests != 0 {
				t.Errorf("GET to %s: %v, %d requests", to, err, requests)
			}
		})
	}
}

// A proxy is configured, so its address is not checked, and it looks up names itself.
func TestProxy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, s := testServers(t)
		s.Proxy = func(*http.Request) (*url.URL, error) { return url.Parse("http://proxy.example:3128") }
		n.serve(t, "proxy.example:3128", newGrinder("FINISHED"))
		if _, err := runLoad(t, t.Context(), s, nGrinderMetadata); err != nil || !slices.Equal(n.dialled, []string{"proxy.example:3128"}) {
			t.Errorf("%v, connected to %v", err, n.dialled)
		}
	})
}

// TestHosts shows which servers metadata may name.
func TestHosts(t *testing.T) {
	for _, c := range []struct {
		hosts  string
		server string
		ok     bool
	}{
		{"", "http://load.example", false},
		{"load.example", "http://load.example", true},
		{"load.example", "https://LOAD.EXAMPLE.:8443/x", true},
		{"Load.Example.", "http://load.example", true},
		{"load.example", "http://xload.example", false},
		{"load.example", "http://load.example.evil.example", false},
		{"load.example", "http://a.load.example", false},
		{"load.example:8080", "http://load.example:8080", true},
		{"load.example:8080", "http://load.example", false},
		{"load.example:80", "http://load.example", true},
		{"load.example:443", "https://load.example", true},
		{"load.example:80", "https://load.example", false},
		{"*.example", "http://load.example", true},
		{"*.example", "http://a.load.example", true},
		{"*.example", "http://example", false},
		{"*.example", "http://badexample", false},
		{"*.example:8080", "http://load.example:8080", true},
		{"*.example:8080", "http://load.example:8081", false},
		{"*.0.0.1", "http://127.0.0.1", false},
		{"10.0.0.1", "http://10.0.0.1:9000", true},
		{"10.0.0.1", "http://10.0.0.2", false},
		{"::1", "http://[::1]:80", true},
		{"[::1]:80", "http://[0:0::1]:80", true},
		{"[::1]:80", "http://[::1]:81", false},
		{"127.0.0.1", "http://[::ffff:127.0.0.1]", false},
		{"127.0.0.1", "http://2130706433", false},
		{"a,load.example,b", "http://load.example", true},
		{"load.example", "http://load.example@other.example", false},
		{"load.example", "http://other.example\\@load.example", false},
		{"load.example", "//load.example", false},
		{"load.example", "file://load.example/x", false},
		{"load.example", "http:load.example", false},
		{"load.example", "http://:80", false},
	} {
		_, s := testServers(t)
		if s.Hosts = nil; c.hosts != "" {
			s.Hosts = strings.Split(c.hosts, ",")
		}
		_, _, err := s.NGrinder(with(nGrinderMetadata, "server", c.server))
		testenv.Equal(t, err == nil, c.ok, "%q for %q: %v", c.server, c.hosts, err)
	}
}

// The origin of a configured base URL is allowed for its own type.
func TestConfiguredOrigins(t *testing.T) {
	_, s := testServers(t)
	s.Hosts, s.LoadURL, s.ProcessURL = nil, "https://load.example/ngrinder", "http://concord.example:8001"
	for server, ok := range map[string]bool{
		"": true, "https://load.example/other": true, "https://load.example:443": true,
		"http://load.example": false, "https://load.example:444": false, "http://concord.example:8001": false,
	} {
		if _, _, err := s.NGrinder(with(nGrinderMetadata, "server", server)); (err == nil) != ok {
			t.Errorf("ngrinder, %q: %v", server, err)
		}
	}
	for server, ok := range map[string]bool{"": true, "http://concord.example:8001/x": true, "https://load.example": false} {
		if _, _, err := s.Concord(with(concordHTTPSMetadata, "server", server)); (err == nil) != ok {
			t.Errorf("concord, %q: %v", server, err)
		}
	}
}

// The addresses of a name are checked when a connection is made.
func TestAddresses(t *testing.T) {
	for _, c := range []struct {
		hosts, host string
		dialled     string // "" if no connection may be tried
	}{
		{"load.example", "load.example", publicIP + ":80"},
		{"metadata.example", "metadata.example", ""},
		{"mapped.example", "mapped.example", ""},
		{"six.example", "six.example", ""},
		{"both.example", "both.example", publicIP + ":80"},
		{"metadata.example,169.254.169.254", "metadata.example", ""},
		{"169.254.169.254", "169.254.169.254", "169.254.169.254:80"},
		{"[fe80::1]:80", "[fe80::1]", "[fe80::1]:80"},
		{"inside.example", "inside.example", "127.0.0.1:80"},
		{"127.0.0.1", "127.0.0.1", "127.0.0.1:80"},
		{"*.wild.example", "b.wild.example", publicIP + ":80"},
		{"*.wild.example", "a.wild.example", ""},
		{"*.wild.example,a.wild.example", "a.wild.example", "127.0.0.1:80"},
		{"nowhere.example", "nowhere.example", ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			n, s := testServers(t)
			s.Hosts = strings.Split(c.hosts, ",")
			if c.dialled != "" {
				n.serve(t, c.dialled, newGrinder("FINISHED"))
			}
			_, err := runLoad(t, t.Context(), s, with(nGrinderMetadata, "server", "http://"+c.host+"/ngrinder"))
			if got := strings.Join(n.dialled, " "); got != c.dialled || (err == nil) != (c.dialled != "") {
				t.Errorf("%s for %s: %v, connected to %q", c.host, c.hosts, err, got)
			}
		})
	}
}

// S-12: only files in the directory of keys are read, whatever path or link is given.
func TestKeys(t *testing.T) {
	_, s := testServers(t)
	keys, outside := s.Keys, t.TempDir()
	write(t, filepath.Join(outside, "token"), apiKey)
	write(t, filepath.Join(keys, "long"), strings.Repeat("k", 16<<10+1))
	write(t, filepath.Join(keys, "longest"), strings.Repeat("k", 16<<10))
	write(t, filepath.Join(keys, "lines"), apiKey+"\n"+apiKey)
	write(t, filepath.Join(keys, "control"), apiKey+"\x00")
	write(t, filepath.Join(keys, "empty"), " \n")
	for _, dir := range []string{"dir", "..2026"} {
		must(t, os.Mkdir(filepath.Join(keys, dir), 0o700))
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
	must(t, os.Symlink(keys, other))
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
		_, _, err := s.Concord(with(concordMetadata, "apiKeyPath", path))
		if want == "" && err != nil || want != "" && !strings.Contains(text(err), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
		checkNoSecrets(t, fmt.Sprint(err))
	}
	s.Keys = other // itself a link
	if _, _, err := s.Concord(with(concordMetadata, "apiKeyPath", keys+"/mounted")); err != nil {
		t.Error(err)
	}
	s.Keys = filepath.Join(keys, "nobody")
	if _, _, err := s.Concord(concordMetadata); text(err) != "`apiKeyPath`: the directory of keys cannot be opened" {
		t.Error(err)
	}
}
