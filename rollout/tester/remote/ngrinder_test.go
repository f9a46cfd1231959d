package remote_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout/tester/remote"
)

var passwd = base64.StdEncoding.EncodeToString([]byte(password))

var nGrinderMetadata = map[string]string{"server": "http://load.example:8080/ngrinder", "clone": "27", "username": "admin", "passwd": passwd}

func newGrinder(states ...string) *testenv.NGrinder {
	return &testenv.NGrinder{Path: "/ngrinder", User: "admin", Password: password, States: states}
}

// runLoad returns what the task wrote, and how it ended.
func runLoad(t *testing.T, ctx context.Context, s *remote.Servers, metadata map[string]string) (string, error) {
	t.Helper()
	task, secrets, err := s.NGrinder(metadata)
	must(t, err)
	if !slices.Contains(secrets, password) {
		t.Errorf("the password is not among the %d secrets to mask", len(secrets))
	}
	var out bytes.Buffer
	err = task.Run(ctx, &out)
	checkNoSecrets(t, out.String(), fmt.Sprint(err))
	return out.String(), err
}

func TestNGrinderEnds(t *testing.T) {
	for _, c := range []struct {
		states []string
		want   string // "" for success
	}{
		{[]string{"READY", "TESTING", "TESTING", "FINISHED"}, ""},
		{[]string{"TESTING", "FINISHED_WITH_WARNING"}, ""},
		{[]string{"STOP_BY_ERROR"}, "ngrinder: test 1001 stopped by an error (STOP_BY_ERROR)"},
		{[]string{"STOP_ON_ERROR"}, "ngrinder: test 1001 stopped by an error (STOP_ON_ERROR)"},
		{[]string{"CANCELED"}, "ngrinder: test 1001 was cancelled (CANCELED)"},
		{[]string{"UNKNOWN"}, "ngrinder: test 1001 ended in an unknown state (UNKNOWN)"},
	} {
		for _, old := range []bool{false, true} {
			for _, getOnly := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s old %t get %t", c.states[len(c.states)-1], old, getOnly), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						n, s := testServers(t)
						grinder := newGrinder(c.states...)
						grinder.Old, grinder.GetOnly = old, getOnly
						n.serve(t, publicIP+":8080", grinder)
						began := time.Now()
						out, err := runLoad(t, t.Context(), s, nGrinderMetadata)
						testenv.Equal(t, text(err), c.want, "error")
						if took, want := time.Since(began), time.Duration(len(c.states))*time.Second; took != want {
							t.Errorf("it took %s, want %s: the default interval is 1 s", took, want)
						}
						if !slices.Equal(grinder.Cloned(), []int64{27}) || grinder.Stopped() != nil {
							t.Errorf("cloned %v, stopped %v", grinder.Cloned(), grinder.Stopped())
						}
						want := "ngrinder: started test 1001, a clone of test 27, on http://load.example:8080/ngrinder\n" +
							"result http://load.example:8080/ngrinder/perftest/1001\n"
						for _, state := range slices.Compact(slices.Clone(c.states)) {
							want += "state " + state + "\n"
						}
						testenv.Equal(t, out, want, "output")
						synctest.Wait()
						if n.open != 0 || len(n.dialled) != 1 {
							t.Errorf("%d connections are left of %v", n.open, n.dialled)
						}
					})
				})
			}
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// S-37: the path of the base URL is kept, with and without a slash at its end.
func TestNGrinderServer(t *testing.T) {
	for _, c := range []struct{ path, server, configured string }{
		{"", "http://load.example:8080", ""},
		{"", "http://load.example:8080/", ""},
		{"/a/b", "http://load.example:8080/a/b", ""},
		{"/a/b", "http://LOAD.example:8080/a/b/", ""},
		{"/c", "", "http://load.example:8080/c/"},
		{"/d", "http://load.example:8080/d", "http://other.example/"},
	} {
		synctest.Test(t, func(t *testing.T) {
			n, s := testServers(t)
			s.LoadURL = c.configured
			grinder := newGrinder("FINISHED")
			grinder.Path = c.path
			n.serve(t, publicIP+":8080", grinder)
			if _, err := runLoad(t, t.Context(), s, with(nGrinderMetadata, "server", c.server)); err != nil {
				t.Errorf("%+v: %v", c, err)
			}
		})
	}
}

func TestNGrinderMetadata(t *testing.T) {
	_, s := testServers(t)
	required := "server, clone, username and passwd are required metadata"
	for _, c := range []struct {
		name string
		m    map[string]string
		want string
	}{
		{"nothing", nil, required},
		{"server", with(nGrinderMetadata, "server", "-", "clone", "x"), required},
		{"clone", with(nGrinderMetadata, "clone", "", "server", "::"), required},
		{"username", with(nGrinderMetadata, "username", " "), required},
		{"passwd", with(nGrinderMetadata, "passwd", "-"), required},
		{"url before clone", with(nGrinderMetadata, "server", "ftp://load.example", "clone", "x"), "invalid url: it must begin with http:// or https://"},
		{"url unreadable", with(nGrinderMetadata, "server", "http://[::1"), "invalid url: it cannot be read"},
		{"url without host", with(nGrinderMetadata, "server", "http:///x"), "invalid url: it has no host"},
		{"url with user", with(nGrinderMetadata, "server", "http://u:p@load.example"), "invalid url: it has user information: use the keys for credentials"},
		{"url with query", with(nGrinderMetadata, "server", "http://load.example?x=1"), "invalid url: it has a query or a fragment"},
		{"url with zone", with(nGrinderMetadata, "server", "http://[fe80::1%25eth0]"), "invalid url: it has an address with a zone"},
		{"other host", with(nGrinderMetadata, "server", "http://other.example/"), "invalid url: host other.example is not one that may be asked: see --hosts"},
		{"clone before password", with(nGrinderMetadata, "clone", "x", "passwd", "?"), `metadata clone must be integer: "x" is none above 0`},
		{"clone a path", with(nGrinderMetadata, "clone", "1/../2"), `metadata clone must be integer: "1/../2" is none above 0`},
		{"clone too large", with(nGrinderMetadata, "clone", "9223372036854775808"), `metadata clone must be integer: "9223372036854775808" is none above 0`},
		{"clone negative", with(nGrinderMetadata, "clone", "-1"), `metadata clone must be integer: "-1" is none above 0`},
		{"password", with(nGrinderMetadata, "passwd", "%%"), "metadata password is invalid: illegal base64 data at input byte 0"},
		{"password empty", with(nGrinderMetadata, "passwd", "Cg=="), "metadata password is invalid: it is empty"},
		{"two passwords", with(nGrinderMetadata, "passwdFrom", "ngrinder"), "metadata passwd and passwdFrom exclude each other"},
		{"no such key", with(nGrinderMetadata, "passwd", "", "passwdFrom", "nobody"), "metadata passwdFrom is invalid: file does not exist"},
		{"key elsewhere", with(nGrinderMetadata, "passwd", "", "passwdFrom", "../x"), "metadata passwdFrom is invalid: it is neither the name of a file in the directory of keys nor a path to one"},
		{"username", with(nGrinderMetadata, "username", "a:b"), "metadata username must not have a colon or control characters"},
		{"interval 0", with(nGrinderMetadata, "pollInterval", "0s"), `metadata pollInterval: "0s" is out of range: want more than 0 and at most 365 days`},
		{"interval negative", with(nGrinderMetadata, "pollInterval", "-5s"), `metadata pollInterval: "-5s" is out of range: want more than 0 and at most 365 days`},
		{"interval", with(nGrinderMetadata, "pollInterval", "soon"), `metadata pollInterval: "soon" is no time span: want seconds such as 90, or a duration such as 1m30s`},
	} {
		task, _, err := s.NGrinder(c.m)
		if text(err) != c.want || task != nil {
			t.Errorf("%s: %v, error %q, want %q", c.name, task, text(err), c.want)
		}
		checkNoSecrets(t, text(err))
	}
}

// S-4, S-36: the interval of metadata is used.
func TestNGrinderInterval(t *testing.T) {
	for given, want := range map[string]time.Duration{"": time.Second, "3": 3 * time.Second, "10s": 10 * time.Second, "250ms": 250 * time.Millisecond, "1ns": 100 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			n, s := testServers(t)
			n.serve(t, publicIP+":8080", newGrinder("TESTING", "TESTING", "FINISHED"))
			began := time.Now()
			if _, err := runLoad(t, t.Context(), s, with(nGrinderMetadata, "pollInterval", given)); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took != 3*want {
				t.Errorf("interval %q: three questions took %s", given, took)
			}
		})
	}
}

// S-26, S-38: a test ends with its run, whether or not the server confirms it.
func TestNGrinderStop(t *testing.T) {
	for _, old := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			n, s := testServers(t)
			grinder := newGrinder("TESTING")
			grinder.Old = old
			n.serve(t, publicIP+":8080", grinder)
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Hour, errors.New("told to end"))
			defer cancel()
			out, err := runLoad(t, ctx, s, with(nGrinderMetadata, "pollInterval", "1m"))
			testenv.Equal(t, text(err), "ngrinder: test 1001: told to end", "error")
			if !slices.Equal(grinder.Stopped(), []int64{1001}) || !strings.HasSuffix(out, "ngrinder: stopped test 1001\n") {
				t.Errorf("stopped %v, output %q", grinder.Stopped(), out)
			}
		})
	}
}

func TestNGrinderStopStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, s := testServers(t)
		grinder := newGrinder("TESTING")
		n.serve(t, publicIP+":8080", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPut {
				<-r.Context().Done()
				return
			}
			grinder.ServeHTTP(w, r)
		}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		out, err := runLoad(t, ctx, s, nGrinderMetadata)
		if took := time.Since(began); took != time.Minute+10*time.Second || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v after %s", err, took)
		}
		if !strings.Contains(out, "ngrinder: stop test 1001: PUT http://load.example:8080/ngrinder/perftest/api/1001: no answer within 10s\n") {
			t.Errorf("output %q", out)
		}
	})
}

// A run that is told to end while its test is being started stops it.
func TestNGrinderEndsWhileStarting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, s := testServers(t)
		grinder := newGrinder("TESTING")
		ctx, cancel := context.WithCancel(t.Context())
		n.serve(t, publicIP+":8080", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if cancel(); r.Method == http.MethodPost {
				time.Sleep(4 * time.Second) // in the bubble
			}
			grinder.ServeHTTP(w, r)
		}))
		_, err := runLoad(t, ctx, s, nGrinderMetadata)
		if !errors.Is(err, context.Canceled) || !slices.Equal(grinder.Stopped(), []int64{1001}) {
			t.Errorf("%v, stopped %v", err, grinder.Stopped())
		}
	})
}
