package remote_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout/tester/remote"
)

var concordHTTPSMetadata = map[string]string{
	"server": "https://concord.example/base", "org": "shop", "project": "checkout", "repo": "tests", "entrypoint": "smoke",
	"apiKeyPath": "concord", "endpoint": "http://checkout-canary.shop/?a=b&c=ü", "arguments.user": "tester", "arguments.a": "1", "type": "concord", "other": "x",
}

const instance = "6f9619ff-8b86-d011-b42d-00c04fc96000"

func newConcord(states ...string) *testenv.Concord {
	return &testenv.Concord{Path: "/base", Key: apiKey, States: states}
}

// runProcess returns what the task wrote, and how it ended.
func runProcess(t *testing.T, ctx context.Context, s *remote.Servers, metadata map[string]string) (string, error) {
	t.Helper()
	task, secrets, err := s.Concord(metadata)
	must(t, err)
	testenv.Equal(t, secrets, []string{apiKey}, "%d secrets to mask", len(secrets))
	var out bytes.Buffer
	err = task.Run(ctx, &out)
	checkNoSecrets(t, out.String(), fmt.Sprint(err))
	return out.String(), err
}

var concordMetadata = with(concordHTTPSMetadata, "server", "http://concord.example/base")

func TestConcordEnds(t *testing.T) {
	for _, c := range []struct {
		states []string
		want   string
	}{
		{[]string{"NEW", "PREPARING", "ENQUEUED", "WAITING", "STARTING", "RUNNING", "SUSPENDED", "RESUMING", "RUNNING", "FINISHED"}, ""},
		{[]string{"RUNNING", "FAILED"}, "concord instanceID: " + instance + " failed"},
		{[]string{"CANCELLED"}, "concord instanceID: " + instance + " was cancelled"}, // S-41
		{[]string{"TIMED_OUT"}, "concord instanceID: " + instance + " timed out"},
	} {
		t.Run(c.states[len(c.states)-1], func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, s := testServers(t)
				concord := newConcord(c.states...)
				n.serve(t, publicIP+":80", concord)
				began := time.Now()
				out, err := runProcess(t, t.Context(), s, with(concordMetadata, "pollTimeout", "1m"))
				testenv.Equal(t, text(err), c.want, "error")
				if took, want := time.Since(began), time.Duration(len(c.states))*5*time.Second; took != want {
					t.Errorf("it took %s, want %s: the default interval is 5 s", took, want)
				}
				want := "concord: started process " + instance + " on http://concord.example/base\nresult http://concord.example/base/#/process/" + instance + "\n"
				for _, state := range c.states {
					want += "state " + state + "\n"
				}
				if out != want || concord.Cancelled() != nil {
					t.Errorf("output\n%swant\n%scancelled %v", out, want, concord.Cancelled())
				}
				form := [][2]string{
					{"org", "shop"}, {"project", "checkout"}, {"repo", "tests"}, {"entryPoint", "smoke"},
					{"arguments.endpoint", "http://checkout-canary.shop/?a=b&c=ü"}, {"arguments.a", "1"}, {"arguments.user", "tester"},
				}
				if got := concord.Forms(); !reflect.DeepEqual(got, [][][2]string{form}) {
					t.Errorf("started with %q, want %q", got, form)
				}
				synctest.Wait()
				if n.open != 0 || len(n.dialled) != 1 {
					t.Errorf("%d connections are left of %v", n.open, n.dialled)
				}
			})
		})
	}
}

// S-40: pollTimeout is how long the process may take, whatever the interval.
// S-45: the process is cancelled then.
func TestConcordTimeout(t *testing.T) {
	for _, c := range []struct {
		interval, timeout string
		after             time.Duration
		want              string
	}{
		{"", "", 30 * time.Second, "concord process timed out, after 30 seconds"},
		{"1", "2m", 2 * time.Minute, "concord process timed out, after 120 seconds"},
		{"1m", "1500ms", 1500 * time.Millisecond, "concord process timed out, after 1.5 seconds"},
	} {
		synctest.Test(t, func(t *testing.T) {
			n, s := testServers(t)
			concord := newConcord("RUNNING")
			n.serve(t, publicIP+":80", concord)
			began := time.Now()
			out, err := runProcess(t, t.Context(), s, with(concordMetadata, "pollInterval", c.interval, "pollTimeout", c.timeout))
			if took := time.Since(began); took != c.after || text(err) != c.want {
				t.Errorf("%q after %s, want %q after %s", text(err), took, c.want, c.after)
			}
			if !slices.Equal(concord.Cancelled(), []string{instance}) || !strings.HasSuffix(out, "concord: cancelled process "+instance+"\n") {
				t.Errorf("cancelled %v, output %q", concord.Cancelled(), out)
			}
		})
	}
}

// S-40 as well: an interval longer than the timeout does not hide the end of the process.
func TestConcordFinalPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, s := testServers(t)
		concord := newConcord("FINISHED")
		n.serve(t, publicIP+":80", concord)
		if _, err := runProcess(t, t.Context(), s, with(concordMetadata, "pollInterval", "60", "pollTimeout", "10")); err != nil || concord.Cancelled() != nil {
			t.Errorf("%v, cancelled %v", err, concord.Cancelled())
		}
	})
}

func TestConcordCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, s := testServers(t)
		concord := newConcord("RUNNING")
		n.serve(t, publicIP+":80", concord)
		ctx, cancel := context.WithTimeoutCause(t.Context(), 12*time.Second, errors.New("told to end"))
		defer cancel()
		_, err := runProcess(t, ctx, s, concordMetadata)
		if got := text(err); got != "concord instanceID: "+instance+": told to end" || !slices.Equal(concord.Cancelled(), []string{instance}) {
			t.Errorf("error %q, cancelled %v", got, concord.Cancelled())
		}
	})
}

func TestConcordMetadata(t *testing.T) {
	_, s := testServers(t)
	required := func(key string) string { return "`" + key + "` is required with type concord" }
	for _, c := range []struct {
		name string
		m    map[string]string
		want string
	}{
		{"nothing", nil, required("server")},
		{"org", with(concordMetadata, "org", "-", "project", ""), required("org")},
		{"project", with(concordMetadata, "project", " ", "repo", "-"), required("project")},
		{"repo", with(concordMetadata, "repo", "-", "entrypoint", "-"), required("repo")},
		{"entrypoint", with(concordMetadata, "entrypoint", "-", "apiKeyPath", "-"), required("entrypoint")},
		{"apiKeyPath", with(concordMetadata, "apiKeyPath", "-", "endpoint", "-"), required("apiKeyPath")},
		{"no such key", with(concordMetadata, "apiKeyPath", "nobody", "endpoint", "-"), "`apiKeyPath` file doesn't exist nobody"},
		{"no such file", with(concordMetadata, "apiKeyPath", "/etc/passwd"), "`apiKeyPath` file doesn't exist /etc/passwd"},
		{"endpoint", with(concordMetadata, "endpoint", "-", "pollInterval", "x"), required("endpoint")},
		{"interval", with(concordMetadata, "pollInterval", "x", "pollTimeout", "x"), "`pollInterval`: \"x\" is no time span: want seconds such as 90, or a duration such as 1m30s"},
		{"interval 0", with(concordMetadata, "pollInterval", "0"), "`pollInterval`: \"0\" is out of range: want more than 0 and at most 365 days"}, // S-44
		{"timeout", with(concordMetadata, "pollTimeout", "-1", "arguments.endpoint", "x"), "`pollTimeout`: \"-1\" is no time span: want seconds such as 90, or a duration such as 1m30s"},
		{"arguments.endpoint", with(concordMetadata, "arguments.endpoint", ""), "`arguments.endpoint` is not for metadata to set: use `endpoint`"},
		{"other host", with(concordMetadata, "server", "http://other.example"), "`server`: host other.example is not one that may be asked: see --hosts"},
	} {
		task, _, err := s.Concord(c.m)
		if text(err) != c.want || task != nil {
			t.Errorf("%s: %v, error %q, want %q", c.name, task, text(err), c.want)
		}
	}
	s.ProcessURL = "http://concord.example/base"
	if _, _, err := s.Concord(with(concordMetadata, "server", "-")); err != nil {
		t.Errorf("with a configured server: %v", err)
	}
	s.Keys = ""
	if _, _, err := s.Concord(concordMetadata); text(err) != "`apiKeyPath`: there is no directory of keys: see --keys" {
		t.Errorf("without a directory of keys: %v", err)
	}
}

// S-42: white space around the key is ignored. So are unknown states and temporary
// failures.
func TestConcordToleratesFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, s := testServers(t)
		concord := newConcord("RUNNING", "A\x1b[31mNEW\u0000STATE", "FINISHED")
		questions := 0
		n.serve(t, publicIP+":80", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				if questions++; questions < 4 {
					w.WriteHeader(http.StatusBadGateway)
					fmt.Fprintf(w, `{"message": "no\nbackend \u001b[31m for %s"}`, r.Header.Get("Authorization"))
					return
				}
			}
			concord.ServeHTTP(w, r)
		}))
		out, err := runProcess(t, t.Context(), s, with(concordMetadata, "pollTimeout", "10m"))
		if err != nil {
			t.Error(err)
		}
		want := "GET http://concord.example/base/api/v1/process/" + instance + ": 502 Bad Gateway: no; backend  for ***\nstate RUNNING\nstate ANEW\uFFFDSTATE\nstate FINISHED\n"
		if !strings.HasSuffix(out, want) {
			t.Errorf("output\n%q, want at its end\n%q", out, want)
		}
	})
}

var must = testenv.Must
